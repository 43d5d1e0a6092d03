"""Bytes a conversation keeps: keys, values, latents, index keys, recurrent and convolution state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import NamedTuple

from llmcalc import engines
from llmcalc.arch.base import ONCE, Scope, State, StateDtype
from llmcalc.arch.model import Architecture, Held, Layer
from llmcalc.engines.base import Array, Engine, Lengths
from llmcalc.errors import InvalidInputError
from llmcalc.figure import Factor, Figure, product, total
from llmcalc.formats import CacheFormat, Format, find, find_cache

RECURRENT = ("recurrent", "conv")
NOT_COUNTED = "paging, allocator slack and fragmentation; activations; the cache of multi-token-prediction heads"
FORMULA = "arXiv:1911.02150 (shared key/value heads); kept positions x heads x width x bytes, layer by layer"


class KindBytes(NamedTuple):
    """What all layers of one kind keep, over all sequences."""

    kind: str
    count: int
    bytes: int
    bytes_per_token: int
    arrays: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CacheEstimate:
    """The cache of a number of sequences; every field in bytes unless it says otherwise.

    ``total_bytes == kv_bytes + recurrent_bytes``; ``figure`` is the same total with its derivation.
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


class Sizer:
    """Bytes of rows in the cache format and the model's dtype."""

    def __init__(self, architecture: Architecture, cache: CacheFormat) -> None:
        self.cache = cache
        self.model = find(architecture.dtype)
        self.wide = find("fp32")

    def format(self, kind: str, dtype: StateDtype) -> Format:
        """The format of an array of that kind and dtype."""
        if dtype == "cache":
            return self.cache.value if kind == "value" else self.cache.key
        return self.model if dtype == "model" else self.wide

    def entry(self, state: State, row: tuple[int, ...] | None = None, dtype: StateDtype | None = None) -> int:
        """Bytes of one row."""
        return self.format(state.kind, dtype or state.dtype).array_bytes(row or state.row)


def kv_cache(
    architecture: Architecture,
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
) -> CacheEstimate:
    """Bytes of cache and state after ``tokens`` positions in each of ``batch`` sequences, or after ``lengths``.

    Exact arrays; paging and allocator slack are not counted (``engine`` adds what that library allocates instead).
    Args: tokens: prompt and generated together, per sequence. encoder_tokens: what cross-attention reads, by default
    as many as tokens. cache: a format of :mod:`llmcalc.formats`, ``K:V`` for two, ``auto`` for the config's own.
    Raises: InvalidInputError, UnsupportedFormatError. Source: arXiv:1911.02150, 2405.04434. Checked: tests/test_cache.py
    """
    sizes = _sequences(tokens, batch, lengths, encoder_tokens, image_tokens)
    chosen = find_cache((architecture.cache_format or architecture.dtype) if cache == "auto" else cache)
    sizer = Sizer(architecture, chosen)
    figure = _figure(architecture, sizer, sizes)
    recurrent = sum(part.value for part, held in zip(figure.parts, _merged(architecture, chosen), strict=True)
                    if held[0].state.kind in RECURRENT)  # fmt: skip
    per_sequence = [_sequence_bytes(architecture, sizer, size) for size in dict.fromkeys(sizes)]
    by_size = dict(zip(dict.fromkeys(sizes), per_sequence, strict=True))
    rule = engines.find(engine)
    return CacheEstimate(
        total_bytes=figure.value,
        kv_bytes=figure.value - recurrent,
        recurrent_bytes=recurrent,
        bytes_per_sequence=by_size[sizes[0]] if lengths is None else [by_size[size] for size in sizes],
        bytes_per_token=_growth(architecture, sizer) if lengths is None else None,
        cache_format=chosen.name,
        tokens=tokens if lengths is None else list(lengths),
        batch=len(sizes),
        total_tokens=sum(size.tokens for size in sizes),
        layers=_by_kind(architecture, sizer, sizes),
        every_layer_full_bytes=_every_layer_full(architecture, sizer, sizes),
        mla_expanded_bytes=_expanded(architecture, sizer, sizes),
        per_device_bytes=_largest_rank(architecture, sizer, sizes, tp, pp) if tp > 1 or pp > 1 else None,
        allocated_bytes=None if engine == "none" else _allocated(architecture, Sizer(architecture, chosen), sizes, rule),
        figure=figure,
    )


def _sequences(
    tokens: int, batch: int, lengths: Sequence[int] | None, encoder_tokens: int | None, image_tokens: int
) -> list[Lengths]:
    counts = [tokens] * batch if lengths is None else list(lengths)
    if not counts or min(counts) < 0 or (lengths is None and batch < 1):
        raise InvalidInputError("there must be at least one sequence, and no negative length")
    return [Lengths(n, n if encoder_tokens is None else encoder_tokens, image_tokens) for n in counts]


def _rows(state: State, size: Lengths) -> int:
    return 0 if state.borrowed else state.scope.rows(size.tokens, size.source, size.images)


def _sequence_bytes(architecture: Architecture, sizer: Sizer, size: Lengths) -> int:
    return sum(held.calls * _rows(held.state, size) * sizer.entry(held.state) for held in architecture.states)


def _merged(architecture: Architecture, cache: CacheFormat) -> list[tuple[Held, int]]:
    """The arrays, keys and values of one shape and format told together: (array, how many alike)."""
    out: list[tuple[Held, int]] = []
    for held in architecture.states:
        if held.state.borrowed:
            continue
        last = out[-1] if out else None
        if (
            last is not None
            and last[1] == 1
            and held.spec is last[0].spec
            and held.state.row == last[0].state.row
            and held.state.name.endswith("values")
            and last[0].state.name.endswith("keys")
            and (cache.key == cache.value or held.state.kind != "value")
        ):
            out[-1] = (last[0], 2)
        else:
            out.append((held, 1))
    return out


def _figure(architecture: Architecture, sizer: Sizer, sizes: list[Lengths]) -> Figure:
    parts = tuple(_part(sizer, held, alike, sizes) for held, alike in _merged(architecture, sizer.cache))
    return total("cache", "B", parts, FORMULA, (f"not counted: {NOT_COUNTED}",))


HEADS = ("key", "value", "cross")
SCOPES = {
    "full": ("tokens", "N"),
    "sliding": ("positions, at most a window of {:,}", "min(N, w)"),
    "chunked": ("positions, at most a chunk of {:,}", "min(N, c)"),
    "compressed": ("entries, one for {:,} positions", "N/r"),
    "open": ("positions of the open window of {:,}", "N mod r"),
    "overlap": ("positions of the window before", "r"),
    "source": ("encoder positions", "S"),
    "image": ("image positions", "I"),
    "fixed": ("fixed positions", "S"),
}


def _part(sizer: Sizer, held: Held, alike: int, sizes: list[Lengths]) -> Figure:
    """One array over all layers and sequences: 2 x layers x heads x positions x width x bytes."""
    state = held.state
    fmt = sizer.format(state.kind, state.dtype)
    factors = [Factor("keys and values", alike, "2")] if alike > 1 else []
    factors.append(Factor("layers" if held.calls != 1 else "layer", held.calls, "L"))
    if len(state.row) > 1:
        name, symbol = ("K/V heads", "H") if state.kind in HEADS else ("rows", "H")
        factors.append(Factor(name, prod(state.row[:-1]), symbol))
    factors += _row_count(state, sizes)
    factors += _width(state, fmt)
    name = state.name if alike == 1 else state.name.replace("keys", "keys and values")
    return product(f"{held.kind}: {name}".replace("_", " "), "B", tuple(factors))


def _row_count(state: State, sizes: list[Lengths]) -> list[Factor]:
    """Sequences and the positions that each of them keeps, or the sum where they differ."""
    rows = [_rows(state, size) for size in sizes]
    if min(rows) != max(rows):
        return [Factor(f"positions of {len(rows)} sequences", sum(rows), "sum of N")]
    sequences = [Factor("sequences", len(rows), "B")] if len(rows) > 1 else []
    if state.scope == ONCE:
        return sequences
    name, symbol = SCOPES[state.scope.kind]
    return [*sequences, Factor(name.format(state.scope.size), rows[0], symbol)]


def _width(state: State, fmt: Format) -> list[Factor]:
    """Values of a row and their bytes, block formats by blocks, row scales told as bytes of a row."""
    width = state.row[-1]
    if fmt.row_bytes:
        name = f"bytes ({width} values of {fmt.block_bytes} B and a scale of {fmt.row_bytes} B)"
        return [Factor(name, fmt.array_bytes((width,)), "b")]
    if fmt.block > 1:
        blocks = Factor(f"blocks of {fmt.block} values", fmt.array_bytes((width,)) // fmt.block_bytes, "d/k")
        return [blocks, Factor("bytes a block", fmt.block_bytes, "b")]
    return [Factor("values" if state.kind in RECURRENT else "wide", width, "d"), Factor("bytes", fmt.block_bytes, "b")]


def _growth(architecture: Architecture, sizer: Sizer) -> int | float:
    """Bytes one more token adds to one sequence, in the layers that grow without limit."""
    grown: dict[int, int] = {}
    for held in architecture.states:
        scope = held.state.scope
        if scope.grows and not held.state.borrowed:
            rate = scope.size if scope.kind == "compressed" else 1
            grown[rate] = grown.get(rate, 0) + held.calls * sizer.entry(held.state)
    if all(size % rate == 0 for rate, size in grown.items()):
        return sum(size // rate for rate, size in grown.items())
    return sum(size / rate for rate, size in grown.items())


def _by_kind(architecture: Architecture, sizer: Sizer, sizes: list[Lengths]) -> tuple[KindBytes, ...]:
    """The layers by kind, in order of first use; kinds that keep nothing are told too."""
    calls: dict[str, int] = {}
    found: dict[str, tuple[int, float, dict[str, None]]] = {}
    for layer, depths in architecture.decoder.call_groups:
        calls[layer.kind] = calls.get(layer.kind, 0) + len(depths)
        for spec in layer.mixers + layer.ffns:
            for state in spec.state():
                size, growth, names = found.get(layer.kind, (0, 0.0, {}))
                entry = len(depths) * sizer.entry(state)
                size += entry * sum(_rows(state, length) for length in sizes)
                if state.scope.grows and not state.borrowed:
                    growth += entry / (state.scope.size if state.scope.kind == "compressed" else 1)
                found[layer.kind] = (size, growth, {**names, state.name: None})
    rows = []
    for kind, count in calls.items():
        size, growth, names = found.get(kind, (0, 0, {}))
        rows.append(KindBytes(kind, count, size, int(growth), tuple(names)))
    return tuple(rows)


def _lifted(state: State) -> State:
    return state._replace(scope=Scope("full"), borrowed=False) if state.scope.kind in ("sliding", "chunked") else state


def _every_layer_full(architecture: Architecture, sizer: Sizer, sizes: list[Lengths]) -> int | None:
    """What it would be if every layer were full attention: windows lifted, and each layer without keys and values
    priced as the model's own attention layer; None where it has none."""
    model: int | None = None
    priced: list[tuple[Layer, int, int | None]] = []
    for layer, depths in architecture.decoder.call_groups:
        states = [_lifted(state) for spec in layer.mixers for state in spec.state() if state.kind not in RECURRENT]
        grows = any(state.scope.kind == "full" for state in states)
        size = None
        if grows and not any(state.scope.kind == "compressed" for state in states):
            size = sum(sizer.entry(s) * sum(_rows(s._replace(borrowed=False), n) for n in sizes) for s in states)
            is_full = not any(s.scope.kind in ("sliding", "chunked") for m in layer.mixers for s in m.state())
            if model is None or (is_full and not any(full for _, _, full in priced if full == model)):
                model = size
        elif any(state.kind == "cross" for state in states):
            size = sum(sizer.entry(s) * sum(_rows(s, n) for n in sizes) for s in states)
        elif not layer.mixers:
            size = 0
        priced.append((layer, len(depths), size))
    if model is None:
        return None
    return sum(count * (model if size is None else size) for _, count, size in priced)


def _expanded(architecture: Architecture, sizer: Sizer, sizes: list[Lengths]) -> int | None:
    """Keys and values per head in place of the latents; None where there is no latent attention."""
    found, size = False, 0
    for held in architecture.states:
        state = held.state
        rows = sum(_rows(state, n) for n in sizes)
        expanded = held.spec.expanded()
        if expanded is not None and state.kind == "latent":
            found = True
            if state.name == "latents":
                keys, values = expanded
                size += held.calls * rows * sizer.cache.key.array_bytes(keys)
                size += held.calls * rows * sizer.cache.value.array_bytes(values)
        elif state.kind not in RECURRENT:
            size += held.calls * rows * sizer.entry(state)
    return size if found else None


def rank_row(state: State, tp: int) -> tuple[int, ...]:
    """The shape of a row on one of ``tp`` ranks: its first axis cut, or one entry a rank where ranks are more.

    Raises: InvalidInputError where neither divides the other.
    """
    heads = state.row[0]
    if state.replicated or tp == 1:
        return state.row
    if heads % tp == 0:
        return (heads // tp, *state.row[1:])
    if tp % heads == 0:
        return (1, *state.row[1:])
    raise InvalidInputError(
        f"--tp {tp} neither divides the {heads} heads of {state.name.replace('_', ' ')} nor is a multiple of them",
        f"choose a divisor of {heads}, or a multiple of it (then they are replicated)",
    )


def stages(depth: int, pp: int) -> list[range]:
    """The layers of each pipeline stage; the first ``depth`` mod ``pp`` stages hold one more."""
    if not 1 <= pp <= max(depth, 1):
        raise InvalidInputError(f"--pp {pp}: there are {depth} layers to spread over the stages")
    base, more = divmod(depth, pp)
    bounds = [0]
    for stage in range(pp):
        bounds.append(bounds[-1] + base + (stage < more))
    return [range(low, high) for low, high in pairwise(bounds)]


def _largest_rank(architecture: Architecture, sizer: Sizer, sizes: list[Lengths], tp: int, pp: int) -> int:
    """Bytes on the rank that holds most."""
    if tp < 1:
        raise InvalidInputError(f"--tp {tp}: expected at least 1")
    rows = [sum(_rows(held.state, n) for n in sizes) for held in architecture.states]
    entries = [sizer.entry(held.state, rank_row(held.state, tp)) for held in architecture.states]
    return max(
        sum(
            sum(depth in stage for depth in held.depths) * row * entry
            for held, row, entry in zip(architecture.states, rows, entries, strict=True)
        )
        for stage in stages(architecture.decoder.depth, pp)
    )


def _allocated(architecture: Architecture, sizer: Sizer, sizes: list[Lengths], engine: Engine) -> int:
    """What the engine allocates, all sequences."""
    if engine.runs_in_cache_dtype and sizer.cache.key.plain:
        sizer.model = sizer.cache.key
    out = 0
    for held in architecture.states:
        if held.state.borrowed:
            continue
        for size in sizes:
            array: Array = engine.array(architecture, held, size)
            out += held.calls * array.rows * sizer.entry(held.state, array.row, array.dtype)
    return out
