"""Layouts against what quantization libraries stored (layouts.json, written by write_layouts.py), byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmcalc import read_config, weights
from llmcalc.errors import UnsupportedFormatError
from llmcalc.schemes.blocks import BLOCKS, FALLBACK, fitting
from llmcalc.schemes.layouts import Layout
from llmcalc.schemes.named import FORMATS, hqq, layout_of, torchao_fp8, torchao_int8
from llmcalc.schemes.packed import Awq, Bnb4, Gptq, PackQuantized

WRITTEN = json.loads(Path(__file__).with_name("layouts.json").read_text())


def ours(row: dict[str, dict[str, object]]) -> Layout:
    """The layout that a row's settings ask for."""
    s = row["settings"]
    match row["library"]:
        case "bitsandbytes" if s.get("load_in_4bit"):
            return Bnb4("", str(s["bnb_4bit_quant_type"]), bool(s["bnb_4bit_use_double_quant"]))
        case "bitsandbytes":
            return layout_of("bnb-int8")
        case "hqq":
            return hqq("", s["nbits"], s["group_size"], "bf16")  # type: ignore[arg-type]
        case "torchao":
            return torchao_int8() if s["quant_type"] == "int8_weight_only" else torchao_fp8()
        case "gptqmodel" if s.get("quant_method") == "awq":
            return Awq("", 4, s["group_size"])  # type: ignore[arg-type]
        case _:
            return Gptq("", s["bits"], s["group_size"])  # type: ignore[arg-type]


@pytest.mark.parametrize("row", WRITTEN, ids=lambda r: f"{r['library']}-{r['settings']}-{r['shape']}")
def test_bytes_that_libraries_write(row: dict[str, dict[str, object]]) -> None:
    found = ours(row).bytes(tuple(row["shape"]))
    written = sum(size for _, size in row["tensors"].values())  # type: ignore[misc]
    if row["settings"].get("bnb_4bit_use_double_quant"):
        # The offset of double quantization is a number of the weights, written with as many digits as it needs.
        assert abs(found - written) <= 3
    else:
        assert found == written


@pytest.mark.parametrize(
    "row", [r for r in WRITTEN if r["library"] == "gptqmodel"][:40], ids=lambda r: str(r["settings"])
)
def test_shapes_that_gptqmodel_writes(row: dict[str, dict[str, object]]) -> None:
    shape = tuple(row["shape"])
    assert {p.name: list(p.dims) for p in ours(row).pieces(shape)} == {k: v[0] for k, v in row["tensors"].items()}  # type: ignore[index]


@pytest.mark.parametrize("name", FORMATS)
def test_bits_are_what_a_large_matrix_takes(name: str) -> None:
    """A square of 2^15: what is stored once a row, a column or a matrix is under a thousandth there."""
    layout = layout_of(name)
    size = 2**15
    bits = 8 * layout.bytes((size, size)) / size**2
    assert float(layout.bits) <= bits <= float(layout.bits) * 1.001 + 0.001


# -- compressed-tensors, when it is installed ----------------------------------------------------------------------

GROUPS = {
    "w4a16 g32": ({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}, None),
    "w4a16 g64 asym": ({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 64, "symmetric": False}, None),
    "w8a16 channel": ({"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}, None),
    "w3a16 g32": ({"num_bits": 3, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}, None),
    "w8a8 channel": (
        {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True},
        {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": True},
    ),
    "w8a8 static": (
        {"num_bits": 8, "type": "int", "strategy": "tensor", "symmetric": True},
        {"num_bits": 8, "type": "int", "strategy": "tensor", "dynamic": False, "symmetric": True},
    ),
    "fp8 channel": (
        {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
        {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True},
    ),
    "fp8 tensor": (
        {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True},
        {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True},
    ),
    "fp8 block": (
        {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128], "symmetric": True},
        {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 128, "dynamic": True, "symmetric": True},
    ),
    "nvfp4": (
        {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True,
         "scale_dtype": "torch.float8_e4m3fn"},
        {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True,
         "dynamic": "local", "scale_dtype": "torch.float8_e4m3fn"},
    ),
    "nvfp4a16": (
        {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True,
         "scale_dtype": "torch.float8_e4m3fn"}, None,
    ),
    "mxfp4": (
        {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True,
         "scale_dtype": "torch.uint8"}, None,
    ),
}  # fmt: skip
IGNORE = ["lm_head", "re:.*layers.1.self_attn.*"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ["llama", "phi3", "qwen3", "falcon_h1"])
@pytest.mark.parametrize("name", GROUPS)
def test_models_compressed_by_compressed_tensors(name: str, family: str) -> None:
    """The library quantizes and packs a small model; its state dict has the bytes that we derive from its config."""
    library = pytest.importorskip("compressed_tensors")
    quantization = pytest.importorskip("compressed_tensors.quantization")
    from .small import build
    from .test_writers import stored_bytes

    settings, inputs = GROUPS[name]
    config = quantization.QuantizationConfig(
        config_groups={"group_0": {"targets": ["Linear"], "weights": settings, "input_activations": inputs}},
        ignore=IGNORE,
    )
    model = build(family)
    if family == "falcon_h1" and settings.get("group_size", 0) > 0 and settings["group_size"] != 16:
        pytest.skip("its small projections are no whole groups")
    quantization.apply_quantization_config(model, config)
    for parameter in model.parameters():  # type: ignore[attr-defined]
        parameter.requires_grad_(False)
        if parameter.dtype.is_floating_point:
            parameter.data.fill_(0.5)
    compressor = library.ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    written = compressor.quantization_config.model_dump(mode="json")
    written["quant_method"] = "compressed-tensors"
    ours = weights(read_config({**model.config.to_dict(), "quantization_config": written}))  # type: ignore[attr-defined]
    assert ours.total_bytes == stored_bytes(model)


# -- llama.cpp's blocks --------------------------------------------------------------------------------------------


def test_every_block_type_is_as_the_gguf_package_has_it() -> None:
    gguf = pytest.importorskip("gguf")
    sizes = {t.name.lower(): pair for t, pair in gguf.GGML_QUANT_SIZES.items()}
    plain = ("i8", "i16", "i32", "i64", "f64")
    odd = {"q8_1": (32, 36)}  # block_q8_1 has two halves of 16 bits; the package counts them as 32
    expected = {**{n: s for n, s in sizes.items() if n not in plain}, **odd}
    assert {n: (b.size, b.item) for n, b in BLOCKS.items() if n != "q2_0"} == expected


@pytest.mark.parametrize("name", ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "bf16", "tq1_0", "tq2_0"])
def test_bytes_that_the_gguf_package_quantizes_to(name: str) -> None:
    gguf = pytest.importorskip("gguf")
    numpy = pytest.importorskip("numpy")
    data = numpy.random.default_rng(3).standard_normal((24, 512), dtype=numpy.float32)
    made = gguf.quants.quantize(data, gguf.GGMLQuantizationType[name.upper()])
    assert BLOCKS[name].bytes((24, 512)) == made.nbytes


def test_rows_that_no_block_divides() -> None:
    assert fitting("q4_k", 512) == "q4_k"
    assert fitting("q4_k", 2880) == "q5_0"
    assert fitting("q6_k", 4544) == "q8_0"
    assert fitting("iq2_xs", 96) == "iq4_nl"
    assert fitting("q3_k", 30) == "f16"
    assert fitting("q8_0", 30) is None
    assert set(FALLBACK.values()) <= set(BLOCKS)


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        (Awq("awq", 4, 128), (96, 200)),
        (Awq("awq", 4, 128), (30, 256)),
        (PackQuantized("ct", 4, 128), (96, 200)),
        (layout_of("mxfp4"), (96, 40)),
        (layout_of("nvfp4"), (96, 24)),
        (layout_of("gptq"), (96, 96, 96)),
    ],
)
def test_a_matrix_that_a_layout_cannot_hold_is_refused(layout: Layout, shape: tuple[int, ...]) -> None:
    with pytest.raises(UnsupportedFormatError):
        layout.bytes(shape)
