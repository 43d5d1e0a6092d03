"""Nothing that is a size is taken for harmless: the warning about unread keys is the only net for an unknown layout."""

from __future__ import annotations

import json

import pytest

from llmcalc.arch.defaults import _lines
from llmcalc.arch.harmless import harmless

# Whole numbers of the classes that are no sizes of a layer: positions, routing groups, sampling, seeds.
NO_SIZES = {
    "attention_drop_rate", "audio_token_index", "audio_token_offset", "begin_suppress_tokens", "boi_token_index",
    "cls_token", "drop_path_rate", "drop_rate", "enc_res2net_scale", "encoder_no_repeat_ngram_size", "eoa_token_index",
    "eoi_token_index", "floor_scale", "image_token_index", "image_token_offset", "mask_index", "max_length",
    "max_timescale", "min_timescale", "n_group", "num_beams", "original_max_position_embeddings", "pretraining_tp",
    "query_pre_attn_scalar", "rescale_every", "rotary_embedding_base", "scale_emb", "seed", "time_step_limit",
    "topk_group", "unk_index", "video_token_index",
}  # fmt: skip


def test_no_size_of_a_class_is_harmless() -> None:
    rows = [json.loads(line) for line in _lines().splitlines()]
    numbers = {
        key
        for row in rows
        for key, value in row["values"].items()
        if isinstance(value, (int, list)) and not isinstance(value, bool)
    }

    assert {key for key in numbers if harmless(key)} <= NO_SIZES


@pytest.mark.parametrize(
    "key",
    ["qk_rope_head_dim", "n_groups", "num_groups", "router_hidden_size", "ffn_dim_multiplier", "layer_scale",
     "use_parallel_residual", "attention_type", "_hidden_size", "text_hidden_size", "kernel_size", "num_experts"],
)  # fmt: skip
def test_sizes_and_switches_are_told(key: str) -> None:
    assert not harmless(key)


@pytest.mark.parametrize(
    "key", ["bos_token_id", "attention_dropout", "rope_theta", "rms_norm_eps", "torch_dtype", "auto_map", "use_cache"]
)
def test_the_usual_keys_are_not(key: str) -> None:
    assert harmless(key)
