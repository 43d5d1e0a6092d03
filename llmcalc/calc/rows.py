"""Rows of the cached arrays that a step reads and writes.

Legend: n cached positions, w window, c chunk. Sources: the layer kinds' own.
"""

from __future__ import annotations

from llmcalc.arch.base import Spec, State
from llmcalc.arch.compressed import CompressedIndexer
from llmcalc.arch.indexed import BlockIndexer
from llmcalc.arch.latent import LatentAttention
from llmcalc.calc.sizing import RECURRENT


def read_rows(spec: Spec, state: State, n: int, source: int = 0, images: int = 0) -> int:
    """Rows of an array that one query reads where ``n`` positions are cached; borrowed arrays are read here too.

    Windows min(n, w); chunks ((n-1) mod c)+1; picked positions at most as many as are picked; index keys all.
    """
    rows = state.scope.rows(n, source, images)
    if state.kind == "buffer" or n == 0:
        return 0
    if state.scope.kind == "chunked":
        return (n - 1) % state.scope.size + 1
    limit = picked(spec, state)
    return rows if limit is None else min(rows, limit)


def picked(spec: Spec, state: State) -> int | None:
    """At most how many rows an indexer lets a query read."""
    if state.kind == "index":
        return None
    if isinstance(spec, LatentAttention):
        # Where index keys are pooled, the positions of the open pool are read beside those picked.
        return None if spec.index_topk is None else spec.index_topk + (spec.indexer.pool if spec.indexer else 0)
    indexer = getattr(spec, "indexer", None)
    if isinstance(indexer, BlockIndexer):
        return indexer.block * (indexer.topk + (1 if indexer.pooled else 0))
    if isinstance(indexer, CompressedIndexer) and state.scope.kind == "compressed":
        return indexer.index_topk
    return None


def written_rows(state: State, step_new: int, past: int, source: int) -> int:
    """Rows that ``step_new`` tokens write."""
    scope = state.scope
    match scope.kind:
        case "sliding" | "chunked":
            return min(step_new, scope.size)
        case "compressed":
            return scope.rows(past + step_new) - scope.rows(past)
        case "open" | "overlap":
            return 0
        case "source":
            return 0 if past else source
        case "fixed" | "image":
            return 1 if state.kind in RECURRENT else 0
        case _:
            return step_new


def shared(state: State) -> bool:
    """Whether sequences that begin alike can keep the array once: its entries stay as they are."""
    return state.scope.grows and state.kind != "buffer"
