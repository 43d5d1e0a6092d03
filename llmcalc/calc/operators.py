"""Products of a step, with what each moves and computes; and the stored tensors that they follow from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from llmcalc.calc.weights import Share
from llmcalc.schemes.sites import Site

Part = Literal["weights", "embedding", "cache", "state"]
Spread = tuple[int, ...]  # one number a pipeline stage


class Operator(NamedTuple):
    """What one product of a step moves and computes, over all its calls, on the busiest rank of each pipeline stage.

    least: bytes that are read, of experts those of one token; likely: with the experts that tokens find at random.
    Of ``least`` and ``written`` a bound leaves out ``spare``, what no step needs (:mod:`llmcalc.calc.rows`); ``again``
    was read before in this step (blocks called twice, arrays that layers borrow), ``renewed`` is written where it was
    read: a cache can keep it from both. flops: of all ranks together.
    """

    name: str
    branch: str
    part: Part
    least: Spread
    likely: Spread
    written: Spread
    flops: Spread
    calls: Spread
    again: Spread = ()
    spare: Spread = ()
    renewed: Spread = ()


class Stored(NamedTuple):
    """A site's tensors in one layout: bytes of one call on a rank, and of one expert where it has experts."""

    site: Site
    share: Share
    calls: Spread
    blocks: Spread
    size: int
    one: int
    whole_row: int


def busiest_stage(operators: Sequence[Operator]) -> int:
    """The stage that reads most."""
    stages = len(operators[0].least) if operators else 1
    return max(range(stages), key=lambda stage: sum(op.least[stage] for op in operators))


def read_by_part(operators: Sequence[Operator]) -> tuple[int, int, int, int, int, int]:
    """Reads of the busiest stage of weights, embedding rows, cache and state; its writes; reads with random experts."""
    busiest = busiest_stage(operators)
    by = dict.fromkeys(("weights", "embedding", "cache", "state"), 0)
    for op in operators:
        by[op.part] += op.least[busiest]
    written = sum(op.written[busiest] for op in operators)
    return (
        by["weights"], by["embedding"], by["cache"], by["state"], written, sum(op.likely[busiest] for op in operators)
    )  # fmt: skip
