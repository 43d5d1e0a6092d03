"""From a config's ``quantization_config`` to a scheme: one short reader a method.

A method, a bit width or a packing that is not known exactly is refused by name; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from llmcalc.arch.model import Architecture
from llmcalc.errors import UnsupportedFormatError
from llmcalc.schemes import methods, modelopt
from llmcalc.schemes.compressed import read_compressed
from llmcalc.schemes.entries import Entries
from llmcalc.schemes.scheme import Scheme, model_layout

Reader = Callable[[Entries, Architecture], Scheme]

READERS: Final[dict[str, Reader]] = {
    "fp8": methods.read_fp8,
    "gptq": methods.read_gptq,
    "awq": methods.read_awq,
    "auto-round": methods.read_auto_round,
    "bitsandbytes": methods.read_bitsandbytes,
    "mxfp4": methods.read_mxfp4,
    "fbgemm_fp8": methods.read_fbgemm,
    "eetq": methods.read_eetq,
    "hqq": methods.read_hqq,
    "torchao": methods.read_torchao,
    "bitnet": methods.read_bitnet,
    "compressed-tensors": read_compressed,
    "modelopt": modelopt.read_modelopt,
    "modelopt_fp4": modelopt.read_modelopt,
    "modelopt_mixed": modelopt.read_modelopt,
    "quark": modelopt.read_quark,
}


def configured(architecture: Architecture) -> Scheme:
    """The scheme that the config states; the model's own format where it states none.

    Raises: UnsupportedFormatError naming the method that is not known.
    """
    raw = architecture.quantization
    if not raw:
        plain = model_layout(architecture.dtype)
        return Scheme(plain.name, plain, source="the config's dtype")
    entries = Entries(unwrap(raw), "quantization_config")
    method = method_of(entries)
    reader = READERS.get(method)
    if reader is None:
        raise UnsupportedFormatError(
            f"quantization_config.quant_method {method!r} is not known",
            f"known methods: {', '.join(sorted(READERS))}; --weights FORMAT gives the bytes of a format of your choice",
        )
    scheme = reader(entries, architecture)
    return replace(scheme, towers=False) if architecture.quantized_block else scheme


def unwrap(raw: Mapping[str, object]) -> Mapping[str, object]:
    """ModelOpt's ``hf_quant_config.json`` keeps its fields in ``quantization``."""
    inner = raw.get("quantization")
    if isinstance(inner, Mapping) and "quant_method" not in raw:
        return {"quant_method": "modelopt", **inner}
    return raw


def method_of(entries: Entries) -> str:
    """The method: as written, or what the keys of files older than ``quant_method`` imply."""
    method = entries.text("quant_method").lower()
    if method:
        return method
    if entries.flag("load_in_4bit") or entries.flag("load_in_8bit"):
        return "bitsandbytes"
    if entries.has("config_groups"):
        return "compressed-tensors"
    return "modelopt" if entries.has("quant_algo") else "(missing)"
