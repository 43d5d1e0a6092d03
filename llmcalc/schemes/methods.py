"""Methods with one format for a whole model: fp8, GPTQ, AWQ, bitsandbytes, mxfp4, fbgemm, HQQ, torchao, BitNet."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from llmcalc.arch.model import Architecture
from llmcalc.errors import UnsupportedFormatError
from llmcalc.schemes.entries import Entries
from llmcalc.schemes.layouts import Layout, Scaled
from llmcalc.schemes.named import (
    BNB_DTYPES,
    NVFP4,
    OCP,
    OFFSET,
    bnb_int8,
    fp8_block,
    hqq,
    torchao_fp8,
    torchao_int4,
    torchao_int8,
)
from llmcalc.schemes.packed import Awq, Bnb4, Gptq, Ternary
from llmcalc.schemes.rules import Names
from llmcalc.schemes.scheme import GATES, Rule, Scheme, model_layout, scale_bytes

# Skip lists under the names that different tools write.
SKIP: Final = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules")
# What DeepSeek's own fp8 files keep, whether a list says so or not: the published files of V3 and V3.2, and of V4 as
# transformers' DeepseekV4PreTrainedModel lists it.
FP8_KEEPS: Final = ("eh_proj", "weights_proj")
V4_KEEPS: Final = ("compressor.kv_proj", "compressor.gate_proj", "indexer.kv_proj", "indexer.gate_proj")


def refuse(method: str, what: str, known: str) -> UnsupportedFormatError:
    """The error for a variant of a known method."""
    return UnsupportedFormatError(f"{method}: {what} is not known exactly", f"known: {known}")


def skipping(entries: Entries, keys: tuple[str, ...] = SKIP) -> tuple[Rule, ...]:
    """The modules that a list keeps from being converted."""
    names = Names(entries.names(*keys), "transformers")
    return (Rule(names, None),) if names else ()


# -- fp8 -----------------------------------------------------------------------------------------------------------


def read_fp8(entries: Entries, architecture: Architecture) -> Scheme:
    """DeepSeek's fp8 in blocks, or (``weight_block_size`` null) one scale a matrix.

    A list of modules replaces the default, which keeps the head. Scales are fp32 also where ``scale_fmt`` is ue8m0
    (DeepSeek-V3.1 and V3.2 store rounded fp32, V4's base model too); V4's files with 4-bit experts store e8m0.
    """
    if entries.has("modules_to_convert"):
        raise refuse("fp8", "a table in modules_to_convert", "matrices of linear modules")
    size, four = entries.pair("weight_block_size"), entries.text("expert_dtype") == "fp4"
    once = (("activation_scale", 4),) if entries.text("activation_scheme") == "static" else ()
    if size is None:
        layout = Scaled("fp8", 8, "tensor", 4, once=once, suffix="weight_scale_inv", source="transformers FP8Linear")
    else:
        layout = replace(fp8_block(f"fp8-block {size[0]}x{size[1]}", size, 1 if four else 4), once=once)
    keeps = FP8_KEEPS + V4_KEEPS if architecture.decoder_type == "deepseek_v4" else FP8_KEEPS
    rules, experts, notes = skipping(entries), None, ["routers are not quantized"]
    notes += [f"scales of the blocks take {layout.scale} B each"] if entries.text("scale_fmt") == "ue8m0" else []
    own = Scaled("mxfp4", 4, "group", 1, (1, 32), suffix="scale", source=OCP)
    if entries.text("moe_quant_algo") == "NVFP4":  # its ignore list is of NVFP4 alone: the rest is as DeepSeek has it
        experts = Scaled("nvfp4", 4, "group", 1, (1, 16), once=NVFP4, source="ModelOpt")
        single = Names((r"re:.*mtp\..*experts\.\d+\.",), "compressed-tensors", listed=False)
        rules = (Rule(single, own if four else layout),)
    elif four:
        experts = own
    return Scheme(
        layout.name, model_layout(architecture.dtype), layout, rules, experts, towers=True,
        head=bool(entries.names(*SKIP)), keeps=Names(keeps, "transformers"), source=layout.source, notes=tuple(notes),
    )  # fmt: skip


def read_eetq(entries: Entries, architecture: Architecture) -> Scheme:
    """EETQ: 8-bit values with a fp16 scale an output."""
    layout = Scaled("eetq", 8, "channel", 2, suffix="weight_scales", source="transformers EetqLinear")
    plain = model_layout(architecture.dtype)
    return Scheme(layout.name, plain, layout, skipping(entries), towers=True, source=layout.source)


def read_fbgemm(entries: Entries, architecture: Architecture) -> Scheme:
    """Meta's fp8: a fp32 scale an output."""
    layout = Scaled("fbgemm-fp8", 8, "channel", 4, source="transformers FbgemmFp8Linear")
    plain = model_layout(architecture.dtype)
    return Scheme(layout.name, plain, layout, skipping(entries), towers=True, source=layout.source)


def read_mxfp4(entries: Entries, architecture: Architecture) -> Scheme:
    """GPT-OSS: the experts' matrices, nothing else."""
    layout = Scaled("mxfp4", 4, "group", 1, (1, 32), body="blocks", suffix="scales", source=OCP)
    plain = model_layout(architecture.dtype)
    return Scheme("mxfp4", plain, None, skipping(entries), layout, mtp=True, source=layout.source)


# -- integers ------------------------------------------------------------------------------------------------------


def read_gptq(entries: Entries, architecture: Architecture) -> Scheme:
    """GPTQ: the layers' matrices; head only where ``lm_head`` says so; ``dynamic`` has exceptions by name."""
    bits, group = entries.integer("bits", 0, 0), entries.integer("group_size", 128)
    form = entries.text("checkpoint_format", "gptq")
    if bits not in (2, 3, 4, 8) or form not in ("gptq", "gptq_v2"):
        raise refuse("gptq", f"{bits} bits in checkpoint_format {form!r}", "2, 3, 4 and 8 bits in gptq and gptq_v2")
    name = f"gptq {bits}-bit g{group}"
    rules = [*_dynamic(entries, bits, group), *skipping(entries)]
    inside = entries.names("modules_in_block_to_quantize")
    only = [name for part in inside for name in (part if isinstance(part, list) else [part])]
    layout: Layout = Gptq(name, bits, max(group, 0))
    rules += [Rule(Names(only, "transformers"), layout)] if only else []
    return Scheme(
        name, model_layout(architecture.dtype), None if only else layout, tuple(rules),
        head=entries.flag("lm_head"), mtp=False, outside=entries.flag("lm_head"), keeps=GATES, source=layout.source,
        notes=("scales in 16 bits; g_idx is stored with and without act-order; routers are not quantized",),
    )  # fmt: skip


def _dynamic(entries: Entries, bits: int, group: int) -> list[Rule]:
    """GPTQModel's exceptions: ``-:pattern`` leaves a module alone, ``+:pattern`` (or bare) changes bits or group."""
    rules = []
    exceptions = entries.child("dynamic")
    for pattern in () if exceptions is None else exceptions.data:
        names = Names((f"re:{pattern.removeprefix('+:').removeprefix('-:')}",), "compressed-tensors")
        inner = None if exceptions is None else exceptions.child(pattern)
        own, size = (
            (bits, group) if inner is None else (inner.integer("bits", bits, 2), inner.integer("group_size", group))
        )
        layout = None if pattern.startswith("-:") else Gptq(f"gptq {own}-bit g{size}", own, max(size, 0))
        rules.append(Rule(names, layout))
    return rules


def read_awq(entries: Entries, architecture: Architecture) -> Scheme:
    """AWQ in its ``gemm`` packing: the layers' matrices; a list adds to the head, which is kept."""
    bits = entries.integer("bits", entries.integer("w_bit", 4), 0)
    group = entries.integer("group_size", entries.integer("q_group_size", 128))
    version = entries.text("version", "gemm").lower()
    if bits != 4 or version != "gemm":
        raise refuse("awq", f"{bits} bits in version {version!r}", "4 bits in version gemm")
    layout = Awq(f"awq 4-bit g{group}", 4, max(group, 0))
    return Scheme(
        layout.name, model_layout(architecture.dtype), layout, skipping(entries), mtp=False, outside=False, keeps=GATES,
        source=layout.source, notes=("zeros are stored also where zero_point is false; routers are not quantized",),
    )  # fmt: skip


def read_auto_round(entries: Entries, architecture: Architecture) -> Scheme:
    """AutoRound: stored in GPTQ's or AWQ's packing."""
    packing = entries.text("packing_format", "auto_round:auto_gptq")
    if "gptq" in packing:
        return read_gptq(Entries({**entries.data, "checkpoint_format": "gptq"}, entries.where), architecture)
    if "awq" in packing:
        return read_awq(Entries({**entries.data, "version": "gemm"}, entries.where), architecture)
    raise refuse("auto-round", f"packing_format {packing!r}", "auto_gptq, auto_awq")


def read_bitsandbytes(entries: Entries, architecture: Architecture) -> Scheme:
    """bitsandbytes: every linear module but the head, or but those of the list; experts that are one tensor stay."""
    rules, plain = skipping(entries, ("llm_int8_skip_modules", *SKIP)), model_layout(architecture.dtype)
    notes: list[str] = []
    layout: Layout
    if entries.flag("load_in_4bit"):
        kind, double = entries.text("bnb_4bit_quant_type", "fp4"), entries.flag("bnb_4bit_use_double_quant")
        if kind not in ("nf4", "fp4") or entries.text("bnb_4bit_quant_storage", "uint8") != "uint8":
            raise refuse("bitsandbytes", f"4-bit type {kind!r} in another storage", "nf4 and fp4 in uint8")
        layout = Bnb4(f"{kind}-dq" if double else kind, kind, double, BNB_DTYPES[architecture.dtype])
        notes += [OFFSET] if double else []
    else:
        layout = bnb_int8()
    experts = plain if any("{}" in placed.weight.name for placed in architecture.weights) else None
    if experts:
        notes.append("experts stay unquantized: transformers 5 holds them as one 3-D tensor, which bitsandbytes skips")
    head = bool(rules)
    return Scheme(
        layout.name, plain, layout, rules, experts, head=head, towers=True, outside=True, source=layout.source,
        notes=tuple(notes),
    )  # fmt: skip


def read_hqq(entries: Entries, architecture: Architecture) -> Scheme:
    """HQQ: one ``quant_config`` for all linear modules; the head is skipped unless a list says otherwise."""
    inner = entries.child("quant_config") or entries
    weights = inner.child("weight_quant_params") or inner
    bits, group = weights.integer("nbits", 4, 1), weights.integer("group_size", 64, 1)
    if bits not in (1, 2, 3, 4, 8) or inner.has("scale_quant_params") or inner.has("zero_quant_params"):
        raise refuse("hqq", f"{bits} bits or quantized scales", "1, 2, 3, 4 and 8 bits with scales in 16 bits")
    layout = hqq(f"hqq {bits}-bit g{group}", bits, group, architecture.dtype)
    rules = skipping(entries, ("skip_modules", *SKIP))
    plain = model_layout(architecture.dtype)
    return Scheme(layout.name, plain, layout, rules, towers=True, source=layout.source)


def read_torchao(entries: Entries, architecture: Architecture) -> Scheme:
    """torchao's int4 and int8 weights by the class of its config."""
    kind = entries.data.get("quant_type")
    if isinstance(kind, dict):
        inner = Entries(kind, "quant_type").child("default") or Entries(kind, "quant_type")
        name, data = inner.text("_type"), inner.child("_data") or Entries({}, "_data")
    else:
        name, data = str(kind), entries.child("quant_type_kwargs") or Entries({}, "quant_type_kwargs")
    scale, group = scale_bytes(architecture.dtype), data.integer("group_size", 128, 1)
    flat = name.lower().replace("_", "").removesuffix("config")
    layouts = {
        "int4weightonly": torchao_int4(scale, group),
        "int8weightonly": torchao_int8(),
        "int8dynamicactivationint8weight": torchao_int8(),
        "float8weightonly": torchao_fp8(),
    }
    layout = layouts.get(flat)
    if layout is None:
        raise refuse(
            "torchao", f"quant_type {name!r}", "int4_weight_only, int8 (weight only or dynamic), float8_weight_only"
        )
    plain = model_layout(architecture.dtype)
    return Scheme(layout.name, plain, layout, skipping(entries), towers=True, source=layout.source)


def read_bitnet(entries: Entries, architecture: Architecture) -> Scheme:
    """BitNet: packed ternary values in every linear module but the head."""
    if entries.text("linear_class", "bitlinear") != "bitlinear":
        return Scheme("bitnet (online)", model_layout(architecture.dtype), source="transformers AutoBitLinear")
    layout = Ternary("bitnet", scale_bytes(architecture.dtype))
    plain = model_layout(architecture.dtype)
    return Scheme("bitnet", plain, layout, skipping(entries), towers=True, source=layout.source)
