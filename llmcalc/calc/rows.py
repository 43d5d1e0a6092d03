"""Rows of the cached arrays that a step reads and writes: as they are reported, and those that no step can do without.

The new token stands at position n, behind n cached ones. What is *reported* follows the arrays that are held: a window
reads min(n, w) rows, a chunk ((n-1) mod c) + 1, picks as many as are picked. What is *needed* from memory is less by
what the new token brings itself, or makes no use of; the bound counts only that:

- a window holds the token's own position, so that min(n, w-1) rows come from memory; a chunk begins anew at n = 0
  mod c, so that n mod c do; of picked entries one may be the token's own, or the one that it completes;
- index keys, and the weights that query them, are needed only where there are more entries than are picked;
- rows of a prefix that sequences have in common come once, also for windows and where queries may pick alike;
- what the next step will not read again need not be written; a convolution's columns move on in place, a ring.

Legend: n cached positions, w window, c chunk. Sources: the layer kinds' own.
"""

from __future__ import annotations

from typing import NamedTuple

from llmcalc.arch.base import Spec, State, Step
from llmcalc.arch.compressed import CompressedAttention
from llmcalc.arch.indexed import BlockIndexer
from llmcalc.arch.latent import LatentAttention
from llmcalc.calc.passes import Pass, Share
from llmcalc.calc.sizing import RECURRENT

QUERIES = ("wq_b", "q_proj", "q_b_proj", "weights_proj")


class Moves(NamedTuple):
    """Bytes of an array that a pass reads and writes, and those of each that no pass can do without."""

    read: int
    written: int
    needed: int
    kept: int


def moves(spec: Spec, state: State, run: Pass, entry: int, prefix: int = 0, lag: int = 0) -> Moves:
    """What one call moves of an array of ``entry`` bytes a row, over all sequences.

    Args: prefix: first positions that all sequences have in common. lag: first new tokens that need no output here.
    """
    read = written = needed = kept = alike = 0
    for share in run.shares:
        step, beside = share.step, share.beside(state.scope)
        rows = read_rows(spec, state, step.past, beside, share.images)
        common = _common(spec, state, step.past, prefix)
        read += share.number * rows - (share.number - 1) * common
        must = min(rows, needed_rows(spec, state, share, lag))
        same = _alike(state, must, step.past, prefix)
        needed, alike = needed + share.number * (must - same), max(alike, same)
        if not state.borrowed:
            written += share.number * written_rows(state, step.new, step.past, beside) * entry
            kept += share.number * kept_bytes(state, step, beside, entry)
    return Moves(read * entry, written, min(read, needed + alike) * entry, min(written, kept))


def read_rows(spec: Spec, state: State, n: int, source: int = 0, images: int = 0) -> int:
    """Rows of an array that one query is said to read where ``n`` positions are cached; borrowed arrays are read too.

    Windows min(n, w); chunks ((n-1) mod c)+1; picked positions at most as many as are picked; index keys all.
    """
    rows = state.scope.rows(n, source, images)
    if state.kind == "buffer" or n == 0:
        return 0
    if state.scope.kind == "chunked":
        return (n - 1) % state.scope.size + 1
    limit = picked(spec, state)
    return rows if limit is None else min(rows, limit)


def needed_rows(spec: Spec, state: State, share: Share, lag: int = 0) -> int:
    """Rows that a step must fetch from memory, at the least; ``lag`` as in :func:`moves`."""
    step, scope = share.step, state.scope
    if state.kind == "buffer" or step.past == 0 or lag >= step.new:
        return 0
    if scope.kind == "sliding":
        rows = min(step.past, max(0, scope.size - 1 - lag))
    elif scope.kind == "chunked":
        first = step.past + lag
        rows = max(0, step.past - first // scope.size * scope.size)
    else:
        rows = scope.rows(step.past, share.beside(scope), share.images)
    if state.kind == "index":
        return 0 if all_picked(spec, step.past + step.new) else rows
    return min(rows, _certain(spec, state, rows))


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
    if isinstance(spec, CompressedAttention) and spec.indexer is not None and state.scope.kind == "compressed":
        return spec.indexer.index_topk
    return None


def _certain(spec: Spec, state: State, rows: int) -> int:
    """Rows that are picked whatever the scores: one entry may be the token's own, or the block that it opens."""
    if picked(spec, state) is None:
        return rows
    if isinstance(spec, LatentAttention):
        return (spec.index_topk or 1) - 1
    indexer = getattr(spec, "indexer", None)
    if isinstance(indexer, BlockIndexer):
        return indexer.block * indexer.topk - 1 if indexer.pooled else indexer.block * (indexer.topk - 1)
    return indexer.index_topk - 1 if indexer is not None else rows


def all_picked(spec: Spec, positions: int) -> bool:
    """Whether there are no more entries than an indexer picks, so that it need not score them."""
    indexer = getattr(spec, "indexer", None)
    if isinstance(spec, LatentAttention) and spec.indexer is not None:
        pool = spec.indexer.pool or 1
        return positions // pool <= (spec.index_topk or 0) // pool
    if isinstance(indexer, BlockIndexer):
        blocks = positions // indexer.block if indexer.pooled else -(-positions // indexer.block)
        return blocks <= indexer.topk
    if isinstance(spec, CompressedAttention) and spec.indexer is not None:
        return positions // spec.indexer.compressor.rate <= spec.indexer.index_topk
    return False


def unscored(spec: Spec, name: str, run: Pass) -> bool:
    """Whether a weight is one that queries an indexer's keys, and there is nothing to choose."""
    queries = "indexer." in name and name.removesuffix(".weight").endswith(QUERIES)
    return queries and all(all_picked(spec, share.step.past + share.step.new) for share in run.shares)


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


def kept_bytes(state: State, step: Step, source: int, entry: int) -> int:
    """Bytes of one sequence that a step must write because the next one reads them."""
    scope = state.scope
    if scope.kind == "sliding":
        return min(step.new, scope.size - 1) * entry
    if scope.kind == "chunked":
        return min(step.new, (step.past + step.new) % scope.size) * entry
    if state.kind == "conv" and len(state.row) > 1 and state.row[-1] > 0:
        columns = state.row[-1]
        return entry // columns * min(step.new, columns)
    return written_rows(state, step.new, step.past, source) * entry


def shared(state: State) -> bool:
    """Whether sequences that begin alike can keep the array once: its entries stay as they are."""
    return state.scope.grows and state.kind != "buffer"


def _common(spec: Spec, state: State, past: int, prefix: int) -> int:
    """Rows that one read is said to serve all sequences with: those of a prefix, where no query picks its own."""
    if not prefix or not shared(state) or picked(spec, state) is not None:
        return 0
    return read_rows(spec, state, min(prefix, past))


def _alike(state: State, must: int, past: int, prefix: int) -> int:
    """Of the rows that are needed, those that can be the same for all sequences; the last ones are a sequence's own."""
    if not prefix:
        return 0
    if past <= prefix:
        return must
    if state.scope.kind in ("sliding", "chunked"):
        return max(0, must - (past - prefix))
    return min(must, state.scope.rows(prefix)) if shared(state) else 0
