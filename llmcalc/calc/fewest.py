"""The fewest devices on which a model and its sequences fit, over all ways to cut it.

A cut over more stages is tried only where an equal share of weights and cache would fit. That is a lower bound: over
the stages of a pipeline the weights add up to at least those of one stage (what is called in two of them stands on
both), and so do the exact arrays and what each engine takes for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmcalc.calc.room import pool_left
from llmcalc.calc.weight_shards import Ranks
from llmcalc.errors import LlmcalcError

if TYPE_CHECKING:
    from llmcalc.calc.capacity import Capacity

MOST_DEVICES = 1024


def fewest(room: Capacity) -> Ranks | None:
    """How to cut one replica over the fewest devices, up to 1,024: of equal numbers the largest tp, then the least ep.

    Checked: tests/capacity/test_fewest.py, against every cut.
    """
    best: Ranks | None = None
    dp, most = room.asked.ranks.dp, MOST_DEVICES
    for tp in range(MOST_DEVICES, 0, -1):
        cache = _cache(room, tp) if tp <= most else None
        if cache is None:
            continue
        for ep in room.spreading.expert_degrees(tp * dp):
            pp = _stages(room, Ranks(tp, 1, ep, dp), most // tp, cache)
            if pp is not None:
                best, most = Ranks(tp, pp, ep, dp), tp * pp - 1
    return best


def _cache(room: Capacity, tp: int) -> int | None:
    """What the sequences asked for take on each of so many ranks; None where they divide nothing."""
    try:
        room.spreading.check(tp)
        return max(room.spread(Ranks(tp)).stage_caches)
    except LlmcalcError:
        return None


def _stages(room: Capacity, ranks: Ranks, most: int, cache: int) -> int | None:
    """The fewest pipeline stages, up to ``most``, over which these degrees fit; None where there are none."""
    try:
        weights = max(room.spreading.stages(ranks))
    except LlmcalcError:
        return None
    reserved = room.reserves.activations[1] + room.reserves.runtime[1]
    for pp in range(1, min(most, room.spreading.depth) + 1):
        rule = room.spread(ranks._replace(pp=pp)).rule
        # A share of what is free is rounded down on each device: by less than a byte.
        if rule is None or pp * (pool_left(rule, weights // pp, reserved) + 1) < cache:
            continue
        if room.holds(ranks._replace(pp=pp)):
            return pp
    return None


def degrees(ranks: Ranks, before: Ranks) -> str:
    """The options that say so, and put right those that were given before."""
    if before == Ranks() and ranks == Ranks(ranks.tp):
        return f"--gpus {ranks.tp}"
    named = [f"--tp {ranks.tp}"]
    named += [
        f"--{name} {value}"
        for name, value, old in zip(("pp", "ep"), ranks[1:3], before[1:3], strict=True)
        if value != 1 or old != 1
    ]
    return " ".join([f"--gpus {ranks.tp * ranks.pp * ranks.dp}", *named])


def called(ranks: Ranks) -> str:
    """How many devices that are, in words."""
    return f"{ranks.tp * ranks.pp} devices" + (" a replica" if ranks.dp > 1 else "")
