"""Exact figures of language models from their public configs.

>>> import llmcalc
>>> model = llmcalc.load("llama-3-70b")
>>> llmcalc.kv_cache(model.architecture, tokens=4096).total_bytes
1342177280
>>> llmcalc.params(model.architecture).total_params
70553706496
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmcalc.arch.families import model_types, read_config
    from llmcalc.arch.model import Architecture
    from llmcalc.calc.cache import CacheEstimate, kv_cache
    from llmcalc.calc.describe import sentence
    from llmcalc.calc.params import ParamCount, params
    from llmcalc.errors import LlmcalcError
    from llmcalc.figure import Figure
    from llmcalc.loading import Model, load

__version__ = "0.1.0"

__all__ = [
    "Architecture",
    "CacheEstimate",
    "Figure",
    "LlmcalcError",
    "Model",
    "ParamCount",
    "kv_cache",
    "load",
    "model_types",
    "params",
    "read_config",
    "sentence",
]

# The library door opens a room when it is asked for: a verb starts without the modules of the others.
_ROOMS = {
    "Architecture": "arch.model",
    "CacheEstimate": "calc.cache",
    "Figure": "figure",
    "LlmcalcError": "errors",
    "Model": "loading",
    "ParamCount": "calc.params",
    "kv_cache": "calc.cache",
    "load": "loading",
    "model_types": "arch.families",
    "params": "calc.params",
    "read_config": "arch.families",
    "sentence": "calc.describe",
}


def __getattr__(name: str) -> object:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"llmcalc.{_ROOMS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
