"""What a config says its keys and values are stored in; the weights' own quantization says nothing about them."""

from __future__ import annotations

from collections.abc import Mapping

from llmcalc.arch.fields import Notes

# ModelOpt's names (hf_quant_config.json and quantization_config.kv_cache_quant_algo).
ALGORITHMS = {"FP8": "fp8", "NVFP4": "nvfp4", "INT8": "int8"}


def cache_scheme(stored: Mapping[str, object] | None, notes: Notes) -> str | None:
    """The cache format of ``kv_cache_scheme`` (compressed-tensors) or ``kv_cache_quant_algo`` (ModelOpt), if any.

    stored: the config's quantization block. A scheme that is not known is a warning, and the model's dtype holds.
    """
    algorithm, scheme = (stored or {}).get("kv_cache_quant_algo"), (stored or {}).get("kv_cache_scheme")
    if isinstance(algorithm, str):
        found = ALGORITHMS.get(algorithm.upper())
    elif isinstance(scheme, Mapping):
        kind, bits = scheme.get("type"), scheme.get("num_bits")
        found = {("float", 8): "fp8", ("int", 8): "int8"}.get((str(kind), bits if isinstance(bits, int) else 0))
    else:
        return None
    if found is None:
        notes.warn(f"the config's cache scheme {algorithm or scheme!r:.60} is not known; the model's dtype is taken")
    return found
