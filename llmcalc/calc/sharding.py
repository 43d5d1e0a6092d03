"""How tensor and pipeline parallelism cut what a model keeps: the same rules for a calculator and an engine."""

from __future__ import annotations

from llmcalc.arch.attention import Attention
from llmcalc.arch.model import Architecture
from llmcalc.engines.ranks import check_heads, rank_row, stages

__all__ = ["check_cut", "check_heads", "rank_row", "stages"]


def check_cut(architecture: Architecture, tp: int) -> None:
    """Raises: InvalidInputError where so many ranks cannot share out the heads of the layers that keep something.

    What grouped attention keeps is shared out, or repeated, by its heads of keys and values alone: :func:`rank_row`.
    """
    for layer, _ in architecture.decoder.groups:
        for spec in layer.mixers:
            if not isinstance(spec, Attention):
                check_heads(spec, tp)
