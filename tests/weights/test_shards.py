"""Weights over devices: what is cut, what is repeated, what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcalc import Ranks, kv_cache, load, read_config, weights
from llmcalc.calc.degrees import Spreading
from llmcalc.calc.latency import latency
from llmcalc.errors import InvalidInputError
from llmcalc.hardware.catalogue import describe


def rank(name: str, stored: str = "config", **degrees: int) -> int:
    return weights(load(name).architecture, stored, ranks=Ranks(**degrees)).per_device_bytes


def total(name: str, stored: str = "config") -> int:
    return weights(load(name).architecture, stored).total_bytes


NORMS = 65 * 4096 * 2  # of Llama-3.1-8B: two a layer and the last, in 16 bits
KEYS_VALUES = 32 * 2 * 1024 * 4096 * 2


def test_one_device_holds_all() -> None:
    assert rank("llama-3.1-8b") == total("llama-3.1-8b")


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_norms_are_on_every_rank(tp: int) -> None:
    assert tp * rank("llama-3.1-8b", tp=tp) == total("llama-3.1-8b") + (tp - 1) * NORMS


@pytest.mark.parametrize("tp", [16, 32])
def test_key_and_value_heads_are_repeated_past_their_number(tp: int) -> None:
    """Eight heads on 16 ranks: each held twice."""
    extra = (tp // 8 - 1) * KEYS_VALUES
    assert tp * rank("llama-3.1-8b", tp=tp) == total("llama-3.1-8b") + (tp - 1) * NORMS + extra


def test_data_parallel_ranks_hold_the_same() -> None:
    assert rank("llama-3.1-8b", tp=2, dp=4) == rank("llama-3.1-8b", tp=2)


def test_latent_down_projections_and_routers_are_repeated() -> None:
    """DeepSeek-V3 in bf16, 8 ranks: norms, routers and their biases, q_a and kv_a on each."""
    layers, sparse, d = 61, 58, 7168
    norms = layers * (2 * d + 1536 + 512) + d
    repeated = 2 * (norms + sparse * 256 * d + layers * (1536 + 576) * d) + 4 * sparse * 256
    assert 8 * rank("deepseek-v3", "bf16", tp=8) == total("deepseek-v3", "bf16") + 7 * repeated


def test_experts_are_spread() -> None:
    """One expert of each layer on each of 256 ranks, the rest as one rank of 8 has it."""
    experts = 58 * 256 * 3 * 2048 * 7168 * 2
    eight = rank("deepseek-v3", "bf16", tp=8)
    assert rank("deepseek-v3", "bf16", tp=8, dp=32, ep=256) == eight - experts // 8 + experts // 256
    assert rank("deepseek-v3", "bf16", tp=8, ep=8) == eight


def test_uneven_experts_leave_one_rank_with_more() -> None:
    """Eight experts on five ranks: two on the fullest."""
    experts = 32 * 3 * 14336 * 4096 * 2
    spread = rank("mixtral-8x7b", dp=5, ep=5)
    assert spread == total("mixtral-8x7b") - 8 * experts + 2 * experts


def test_pipeline_stages_hold_their_layers() -> None:
    """Llama-3.1-8B on two: 16 layers each; table before, norm and head behind."""
    table, layer = 128_256 * 4096 * 2, 0
    layer = (total("llama-3.1-8b") - 2 * table - 4096 * 2) // 32
    assert rank("llama-3.1-8b", pp=2) == 16 * layer + table + 4096 * 2
    assert rank("llama-3.1-8b", pp=3) == 11 * layer + table


def test_a_tied_table_is_on_both_ends() -> None:
    """Qwen3-0.6B: 28 layers on two stages, the last keeps the table again as its head."""
    table = 151_936 * 1024 * 2
    layers = total("qwen3-0.6b") - table - 1024 * 2
    assert rank("qwen3-0.6b", pp=2) == layers // 2 + table + 1024 * 2


def test_a_padded_vocabulary_is_told() -> None:
    """GPT-2's 50,257 rows on 4 ranks: 12,565 each."""
    found = weights(load("gpt2").architecture, ranks=Ranks(tp=4))
    assert any("50,257 is padded to 50,260" in text for text in found.assumptions)


def test_scales_follow_the_cut() -> None:
    """fp8 blocks of 128 x 128: a rank's share of scales is a share of blocks, whole ones at the edges."""
    assert 8 * rank("qwen3-8b-fp8", tp=8) > total("qwen3-8b-fp8")
    assert rank("llama-3-8b", "gptq", tp=4) < total("llama-3-8b", "gptq") // 3


# By hand: an expert's 90 groups of 32 columns are dealt out by 23 (736 columns) or 12 (384), in gate, up and down
# alike; the bias of down is whole; 64 heads and 8 pairs of keys and values are cut evenly, a table has 201,088 rows.
@pytest.mark.parametrize(
    ("name", "tp", "size"),
    [
        ("gpt-oss-20b", 4, 3_503_719_296),
        ("gpt-oss-20b", 8, 1_812_945_408),
        ("gpt-oss-120b", 4, 16_691_201_280),
        ("gpt-oss-120b", 8, 8_711_167_680),
    ],
)
def test_experts_of_gpt_oss_are_dealt_out_by_whole_groups(name: str, tp: int, size: int) -> None:
    model = load(name).architecture
    found = weights(model, ranks=Ranks(tp=tp))
    assert found.per_device_bytes == size
    assert any("whole mxfp4 groups of 32" in text for text in found.assumptions)
    spreading = Spreading(model)
    assert spreading.choice(Ranks(tp=tp)).weight_bytes == size
    assert spreading.notes(Ranks(tp=tp)) == [text for text in found.assumptions if "whole mxfp4 groups" in text]
    # A step reads 4 experts of each layer: the rest of a rank's bytes is what one that holds 4 would keep.
    layers, experts = {"gpt-oss-20b": (24, 32), "gpt-oss-120b": (36, 128)}[name]
    width = {4: 736, 8: 384}[tp]
    expert = 3 * width * 2880 * 17 // 32 + 2 * width * 2 + 2880 * 2
    step = latency(model, describe(bandwidth=1e12), ranks=Ranks(tp=tp)).decode
    table = 201_088 // tp * 2880 * 2
    assert step.weight_read_bytes == size - table - layers * (experts - 4) * expert


def test_an_even_cut_of_groups_says_nothing() -> None:
    """2,880 columns on two ranks: 45 groups each; whole experts on ranks of their own."""
    for degrees in (Ranks(tp=2), Ranks(tp=8, ep=8)):
        found = weights(load("gpt-oss-20b").architecture, ranks=degrees)
        assert not any("groups" in text for text in found.assumptions)
    assert rank("gpt-oss-20b", tp=2) == 6_885_267_072


@pytest.mark.parametrize(
    ("name", "stored", "degrees", "words"),
    [
        ("llama-3.1-8b", "config", {"tp": 3}, "does not divide"),
        ("llama-3.1-8b", "config", {"tp": 12}, "does not divide|no multiple"),
        ("llama-3.1-8b", "config", {"pp": 33}, "stages"),
        ("mixtral-8x7b", "config", {"ep": 3}, "does not divide tp x dp"),
        ("llama-3-8b", "awq", {"tp": 32}, "cuts .* into pieces"),
        ("qwen2.5-72b", "gptq", {"tp": 8}, "gptq has groups of 128, which do not divide 3,696"),
        ("gpt-oss-120b", "mxfp4_moe", {"tp": 4}, "do not divide 720"),
        ("llama-3.1-8b", "q4_k_m", {"tp": 32}, "cuts .* into pieces"),
    ],
)
def test_cuts_that_do_not_fit(name: str, stored: str, degrees: dict[str, int], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        rank(name, stored, **degrees)


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(["llama-3.1-8b", "mixtral-8x7b", "deepseek-v3", "qwen3-0.6b", "gpt-oss-20b"]),
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 3, 4]),
    dp=st.sampled_from([1, 2, 4]),
    spread=st.booleans(),
)
def test_all_ranks_together_hold_the_model(name: str, tp: int, pp: int, dp: int, spread: bool) -> None:
    ep = tp * dp if spread else 1
    one = rank(name, "bf16", tp=tp, pp=pp, dp=dp, ep=ep)
    assert one * tp * pp * dp >= total(name, "bf16")
    assert one <= total(name, "bf16")


@pytest.mark.parametrize(
    "name", ["zamba2-1.2b", "gemma-3-27b", "t5-base", "nemotron-h-8b", "falcon-h1-34b", "qwen3-next-80b-a3b"]
)
def test_every_kind_of_layer_can_be_cut_in_two(name: str) -> None:
    whole, half = total(name), rank(name, tp=2)
    assert whole / 2 <= half < whole


@pytest.mark.parametrize(("groups", "tp"), [(1, 2), (1, 4), (2, 4)])
def test_groups_of_a_scan_are_repeated_past_their_number(groups: int, tp: int) -> None:
    """Mamba-2: B and C of a group, in the input matrix and the convolution, are on every rank that needs them."""
    data = {
        "model_type": "mamba2", "hidden_size": 64, "num_hidden_layers": 3, "num_heads": 8, "head_dim": 16, "expand": 2,
        "n_groups": groups, "state_size": 16, "conv_kernel": 4, "use_conv_bias": True, "vocab_size": 128,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    architecture = read_config(data)
    group = 2 * 16 * (64 + 4 + 1)
    repeated = 3 * (tp - groups) * group + (tp - 1) * (3 + 1) * 64
    one = weights(architecture, ranks=Ranks(tp=tp)).per_device_bytes
    assert tp * one == weights(architecture).total_bytes + 2 * repeated


def test_the_shared_keys_of_attention_experts_are_repeated() -> None:
    """JetMoE: one matrix makes keys and values of four heads; on eight ranks each head is held twice."""
    data = {
        "model_type": "jetmoe", "hidden_size": 64, "num_hidden_layers": 2, "num_key_value_heads": 4, "kv_channels": 16,
        "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 64, "vocab_size": 128,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    architecture = read_config(data)
    one, four, eight = (weights(architecture, ranks=Ranks(tp=tp)).per_device_bytes for tp in (1, 4, 8))
    whole = [p.size for p in architecture.weights if p.weight.split == "none"]
    shared = 2 * 2 * 4 * 16 * 64
    assert 4 * four == one + 3 * 2 * sum(whole)
    assert 8 * eight == one + 7 * 2 * sum(whole) + 2 * shared


# -- heads, towers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "tp", "words"), [
    ("deepseek-v3", 256, "--tp 256 does not divide the 128 heads of latent attention"),
    ("kimi-k2", 128, "--tp 128 does not divide the 64 heads of latent attention"),
    ("minicpm3-4b", 16, "--tp 16 does not divide the 40 heads of latent attention"),
    ("qwen3-next-80b-a3b", 32, "--tp 32 does not divide the 16 key heads of linear attention"),
    ("qwen3.5-397b-a17b", 32, "--tp 32 does not divide the 16 key heads of linear attention"),
    ("deepseek-v4-flash", 16, "--tp 16 does not divide the 8 groups of the output of"),
])  # fmt: skip
def test_heads_are_not_cut_in_weights_or_cache(name: str, tp: int, words: str) -> None:
    """The shares of their matrices would come out even."""
    model = load(name).architecture
    for figure in (lambda: weights(model, ranks=Ranks(tp)), lambda: kv_cache(model, 100, tp=tp)):
        with pytest.raises(InvalidInputError, match=words):
            figure()
    assert Spreading(model).choice(Ranks(tp)).reason.startswith(words)


def test_a_tower_that_cannot_be_cut_is_whole_on_every_device() -> None:
    """Sixteen heads of the vision tower on 16 ranks, and on 32."""
    model = load("qwen3-vl-8b").architecture
    text = replace(model, towers=())
    cut, whole = weights(model, ranks=Ranks(16)), weights(model, ranks=Ranks(32))
    assert whole.per_device_bytes == weights(text, ranks=Ranks(32)).per_device_bytes + whole.vision_bytes
    assert cut.per_device_bytes < weights(text, ranks=Ranks(16)).per_device_bytes + cut.vision_bytes
    said = [line for line in whole.assumptions if "tower" in line]
    assert len(said) == 1
    assert "the vision tower is whole on every device, for --tp 32 does not divide the 16 heads" in said[0]
    assert not any("tower" in line for line in cut.assumptions)
    assert Spreading(model).stages(Ranks(32)) == (whole.per_device_bytes,)
    assert Spreading(model).notes(Ranks(32)) == said


def test_vectors_of_channels_are_cut_with_them() -> None:
    """RWKV-4 on two: five mixing vectors a layer and the norms are on both, and a row that pads table and head."""
    whole, half = rank("rwkv-4-169m-pile", "fp32"), rank("rwkv-4-169m-pile", "fp32", tp=2)
    assert 2 * half == whole + 4 * 768 * (12 * (5 + 4) + 4 + 2)
