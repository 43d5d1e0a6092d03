"""What must agree exactly before anything is timed: parameters, bytes, operations; and a cache changes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import Scope
from llmcalc.arch.latent import LatentAttention
from llmcalc.calc.flops import flops
from llmcalc.calc.params import params
from llmcalc.errors import MeasureError
from llmcalc.measure.build import prompt, storage_bytes, stored
from llmcalc.measure.machine import Machine
from llmcalc.measure.need import cache_bytes, weight_bytes
from llmcalc.measure.workload import Workload
from reference_model import Cache, Decoder

PROBE, SEQUENCES, WHOLE, FIRST, PIECE = 16, 2, 33, 20, 12
NARROW = 6  # positions of a window, where windows are narrowed to see what lies behind them
TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2, "fp16": 2e-2}
CHOOSING = 0.5  # in 16 bits, where one rounding sends a token to another expert or to other keys


def tolerance(work: Workload) -> float:
    """How far two orders of the same sums may lie apart: of 16 bits further, and more where a choice hangs on them."""
    specs = [spec for layer in work.architecture.decoder.layers for spec in (*layer.mixers, *layer.ffns)]
    choosing = any(spec.part == "experts" or getattr(spec, "indexer", None) or getattr(spec, "index_topk", 0)
                   or getattr(spec, "dynamic_window", 0) for spec in specs)  # fmt: skip
    return CHOOSING if choosing and work.dtype != "fp32" else TOLERANCE[work.dtype]


class Check(NamedTuple):
    """One comparison; ``tolerance`` None where the two must be the same number."""

    name: str
    unit: str
    expected: float
    found: float
    ok: bool
    tolerance: float | None = None


def exact(name: str, unit: str, expected: int, found: int) -> Check:
    """The two are the same number, or it has failed."""
    return Check(name, unit, expected, found, expected == found)


def checks(model: Decoder, work: Workload, machine: Machine) -> list[Check]:
    """Every one of them, on the decoder that will be timed."""
    cache = model.allocate(work.batch, work.tokens)
    held = {id(p): p for p in model.parameters()}
    out = [
        exact("parameters", "count", params(work.architecture).total_params, sum(p.numel() for p in held.values())),
        exact("weight bytes", "B", weight_bytes(work), stored(model)),
        exact("cache bytes", "B", cache_bytes(work, work.tokens, work.batch), storage_bytes(cache.tensors())),
    ]
    del cache
    return [*out, *_operations(model, work, machine), *_cached(model, work, machine)]


def _grouped(rows: Sequence[int], matrices: Sequence[int], *_: Any, **__: Any) -> int:
    """Of sorted rows [N, I] through one matrix each [E, I, O]: torch's counter has no formula for it (2.13)."""
    return 2 * rows[0] * rows[1] * matrices[-1]


def _convolution_backward(made: Sequence[int], _: Any, taps: Sequence[int], *rest: Any, **__: Any) -> int:
    """Of its input and its weights, each as much as forward: torch's formula for the latter forgets the groups."""
    forward = 2 * math.prod(made) * math.prod(taps[1:])
    return forward * sum(bool(wanted) for wanted in rest[-1][:2])


def counted(call: Callable[[], object]) -> int:
    """Operations that torch's counter sees; of attention in one piece it sees none on a processor, so it is taken
    apart."""
    known: dict[Any, Any] = {torch.ops.aten.convolution_backward: _convolution_backward}
    if (grouped := getattr(torch.ops.aten, "_grouped_mm", None)) is not None:
        known[grouped] = _grouped
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False, custom_mapping=known) as counter:
        call()
    return int(counter.get_total_flops())


@torch.inference_mode()
def _operations(model: Decoder, work: Workload, machine: Machine) -> list[Check]:
    """A prompt of a few tokens and a step after it, products with all pairs as the counter counts them."""
    tokens = prompt(work, machine, 1, PROBE + 1)
    cache = model.allocate(1, PROBE + 1)
    first = counted(lambda: model(tokens[:, :PROBE], cache))
    step = counted(lambda: model(tokens[:, PROBE:], cache))
    attending = attends(work)
    dense, causal = (
        flops(work.architecture, PROBE, convention=convention, logits="all", scan="recurrent")
        for convention in ("dense", "causal")
    )
    # A convolution's counter pads the prompt; the decoder computes the new outputs alone.
    expected = (dense if attending else causal).matmul_flops + dense.attention_flops + dense.scan_flops
    return [
        exact(f"operations of a prompt of {PROBE}", "FLOP", expected, first),
        exact("operations of the step after it", "FLOP", _step(work, step, attending=attending), step),
    ]  # fmt: skip


def attends(work: Workload) -> bool:
    """Whether nothing but attention mixes its tokens."""
    mixers = (mixer for layer in work.architecture.decoder.layers for mixer in layer.mixers)
    return all(isinstance(mixer, Attention | LatentAttention) for mixer in mixers)


def _step(work: Workload, found: int, *, attending: bool) -> int:
    """Of a decode step, as the counter sees it: what is no product (the sums of a scan) it does not count.

    Some libraries mask what a ring of keys has let go, and the dense count is theirs; where the decoder keeps the ring,
    the exact one is its own.
    """
    dense, causal = (
        flops(work.architecture, PROBE, phase="decode", convention=convention, logits="all", scan="recurrent")
        for convention in ("dense", "causal")
    )
    products = (dense if attending else causal).matmul_flops + dense.scan_flops
    ring = products + causal.attention_flops
    return ring if found == ring else products + dense.attention_flops


@contextmanager
def narrowed(model: Decoder) -> Iterator[bool]:
    """Windows and chunks of a few positions for a while, so that a short text goes past them; whether there are any."""
    changed: list[tuple[Any, Any]] = []
    for part in model.modules():
        spec: Any = getattr(part, "spec", None)
        scope = getattr(spec, "scope", None)
        if isinstance(scope, Scope) and scope.kind in ("sliding", "chunked") and scope.size > NARROW:
            changed.append((part, spec))
            part.__dict__["spec"] = replace(spec, scope=scope._replace(size=NARROW))
    try:
        yield bool(changed)
    finally:
        for part, spec in changed:
            part.__dict__["spec"] = spec


@torch.inference_mode()
def _cached(model: Decoder, work: Workload, machine: Machine) -> list[Check]:
    """The last logits of a prompt in two pieces and of steps on its cache, against those of one full pass; again with
    windows so narrow that they are left behind."""
    out = _against_full(model, work, machine, "")
    with narrowed(model) as changed:
        return [*out, *(_against_full(model, work, machine, ", windows of a few") if changed else [])]


def both_ways(model: Decoder, tokens: torch.Tensor, *ends: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits after the last token: by pieces that end there and then token by token, and by one full pass."""
    sequences, length = tokens.shape
    cache = model.allocate(sequences, length)
    whole_BV = model(tokens, horizon=length)[:, -1].double()
    step_BV = torch.empty(0)
    for start, end in pairwise((0, *ends, *range(ends[-1] + 1, length + 1))):
        step_BV = model(tokens[:, start:end], cache)[:, -1].double()
    return step_BV, whole_BV


def _against_full(model: Decoder, work: Workload, machine: Machine, how: str) -> list[Check]:
    tokens = prompt(work, machine, SEQUENCES, WHOLE)
    step, whole = both_ways(model, tokens, PIECE, FIRST)
    if not bool(torch.isfinite(step).all() and torch.isfinite(whole).all()):
        raise MeasureError("the logits are not finite: a fast wrong answer is no measurement")
    error, limit = float((step - whole).norm() / whole.norm()), tolerance(work)
    out = [Check(f"cached decode against one full pass{how}", "relative", 0.0, error, error < limit, limit)]
    if work.dtype == "fp32":
        same = int((step.argmax(-1) == whole.argmax(-1)).sum())
        out.append(exact(f"likeliest tokens that agree{how}", "count", SEQUENCES, same))
    return out


VIEWS = ("view", "reshape", "transpose", "expand", "slice", "unsqueeze", "squeeze", "select", "split", "t.default",
         "permute", "alias", "detach", "as_strided", "unbind", "unflatten")  # fmt: skip


PRODUCTS = ("linear", "mm", "addmm", "bmm", "baddbmm", "matmul", "scaled_dot", "_scaled_dot", "_grouped_mm", "conv",
            "embedding", "index_put", "sort", "topk")  # fmt: skip


class Launched(NamedTuple):
    """Operators of a pass that are more than another view of the same numbers; and those of them that a compiler leaves
    kernels of their own."""

    operators: int
    products: int


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    number = products = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).removeprefix("aten.")
        self.number += not name.startswith(VIEWS)
        self.products += name.startswith(PRODUCTS)
        return func(*args, **(kwargs or {}))


@torch.inference_mode()
def launches(model: Decoder, tokens: torch.Tensor, cache: Cache, length: int) -> Launched:
    """Those of a pass on so many cached positions."""
    cache.rewind(length)
    with _Operators() as seen:  # type: ignore[no-untyped-call]
        model(tokens, cache, last=True)
    return Launched(int(seen.number), int(seen.products))
