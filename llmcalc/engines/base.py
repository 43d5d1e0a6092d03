"""What an engine allocates for an array that the model needs."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from llmcalc.arch.base import StateDtype
from llmcalc.arch.model import Architecture, Held


class Array(NamedTuple):
    """Rows held by one sequence, the shape of one row and what it is stored in."""

    rows: int
    row: tuple[int, ...]
    dtype: StateDtype


class Lengths(NamedTuple):
    """What one sequence has: retained tokens, encoder positions, image positions."""

    tokens: int
    source: int = 0
    images: int = 0


class Engine(Protocol):
    """A rule from the arrays of a model to what is really allocated.

    runs_in_cache_dtype: a plain cache format is the dtype that the whole model runs in, states included.
    """

    name: str
    runs_in_cache_dtype: bool

    def array(self, architecture: Architecture, held: Held, lengths: Lengths) -> Array:
        """What one call keeps of one array."""
        ...
