"""Sequences and the bytes of what they keep: shared by the cache, its derivation and its engines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from llmcalc.arch.base import State, StateDtype
from llmcalc.arch.model import Architecture
from llmcalc.calc.inputs import whole
from llmcalc.engines.base import Lengths
from llmcalc.errors import InvalidInputError
from llmcalc.formats import CacheFormat, Format, find

RECURRENT = ("recurrent", "conv")


class Sequences(NamedTuple):
    """How many sequences there are of each length, in order of first use."""

    groups: tuple[tuple[Lengths, int], ...]

    @property
    def number(self) -> int:
        """How many sequences."""
        return sum(number for _, number in self.groups)

    @property
    def tokens(self) -> int:
        """Retained tokens of all of them."""
        return sum(number * size.tokens for size, number in self.groups)

    def rows(self, state: State) -> int:
        """Rows of an array that one call keeps for all of them."""
        return sum(number * rows_of(state, size) for size, number in self.groups)


def sequences(
    tokens: int,
    batch: int,
    lengths: Sequence[int] | None,
    encoder_tokens: int | None,
    image_tokens: int,
    *,
    least: int = 1,
) -> Sequences:
    """``batch`` sequences of ``tokens``, or one of each of ``lengths``.

    Args: least: the shortest that is one; what a person asks for has a token.
    Raises: InvalidInputError for no sequence, a length below ``least``, or what is no whole number.
    """
    number = whole("batch", batch, 1)
    if lengths is None:
        counts = {whole("tokens", tokens, least): number}
    else:
        counts = dict[int, int]()
        for length in _listed(lengths, least):
            counts[length] = counts.get(length, 0) + 1
    if not counts:
        raise InvalidInputError("lengths is empty, expected at least one sequence")
    images = whole("image_tokens", image_tokens, 0)
    beside = None if encoder_tokens is None else whole("encoder_tokens", encoder_tokens, 0)
    return Sequences(tuple((Lengths(n, n if beside is None else beside, images), k) for n, k in counts.items()))


def _listed(lengths: Sequence[int], least: int) -> list[int]:
    if isinstance(lengths, (str, bytes)) or not isinstance(lengths, Iterable):
        raise InvalidInputError(f"lengths is {lengths!r:.60}, expected a list of whole numbers")
    return [whole("lengths", length, least) for length in lengths]


def rows_of(state: State, size: Lengths) -> int:
    """Rows of an array that one call keeps for one sequence; borrowed arrays are held elsewhere."""
    return 0 if state.borrowed else state.scope.rows(size.tokens, size.source, size.images)


class Sizer:
    """Bytes of rows in a cache format and the model's dtype."""

    def __init__(self, architecture: Architecture, cache: CacheFormat) -> None:
        self.cache = cache
        self.model = find(architecture.dtype)
        self.wide = find("fp32")

    def format(self, state: State, dtype: StateDtype | None = None) -> Format:
        """The format of an array; ``dtype`` where it is not the state's own."""
        dtype = dtype or state.dtype
        if dtype == "cache":
            return self.cache.value if state.is_value else self.cache.key
        return self.model if dtype == "model" else self.wide

    def entry(self, state: State, row: tuple[int, ...] | None = None, dtype: StateDtype | None = None) -> int:
        """Bytes of one row; ``row`` and ``dtype`` where they are not the state's own."""
        return self.format(state, dtype).array_bytes(row or state.row)
