"""Families beyond the measured corpus: what transformers 5.24 builds of the same config, number for number.

Every total was counted over the parameters of the class on the meta device, tied ones once.
"""

from __future__ import annotations

from typing import Any

import pytest

from llmcalc import params, read_config
from tests.families.configs import default

# transformers 5.24 on the meta device.
DECODERS: list[tuple[dict[str, Any], int]] = [
    (default("gpt_neox_japanese"), 2_598_837_760),
    (default("gpt_neox_japanese", num_hidden_layers=3, intermediate_multiple_size=3), 278_566_400),
    (default("cohere2_moe"), 190_004_928_512),
    (
        default(
            "cohere2_moe",
            hidden_size=1024,
            num_hidden_layers=9,
            first_k_dense_replace=2,
            prefix_dense_intermediate_size=1024,
            num_shared_experts=2,
            rms_norm_eps=1e-05,
            intermediate_size=512,
            attention_bias=True,
        ),
        680_823_808,
    ),
    (default("laguna"), 33_189_975_808),
    (
        default(
            "laguna",
            num_hidden_layers=4,
            num_attention_heads_per_layer=[48, 64, 48, 32],
            gating="per-element",
            attention_bias=True,
        ),
        3_056_135_936,
    ),
    (default("flint"), 39_785_287_456),
    (default("flint", num_hidden_layers=7, mlp_only_layers=[0, 3], attention_bias=True), 4_883_301_344),
    (default("kolibri1"), 78_103_055_360),
    (default("beam"), 501_267_599_808),
    (default("beam", num_hidden_layers=7, attention_bias=True), 43_504_351_312),
    (default("axk2"), 20_314_494_976),
    (default("axk2", num_hidden_layers=3, attention_bias=True, gated_norm_rank=8), 1_547_394_912),
    (default("hy_v4"), 58_278_193_133),
    (default("hy_v4", num_hidden_layers=5, attention_bias=True, hc_mult=2), 7_778_975_775),
    (default("dots3_note_text"), 279_551_718_016),
    (
        default(
            "dots3_note_text",
            num_hidden_layers=7,
            attention_bias=True,
            swa_head_dim=128,
            swa_qk_nope_head_dim=96,
            mlp_bias=True,
        ),
        38_893_920_640,
    ),
    (default("apertus1p5_text"), 8_091_086_912),
    (default("minimax_m3_vl_text"), 447_186_441_216),
    (
        default(
            "minimax_m3_vl_text",
            num_hidden_layers=4,
            sparse_attention_config={
                "sparse_attention_freq": [0, 1, 1, 1],
                "sparse_num_index_heads": 4,
                "sparse_index_dim": 64,
                "sparse_block_size": 64,
                "sparse_topk_blocks": 8,
                "sparse_local_block": 1,
            },
            moe_layer_freq=[0, 1, 1, 1],
        ),
        25_034_153_344,
    ),
    (
        default(
            "qwen4_exp_text",
            num_hidden_layers=8,
            indexer_n_heads=16,
            indexer_kv_heads=1,
            indexer_head_dim=256,
            indexer_budget=2048,
            indexer_compress_ratio=16,
            ple_layer_ids=[2, 5],
            eos_token_id=2,
        ),
        96_262_958_208,
    ),
    (
        default(
            "qwen4_exp_text",
            num_hidden_layers=4,
            indexer_n_heads=4,
            indexer_kv_heads=1,
            indexer_head_dim=256,
            indexer_budget=512,
            indexer_compress_ratio=32,
            hc_count=2,
            hc_lowrank=64,
            attention_bias=True,
        ),
        7_612_228_160,
    ),
    (default("inkling_text"), 975_340_270_146),
    (
        default(
            "inkling_text",
            num_hidden_layers=7,
            dense_mlp_idx=2,
            dense_intermediate_size=1024,
            intermediate_size=512,
            num_key_value_heads=4,
        ),
        15_596_406_535,
    ),
    (default("inkling2_text"), 593_718_478_848),
    (default("inkling2_loop_text"), 26_068_156_416),
    (
        default(
            "inkling2_loop_text",
            num_hidden_layers=18,
            loop_layer_index_start=6,
            loop_layer_index_end=12,
            loop_gate_rank=32,
            swa_num_key_value_heads=4,
        ),
        19_732_507_392,
    ),
    (default("mellum"), 12_149_923_072),
    (default("mellum", num_hidden_layers=4, attention_bias=True), 2_124_007_680),
    (default("granite_swa"), 2_144_463_840),
    (default("granitemoe_swa"), 37_039_117_312),
    (default("cwm"), 32_581_097_472),
    (default("cpmant"), 9_517_453_312),
    (default("modernbert-decoder"), 149_655_232),
    (default("cpmant", num_hidden_layers=2, prompt_types=8, segment_types=4), 638_636_544),
    (
        default(
            "modernbert-decoder",
            num_hidden_layers=5,
            attention_bias=True,
            mlp_bias=True,
            norm_bias=True,
            classifier_bias=True,
            decoder_bias=False,
            global_attn_every_n_layers=2,
        ),
        64_389_888,
    ),
    (default("olmoe"), 13_361_612_800),
]


def _name(value: object) -> str:
    return str(value["model_type"]) if isinstance(value, dict) else ""


@pytest.mark.parametrize(("config", "total"), DECODERS, ids=_name)
def test_parameters(config: dict[str, Any], total: int) -> None:
    assert params(read_config(config)).total_params == total
