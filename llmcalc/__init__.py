"""Exact figures of language models from their public configs.

>>> import llmcalc
>>> model = llmcalc.load("llama-3-70b")
>>> llmcalc.kv_cache(model.architecture, tokens=4096).total_bytes
1342177280
>>> llmcalc.params(model.architecture).total_params
70553706496
"""

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
