"""Weights by the checkpoint's own headers: files that gguf, safetensors and transformers write, to the byte."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest

from llmcalc import Ranks, WeightBytes, header_bytes, load, read_config, verify, weights
from llmcalc.arch.names import groups
from llmcalc.calc.weights_of_headers import weights_of_headers
from llmcalc.errors import InvalidInputError
from llmcalc.sources.raw import Tensor
from tests.headers.gguf_files import LLAMA, write_llama
from tests.headers.test_gguf_config import LENGTHS, unpack
from tests.verify.published import rebuild
from tests.verify.test_differences import DEEPSEEK, QWEN3_MOE, usual
from tests.verify.test_packed import fp8, gptq, packed

from .small import FAMILIES, build, saved
from .test_verbs import run, tree

TWO = Ranks(tp=2)


def of(path: Path, ranks: Ranks | None = None) -> WeightBytes:
    model = load(str(path))
    assert model.tensors is not None
    dialect = "gguf" if model.provenance.source == "gguf" else ""
    found = weights_of_headers(model.architecture, model.tensors, dialect, ranks=ranks)
    assert sums(found) == header_bytes(model.tensors).total
    return found


def sums(found: WeightBytes) -> int:
    """All bytes, once every sum inside has been checked."""
    for figure in (found.figure, *((found.mtp_figure,) if found.mtp_figure else ())):
        assert sum(part.value for part in figure.parts) == figure.value
        for stack in figure.parts:
            assert sum(part.value for part in stack.parts) == stack.value
            for branch in stack.parts:
                assert sum(leaf.value for leaf in branch.parts) == branch.value
                assert all(prod(f.value for f in leaf.factors) == leaf.value for leaf in branch.parts if leaf.factors)
    assert found.total_bytes == found.figure.value == sum(size for _, _, size in found.formats)
    return found.total_bytes + found.mtp_bytes


# -- GGUF --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_a_gguf_file_of_one_type(tmp_path: Path, kind: str) -> None:
    gguf = pytest.importorskip("gguf")
    path = write_llama(tmp_path / "a.gguf", kind)
    found = of(path)
    assert found.total_bytes == sum(int(tensor.n_bytes) for tensor in gguf.GGUFReader(path).tensors)
    assert found.warnings == ()
    assert {name for name, _, _ in found.formats} == {kind or "F16", "F32"}


SHAPES = {"token_embd": (320, 256), "output": (320, 256), "output_norm": (256,), "rope_freqs": (16,)}
BLOCK = {
    "attn_norm": (256,), "ffn_norm": (256,), "attn_q": (256, 256), "attn_k": (128, 256), "attn_v": (128, 256),
    "attn_output": (256, 256), "ffn_gate": (512, 256), "ffn_up": (512, 256), "ffn_down": (256, 512),
}  # fmt: skip
ALL = {**SHAPES, **{f"blk.{layer}.{name}": shape for layer in range(3) for name, shape in BLOCK.items()}}
KINDS = {"token_embd": "Q4_K", "output": "Q6_K", "blk.0.attn_v": "Q6_K", "blk.1.attn_v": "Q8_0", "blk.2.ffn_up": "BF16"}
ITEMS = {"Q4_K": (256, 144), "Q6_K": (256, 210), "Q8_0": (32, 34), "Q4_0": (32, 18), "BF16": (1, 2), "F32": (1, 4)}


def kind_of(name: str) -> str:
    return "F32" if len(ALL[name]) == 1 else KINDS.get(name, "Q4_0")


def write_mixed(path: Path) -> Path:
    """Three blocks in which every type is another, quantized by the gguf package where it can."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(3)
    writer.add_context_length(256)
    writer.add_embedding_length(256)
    writer.add_feed_forward_length(512)
    writer.add_head_count(8)
    writer.add_head_count_kv(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(320)
    for name, shape in ALL.items():
        kind = gguf.GGMLQuantizationType[kind_of(name)]
        if kind.name in ("Q4_K", "Q6_K"):  # only llama.cpp itself makes these
            data: Any = np.zeros((shape[0], shape[1] // 256 * ITEMS[kind.name][1]), np.uint8)
        else:
            data = gguf.quants.quantize(np.ones(shape, np.float32), kind)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def size(name: str, shape: tuple[int, ...]) -> int:
    block, item = ITEMS[kind_of(name)]
    assert shape[-1] % block == 0
    return prod(shape) // block * item


def test_a_mixture_of_types(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    path = write_mixed(tmp_path / "a.gguf")
    found = of(path)
    whole = sum(size(name, shape) for name, shape in ALL.items())
    assert found.total_bytes == whole == sum(int(tensor.n_bytes) for tensor in gguf.GGUFReader(path).tensors)
    assert {part.name: part.value for part in found.figure.parts}["beside"] == 64
    assert found.bits_per_weight == 8 * whole / (sum(map(prod, ALL.values())) - 16)
    assert {name: held for name, _, held in found.formats}["Q8_0"] == 128 * 8 * 34
    assert of(path, Ranks(dp=2)).per_device_bytes == whole


def test_a_mixture_over_devices(tmp_path: Path) -> None:
    """Half the outputs or inputs of every matrix on a device, norms and tables whole; or half the blocks."""
    path = write_mixed(tmp_path / "a.gguf")

    def half(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) == 1:
            return shape
        by_inputs = name.endswith(("attn_output", "ffn_down"))
        return (shape[0], shape[1] // 2) if by_inputs else (shape[0] // 2, shape[1])

    assert of(path, TWO).per_device_bytes == sum(size(name, half(name, shape)) for name, shape in ALL.items())
    stages = [("blk.0", "blk.1", "token_embd", "rope"), ("blk.2", "output", "rope")]
    held = [sum(size(name, shape) for name, shape in ALL.items() if name.startswith(names)) for names in stages]
    found = of(path, Ranks(pp=2))
    assert found.per_device_bytes == max(held)
    assert "64 bytes of tables beside the weights are on every device" in found.assumptions


@pytest.mark.parametrize("name", sorted(LENGTHS)[::4])
def test_headers_that_llama_cpp_wrote(tmp_path: Path, name: str) -> None:
    path, _ = unpack(name, tmp_path)
    found = of(path)
    assert found.warnings == ()
    assert found.per_device_bytes == found.total_bytes
    assert found.total_bytes / 2 <= of(path, Ranks(pp=2)).per_device_bytes < found.total_bytes


def test_a_cut_through_blocks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"--tp 2 cuts mlp\.down_proj"):
        of(write_llama(tmp_path / "a.gguf", "Q8_0"), TWO)


# -- safetensors -------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FAMILIES)
def test_folders_of_transformers(tmp_path: Path, family: str) -> None:
    pytest.importorskip("transformers")
    _, held = saved(build(family), tmp_path)
    model, found = load(str(tmp_path)), of(tmp_path)
    assert found.total_bytes == held
    stated = weights(model.architecture, ranks=TWO)
    if not found.warnings:
        assert found.total_bytes == stated.total_bytes
        assert found.bits_per_weight == stated.bits_per_weight
        assert of(tmp_path, TWO).per_device_bytes == stated.per_device_bytes
        ours = {(s.name, part.name): part.value for s in stated.figure.parts for part in s.parts}
        theirs = {(s.name, part.name): part.value for s in found.figure.parts for part in s.parts}
        assert theirs == ours
    assert all("the config states" in warning for warning in found.warnings)


@pytest.mark.filterwarnings("ignore")
def test_a_tower_stands_apart(tmp_path: Path) -> None:
    from tests.verify.small import save

    pytest.importorskip("transformers")
    model = save("llava", tmp_path)
    found = of(tmp_path)
    tower = sum(4 * p.numel() for name, p in model.named_parameters() if "vision_tower" in name or "projector" in name)
    assert found.vision_bytes == tower
    assert found.total_bytes == sum(4 * p.numel() for p in model.parameters())
    assert found.audio_bytes == 0


def test_a_published_folder(tmp_path: Path) -> None:
    """Its config names no dtype, so that there is nothing to differ from."""
    folder = rebuild(tmp_path / "model")
    found = of(folder)
    assert found.total_bytes == 90_856_960
    assert found.formats == (("F32", 22_713_216, 90_852_864), ("I64", 512, 4_096))
    assert found.warnings == ()
    half = weights(load(str(folder)).architecture, "fp32", ranks=TWO).per_device_bytes
    assert of(folder, TWO).per_device_bytes == half + 4_096


def test_prediction_heads_stand_apart() -> None:
    architecture = read_config(DEEPSEEK)
    heads = [Tensor(t.name, "F32", t.shape, "") for g in groups(architecture) if g.apart for t in g.spellings[0]]
    plain = usual(architecture)
    found = weights_of_headers(architecture, [*plain, *heads])
    assert found.mtp_bytes == sum(4 * prod(head.shape) for head in heads)
    assert found.total_bytes == sum(2 * prod(tensor.shape) for tensor in plain)
    assert {name for name, _, _ in found.formats} == {"BF16"}
    sums(found)


GPTQ = {**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": False}}
FP8 = {**LLAMA, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}


@pytest.mark.parametrize(("config", "make"), [(GPTQ, gptq), (FP8, fp8)])
def test_packed_weights_are_cut_by_the_scheme_that_they_prove(config: dict[str, Any], make: Any) -> None:
    architecture = read_config(config)
    headers = packed(make)([tensor._replace(dtype="F16") for tensor in usual(architecture)])
    stated = weights(architecture, ranks=TWO)
    found = weights_of_headers(architecture, headers, ranks=TWO)
    assert found.total_bytes == stated.total_bytes == header_bytes(headers).total
    assert found.per_device_bytes == stated.per_device_bytes < found.total_bytes
    assert found.warnings == ()
    assert {part.name for part in found.figure.parts} == {"decoder"}


# -- what differs ------------------------------------------------------------------------------------------------------


def test_another_total_than_the_config_states_is_a_warning() -> None:
    architecture = read_config(GPTQ)
    plain = [tensor._replace(dtype="F16") for tensor in usual(architecture)]
    found = weights_of_headers(architecture, plain)
    stated = weights(architecture).total_bytes
    assert found.warnings == (
        f"the config states {stated:,} bytes (gptq 4-bit g16), the headers {found.total_bytes:,}, which are taken",
    )
    assert weights_of_headers(architecture, plain, ranks=TWO).per_device_bytes == (
        weights(architecture, "fp16", ranks=TWO).per_device_bytes
    )


def test_a_method_that_is_not_known_needs_no_scheme() -> None:
    architecture = read_config({**LLAMA, "quantization_config": {"quant_method": "brand_new"}})
    headers = packed(gptq)([tensor._replace(dtype="F16") for tensor in usual(architecture)])
    found = weights_of_headers(architecture, headers)
    assert found.total_bytes == weights(read_config(GPTQ)).total_bytes
    assert found.warnings == ()
    with pytest.raises(InvalidInputError, match="cannot be told"):
        weights_of_headers(architecture, headers, ranks=TWO)


def test_types_that_nothing_explains_are_not_cut() -> None:
    architecture = read_config(QWEN3_MOE)
    name = "model.layers.1.mlp.experts.2.up_proj.weight"
    headers = [t._replace(dtype="F32") if t.name == name else t for t in usual(architecture)]
    whole = weights_of_headers(architecture, headers)
    assert whole.total_bytes == weights(architecture).total_bytes + 2 * 24 * 64
    for ranks in (TWO, Ranks(pp=2), Ranks(dp=2, ep=2)):
        with pytest.raises(InvalidInputError, match="what one device holds cannot be told") as caught:
            weights_of_headers(architecture, headers, ranks=ranks)
        assert caught.value.hint
    assert weights_of_headers(architecture, usual(architecture), ranks=Ranks(dp=2, ep=2)).per_device_bytes == (
        weights(architecture, ranks=Ranks(dp=2, ep=2)).per_device_bytes
    )


def test_headers_of_another_model() -> None:
    architecture = read_config(LLAMA)
    headers = [*usual(architecture)[1:], Tensor("something.else", "F16", (3,), "")]
    found = weights_of_headers(architecture, headers)
    assert sums(found) == header_bytes(headers).total
    assert "1 tensors missing, 1 unexpected, 0 of another shape" in found.warnings[0]
    assert "the config states" in found.warnings[1]
    with pytest.raises(InvalidInputError, match="not those of this architecture"):
        weights_of_headers(architecture, headers, ranks=TWO)
    with pytest.raises(InvalidInputError, match="list no weights"):
        weights_of_headers(architecture, [])


def test_a_table_that_is_stored_as_the_head_alone() -> None:
    tied = read_config({**LLAMA, "tie_word_embeddings": True})
    headers = [
        tensor._replace(name="lm_head.weight") if "embed_tokens" in tensor.name else tensor for tensor in usual(tied)
    ]
    assert verify(tied, headers).agrees
    assert weights_of_headers(tied, headers, ranks=TWO).per_device_bytes == weights(tied, ranks=TWO).per_device_bytes


# -- the verb ----------------------------------------------------------------------------------------------------------


def document(*words: str) -> tuple[dict[str, Any], list[str]]:
    code, out, err = run("weights", *words, "--json")
    assert code == 0, err
    found = json.loads(out)
    return found["results"], found["warnings"]


def test_the_verb_on_a_gguf_file(tmp_path: Path) -> None:
    path = write_mixed(tmp_path / "a.gguf")
    results, warnings = document(str(path))
    assert results["total_bytes"] == tree(results["components"]) == sum(size(*item) for item in ALL.items())
    assert results["weights_format"] == "checkpoint headers"
    assert results["mtp_bytes"] == results["vision_bytes"] == 0
    assert warnings == []
    _, out, _ = run("weights", str(path), "--explain")
    assert "weights by the checkpoint headers" in out
    assert "320 blocks of 256 x 144 bytes a block = 46,080 B" in out
    code, out, err = run("weights", str(path), "--tp", "3")
    assert (code, out) == (1, "")
    assert "does not divide" in err


def test_the_verb_on_a_folder(tmp_path: Path) -> None:
    folder = str(rebuild(tmp_path / "model"))
    results, warnings = document(folder)
    assert (results["total_bytes"], warnings) == (90_856_960, [])
    assert "names no dtype" not in run("weights", folder, "--json")[1]
    asked, _ = document(folder, "--weights", "bf16")
    assert asked["total_bytes"] == 90_852_864 // 2
    changed, warnings = document(folder, "--set", "vocab_size=100")
    assert changed["total_bytes"] == 90_852_864 // 2 - 2 * 384 * (30_522 - 100)
    assert warnings == ["--set makes another model of it: the bytes are the config's (bf16), not the checkpoint's own"]
    alone, _ = document(str(tmp_path / "model" / "config.json"))
    assert alone["total_bytes"] == 90_852_864 // 2
    code, _, err = run("weights", folder, "--group-size", "64")
    assert code == 1
    assert "--group-size" in err
