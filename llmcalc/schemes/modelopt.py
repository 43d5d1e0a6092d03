"""NVIDIA's ModelOpt and AMD's Quark: an algorithm for all matrices or for each module, wildcards for what is left out.

Source: ModelOpt ``torch/export`` (weight, weight_scale, weight_scale_2, input_scale); Quark's ``export`` of
``global_quant_config`` and ``layer_quant_config``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from llmcalc.arch.model import Architecture
from llmcalc.errors import UnsupportedFormatError
from llmcalc.schemes.entries import Entries
from llmcalc.schemes.layouts import Layout, Scaled
from llmcalc.schemes.named import NVFP4
from llmcalc.schemes.rules import Names
from llmcalc.schemes.scheme import Rule, Scheme, model_layout

_INPUT: Final = (("input_scale", 4),)
ALGORITHMS: Final[dict[str, Layout]] = {
    "FP8": Scaled("fp8", 8, "tensor", 4, once=_INPUT, source="ModelOpt"),
    "FP8_PB_WO": Scaled("fp8-block", 8, "block", 4, (128, 128), source="ModelOpt"),
    "FP8_PER_CHANNEL_PER_TOKEN": Scaled("fp8-channel", 8, "channel", 4, source="ModelOpt"),
    "NVFP4": Scaled("nvfp4", 4, "group", 1, (1, 16), once=NVFP4, source="ModelOpt"),
    "W4A16_NVFP4": Scaled("nvfp4", 4, "group", 1, (1, 16), once=(("weight_scale_2", 4),), source="ModelOpt"),
    "MXFP4": Scaled("mxfp4", 4, "group", 1, (1, 32), source="ModelOpt"),
    "MXFP8": Scaled("mxfp8", 8, "group", 1, (1, 32), source="ModelOpt"),
}
IGNORE: Final = ("exclude_modules", "ignore")


def algorithm(name: str) -> Layout:
    """The layout of one of ModelOpt's algorithms.

    Raises: UnsupportedFormatError.
    """
    layout = ALGORITHMS.get(name.upper())
    if layout is None:
        raise UnsupportedFormatError(
            f"modelopt: quant_algo {name!r} is not known exactly", f"known: {', '.join(ALGORITHMS)}"
        )
    return layout


def read_modelopt(entries: Entries, architecture: Architecture) -> Scheme:
    """ModelOpt: one algorithm with exclusions, or MIXED_PRECISION with an algorithm a module."""
    name = entries.text("quant_algo") or _implied(entries)
    notes = ["routers, tables and norms are not quantized"]
    cached = entries.text("kv_cache_quant_algo") or ("FP8" if entries.has("kv_cache_scheme") else "")
    if cached:
        notes.append(
            f"the cache's own scales ({cached}: k_scale and v_scale, 8 B a layer where a file has them) are not counted"
        )
    rules = [Rule(Names(entries.names(*IGNORE), "wildcard"), None)]
    plain = model_layout(architecture.dtype)
    if name.upper() != "MIXED_PRECISION":
        layout = algorithm(name)
        return Scheme(layout.name, plain, layout, tuple(rules), head=True, towers=True, source="ModelOpt",
                      notes=tuple(notes))  # fmt: skip
    by_name: dict[str, list[str]] = {}
    for module, inner in entries.children("quantized_layers"):
        by_name.setdefault(inner.text("quant_algo"), []).append(module)
    if not by_name:
        raise UnsupportedFormatError("modelopt: MIXED_PRECISION without quantized_layers says nothing of any module")
    rules += [Rule(Names(modules, "wildcard"), algorithm(kind)) for kind, modules in by_name.items()]
    label = " + ".join(dict.fromkeys(rule.layout.name for rule in rules if rule.layout))
    return Scheme(label, plain, None, tuple(rules), source="ModelOpt", notes=tuple(notes))


def _implied(entries: Entries) -> str:
    """The algorithm of files that give only groups of arguments."""
    for _, group in entries.children("config_groups"):
        weights = group.child("weights")
        if weights is not None:
            return "NVFP4" if weights.integer("num_bits", 8) == 4 else "FP8"
    return "(missing)"


def read_quark(entries: Entries, architecture: Architecture) -> Scheme:
    """Quark: a global config, exceptions by name, an exclude list."""
    overall = entries.child("global_quant_config")
    default = _quark(overall) if overall is not None else None
    rules = [Rule(Names(entries.names("exclude"), "wildcard"), None)]
    for pattern, inner in entries.children("layer_quant_config"):
        rules.append(Rule(Names((pattern,), "wildcard"), _quark(inner)))
    name = default.name if default is not None else "quark"
    return Scheme(name, model_layout(architecture.dtype), default, tuple(rules), head=True, towers=True, source="Quark",
                  notes=("routers, tables and norms are not quantized",))  # fmt: skip


def _quark(entries: Entries) -> Layout | None:
    weight = entries.child("weight")
    if weight is None:
        return None
    kind, scheme = weight.text("dtype"), weight.text("qscheme")
    inputs = entries.child("input_tensors")
    static = inputs is not None and not inputs.flag("is_dynamic", default=True)
    once = _INPUT if static else ()
    if kind == "fp8_e4m3" and scheme in ("per_tensor", "per_channel"):
        per: Mapping[str, Layout] = {
            "per_tensor": Scaled("fp8", 8, "tensor", 4, once=once, source="Quark"),
            "per_channel": Scaled("fp8-channel", 8, "channel", 4, once=once, source="Quark"),
        }
        return per[scheme]
    if kind == "fp4" and scheme == "per_group" and weight.integer("group_size", 0) == 32:
        return Scaled("mxfp4", 4, "group", 1, (1, 32), once=once, source="Quark")
    raise UnsupportedFormatError(
        f"quark: weights of {kind!r} {scheme!r} are not known exactly",
        "known: fp8_e4m3 per_tensor or per_channel, fp4 per_group of 32",
    )
