"""compressed-tensors: groups of modules with arguments for their weights, an ignore list, and a packing format.

Source: compressed-tensors 0.20 (compressors/*, quantization/lifecycle/initialize.py, utils/match.py).
"""

from __future__ import annotations

from typing import Final

from llmcalc.arch.model import Architecture
from llmcalc.errors import UnsupportedFormatError
from llmcalc.schemes.entries import Entries
from llmcalc.schemes.layouts import Layout, Per, Scaled
from llmcalc.schemes.packed import PackQuantized
from llmcalc.schemes.rules import Names
from llmcalc.schemes.scheme import Rule, Scheme, model_layout, scale_bytes

FORMATS: Final = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "nvfp4-pack-quantized",
                  "mxfp4-pack-quantized", "mxfp8-quantized")  # fmt: skip
CLASSES: Final = ("Linear", "ParallelLMHead", "LinearBase")


def read_compressed(entries: Entries, architecture: Architecture) -> Scheme:
    """The scheme of a compressed-tensors config; routers and tables only where a target names them."""
    sparse = entries.child("sparsity_config")
    if sparse is not None and sparse.text("format", "dense") not in ("", "dense"):
        raise UnsupportedFormatError(
            f"compressed-tensors: sparsity format {sparse.text('format')!r} is not known exactly",
            "quantized and dense files are known",
        )
    transforms = entries.child("transform_config")
    if transforms is not None and transforms.data.get("config_groups"):
        raise UnsupportedFormatError(
            "compressed-tensors: a transform_config stores matrices that are not known exactly"
        )
    scale = scale_bytes(architecture.dtype)
    default: Layout | None = None
    rules = [Rule(Names(entries.names("ignore"), "compressed-tensors"), None)]
    for key, group in entries.children("config_groups"):
        layout = weights_layout(group, entries.text("format"), scale)
        targets = group.names("targets") or ["Linear"]
        named = [target for target in targets if target not in CLASSES]
        if named:
            rules.append(Rule(Names(named, "compressed-tensors"), layout))
        if len(named) < len(targets):
            if default is not None and default != layout:
                raise UnsupportedFormatError(f"compressed-tensors: {key} targets Linear, and so does another group")
            default = layout
    warnings = (
        ()
        if entries.names("ignore")
        else ("the quantization_config has no ignore list, so the output head counts as quantized too",)
    )
    return Scheme(
        _name(default, rules), model_layout(architecture.dtype), default, tuple(rules), head=default is not None,
        towers=True, source="compressed-tensors", warnings=warnings,
        notes=_notes(entries),
    )  # fmt: skip


def _notes(entries: Entries) -> tuple[str, ...]:
    notes = ("routers, tables and norms are quantized only where a target names them",)
    if entries.has("kv_cache_scheme"):
        return (*notes, "the cache's own scales (k_scale, v_scale) are not counted")
    return notes


def _name(default: Layout | None, rules: list[Rule]) -> str:
    if default is not None:
        return default.name
    return " + ".join(dict.fromkeys(rule.layout.name for rule in rules if rule.layout)) or "compressed-tensors"


def weights_layout(group: Entries, overall: str, scale: int) -> Layout | None:
    """The layout of one group's weights; None where only activations are quantized."""
    weights = group.child("weights")
    if weights is None:
        return None
    bits, kind = weights.integer("num_bits", 8, 1), weights.text("type", "int")
    strategy = weights.text("strategy") or _strategy(weights)
    form = group.text("format") or overall or _format(bits, kind, weights, group)
    if form in ("mixed-precision", "dense"):
        form = _format(bits, kind, weights, group)
    if form not in FORMATS or kind not in ("int", "float"):
        raise UnsupportedFormatError(
            f"compressed-tensors: format {form!r} with {bits}-bit {kind} is not known exactly",
            f"known: {', '.join(FORMATS)}",
        )
    if form == "pack-quantized":
        return _packed(weights, bits, strategy, scale)
    if form in ("nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized"):
        return _micro(form, group, scale)
    return _naive(form, weights, group, bits, strategy, scale)


def _strategy(weights: Entries) -> str:
    """What the library infers where none is given."""
    size = weights.integer("group_size", 0)
    return "group" if size > 0 else "channel" if size == -1 else "tensor"


def _format(bits: int, kind: str, weights: Entries, group: Entries) -> str:
    """The packing that the library infers (compressors/format.py)."""
    size = weights.integer("group_size", 0)
    if kind == "float" and bits == 4:
        return "mxfp4-pack-quantized" if size == 32 else "nvfp4-pack-quantized"
    if kind == "float":
        return "float-quantized"
    return "int-quantized" if group.has("input_activations") else "pack-quantized"


def _packed(weights: Entries, bits: int, strategy: str, scale: int) -> Layout:
    size = weights.integer("group_size", 0)
    groups = {"group": size, "channel": 0, "tensor": -1}.get(strategy)
    if groups is None or not 1 <= bits <= 8:
        raise UnsupportedFormatError(f"compressed-tensors: pack-quantized by {strategy!r} is not known exactly")
    ordered = weights.text("actorder") == "group" if isinstance(weights.data.get("actorder"), str) else False
    name = f"pack-quantized {bits}-bit" + (f" g{size}" if groups > 0 else f" {strategy}")
    zeros = not weights.flag("symmetric", default=True) and groups >= 0
    return PackQuantized(name, bits, groups, scale, zeros, ordered)


def _micro(form: str, group: Entries, scale: int) -> Layout:
    """The formats of 16 or 32 values with a one-byte scale."""
    inputs = group.child("input_activations")
    once: tuple[tuple[str, int], ...] = ()
    if form == "nvfp4-pack-quantized":
        once = (("weight_global_scale", 4),)
        if inputs is not None and inputs.data.get("dynamic") is not True:
            once = (*once, ("input_global_scale", 4))
        return Scaled("nvfp4", 4, "group", 1, (1, 16), once=once, body="weight_packed", source=form)
    if inputs is not None and inputs.data.get("dynamic") is False:
        once = (("input_scale", scale),)
    width = 4 if form == "mxfp4-pack-quantized" else 8
    body = "weight_packed" if width == 4 else "weight"
    return Scaled(f"mxfp{width}", width, "group", 1, (1, 32), once=once, body=body, source=form)


def _naive(form: str, weights: Entries, group: Entries, bits: int, strategy: str, scale: int) -> Layout:
    """One byte a value, a scale in the model's format for a tensor, a channel, a group or a block."""
    if bits != 8:
        raise UnsupportedFormatError(f"compressed-tensors: {form} with {bits} bits is not known exactly")
    size = (1, weights.integer("group_size", 0)) if strategy == "group" else weights.pair("block_structure")
    pers: dict[str, Per] = {"tensor": "tensor", "channel": "channel", "group": "group", "block": "block"}
    per = pers.get(strategy)
    if per is None or (per in ("group", "block") and not size):
        raise UnsupportedFormatError(f"compressed-tensors: {form} by {strategy!r} is not known exactly")
    zero = 0 if weights.flag("symmetric", default=True) else 1
    inputs = group.child("input_activations")
    once: tuple[tuple[str, int], ...] = ()
    if inputs is not None and inputs.data.get("dynamic") is not True:
        once = (("input_scale", scale),)
        once += () if inputs.flag("symmetric", default=True) else (("input_zero_point", 1),)
    name = f"{'fp8' if weights.text('type') == 'float' else 'int8'}-{strategy}"
    return Scaled(name, 8, per, scale, size or (1, 0), zero, once, source=f"compressed-tensors {form}")
