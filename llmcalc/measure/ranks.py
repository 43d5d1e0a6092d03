"""Several processes that share one model out: exactness of every rank, and the time of a decode step of all together.

Started by torchrun: ``torchrun --nproc-per-node N -m llmcalc measure MODEL --tp N``.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple

import torch

from llmcalc.arch.model import Architecture
from llmcalc.calc.cache import kv_cache
from llmcalc.calc.weight_shards import Ranks
from llmcalc.calc.weights import weights
from llmcalc.errors import InvalidInputError, MeasureError
from llmcalc.measure.build import DTYPES, making, prompt, storage_bytes, stored
from llmcalc.measure.choose import choose
from llmcalc.measure.exactness import Check, both_ways, exact, tolerance
from llmcalc.measure.machine import Machine
from llmcalc.measure.run import Asked, workload
from llmcalc.measure.samples import Samples
from llmcalc.measure.timing import repeated
from llmcalc.measure.workload import Workload
from reference_model import Decoder, parallel

PROMPT, STEPS = 12, 4
SMALL = 2**31  # above so many bytes of weights, the whole model is not built beside its parts
SPARE_BYTES = 2**30
WARMUP, STEPS_TIMED = 3, 20


class RankedRun(NamedTuple):
    """What this rank found; the document is rank 0's, over all ranks."""

    rank: int
    tp: int
    work: Workload
    machine: Machine
    checks: tuple[Check, ...]
    samples: Samples
    warnings: tuple[str, ...]

    @property
    def missed(self) -> bool:
        """Whether anything that must be equal is not."""
        return not all(check.ok for check in self.checks)


def run_ranks(architecture: Architecture, asked: Asked, tp: int, stack: ExitStack) -> RankedRun:
    """Measure on the processes of torchrun, one a device.

    Raises: MeasureError where they were not started so, or are another number; UnsupportedLayerError for layers that
    cannot be shared out.
    """
    asked = asked._replace(device=asked.device.lower())
    if asked.device not in ("auto", "cpu", "cuda"):
        raise InvalidInputError(f"--device {asked.device} beside --tp: every rank takes the GPU of its own number",
                                "--device auto, cpu or cuda")  # fmt: skip
    kind = asked.device if asked.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    fallen = ["measured on processors: torch shows no GPU"] if (asked.device, kind) == ("auto", "cpu") else []
    # Before the processes speak to each other: what they then hold on the card would look like somebody else's.
    own = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if kind == "cuda" else "cpu"
    machine, told = choose(own, stack, force=asked.force)
    group = stack.enter_context(parallel.processes(tp, "cuda" if kind == "cuda" else "cpu"))
    work, more = workload(architecture, asked, machine)
    if machine.kind == "cpu":
        torch.set_num_threads(max(1, torch.get_num_threads() // tp))
    told = [*fallen, *told]
    _refuse(work, machine, tp)
    model = _shard(work, machine, group)
    checks = [*_bytes(model, work, group), *_logits(model, work, machine, group)]
    return RankedRun(
        group.rank, tp, work, machine, tuple(checks), _step(model, work, machine), (*machine.warnings, *told, *more)
    )


def _refuse(work: Workload, machine: Machine, tp: int) -> None:
    """Raises: MeasureError where a rank's share is more than its device has free, before anything is allocated."""
    share = weights(work.architecture, work.dtype, ranks=Ranks(tp=tp)).per_device_bytes
    kept = kv_cache(work.architecture, work.tokens + 1, work.batch, cache=work.dtype, tp=tp).per_device_bytes or 0
    together = tp if machine.kind == "cpu" else 1  # processes of one machine share its memory
    needed, free = together * (share + kept) + SPARE_BYTES, machine.free_bytes()
    if needed > free:
        raise MeasureError(
            f"{machine.name} has {free:,} bytes free, and {together} of {tp} ranks take {needed:,}: weights {share:,}, "
            f"cache {kept:,} each, {SPARE_BYTES:,} left to others", "more ranks, --layers, fewer --tokens or --batch",
        )  # fmt: skip


def _shard(work: Workload, machine: Machine, group: parallel.Group) -> parallel.Shard:
    with making(work, machine, group.rank):
        model = parallel.build(work.architecture, group).eval().requires_grad_(False)
    return parallel.agree(model)


def _largest(value: int, group: parallel.Group, device: str) -> int:
    """Over all ranks."""
    parts = group.gather(torch.tensor([[float(value)]], dtype=torch.float64, device=device), group.size)
    return int(parts.max())


def _bytes(model: parallel.Shard, work: Workload, group: parallel.Group) -> list[Check]:
    cache = model.allocate(work.batch, work.tokens)
    device = str(next(model.parameters()).device)
    held, kept = (_largest(size, group, device) for size in (stored(model), storage_bytes(cache.tensors())))
    a, ranks = work.architecture, Ranks(tp=group.size)
    expected = weights(a, work.dtype, ranks=ranks).per_device_bytes
    estimate = kv_cache(a, work.tokens, work.batch, cache=work.dtype, tp=group.size).per_device_bytes
    return [
        exact("weight bytes of the fullest rank", "B", expected, held),
        exact("cache bytes of the fullest rank", "B", estimate or 0, kept),
    ]


@torch.inference_mode()
def _logits(model: parallel.Shard, work: Workload, machine: Machine, group: parallel.Group) -> list[Check]:
    """A prompt and steps on all ranks, against the whole model on one; and cached steps against one full pass."""
    tokens = prompt(work, machine, 2, PROMPT + STEPS)
    step, full = both_ways(model, tokens, PROMPT)
    limit, error = tolerance(work), float((step - full).norm() / full.norm())
    out = [Check("cached decode against one full pass", "relative", 0.0, error, error < limit, limit)]
    if weights(work.architecture, work.dtype).total_bytes <= SMALL:
        torch.manual_seed(work.seed)
        whole = Decoder(replace(work.architecture)).eval().requires_grad_(False)
        whole = whole.to(machine.torch_device, DTYPES[work.dtype])
        same = parallel.take(model, whole)
        found, expected = same(tokens).double(), whole(tokens).double()
        error = float((found - expected).norm() / expected.norm())
        out.append(Check(f"logits of {group.size} ranks against one", "relative", 0.0, error, error < limit, limit))
    return out


@torch.inference_mode()
def _step(model: parallel.Shard, work: Workload, machine: Machine) -> Samples:
    cache = model.allocate(work.batch, work.tokens + 1)
    token = prompt(work, machine, work.batch, 1)

    def step() -> None:
        with torch.inference_mode():
            cache.rewind(work.tokens)
            token.copy_(model(token, cache).argmax(-1))

    # Every rank runs as many steps: counts that each chose by its own clock would leave the others waiting.
    for _ in range(WARMUP):
        step()
    return repeated(machine, step, STEPS_TIMED, warmup=WARMUP)
