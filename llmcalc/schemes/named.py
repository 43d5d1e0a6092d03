"""The formats that ``--weights`` names, one row each, and what of a model they cover."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from llmcalc.errors import InvalidInputError, UnsupportedFormatError
from llmcalc.schemes.layouts import Layout, Plain, Scaled
from llmcalc.schemes.packed import Awq, Bits, Bnb4, Gptq, PackQuantized, Ternary
from llmcalc.schemes.scheme import BF16, FP16, FP32, GATES, Scheme, model_layout, scale_bytes

OCP: Final = "OCP Microscaling Formats 1.0: e8m0 scale for 32 values"
CT: Final = "compressed-tensors"
NVFP4: Final = (("weight_scale_2", 4), ("input_scale", 4))
BNB_DTYPES: Final = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


class Named(NamedTuple):
    """A format by name. group: values of a group by default, 0 where the format has none."""

    name: str
    make: Callable[[str, int], Layout]
    group: int = 0
    kind: str = "weights"


def _int4(_dtype: str, group: int) -> Layout:
    source = "a 16-bit scale for each group, symmetric"
    if group <= 0:
        return Scaled("int4", 4, "channel", 2, source=source)
    return Scaled("int4", 4, "group", 2, (1, group), source=source)


ROWS: Final = (
    Named("fp32", lambda _d, _g: FP32),
    Named("bf16", lambda _d, _g: BF16),
    Named("fp16", lambda _d, _g: FP16),
    Named("fp8", lambda _d, _g: Scaled("fp8", 8, "tensor", 4, source="e4m3, a fp32 scale a matrix")),
    Named("fp8-channel", lambda _d, _g: Scaled("fp8-channel", 8, "channel", 4, source="e4m3, a fp32 scale an output")),
    Named("fp8-block", lambda _d, _g: fp8_block("fp8-block", (128, 128), 4)),
    Named("fp8-block-e8m0", lambda _d, _g: fp8_block("fp8-block-e8m0", (128, 128), 1)),
    Named("mxfp8", lambda _d, _g: Scaled("mxfp8", 8, "group", 1, (1, 32), source=OCP)),
    Named("int8", lambda _d, _g: Scaled("int8", 8, "channel", 4, source="a fp32 scale an output")),
    Named("int4", _int4, 128),
    Named("gptq", lambda _d, g: Gptq("gptq", 4, max(g, 0)), 128),
    Named("gptq-8bit", lambda _d, g: Gptq("gptq-8bit", 8, max(g, 0)), 128),
    Named("gptq-3bit", lambda _d, g: Gptq("gptq-3bit", 3, max(g, 0)), 128),
    Named("gptq-2bit", lambda _d, g: Gptq("gptq-2bit", 2, max(g, 0)), 128),
    Named("awq", lambda _d, g: Awq("awq", 4, max(g, 0)), 128),
    Named("nf4", lambda d, _g: Bnb4("nf4", "nf4", dtype=BNB_DTYPES[d])),
    Named("nf4-dq", lambda d, _g: Bnb4("nf4-dq", "nf4", True, BNB_DTYPES[d])),
    Named("fp4", lambda d, _g: Bnb4("fp4", "fp4", dtype=BNB_DTYPES[d])),
    Named("fp4-dq", lambda d, _g: Bnb4("fp4-dq", "fp4", True, BNB_DTYPES[d])),
    Named("bnb-int8", lambda _d, _g: bnb_int8()),
    Named("mxfp4", lambda _d, _g: Scaled("mxfp4", 4, "group", 1, (1, 32), source=OCP)),
    Named("mxfp6", lambda _d, _g: Scaled("mxfp6", 6, "group", 1, (1, 32), source=OCP)),
    Named("nvfp4", lambda _d, _g: Scaled("nvfp4", 4, "group", 1, (1, 16), once=NVFP4, source="ModelOpt: e4m3 scale for "
          "16 values, two fp32 scales a matrix")),
    Named("w4a16", lambda d, g: PackQuantized("w4a16", 4, g, scale_bytes(d)), 128),
    Named("w8a16", lambda d, g: PackQuantized("w8a16", 8, g, scale_bytes(d)), 0),
    Named("w8a8", lambda d, _g: Scaled("w8a8", 8, "channel", scale_bytes(d), source=f"{CT} int-quantized, channel")),
    Named("fp8-dynamic", lambda d, _g: Scaled("fp8-dynamic", 8, "channel", scale_bytes(d),
          source=f"{CT} float-quantized, channel")),
    Named("nvfp4a16", lambda _d, _g: Scaled("nvfp4a16", 4, "group", 1, (1, 16), once=(("weight_global_scale", 4),),
          body="weight_packed", source=f"{CT} nvfp4-pack-quantized")),
    Named("hqq-4bit", lambda d, g: hqq("hqq-4bit", 4, g, d), 64),
    Named("hqq-3bit", lambda d, g: hqq("hqq-3bit", 3, g, d), 64),
    Named("hqq-2bit", lambda d, g: hqq("hqq-2bit", 2, g, d), 64),
    Named("hqq-8bit", lambda d, g: hqq("hqq-8bit", 8, g, d), 64),
    Named("torchao-int4", lambda d, g: torchao_int4(scale_bytes(d), g), 128),
    Named("torchao-int8", lambda _d, _g: torchao_int8()),
    Named("torchao-fp8", lambda _d, _g: torchao_fp8()),
    Named("bitnet", lambda d, _g: Ternary("bitnet", scale_bytes(d))),
)  # fmt: skip
FORMATS: Final = {row.name: row for row in ROWS}
ALIASES: Final = {
    "f32": "fp32", "float32": "fp32", "f16": "fp16", "float16": "fp16", "half": "fp16", "bfloat16": "bf16",
    "fp8-tensor": "fp8", "fp8_e4m3": "fp8", "e4m3": "fp8", "fp8_block": "fp8-block", "fp8_channel": "fp8-channel",
    "bnb-nf4": "nf4", "bnb-fp4": "fp4", "nf4_dq": "nf4-dq", "gptq-4bit": "gptq", "gptq-int4": "gptq",
}  # fmt: skip


def fp8_block(name: str, size: tuple[int, int], scale: int) -> Scaled:
    """FP8 with a scale for each block of a matrix, fp32 or (1 byte) e8m0."""
    source = "DeepSeek-V3 (arXiv:2412.19437) section 3.3: e4m3, blocks of 128 x 128"
    return Scaled(name, 8, "block", scale, size, suffix="weight_scale_inv", source=source)


def hqq(name: str, bits: int, group: int, dtype: str) -> Bits:
    """HQQ in groups, computing in the model's dtype."""
    return Bits(name, bits, group, scale_bytes(dtype), f"torch.{BNB_DTYPES[dtype]}")


def bnb_int8() -> Scaled:
    """LLM.int8: ``SCB``, and a byte that names the order of the values."""
    once = (("weight_format", 1),)
    return Scaled("bnb-int8", 8, "channel", 4, once=once, suffix="SCB", source="bitsandbytes Linear8bitLt")


def torchao_int4(scale: int, group: int) -> Scaled:
    """torchao's int4 weights: a scale and a zero point for each group."""
    return Scaled("torchao-int4", 4, "group", scale, (1, group), scale, body="_weight_qdata", suffix="_weight_scale",
                  source="torchao Int4Tensor")  # fmt: skip


def torchao_int8() -> Scaled:
    """torchao's int8 weights: a fp32 scale and an 8-bit zero point an output."""
    return Scaled("torchao-int8", 8, "channel", 4, zero=1, body="_weight_qdata", suffix="_weight_scale",
                  source="torchao Int8Tensor")  # fmt: skip


def torchao_fp8() -> Scaled:
    """torchao's fp8 weights: a fp32 scale an output."""
    return Scaled("torchao-fp8", 8, "channel", 4, body="_weight_qdata", suffix="_weight_scale",
                  source="torchao Float8Tensor")  # fmt: skip


def find(text: str) -> str:
    """The name of a format as the table has it.

    Raises: UnsupportedFormatError.
    """
    from llmcalc.schemes.mixes import MIXES

    key = text.strip().lower()
    for name in (key, key.replace("_", "-"), key.replace("-", "_")):
        known = ALIASES.get(name, name)
        if known in FORMATS or known in MIXES:
            return known
    raise UnsupportedFormatError(f"unknown weight format {text!r}", near(key, [*FORMATS, *MIXES]))


def near(key: str, names: list[str]) -> str:
    """A hint with the closest names, else all of them."""
    import difflib

    found = difflib.get_close_matches(key, names, n=4, cutoff=0.5)
    return f"did you mean {', '.join(found)}?" if found else f"llmcalc formats lists them: {', '.join(names)}"


def layout_of(name: str, dtype: str = "bf16", group: int | None = None) -> Layout:
    """The layout that a name of :data:`FORMATS` stands for, in groups of ``group``.

    Raises: InvalidInputError for groups in a format without them.
    """
    row = FORMATS[name]
    if group is not None and not row.group and name != "w8a16":
        raise InvalidInputError(f"--group-size {group}: {name} has no groups to choose")
    return row.make(dtype, row.group if group is None else group)


def asked(name: str, dtype: str, group: int | None = None) -> Scheme:
    """A format for the matrices of the layers; tables, head, norms and routers stay in 16 bits.

    Raises: InvalidInputError, UnsupportedFormatError.
    """
    layout = layout_of(name, dtype, group)
    if isinstance(layout, Plain):
        return Scheme(name, layout, source=layout.source)
    plain = BF16 if dtype == "fp32" else model_layout(dtype)
    kept = f"embeddings, head, norms, routers, vectors, convolutions and towers stay in {plain.name}"
    notes = [f"{name}: the matrices of the layers; {kept}"]
    if isinstance(layout, Bnb4):
        notes.append(
            "transformers 5 loads fused experts unquantized with bitsandbytes; here they are quantized as asked"
        )
        if layout.double:
            notes.append(OFFSET)
    return Scheme(name, plain, layout, outside=False, keeps=GATES, source=layout.source, notes=tuple(notes))


OFFSET: Final = (
    "each matrix's state holds an offset that depends on the weights; 19 characters are counted for it, a file may "
    "differ by a few bytes a matrix"
)
