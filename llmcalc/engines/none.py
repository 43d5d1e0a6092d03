"""No engine: the arrays that the model needs, exactly."""

from __future__ import annotations

from llmcalc.arch.model import Architecture, Held
from llmcalc.engines.base import Array, Lengths


class ExactArrays:
    """Nothing is paged, padded or replicated."""

    name = "none"
    runs_in_cache_dtype = False

    def array(self, architecture: Architecture, held: Held, lengths: Lengths) -> Array:
        """What one call keeps of one array."""
        del architecture
        state = held.state
        rows = 0 if state.borrowed else state.scope.rows(lengths.tokens, lengths.source, lengths.images)
        return Array(rows, state.row, state.dtype)
