"""The cache's derivation: each array as a product of layers, heads, positions, width and bytes."""

from __future__ import annotations

from math import prod

from llmcalc.arch.base import ONCE, State
from llmcalc.arch.model import Architecture, Held
from llmcalc.calc.sizing import RECURRENT, Sequences, Sizer, rows_of
from llmcalc.figure import Factor, Figure, product, total
from llmcalc.formats import CacheFormat, Format

NOT_COUNTED = "paging, allocator slack and fragmentation; activations; the cache of multi-token-prediction heads"
HEADS = ("key", "value", "cross")
SCOPES = {
    "full": ("tokens", "N"),
    "bidirectional": ("tokens", "N"),
    "sliding": ("positions, at most a window of {:,}", "min(N, w)"),
    "chunked": ("positions, at most a chunk of {:,}", "min(N, c)"),
    "compressed": ("entries, one for {:,} positions", "N/r"),
    "open": ("positions of the open window of {:,}", "N mod r"),
    "overlap": ("positions of the window before", "r"),
    "source": ("encoder positions", "S"),
    "image": ("image positions", "I"),
    "fixed": ("fixed positions", "S"),
}


def cache_figure(architecture: Architecture, sizer: Sizer, sizes: Sequences) -> tuple[Figure, int]:
    """The total with one part an array, and how many of its bytes are recurrent state."""
    arrays = merged(architecture, sizer.cache)
    parts = tuple(_part(sizer, held, alike, sizes) for held, alike in arrays)
    recurrent = sum(part.value for part, (held, _) in zip(parts, arrays, strict=True) if held.state.kind in RECURRENT)
    return total("cache", "B", parts, "", (f"not counted: {NOT_COUNTED}",)), recurrent


def merged(architecture: Architecture, cache: CacheFormat) -> list[tuple[Held, int]]:
    """The arrays that are held, keys and values of one shape and format told together: (array, how many alike)."""
    out: list[tuple[Held, int]] = []
    for held in architecture.states:
        if held.state.borrowed:
            continue
        if out and _pair(out[-1], held) and (cache.key == cache.value or not held.state.is_value):
            out[-1] = (out[-1][0], 2)
        else:
            out.append((held, 1))
    return out


def _pair(last: tuple[Held, int], held: Held) -> bool:
    """Whether ``held`` is the values to the keys before it."""
    known, alike = last
    return (
        alike == 1
        and held.spec is known.spec
        and held.state.row == known.state.row
        and held.state.name.endswith("values")
        and known.state.name.endswith("keys")
    )


def _part(sizer: Sizer, held: Held, alike: int, sizes: Sequences) -> Figure:
    """One array over all layers and sequences: 2 x layers x heads x positions x width x bytes."""
    state = held.state
    factors = [Factor("keys and values", alike, "2")] if alike > 1 else []
    factors.append(Factor("layers" if held.calls != 1 else "layer", held.calls, "L"))
    if len(state.row) > 1:
        factors.append(Factor("K/V heads" if state.kind in HEADS else "rows", prod(state.row[:-1]), "H"))
    factors += _row_count(state, sizes)
    factors += _width(state, sizer.format(state))
    name = state.name if alike == 1 else state.name.replace("keys", "keys and values")
    return product(f"{held.kind}: {name}".replace("_", " "), "B", tuple(factors), held.spec.source)


def _row_count(state: State, sizes: Sequences) -> list[Factor]:
    """Sequences and the positions that each of them keeps, or the sum where they differ."""
    rows = {rows_of(state, size) for size, _ in sizes.groups}
    if len(rows) > 1:
        return [Factor(f"positions of {sizes.number:,} sequences", sizes.rows(state), "sum of N")]
    each = [Factor("sequences", sizes.number, "B")] if sizes.number > 1 else []
    if state.scope == ONCE:
        return each
    name, symbol = SCOPES[state.scope.kind]
    return [*each, Factor(name.format(state.scope.size), rows.pop(), symbol)]


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
