"""How tensor and pipeline parallelism cut what a model keeps: the same rules for a calculator and an engine."""

from __future__ import annotations

from llmcalc.engines.ranks import rank_row, stages

__all__ = ["rank_row", "stages"]
