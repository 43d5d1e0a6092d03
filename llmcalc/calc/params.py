"""Parameters: how many, and where."""

from __future__ import annotations

from llmcalc.arch.model import Architecture


def total(architecture: Architecture) -> int:
    """Every parameter of the model class, ties once; stored buffers and MTP heads apart."""
    return sum(p.size for p in architecture.weights if p.weight.role != "buffer" and not architecture.shares(p))
