"""Wrappers beyond the measured corpus: their language models, number for number."""

from __future__ import annotations

from typing import Any

import pytest

from llmcalc import read_config
from tests.families.configs import body, default, wrapped

# transformers 5.24 on the meta device, the language model of each.
WRAPPERS: list[tuple[dict[str, Any], int]] = [
    (wrapped("muse_glimmer", default("muse_glimmer_text")), 27_854_780_928),
    (wrapped("muse_spark", default("muse_spark_text")), 819_990_536_192),
    (wrapped("mistral_large4", default("mistral_large4_text")), 1_050_118_202_912),
    (wrapped("glm5_next", default("glm5_next_text")), 313_326_816_766),
    (wrapped("step3p7", default("step3p5")), 195_843_833_088),
    (
        wrapped(
            "step3p7",
            default(
                "step3p5",
                hidden_size=1024,
                num_hidden_layers=7,
                attention_bias=True,
                mlp_bias=True,
                layer_types=[
                    "full_attention",
                    "sliding_attention",
                    "full_attention",
                    "sliding_attention",
                    "full_attention",
                    "sliding_attention",
                    "sliding_attention",
                ],
                attention_other_setting={"num_attention_heads": 96},
                moe_layers_enum="3,4,6",
                sliding_window=512,
            ),
        ),
        3_978_774_784,
    ),
    (wrapped("minimax_m3_vl", default("minimax_m3_vl_text")), 447_186_441_216),
    (
        wrapped(
            "mistral_large4",
            default(
                "mistral_large4_text",
                num_hidden_layers=8,
                attention_bias=True,
                kv_source_layers=[0, 0, 0, 3, 4, 4, 6, 6],
                index_topk_pattern="FSSFFSFS",
            ),
        ),
        106_214_797_792,
    ),
    (
        wrapped(
            "glm5_next",
            default("glm5_next_text", num_hidden_layers=9, attention_bias=True, index_topk_pattern="FFFFFFFSS"),
        ),
        46_580_031_526,
    ),
    (
        wrapped(
            "muse_spark",
            default(
                "muse_spark_text",
                num_hidden_layers=5,
                attention_bias=True,
                mlp_layer_types=["dense", "sparse", "sparse", "sparse", "dense"],
            ),
        ),
        44_068_833_280,
    ),
    (wrapped("inkling_mm_model", default("inkling_text")), 975_340_270_146),
    (wrapped("inkling2", default("inkling2_text")), 593_718_478_848),
    (wrapped("hy_v4_vl", default("hy_v4_vl_text", num_key_value_heads=64, head_dim=64)), 769_907_389_085),
    (wrapped("dots3_note", default("dots3_note_text")), 279_551_718_016),
    (wrapped("exaone4_5", default("exaone4")), 9_429_069_824),
    (wrapped("apertus1p5", default("apertus1p5_text")), 8_091_086_912),
    (wrapped("glmga", default("glm4v_text")), 9_400_279_040),
    (wrapped("glm_ocr", default("glm_ocr_text")), 373_359_616),
    (wrapped("paddleocr_vl", default("paddleocr_vl_text"), tie_word_embeddings=True), 360_748_032),
    (wrapped("granite_docling", default("granite_docling_text"), tie_word_embeddings=True), 386_630_656),
    (wrapped("molmo2", default("molmo2_text")), 8_191_259_648),
    (
        wrapped(
            "molmo2",
            default("molmo2_text", num_hidden_layers=3, attention_bias=True, qk_norm_type="olmo", norm_after=True),
        ),
        1_824_060_416,
    ),
    (wrapped("cosmos3_edge", default("cosmos3_edge_text")), 1_946_273_792),
    (wrapped("cosmos3_omni", default("qwen3_vl_text")), 12_049_461_248),
    (
        wrapped(
            "voxtral_realtime",
            default(
                "voxtral_realtime_text",
                hidden_size=3072,
                num_hidden_layers=26,
                vocab_size=131072,
                intermediate_size=9216,
                head_dim=128,
                sliding_window=8192,
            ),
            tie_word_embeddings=True,
        ),
        3_434_118_144,
    ),
    (wrapped("emu3", default("emu3_text_model")), 8_492_011_520),
    (wrapped("deepseek_vl", default("llama"), tie_word_embeddings=True), 6_607_343_616),
    (wrapped("deepseek_vl_hybrid", default("llama"), tie_word_embeddings=True), 6_607_343_616),
    (wrapped("janus", default("llama"), tie_word_embeddings=True), 6_607_343_616),
    (
        wrapped(
            "got_ocr2",
            default(
                "qwen2",
                hidden_size=1024,
                num_hidden_layers=24,
                num_attention_heads=16,
                vocab_size=151860,
                intermediate_size=2816,
                num_key_value_heads=16,
                tie_word_embeddings=True,
                max_window_layers=21,
            ),
            tie_word_embeddings=True,
        ),
        463_909_888,
    ),
    (wrapped("ovis2", default("qwen2"), tie_word_embeddings=True), 11_427_516_416),
    (wrapped("hyperclovax_vision_v2", default("hyperclovax"), tie_word_embeddings=True), 6_607_605_760),
    (wrapped("lfm3_vl", default("lfm3"), tie_word_embeddings=True), 1_728_801_536),
    (
        wrapped(
            "lighton_ocr",
            default(
                "qwen3",
                hidden_size=1024,
                num_hidden_layers=28,
                num_attention_heads=16,
                intermediate_size=3072,
                num_key_value_heads=8,
                max_position_embeddings=40960,
            ),
            tie_word_embeddings=True,
        ),
        596_049_920,
    ),
    (wrapped("minicpm_ocr", default("qwen3_5_text"), tie_word_embeddings=True), 7_936_684_544),
    (wrapped("minicpmv4_6", default("qwen3_5_text")), 8_953_803_264),
    (wrapped("minicpmv4_7", default("qwen3_5_text")), 8_953_803_264),
    (
        wrapped(
            "nemotron_h_omni",
            default("nemotron_h", layers_block_type=["linear_attention", "moe", "full_attention", "mlp"]),
        ),
        1_968_355_712,
    ),
    (wrapped("qianfan_ocr", default("qwen3")), 12_049_461_248),
    (wrapped("shieldgemma2", default("gemma3_text"), tie_word_embeddings=True), 2_628_658_432),
    (wrapped("video_llama_3", default("qwen2")), 12_049_846_272),
    (wrapped("video_llava", default("llama")), 6_738_415_616),
    (wrapped("audioflamingo3", default("qwen2")), 12_049_846_272),
    (wrapped("musicflamingo", default("qwen2")), 12_049_846_272),
    (wrapped("granite_speech", default("granite"), tie_word_embeddings=True), 6_607_343_616),
    (
        wrapped(
            "glmasr",
            default(
                "llama",
                hidden_size=2048,
                num_hidden_layers=28,
                num_attention_heads=16,
                vocab_size=59264,
                intermediate_size=6144,
                num_key_value_heads=4,
                max_position_embeddings=8192,
                head_dim=128,
            ),
            tie_word_embeddings=True,
        ),
        1_472_055_296,
    ),
    (
        wrapped(
            "qwen3_asr",
            default(
                "qwen3",
                hidden_size=2048,
                num_hidden_layers=28,
                num_attention_heads=16,
                intermediate_size=6144,
                num_key_value_heads=8,
                max_position_embeddings=65536,
                tie_word_embeddings=True,
            ),
            tie_word_embeddings=True,
        ),
        1_720_574_976,
    ),
    (
        {
            "model_type": "phi4_multimodal",
            "hidden_size": 3072,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "vocab_size": 200064,
            "intermediate_size": 8192,
            "num_key_value_heads": 8,
            "vision_config": {},
        },
        4_400_286_720,
    ),
    (
        wrapped(
            "ernie4_5_vl_moe",
            default("ernie4_5_vl_moe_text", moe_intermediate_size=[1536, 512]),
            tie_word_embeddings=True,
        ),
        28_624_635_776,
    ),
    (
        wrapped(
            "ernie4_5_vl_moe",
            default(
                "ernie4_5_vl_moe_text",
                num_hidden_layers=4,
                moe_num_experts=32,
                moe_num_shared_experts=0,
                moe_intermediate_size=[256, 128],
                use_bias=False,
            ),
            tie_word_embeddings=True,
        ),
        705_682_112,
    ),
    (wrapped("gemma4_unified", default("gemma4_unified_text"), tie_word_embeddings=True), 3_010_758_400),
    (
        wrapped(
            "gemma4_unified",
            default(
                "gemma4_unified_text",
                num_hidden_layers=8,
                attention_bias=True,
                attention_k_eq_v=True,
                num_global_key_value_heads=2,
            ),
            tie_word_embeddings=True,
        ),
        1_241_124_096,
    ),
    (
        wrapped(
            "hunyuan_vl",
            default("hunyuan_vl_text", num_hidden_layers=4, attention_bias=True, head_dim=128, num_key_value_heads=8),
            tie_word_embeddings=True,
        ),
        1_900_618_752,
    ),
    (wrapped("granite4_vision", default("granite4_vision_text")), 6_738_415_616),
]


def _name(value: object) -> str:
    return str(value["model_type"]) if isinstance(value, dict) else ""


@pytest.mark.parametrize(("config", "total"), WRAPPERS, ids=_name)
def test_parameters_of_the_language_model(config: dict[str, Any], total: int) -> None:
    assert body(read_config(config)) == total
