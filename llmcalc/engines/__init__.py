"""How real engines allocate the same arrays: one rule an engine, by name."""

from __future__ import annotations

from importlib import import_module

from llmcalc.engines.base import Engine
from llmcalc.errors import InvalidInputError

ENGINES: dict[str, tuple[str, str]] = {
    "vllm": ("vllm", "VllmEngine"),
    "sglang": ("sglang", "SglangEngine"),
    "tensorrt-llm": ("tensorrt_llm", "TensorRtLlmEngine"),
    "llama.cpp": ("llama_cpp", "LlamaCppEngine"),
    "transformers": ("transformers", "TransformersEngine"),
}


def find(name: str) -> Engine:
    """The engine of that name, whatever its case.

    Raises: InvalidInputError.
    """
    known = ENGINES.get(name.strip().lower().replace("_", "-"))
    if known is None:
        raise InvalidInputError(f"--engine {name}: no such engine", f"known engines: none, {', '.join(ENGINES)}")
    module, klass = known
    engine: Engine = getattr(import_module(f"llmcalc.engines.{module}"), klass)()
    return engine
