"""What a config says its keys and values are stored in; the weights' own quantization says nothing about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llmcalc.arch.fields import Notes

# ModelOpt's names (hf_quant_config.json and quantization_config.kv_cache_quant_algo).
ALGORITHMS = {"FP8": "fp8", "NVFP4": "nvfp4", "INT8": "int8"}


def cache_scheme(data: Mapping[str, object], notes: Notes) -> str | None:
    """The cache format of ``kv_cache_scheme`` (compressed-tensors) or ``kv_cache_quant_algo`` (ModelOpt), if any.

    A scheme that is not known is a warning, and the model's dtype holds.
    """
    for block in _quantization_blocks(data):
        algorithm = block.get("kv_cache_quant_algo")
        scheme = block.get("kv_cache_scheme")
        if isinstance(algorithm, str):
            found = ALGORITHMS.get(algorithm.upper())
        elif isinstance(scheme, Mapping):
            kind, bits = scheme.get("type"), scheme.get("num_bits")
            found = {("float", 8): "fp8", ("int", 8): "int8"}.get((str(kind), bits if isinstance(bits, int) else 0))
        else:
            continue
        if found is None:
            notes.warn(f"the config's cache scheme {algorithm or scheme!r:.80} is not known; the model's dtype is taken")
        return found
    return None


def _quantization_blocks(data: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """``quantization_config`` of the file and of the blocks inside it."""
    for block in (data, *(value for value in data.values() if isinstance(value, Mapping))):
        for key in ("quantization_config", "compression_config", "quantization"):
            found = block.get(key)
            if isinstance(found, Mapping):
                yield found
