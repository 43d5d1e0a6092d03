"""Bytes a conversation keeps: keys, values, latents, index keys, recurrent and convolution state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from llmcalc import engines
from llmcalc.arch.base import State
from llmcalc.arch.model import Architecture
from llmcalc.calc.cache_beside import Sum, every_layer_full, expanded, fullest_rank
from llmcalc.calc.cache_terms import cache_figure
from llmcalc.calc.inputs import Described, architecture_of, text, whole
from llmcalc.calc.sharding import check_cut
from llmcalc.calc.sizing import Sequences, Sizer, rows_of, sequences
from llmcalc.engines.base import Allocation, Lengths, Plan
from llmcalc.errors import InvalidInputError
from llmcalc.figure import Figure
from llmcalc.formats import find_cache, is_auto


class KindBytes(NamedTuple):
    """What all layers of one kind keep, over all sequences; ``bytes_per_token``: what one sequence adds a token."""

    kind: str
    layers: int
    bytes: int
    bytes_per_token: int | float
    arrays: tuple[str, ...]


class CacheEstimate(NamedTuple):
    """The cache of a number of sequences; every field in bytes unless it says otherwise.

    ``total_bytes == kv_bytes + recurrent_bytes``; ``figure`` is the same total with its derivation, ``beside`` those of
    what it would be otherwise and of one device. bytes_per_token: growth of one sequence in the layers that grow
    without limit; next_token_bytes: what its next token adds, exactly, with what cross-attention reads as it is.
    """

    total_bytes: int
    kv_bytes: int
    recurrent_bytes: int
    bytes_per_sequence: int | list[int]
    bytes_per_token: int | float | None
    cache_format: str
    tokens: int | list[int]
    batch: int
    total_tokens: int
    layers: tuple[KindBytes, ...]
    every_layer_full_bytes: int | None
    mla_expanded_bytes: int | None
    per_device_bytes: int | None
    allocated_bytes: int | None
    figure: Figure
    allocation: Allocation | None = None
    next_token_bytes: int | None = None
    beside: tuple[Sum, ...] = ()

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Every figure with its derivation: the exact arrays, what an engine takes of them, what is beside."""
        taken = (self.allocation.figure,) if self.allocation else ()
        return (self.figure, *taken, *(item.figure for item in self.beside))


def kv_cache(
    architecture: Architecture | Described,
    tokens: int = 4096,
    batch: int = 1,
    *,
    lengths: Sequence[int] | None = None,
    encoder_tokens: int | None = None,
    image_tokens: int = 0,
    cache: str = "auto",
    engine: str = "none",
    tp: int = 1,
    pp: int = 1,
    block_size: int | None = None,
    batched_tokens: int | None = None,
    prefix_caching: bool = True,
) -> CacheEstimate:
    """Bytes of cache and state after ``tokens`` positions in each of ``batch`` sequences, or after ``lengths``.

    Exact arrays; paging and allocator slack are not counted (``engine`` tells what that library allocates instead).
    Args: architecture: or a loaded model. tokens: prompt and generated together, per sequence. encoder_tokens: what
    cross-attention reads, by default as many as tokens. cache: a format of :mod:`llmcalc.formats`, ``K:V`` for two,
    ``auto`` (also on one side) for the config's own.
    block_size, batched_tokens: of the engine, by default its own; prefix_caching: vLLM's (it keeps a second state).
    Raises: InvalidInputError, UnsupportedFormatError. Source: arXiv:1911.02150, 2405.04434.
    Checked: tests/truth/test_corpus.py, tests/golden, tests/engines
    """
    model = architecture_of(architecture)
    sizes = sequences(tokens, batch, lengths, encoder_tokens, image_tokens)
    chosen = find_cache(text("cache", cache), model.cache_format or model.dtype)
    ranks = whole("tp", tp, 1), whole("pp", pp, 1)
    check_cut(model, ranks[0])
    plan = Plan(model, sizes.groups, chosen, not is_auto(cache), *ranks, block_size, batched_tokens, prefix_caching)
    given = sizes.groups[0][0].tokens if lengths is None else list(lengths)
    return _estimate(plan, sizes, given, _taken(text("engine", engine), plan))


def _estimate(plan: Plan, sizes: Sequences, tokens: int | list[int], taken: Allocation | None) -> CacheEstimate:
    """All figures of the exact arrays, with what an engine takes beside them."""
    architecture, split = plan.architecture, plan.tp > 1 or plan.pp > 1
    sizer = Sizer(architecture, plan.cache)
    figure, recurrent = cache_figure(architecture, sizer, sizes)
    each = {size.tokens: _sequence_bytes(architecture, sizer, size) for size, _ in sizes.groups}
    full, heads = every_layer_full(architecture, sizer, sizes), expanded(architecture, sizer, sizes)
    rank = fullest_rank(architecture, sizer, sizes, plan.tp, plan.pp) if split else None
    return CacheEstimate(
        total_bytes=figure.value,
        kv_bytes=figure.value - recurrent,
        recurrent_bytes=recurrent,
        bytes_per_sequence=each[tokens] if isinstance(tokens, int) else [each[length] for length in tokens],
        bytes_per_token=_growth(architecture, sizer) if isinstance(tokens, int) else None,
        cache_format=plan.cache.name,
        tokens=tokens,
        batch=sizes.number,
        total_tokens=sizes.tokens,
        layers=_by_kind(architecture, sizer, sizes),
        every_layer_full_bytes=full.value if full else None,
        mla_expanded_bytes=heads.value if heads else None,
        per_device_bytes=rank.value if rank else None,
        allocated_bytes=taken.allocated_bytes if taken else None,
        figure=figure,
        allocation=taken,
        next_token_bytes=_next(architecture, sizer, sizes.groups[0][0]) if isinstance(tokens, int) else None,
        beside=tuple(item for item in (full if full and full.value != figure.value else None, heads, rank) if item),
    )


def _next(architecture: Architecture, sizer: Sizer, size: Lengths) -> int:
    """What one more token adds to a sequence; windows drop a position for it, compressed entries come in lumps."""
    longer = size._replace(tokens=size.tokens + 1)
    added = 0
    for held in architecture.states:
        rows = rows_of(held.state, longer) - rows_of(held.state, size)
        if rows:
            added += held.calls * rows * sizer.entry(held.state)
    return added


def _taken(engine: str, plan: Plan) -> Allocation | None:
    """What the engine allocates; None for the exact arrays, which have no blocks."""
    if engine.strip().lower() != "none":
        return engines.find(engine).allocate(plan)
    if plan.block_size is not None or plan.batched_tokens is not None:
        raise InvalidInputError("the exact arrays have no blocks and no batch", "name an engine with --engine")
    return None


def _sequence_bytes(architecture: Architecture, sizer: Sizer, size: Lengths) -> int:
    return sum(held.calls * rows_of(held.state, size) * sizer.entry(held.state) for held in architecture.states)


def _growth(architecture: Architecture, sizer: Sizer) -> int | float:
    """Bytes one more token adds to one sequence, in the layers that grow without limit."""
    grown: dict[int, int] = {}
    for held in architecture.states:
        _add_growth(grown, held.state, held.calls * sizer.entry(held.state))
    return _rated(grown)


def _add_growth(grown: dict[int, int], state: State, size: int) -> None:
    """Add to the bytes that come once in so many tokens."""
    if state.scope.grows and not state.borrowed:
        rate = state.scope.size if state.scope.kind == "compressed" else 1
        grown[rate] = grown.get(rate, 0) + size


def _rated(grown: dict[int, int]) -> int | float:
    """The sum over rates, whole where every part is."""
    if all(size % rate == 0 for rate, size in grown.items()):
        return sum(size // rate for rate, size in grown.items())
    return sum(size / rate for rate, size in grown.items())


def _by_kind(architecture: Architecture, sizer: Sizer, sizes: Sequences) -> tuple[KindBytes, ...]:
    """The layers by kind, in order of first use; kinds that keep nothing are told too."""
    calls: dict[str, int] = {}
    size: dict[str, int] = {}
    grown: dict[str, dict[int, int]] = {}
    names: dict[str, dict[str, None]] = {}
    for layer, depths in architecture.decoder.call_groups:
        kind = layer.kind
        calls[kind] = calls.get(kind, 0) + len(depths)
        for spec in layer.mixers + layer.ffns:
            for state in spec.state():
                entry = len(depths) * sizer.entry(state)
                size[kind] = size.get(kind, 0) + entry * sizes.rows(state)
                _add_growth(grown.setdefault(kind, {}), state, entry)
                if not state.borrowed:
                    names.setdefault(kind, {})[state.name] = None
    return tuple(
        KindBytes(kind, count, size.get(kind, 0), _rated(grown.get(kind, {})), tuple(names.get(kind, ())))
        for kind, count in calls.items()
    )
