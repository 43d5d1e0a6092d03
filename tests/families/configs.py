"""Configs of class sizes, and what is counted of a wrapper."""

from __future__ import annotations

from typing import Any

from llmcalc.arch.defaults import class_defaults
from llmcalc.arch.model import Architecture

CORE = ("hidden_size", "num_hidden_layers", "num_attention_heads")


def default(model_type: str, **changes: object) -> dict[str, Any]:
    """What a file of the class's default sizes holds."""
    values = class_defaults(model_type).values
    return {"model_type": model_type, **{name: values[name] for name in CORE if name in values}, **changes}


def wrapped(model_type: str, text: dict[str, Any], **changes: object) -> dict[str, Any]:
    """A wrapper's file with the language model's block alone."""
    return {"model_type": model_type, "text_config": text, **changes}


def body(architecture: Architecture) -> int:
    """Parameters of the language model."""
    return sum(
        placed.size
        for placed in architecture.decoder.placed()
        if placed.weight.role != "buffer" and not architecture.shares(placed)
    )
