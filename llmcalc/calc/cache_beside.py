"""What the cache would be otherwise, and what of it one device holds: each a sum of terms that explains itself."""

from __future__ import annotations

from typing import NamedTuple

from llmcalc.arch.base import FULL
from llmcalc.arch.model import Architecture, Layer
from llmcalc.calc.sharding import rank_row, stages
from llmcalc.calc.sizing import RECURRENT, Sequences, Sizer
from llmcalc.figure import Factor, Figure, product, total

WINDOWED = ("sliding", "chunked")


class Term(NamedTuple):
    """So many of something, of so many bytes each."""

    name: str
    number: int
    unit: str
    each: int


class Sum(NamedTuple):
    """A sum of terms; the figure is made when somebody asks for it."""

    name: str
    terms: tuple[Term, ...]
    note: str

    @property
    def value(self) -> int:
        """Bytes of all terms."""
        return sum(term.number * term.each for term in self.terms)

    @property
    def figure(self) -> Figure:
        """The same sum with its derivation."""
        parts = tuple(
            product(t.name.replace("_", " "), "B", (Factor(t.unit, t.number), Factor("bytes", t.each, "b")))
            for t in self.terms
        )
        return total(self.name, "B", parts, notes=(self.note,))


def _full_price(layer: Layer, sizer: Sizer, sizes: Sequences) -> int | None:
    """What the layer's own keys and values take at full length; None for a layer that keeps none of its own kind."""
    states = [state for spec in layer.mixers for state in spec.state() if state.kind not in RECURRENT]
    if not states or any(state.scope.kind in ("compressed", "open", "overlap") for state in states):
        return None
    lifted = [s._replace(borrowed=False, scope=FULL if s.scope.kind in WINDOWED else s.scope) for s in states]
    return sum(sizer.entry(state) * sizes.rows(state) for state in lifted)


def every_layer_full(architecture: Architecture, sizer: Sizer, sizes: Sequences) -> Sum | None:
    """What it would be if every layer were full attention; None for a model without an attention layer.

    Windows are lifted; a layer that mixes by recurrence or compression is priced as the model's own full-attention
    layer. Layers without a mixer stay without.
    """
    groups = [
        (layer, len(depths), _full_price(layer, sizer, sizes)) for layer, depths in architecture.decoder.call_groups
    ]
    full = [price for layer, _, price in groups if price is not None and "full_attention" in layer.kind]
    priced = full or [price for _, _, price in groups if price is not None]
    if not priced:
        return None
    terms = tuple(
        Term(layer.kind, count, "layers", price if price is not None else priced[0] if layer.mixers else 0)
        for layer, count, price in groups
    )
    note = "each layer's own keys and values at full length; a layer without any, as the model's own full attention"
    return Sum("were every layer full attention", terms, note)


def expanded(architecture: Architecture, sizer: Sizer, sizes: Sequences) -> Sum | None:
    """Keys and values per head in place of the latents; None where nothing is latent."""
    found, terms = False, []
    for held in architecture.states:
        state, heads = held.state, held.spec.expanded()
        if heads is not None and state.kind == "latent":
            found = True
            if state.name == "latents":
                keys, values = (fmt.array_bytes(row) for fmt, row in zip(sizer.cache, heads, strict=True))
                rows = held.calls * sizes.rows(state)
                terms.append(Term("keys and values of every head", rows, "rows", keys + values))
        elif state.kind not in RECURRENT:
            terms.append(Term(state.name, held.calls * sizes.rows(state), "rows", sizer.entry(state)))
    note = "a row is one position of one layer"
    return Sum("were the latents expanded to heads", tuple(terms), note) if found else None


def fullest_rank(architecture: Architecture, sizer: Sizer, sizes: Sequences, tp: int, pp: int) -> Sum:
    """Bytes on the rank that holds most."""
    arrays = [
        (held, sizes.rows(held.state) * sizer.entry(held.state, rank_row(held.state, tp)))
        for held in architecture.states
    ]
    best: tuple[Term, ...] = ()
    most = -1
    for stage in stages(architecture.decoder.depth, pp):
        terms = tuple(
            Term(f"{held.kind}: {held.state.name}", sum(depth in stage for depth in held.depths), "layers", size)
            for held, size in arrays
        )
        size = sum(term.number * term.each for term in terms)
        if size > most:
            best, most = tuple(term for term in terms if term.number), size
    return Sum("the fullest device", best, f"one of {tp} tensor-parallel ranks in the largest of {pp} pipeline stages")
