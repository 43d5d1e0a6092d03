"""Pools of slots: so many rows, each of the bytes of all layers of the pool. What SGLang and TensorRT-LLM have."""

from __future__ import annotations

from typing import NamedTuple

from llmcalc.engines.base import Allocation, Plan, StageBytes
from llmcalc.engines.ranks import stages
from llmcalc.figure import Factor, Figure, product, total


class Pool(NamedTuple):
    """slots: rows taken by the sequences. layers: (kind, bytes of a slot in one layer on one rank, depths).

    rule: how many slots, as a formula. spare: slots held back beside them. paged: it is made of pages of tokens.
    """

    name: str
    slots: int
    layers: tuple[tuple[str, int, tuple[int, ...]], ...]
    rule: str
    spare: int = 0
    paged: bool = True

    def bytes(self, stage: range) -> int:
        """Of one slot, in the layers of a pipeline stage."""
        return sum(size * sum(depth in stage for depth in depths) for _, size, depths in self.layers)


def allocation(
    plan: Plan,
    pools: list[Pool],
    *,
    engine: str,
    source: str,
    page: int,
    held_back: int,
    log_line: str,
    cache_format: str,
) -> Allocation:
    """The slots of all pools, on every device and on the fullest one.

    Args: page: tokens of a page. held_back: slots of a paged pool that no sequence gets.
    """
    spans = stages(plan.architecture.decoder.depth, plan.pp)
    sizes = [sum(pool.slots * pool.bytes(stage) for pool in pools) for stage in spans]
    fullest = spans[max(range(len(spans)), key=lambda i: sizes[i])]
    kept = [sum((held_back if pool.paged else pool.spare) * pool.bytes(stage) for pool in pools) for stage in spans]
    reserve = kept[spans.index(fullest)]
    tokens = next((pool for pool in pools if pool.paged), None)
    held = sum(number * size.tokens for size, number in plan.groups)
    logged = sum((pool.slots + held_back) * pool.bytes(fullest) for pool in pools if pool.paged)
    return Allocation(
        allocated_bytes=plan.tp * sum(sizes),
        per_device_bytes=max(sizes),
        figure=_figure(pools, fullest, engine, source, page, reserve),
        blocks=sum(pool.slots // page for pool in pools if pool.paged),
        block_tokens=page if tokens else None,
        block_bytes=page * tokens.bytes(fullest) if tokens else None,
        slots=tokens.slots if tokens else None,
        unused=tokens.slots - held if tokens else None,
        reserve_bytes=reserve,
        log_line_bytes=logged if tokens else None,
        log_line=log_line,
        cache_format=cache_format,
        stages=tuple(
            StageBytes(size, back, page * tokens.bytes(stage) if tokens else None)
            for size, back, stage in zip(sizes, kept, spans, strict=True)
        ),
    )


def _figure(pools: list[Pool], stage: range, engine: str, source: str, page: int, reserve: int) -> Figure:
    """Slots x layers x bytes, kind by kind."""
    parts = tuple(
        product(
            f"{pool.name}: {kind}", "B",
            (
                Factor(f"slots in pages of {page}" if pool.paged else "states", pool.slots, pool.rule),
                Factor("layers", sum(depth in stage for depth in depths), "L"),
                Factor("bytes a slot and layer", size, "b"),
            ),
        )
        for pool in pools
        for kind, size, depths in pool.layers
    )  # fmt: skip
    notes = (f"not counted: {reserve:,} B of slots that the pools hold back",) if reserve else ()
    return total(f"{engine}'s pools", "B", parts, source, notes)
