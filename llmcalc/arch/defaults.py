"""What the class of a ``model_type`` implies where a config is silent.

The values are facts read off the configuration classes of transformers 5.24.0 (one line a class in
``data/class_defaults.jsonl``), and, for remote-code classes, off their own ``configuration_*.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_FILE = Path(__file__).parents[1] / "data" / "class_defaults.jsonl"


class ClassDefaults(NamedTuple):
    """A configuration class: its name, its fields' defaults, and its own spelling of the usual names."""

    name: str = ""
    values: Mapping[str, object] = {}
    spellings: Mapping[str, str] = {}


@lru_cache(maxsize=1)
def _lines() -> str:
    return _FILE.read_text("utf-8")


@lru_cache(maxsize=64)
def class_defaults(model_type: str) -> ClassDefaults:
    """The class behind ``model_type``; an empty one where it is not known."""
    if not model_type:
        return ClassDefaults()
    text, key = _lines(), f'{{"model_type":{json.dumps(model_type)},'
    start = text.find(key)
    if start < 0:
        return ClassDefaults()
    row = json.loads(text[start : text.index("\n", start)])
    return ClassDefaults(row["class"], row["values"], row["spellings"])


def known_classes() -> list[str]:
    """Every model_type with a line of defaults."""
    return [json.loads(line)["model_type"] for line in _lines().splitlines()]
