"""What a run needs of memory, on paper, before anything is allocated; and what would fit where it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from llmcalc.arch.model import Architecture
from llmcalc.calc.cache import kv_cache
from llmcalc.calc.weights import weights
from llmcalc.errors import InvalidInputError, MeasureError
from llmcalc.measure.machine import Machine
from llmcalc.measure.workload import Workload, cut
from llmcalc.units import show_bytes

ALLOCATOR = 64 * 2**20
LEAST_SPARE, SPARE = 2**30, 0.03
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
GRAPHS = 256 * 2**20


class Need(NamedTuple):
    """Bytes that a run takes, part by part.

    second_depth: the shorter model that a part of a model is timed beside. spare: left to everybody else on the device.
    """

    weights: int
    cache: int
    activations: int
    allocator: int
    graphs: int
    context: int
    spare: int
    second_depth: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)


def weight_bytes(work: Workload) -> int:
    """Of the decoder that runs, in its format."""
    return weights(work.architecture, work.dtype).total_bytes


def cache_bytes(work: Workload, tokens: int, batch: int) -> int:
    """Of so many sequences of so many tokens."""
    return kv_cache(work.architecture, tokens, batch, cache=work.dtype).total_bytes


def activation_bytes(work: Workload) -> int:
    """At most, of one pass: the stream and the widest inner vectors of its tokens, in fp32, and one row of logits each.

    Training keeps every layer's, and all logits with their gradient.
    """
    a, size = work.architecture, 4
    widest = max((w.weight.shape[0] for w in a.weights if w.weight.role == "matmul" and w.weight.shape), default=0)
    heads = max((getattr(m, "num_attention_heads", 0) for layer in a.decoder.layers for m in layer.mixers), default=0)
    prompt = work.prompt if "prefill" in work.phases or "train" in work.phases else 1
    rows = work.batch * prompt
    scores = work.batch * heads * max(work.tokens, prompt) * (1 if _plain(work) else prompt) * size
    one = rows * (4 * widest + 8 * a.hidden_size) * size + 2 * scores
    if "train" in work.phases:
        return one * work.depth + 3 * rows * a.vocab_size * size
    return one + 2 * work.batch * a.vocab_size * size


def _plain(work: Workload) -> bool:
    """Whether attention never writes its scores: nothing beside them, and no mask."""
    mixers = [m for layer in work.architecture.decoder.layers for m in layer.mixers]
    odd = ("softcap", "sinks", "indexer", "index_topk", "kv_lora_rank")
    scopes = {getattr(getattr(m, "scope", None), "kind", "full") for m in mixers}
    return scopes <= {"full"} and not any(getattr(m, name, None) for m in mixers for name in odd)


def need(work: Workload, machine: Machine) -> Need:
    """Of a run on a device."""
    held = weight_bytes(work)
    trained = 3 * held if "train" in work.phases else 0
    graphs = GRAPHS if machine.supports("graph") else 0
    spare = max(LEAST_SPARE, round(SPARE * machine.total_bytes()))
    steps = [(tokens + 1, batch) for tokens, batch in work.shapes()] if "decode" in work.phases else []
    cache = max(cache_bytes(work, *shape) for shape in (*steps, (work.tokens, work.batch), (work.prompt, work.batch)))
    return Need(
        held + trained, cache, activation_bytes(work), ALLOCATOR, graphs, machine.context_bytes(), spare, _second(work)
    )


def _second(work: Workload) -> int:
    if work.layers is None or "decode" not in work.phases or work.depth < 2:
        return 0
    try:
        return weight_bytes(replace(work, architecture=cut(work.architecture, work.depth // 2)))
    except InvalidInputError:  # its layers cannot be parted so, and the stage will say that
        return 0


def refuse(work: Workload, machine: Machine) -> Need:
    """What the run needs, if the device has it.

    Raises: MeasureError with every part, and the largest run that would fit, before anything is allocated.
    """
    found, free = need(work, machine), machine.free_bytes()
    if found.total <= free:
        return found
    parts = ", ".join(f"{name} {show_bytes(size)}" for name, size in found._asdict().items() if size)
    raise MeasureError(
        f"{machine.name} has {free:,} bytes free, and this run takes {found.total:,}: {parts}",
        "; ".join(_smaller(work, machine, free)) or "no single change would do",
    )


def _smaller(work: Workload, machine: Machine, free: int) -> list[str]:
    """Runs that fit, each a change of one option; of the tokens' the prompt's too, which is as long by default."""

    def fits(**change: object) -> bool:
        try:
            return need(replace(work, **change), machine).total <= free  # type: ignore[arg-type]
        except InvalidInputError:  # a cache among those layers is of one that is cut off
            return False

    told = []
    if most := _largest(work.batch, lambda n: fits(batch=n)):
        told.append(f"--batch {most}")
    if most := _largest(max(work.tokens, work.prompt), lambda n: fits(tokens=n, prompt=n)):
        told.append(f"--tokens {most}" + ("" if work.prompt == work.tokens else f" --prompt {most}"))
    if most := _largest(work.depth, lambda n: fits(layers=n, architecture=_cut(work, n))):
        told.append(f"--layers {most}")
    return [f"it would fit with {option}" for option in told]


def _cut(work: Workload, layers: int) -> Architecture:
    try:
        return cut(work.whole, layers)
    except InvalidInputError:
        return work.architecture


def _largest(below: int, fits: Callable[[int], bool]) -> int:
    """The largest number below another that fits, 0 for none."""
    low, high = 0, below
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
