"""Caches of families beyond the measured corpus, byte for byte as transformers 5.24 fills them.

Each class ran 20 tokens on the CPU in bf16 at these sizes; the library's counters and token ids are not counted.
"""

from __future__ import annotations

from typing import Any

import pytest

from llmcalc import kv_cache, read_config
from tests.families.configs import default

SMALL: dict[str, Any] = {"hidden_size": 64, "num_attention_heads": 4, "vocab_size": 128, "dtype": "bfloat16"}
INKLING = {
    "num_key_value_heads": 2,
    "head_dim": 16,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 4,
    "swa_head_dim": 16,
    "sliding_window_size": 9,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "rel_extent": 32,
}
INDEXED = {
    "kv_lora_rank": 24,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "intermediate_size": 32,
    "index_n_heads": 2,
    "index_head_dim": 16,
    "index_topk": 8,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
GROUPED = {"num_key_value_heads": 2, "head_dim": 16}

# transformers 5.24 on the CPU: (config, bytes after 20 tokens).
CACHES: list[tuple[dict[str, Any], int]] = [
    (
        default(
            "laguna",
            **(SMALL | EXPERTS | GROUPED),
            num_hidden_layers=3,
            layer_types=["full_attention", "sliding_attention", "sliding_attention"],
            sliding_window=8,
            shared_expert_intermediate_size=16,
            intermediate_size=32,
        ),
        4_352,
    ),
    (
        default(
            "flint",
            **(SMALL | EXPERTS | GROUPED),
            num_hidden_layers=5,
            sliding_window=9,
            shared_expert_intermediate_size=16,
            intermediate_size=32,
        ),
        9_728,
    ),
    (
        default(
            "kolibri1",
            **(SMALL | GROUPED),
            num_hidden_layers=5,
            sliding_window=9,
            num_local_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            shared_expert_intermediate_size=16,
        ),
        6_656,
    ),
    (
        default(
            "beam",
            **(SMALL | GROUPED),
            num_hidden_layers=7,
            sliding_window=9,
            num_experts=8,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            intermediate_size=32,
            n_group=2,
            topk_group=1,
        ),
        10_240,
    ),
    (
        default(
            "cohere2_moe",
            **(SMALL | GROUPED),
            num_hidden_layers=5,
            sliding_window=9,
            num_experts=4,
            num_experts_per_tok=2,
            intermediate_size=32,
        ),
        6_656,
    ),
    (
        default(
            "axk2",
            **(SMALL | INDEXED),
            num_key_value_heads=4,
            num_hidden_layers=3,
            q_lora_rank=16,
            qk_rope_head_dim=8,
            qk_nope_head_dim=16,
            gated_norm_rank=4,
        ),
        5_760,
    ),
    (
        default(
            "hy_v4", **(SMALL | INDEXED), num_hidden_layers=4, q_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=16
        ),
        6_400,
    ),
    (
        default(
            "dots3_note_text",
            **(SMALL | INDEXED),
            num_key_value_heads=4,
            num_hidden_layers=4,
            q_lora_rank=16,
            qk_rope_head_dim=8,
            qk_nope_head_dim=16,
            sliding_window=9,
            swa_num_attention_heads=2,
            swa_num_key_value_heads=2,
            swa_head_dim=32,
            swa_qk_nope_head_dim=24,
            swa_kv_lora_rank=40,
            swa_q_lora_rank=16,
            swa_v_head_dim=16,
            head_dim=24,
        ),
        6_656,
    ),
    (
        default(
            "minimax_m3_vl_text",
            **(SMALL | GROUPED),
            num_hidden_layers=3,
            layer_types=["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"],
            num_local_experts=4,
            num_experts_per_tok=2,
            intermediate_size=16,
            dense_intermediate_size=32,
            shared_intermediate_size=16,
            index_n_heads=2,
            index_head_dim=16,
            index_block_size=4,
            index_topk_blocks=2,
            rotary_dim=8,
        ),
        8_960,
    ),
    (default("inkling_text", **(SMALL | INKLING), num_hidden_layers=6), 36_352),
    (default("inkling2_text", **(SMALL | INKLING), unpadded_vocab_size=100, num_hidden_layers=6), 36_352),
    (
        default(
            "inkling2_loop_text",
            **(SMALL | INKLING),
            unpadded_vocab_size=100,
            num_hidden_layers=18,
            loop_layer_index_start=6,
            loop_layer_index_end=12,
        ),
        181_760,
    ),
    (
        default(
            "qwen4_exp_text",
            **(SMALL | EXPERTS | GROUPED),
            num_hidden_layers=4,
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            shared_expert_intermediate_size=16,
            indexer_n_heads=2,
            indexer_kv_heads=1,
            indexer_head_dim=16,
            indexer_budget=8,
            indexer_compress_ratio=4,
            ple_layer_ids=[2],
            eos_token_id=2,
            ngram_vocab_size_base=50,
            ple_embed_dim=64,
            hc_lowrank=8,
            hc_count=2,
            heads_per_ngram=4,
        ),
        10_112,
    ),
    (default("gpt_neox_japanese", **(SMALL), num_hidden_layers=2), 10_240),
    (default("modernbert-decoder", **(SMALL), num_hidden_layers=4, intermediate_size=32, local_attention=16), 13_824),
    (default("apertus1p5_text", **(SMALL), num_hidden_layers=2, intermediate_size=32, num_key_value_heads=2), 5_120),
    (
        default(
            "glm5_next_text",
            **(SMALL | INDEXED),
            num_hidden_layers=4,
            q_lora_rank=16,
            qk_nope_head_dim=16,
            num_key_value_heads=4,
            index_kpool=4,
            linear_num_heads=2,
            linear_head_dim=16,
        ),
        10_728,
    ),
    (
        default(
            "mistral_large4_text",
            **(SMALL | INDEXED),
            num_hidden_layers=5,
            kv_source_layers=[0, 0, 2, 3, 3],
            indexer_types=["full", "full", "shared", "full", "shared"],
            qk_rope_head_dim=8,
            qk_nope_head_dim=8,
            num_key_value_heads=4,
        ),
        5_440,
    ),
    (
        default(
            "step3p5",
            **(SMALL | GROUPED),
            num_hidden_layers=4,
            layer_types=["full_attention", "sliding_attention", "full_attention", "sliding_attention"],
            sliding_window=9,
            num_sliding_attention_heads=6,
            n_routed_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            share_expert_dim=16,
            intermediate_size=32,
        ),
        7_168,
    ),
    (
        default(
            "muse_spark_text",
            **(SMALL | GROUPED),
            num_hidden_layers=5,
            sliding_window=9,
            num_local_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            moe_hidden_size=32,
        ),
        8_192,
    ),
    (
        default("muse_glimmer_text", **(SMALL | GROUPED), num_hidden_layers=5, sliding_window=9, intermediate_size=32),
        8_192,
    ),
]


def _name(value: object) -> str:
    return str(value["model_type"]) if isinstance(value, dict) else ""


@pytest.mark.parametrize(("config", "size"), CACHES, ids=_name)
def test_cache_of_the_library(config: dict[str, Any], size: int) -> None:
    assert kv_cache(read_config(config), 20, cache="bf16", engine="transformers").allocated_bytes == size


def test_minimax_m3_keeps_an_index_key_a_position() -> None:
    """57 of its 60 layers have an indexer: 128 numbers a token beside the keys and values of 4 heads."""
    kinds = ["full_attention"] * 3 + ["minimax_m3_sparse"] * 57
    model = read_config(default("minimax_m3_vl_text", layer_types=kinds, dtype="bfloat16"))

    assert kv_cache(model, 1000, cache="bf16").total_bytes == 137_472_000


def test_looped_inkling_keeps_a_cache_a_visit() -> None:
    """24 blocks, of which 12 run three times: 48 visits."""
    model = read_config(default("inkling2_loop_text", dtype="bfloat16"))

    assert model.decoder.depth == 48
    assert sum(held.calls for held in model.states if held.state.name == "keys") == 48
