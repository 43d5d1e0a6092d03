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
    from llmcalc.calc.capacity import Capacity, Limits, capacity
    from llmcalc.calc.cost import break_even, cost
    from llmcalc.calc.describe import sentence
    from llmcalc.calc.flops import FlopCount, flops
    from llmcalc.calc.headers import HeaderBytes, header_bytes
    from llmcalc.calc.latency import Latency, latency
    from llmcalc.calc.mfu import mfu
    from llmcalc.calc.params import ParamCount, params
    from llmcalc.calc.room import Asked
    from llmcalc.calc.verify import Verification, verify
    from llmcalc.calc.weight_shards import Ranks
    from llmcalc.calc.weights import WeightBytes, weights
    from llmcalc.errors import LlmcalcError
    from llmcalc.figure import Figure
    from llmcalc.hardware.catalogue import describe
    from llmcalc.loading import Model, load

__version__ = "0.1.0"

__all__ = [
    "Architecture",
    "Asked",
    "CacheEstimate",
    "Capacity",
    "Figure",
    "FlopCount",
    "HeaderBytes",
    "Latency",
    "Limits",
    "LlmcalcError",
    "Model",
    "ParamCount",
    "Ranks",
    "Verification",
    "WeightBytes",
    "break_even",
    "capacity",
    "cost",
    "describe",
    "flops",
    "header_bytes",
    "kv_cache",
    "latency",
    "load",
    "mfu",
    "model_types",
    "params",
    "read_config",
    "sentence",
    "verify",
    "weights",
]

# The library door opens a room when it is asked for: a verb starts without the modules of the others.
_ROOMS = {
    "Architecture": "arch.model",
    "Asked": "calc.room",
    "CacheEstimate": "calc.cache",
    "Capacity": "calc.capacity",
    "Figure": "figure",
    "FlopCount": "calc.flops",
    "HeaderBytes": "calc.headers",
    "Latency": "calc.latency",
    "Limits": "calc.capacity",
    "LlmcalcError": "errors",
    "Model": "loading",
    "ParamCount": "calc.params",
    "Ranks": "calc.weight_shards",
    "Verification": "calc.verify",
    "WeightBytes": "calc.weights",
    "break_even": "calc.cost",
    "capacity": "calc.capacity",
    "cost": "calc.cost",
    "describe": "hardware.catalogue",
    "flops": "calc.flops",
    "header_bytes": "calc.headers",
    "kv_cache": "calc.cache",
    "latency": "calc.latency",
    "load": "loading",
    "mfu": "calc.mfu",
    "model_types": "arch.families",
    "params": "calc.params",
    "read_config": "arch.families",
    "sentence": "calc.describe",
    "verify": "calc.verify",
    "weights": "calc.weights",
}


def __getattr__(name: str) -> object:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"llmcalc.{_ROOMS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
