"""Passes of 512 tokens, and steps after them, measured for one model of each layer kind (logits of the last token).

Source: torch.utils.flop_counter over transformers 5.24 on the meta device, masked pairs multiplied.
"""

from __future__ import annotations

from typing import Any

import pytest

from llmcalc import flops, load, params, read_config
from llmcalc.arch.base import Scope, Step
from llmcalc.arch.mixing import Counting
from llmcalc.errors import UnsupportedLayerError

MAMBA2: dict[str, Any] = {
    "model_type": "mamba2", "hidden_size": 2560, "num_hidden_layers": 64, "num_heads": 80, "head_dim": 64,
    "state_size": 128, "n_groups": 1, "expand": 2, "conv_kernel": 4, "vocab_size": 50288, "chunk_size": 256,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip
MINIMAX: dict[str, Any] = {
    "model_type": "minimax", "hidden_size": 6144, "num_hidden_layers": 80, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 9216, "num_local_experts": 32,
    "num_experts_per_tok": 2, "vocab_size": 200064, "torch_dtype": "bfloat16",
    "layer_types": [["linear_attention", "full_attention"][(i + 1) % 8 == 0] for i in range(80)],
}  # fmt: skip
FULL = [4, 8, 12, 16, 20, 24, 27]
KIMI: dict[str, Any] = {
    "model_type": "kimi_linear", "hidden_size": 2304, "num_hidden_layers": 27, "num_attention_heads": 32,
    "num_key_value_heads": 32, "intermediate_size": 9216, "kv_lora_rank": 512, "q_lora_rank": None,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "num_experts": 256, "num_experts_per_token": 8,
    "moe_intermediate_size": 1024, "num_shared_experts": 1, "first_k_dense_replace": 1, "moe_layer_freq": 1,
    "vocab_size": 163840, "torch_dtype": "bfloat16", "mla_use_nope": True,
    "linear_attn_config": {"head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4, "full_attn_layers": FULL,
                           "kda_layers": [i for i in range(1, 28) if i not in FULL]},
}  # fmt: skip

CATALOGUE = [
    ("llama-3-70b", 70_783_162_384_384, 140_348_227_584),
    ("gpt-oss-120b", 4_816_991_010_816, 10_451_238_912),
    ("deepseek-v3", 37_866_486_366_208, 1_123_784_736_768),
    ("deepseek-v3.2", 39_002_471_661_568, None),
    ("qwen3-next-80b-a3b-instruct", 3_469_587_251_200, 7_230_324_736),
    ("nemotron-h-8b-base-8k", 7_343_443_673_088, 15_212_544_000),
    ("deepseek-v4-flash", 14_737_024_745_472, 27_675_983_872),
]
WRITTEN = [
    (MAMBA2, 2_702_599_680, 2_979_379_200_000, 5_490_130_944),
    (MINIMAX, 456_089_655_296, 47_585_327_316_992, None),
    (KIMI, 49_122_675_072, 2_881_425_637_376, None),
]


@pytest.mark.parametrize(("name", "prefill", "decode"), CATALOGUE)
def test_catalogue(name: str, prefill: int, decode: int | None) -> None:
    architecture = load(name).architecture

    assert flops(architecture, 512, convention="dense").forward_flops == prefill
    step = flops(architecture, phase="decode", past=512, convention="dense", mla="reexpand")
    assert decode is None or step.forward_flops == decode


@pytest.mark.parametrize(("data", "size", "prefill", "decode"), WRITTEN, ids=lambda value: str(value)[:24])
def test_written(data: dict[str, Any], size: int, prefill: int, decode: int | None) -> None:
    architecture = read_config(data)

    assert params(architecture).total_params == size
    assert flops(architecture, 512, convention="dense").forward_flops == prefill
    assert decode is None or flops(architecture, phase="decode", past=512, convention="dense").forward_flops == decode


def test_absorbed_latents_of_deepseek_v3() -> None:
    """2 W + 61 x 512 x 278,528 without the new token's own pairs, which are 61 x 278,528 more."""
    step = flops(load("deepseek-v3").architecture, phase="decode", past=512)

    assert step.forward_flops == 2 * 36_624_596_992 + 61 * 513 * 278_528
    assert step.attention_flops == 61 * 513 * 278_528
    assert flops(load("deepseek-v3").architecture, phase="decode", past=512, mla="expanded").attention_flops == (
        61 * 513 * 81_920
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [("retention", "retention attention"), ("gla", "gla attention")],
)
def test_dense_count_of_an_unmeasured_kind_is_refused(name: str, words: str) -> None:
    kinds = {"retention": "retnet", "gla": "gla"}
    data = {"model_type": kinds[name], "hidden_size": 64, "num_hidden_layers": 2, "num_heads": 2, "vocab_size": 100,
            "torch_dtype": "bfloat16"}  # fmt: skip
    architecture = read_config(data)

    with pytest.raises(UnsupportedLayerError, match=words):
        _ = flops(architecture, 64, convention="dense").forward_flops
    assert flops(architecture, 64).scan_flops > 0
    assert flops(architecture, 64).attention_dense_flops == 0


def test_deberta_s_relative_attention_is_refused() -> None:
    data = {"model_type": "deberta-v2", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 128, "vocab_size": 100, "relative_attention": True, "pos_att_type": "c2p|p2c",
            "torch_dtype": "bfloat16"}  # fmt: skip

    with pytest.raises(UnsupportedLayerError, match="DeBERTa"):
        _ = flops(read_config(data), 64).forward_flops


@pytest.mark.parametrize(("rate", "limit"), [(1, 3), (4, 5), (4, 1), (7, 100)])
@pytest.mark.parametrize("past", [0, 1, 19])
def test_picked_entries(rate: int, limit: int, past: int) -> None:
    seen = [min(i // rate, limit) for i in range(past + 1, past + 60)]

    assert Step(59, past).picked(rate, limit) == sum(seen)


@pytest.mark.parametrize(
    ("scope", "keys"), [(Scope("full"), 150), (Scope("sliding", 32), 81), (Scope("chunked", 500), 150)]
)
def test_keys_that_a_library_multiplies(scope: Scope, keys: int) -> None:
    assert Counting("dense").keys(Step(50, 100), scope) == keys
