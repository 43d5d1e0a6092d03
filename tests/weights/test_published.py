"""Bytes and element counts of published checkpoints, from configs alone. All equal, none near."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmcalc import load, params, weights
from llmcalc.figure import Figure
from llmcalc.sources.catalogue import entries

# Tensor bytes in the headers of the official repositories (index ``total_size``), main model and MTP layers.
PAYLOAD = {
    "gpt-oss-120b": 65_248_815_744,
    "gpt-oss-20b": 13_761_264_768,
    "llama-3-70b": 141_107_412_992,
    "llama-3.1-8b": 16_060_522_496,
    "mixtral-8x7b": 93_405_585_408,
    "qwen3-30b-a3b": 61_064_245_248,
    "bloom": 352_494_542_848,
    "glm-5.2": 1_506_659_919_872,
    "deepseek-v3": 688_574_839_360,
}


@pytest.mark.parametrize("name", PAYLOAD)
def test_published_payloads(name: str) -> None:
    found = weights(load(name).architecture)
    assert found.total_bytes + found.mtp_bytes == PAYLOAD[name]


def test_deepseek_v3_without_its_mtp_layer() -> None:
    """673,150,611,808 B with 14,848 router biases of 4 B; hub headers hold the MTP layer beside it."""
    found = weights(load("deepseek-v3").architecture)
    assert found.total_bytes == 673_150_611_808
    assert {name: (count, size) for name, count, size in found.formats}["fp32"] == (14_848, 4 * 14_848)


def test_gemma_2_9b_in_16_bits() -> None:
    assert weights(load("gemma-2-9b").architecture, "bf16").total_bytes == 18_483_411_968


# Scale elements of fp8 files: published element total less the parameters it counts beside them (safetensors metadata).
SCALES = {
    ("deepseek-v3", "config"): 684_531_386_000 - 684_489_845_504,
    ("glm-5-fp8", "config"): 753_910_024_032 - 753_864_139_008,
    ("minimax-m2.7", "config"): 228_703_644_928 - 228_689_764_864,
    ("qwen3-30b-a3b-fp8", "config"): 30_533_947_392 - 30_532_122_624,
    ("qwen3-235b-a22b", "fp8-block"): 235_107_904_512 - 235_093_634_560,
    ("qwen3-coder-480b-a35b", "fp8-block"): 480_184_064_000 - 480_154_875_392,
}


def pieces(figure: Figure | None, name: str) -> int:
    """Bytes of the stored tensors of a name, in a tree of figures."""
    if figure is None:
        return 0
    own = figure.value if figure.name.startswith(f"{name} (") else 0
    return own + sum(pieces(part, name) for part in figure.parts)


@pytest.mark.parametrize(("name", "stored"), SCALES)
def test_scales_of_published_fp8_files(name: str, stored: str) -> None:
    found = weights(load(name).architecture, stored)
    scales = pieces(found.figure, "weight_scale_inv") + pieces(found.mtp_figure, "weight_scale_inv")
    assert scales == 4 * SCALES[name, stored]


def test_kimi_k2_base_in_fp8() -> None:
    """1,026,470,731,056 elements less 1,026,408,235,864 of the model with bias and inv_freq: one scale a block."""
    config = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
    text = replace(load("kimi-k2.5").architecture, quantization=config, quantized_block="", towers=())
    assert pieces(weights(text).figure, "weight_scale_inv") == 4 * 62_495_192


def test_deepseek_v32_quantizes_the_indexer_s_queries_and_keys() -> None:
    """62 x (768 + 56) scales more than V3, the MTP layer's included; weights_proj stays."""
    old, new = (weights(load(name).architecture) for name in ("deepseek-v3", "deepseek-v3.2"))
    sides = [pieces(w.figure, "weight_scale_inv") + pieces(w.mtp_figure, "weight_scale_inv") for w in (old, new)]
    assert sides[1] - sides[0] == 4 * 62 * (768 + 56)


def test_deepseek_v4_flash() -> None:
    """4-bit experts with an e8m0 scale for 32 values, fp8 with e8m0 blocks; elements as published."""
    architecture = load("deepseek-v4-flash").architecture
    found, count = weights(architecture), params(architecture)
    assert count.stored_params == 290_944_616_402
    experts = 277_025_390_592
    assert ("mxfp4", experts, experts * 17 // 32) in found.formats
    assert found.total_bytes == 156_015_698_140


LLAMA_3_8B_LINEARS = {
    "gptq": 3_630_956_544,
    "awq": 3_625_975_808,
    "w4a16": 3_598_716_416,
    "int8": 6_984_826_880,
    "fp8-block": 6_981_025_792,
    "nvfp4": 3_925_870_336,
}


@pytest.mark.parametrize("name", LLAMA_3_8B_LINEARS)
def test_llama_3_8b_in_the_formats_of_the_field(name: str) -> None:
    tables = 2 * 1_050_939_392  # embeddings, head and norms in 16 bits
    assert weights(load("llama-3-8b").architecture, name).total_bytes == LLAMA_3_8B_LINEARS[name] + tables


@pytest.mark.parametrize(("name", "known"), [("nf4", 3_925_882_880), ("nf4-dq", 3_600_660_480)])
def test_bitsandbytes_stores_a_line_of_json_with_each_matrix(name: str, known: int) -> None:
    """The known sums leave the quant_state text out: it is what we have beyond them."""
    found = weights(load("llama-3-8b").architecture, name)
    assert found.total_bytes - pieces(found.figure, "weight.quant_state.bitsandbytes__nf4") == known + 2 * 1_050_939_392


# Published GGUF files of Llama-3.1-8B, each larger than this by the same 7.84 MB of metadata.
LLAMA_31_8B = {
    "q2_k": 3_171_295_488,
    "q3_k_m": 4_011_081_984,
    "q4_k_s": 4_684_833_024,
    "q4_k_m": 4_912_898_304,
    "q5_k_m": 5_725_151_488,
    "q6_k": 6_588_170_496,
    "q8_0": 8_532_934_912,
}


@pytest.mark.parametrize("mix", LLAMA_31_8B)
def test_llama_31_8b_in_llama_cpp_s_mixes(mix: str) -> None:
    found = weights(load("llama-3.1-8b").architecture, mix)
    assert found.total_bytes == LLAMA_31_8B[mix]
    assert not found.warnings


def test_components_of_kimi_k3() -> None:
    """MXFP4 experts 92 x 896 x 3 x 3584 x 3072 x 17/32, published as 1446.456 GB; towers are not described."""
    architecture = replace(load("kimi-k3").architecture, uncounted=())
    leaves = [leaf for stack in weights(architecture).figure.parts for branch in stack.parts for leaf in branch.parts]
    assert sum(leaf.value for leaf in leaves if "experts.{}" in leaf.name) == 1_446_456_066_048


# -- the whole catalogue -------------------------------------------------------------------------------------------

NAMES = [entry.name for entry in entries() if entry.name != "kimi-k3"]


@pytest.mark.parametrize("name", NAMES)
def test_every_model_of_the_catalogue(name: str) -> None:
    """Each number of the model is held once, whatever the format; parts sum; nothing is refused as configured."""
    architecture = load(name).architecture
    count = params(architecture)
    for stored in ("config", "bf16", "q4_k_m", "nf4"):
        found = weights(architecture, stored)
        assert sum(part.value for part in found.figure.parts) == found.total_bytes
        assert sum(numbers for _, numbers, _ in found.formats) == count.stored_params - count.mtp_params
        assert sum(size for _, _, size in found.formats) <= found.total_bytes <= 4 * count.stored_params
