"""What devices that share a model say to each other in one step: bytes that leave a device, one way.

Legend: t tensor-parallel ranks, M bytes of the step's activations, k experts a token.
Sources: ring all-reduce 2 (t-1)/t M a rank (Patarasuk and Yuan 2009); whatever the algorithm, the partial sums that a
rank does not finish itself, (t-1)/t M, have to leave it.
"""

from __future__ import annotations

from typing import NamedTuple

from llmcalc.arch.model import Architecture, Layer, Parallel, Sublayer
from llmcalc.calc.needed import lags
from llmcalc.calc.passes import Pass
from llmcalc.calc.sharding import stages
from llmcalc.calc.weight_shards import Ranks
from llmcalc.formats import find


class Traffic(NamedTuple):
    """Bytes out of a device in a step, over all pipeline stages: what must leave it, and what usually does."""

    least: float
    likely: float
    reductions: int


def traffic(architecture: Architecture, ranks: Ranks, run: Pass) -> Traffic:
    """All-reduces of tensor parallelism, hand-overs of a pipeline, and experts on other replicas."""
    tp, pp = ranks.tp, ranks.pp
    width = find(architecture.dtype).array_bytes((architecture.hidden_size,))
    payload = run.tokens * width
    count = sum(len(depths) * reductions(layer) for layer, depths in architecture.decoder.call_groups)
    summed = count if tp > 1 else 0
    late = lags(architecture, run) if tp * pp > 1 else {}
    # Of a prompt, no device has to hear of outputs that nothing reads.
    idle = sum(reductions(layer) * late.get(depth, 0) for layer, depths in architecture.decoder.call_groups
               for depth in depths) if tp > 1 else 0  # fmt: skip
    handed = sum(late.get(span[-1], 0) for span in stages(architecture.decoder.depth, pp)[:-1]) if late else 0
    unheard = width * sum(share.number for share in run.shares)
    least = (summed * payload - idle * unheard) * (tp - 1) / tp + ((pp - 1) * payload - handed * unheard) / tp
    likely = 2 * (summed + (tp > 1)) * payload * (tp - 1) / tp + (pp - 1) * payload
    if tp > 1:
        rows = sum(share.number for share in run.shares)
        likely += rows * find(architecture.dtype).array_bytes((architecture.vocab_size,)) * (tp - 1) / tp
    return Traffic(least, likely + _experts(architecture, ranks, payload), summed)


def reductions(layer: Layer) -> int:
    """Sums over ranks in a layer: one a sublayer that ends in a matrix cut by inputs, one for branches beside it."""
    found = sum(_reduces(sublayer) for sublayer in layer.sublayers)
    return min(found, 1) if layer.parallel else found


def _reduces(sublayer: Sublayer) -> bool:
    if isinstance(sublayer.spec, Parallel):
        return any(_reduces(branch) for branch in sublayer.spec.branches)
    return any(weight.split in ("row", "expert") for weight in sublayer.spec.weights())


def _experts(architecture: Architecture, ranks: Ranks, payload: int) -> float:
    """Tokens sent to experts on other replicas and back: those replicas that k random experts live on."""
    if ranks.ep <= ranks.tp or ranks.dp == 1:
        return 0.0
    groups, out = ranks.dp, 0.0
    for layer, depths in architecture.decoder.call_groups:
        active = max((w.active for spec in layer.ffns for w in spec.weights() if w.split == "expert"), default=0)
        if active:
            away = (groups - 1) * (1 - (1 - 1 / groups) ** active)
            out += len(depths) * 2 * away * payload / ranks.tp
    return out
