"""What a wrapper decides for its language model: the tie, the sizes of a partial block; what it leaves uncounted."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest

from llmcalc import kv_cache, params, read_config
from llmcalc.errors import UnsupportedLayerError
from tests.families import library

TIES = (
    "llava llava_next llava_next_video llava_onevision vipllava qwen2_vl qwen2_5_vl qwen3_vl glm4v glm4v_moe glm46v "
    "gemma3 internvl paligemma mistral3 molmo2 musicflamingo paddleocr_vl video_llama_3 shieldgemma2"
).split()


@pytest.mark.parametrize("model_type", TIES)
@pytest.mark.parametrize(("outer", "inner"), [(False, True), (True, False), (None, True), (None, None)])
def test_the_tie_is_the_librarys(model_type: str, outer: bool | None, inner: bool | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = library.derived(library.saved(model_type, {}))
        text = data["text_config"]
        text |= {"num_hidden_layers": 1, "pad_token_id": None}
        for block, flag in ((data, outer), (text, inner)):
            block.pop("tie_word_embeddings", None)
            if flag is not None:
                block["tie_word_embeddings"] = flag
        model = library.built(data)
        tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
        assert read_config(copy.deepcopy(data)).tie_word_embeddings is tied


# liuhaotian/llava-v1.5-7b, config.json: the remote code's own keys for tower and projector.
REMOTE = {
    "_name_or_path": "llava-v1.5-7b", "architectures": ["LlavaLlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
    "freeze_mm_mlp_adapter": False, "freeze_mm_vision_resampler": False, "hidden_act": "silu", "hidden_size": 4096,
    "image_aspect_ratio": "pad", "initializer_range": 0.02, "intermediate_size": 11008, "max_length": 4096,
    "max_position_embeddings": 4096, "mm_hidden_size": 1024, "mm_projector_type": "mlp2x_gelu",
    "mm_resampler_type": None, "mm_use_im_patch_token": False, "mm_use_im_start_end": False,
    "mm_vision_select_feature": "patch", "mm_vision_select_layer": -2,
    "mm_vision_tower": "openai/clip-vit-large-patch14-336", "model_type": "llava", "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 32, "pad_token_id": 0, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": None, "tie_word_embeddings": False, "torch_dtype": "float16", "tune_mm_mlp_adapter": False,
    "tune_mm_vision_resampler": False, "unfreeze_mm_vision_tower": False, "use_cache": True, "use_mm_proj": True,
    "vocab_size": 32000,
}  # fmt: skip


def test_remote_llava_has_a_cache_and_no_total() -> None:
    found = read_config(REMOTE)
    assert found.uncounted == ("mm_vision_tower", "mm_projector_type")
    with pytest.raises(UnsupportedLayerError, match="mm_vision_tower, mm_projector_type"):
        params(found)
    assert kv_cache(found, 4096).total_bytes == 2 * 32 * 4096 * 4096 * 2


def test_a_wrapper_without_its_tower_has_no_total() -> None:
    data = {"model_type": "llava", "text_config": {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1}}
    assert read_config(data).uncounted == ("vision_config",)


def test_only_the_librarys_text_classes_are_text_alone() -> None:
    """Remote code calls whole models ...ForCausalLM: their towers count."""
    text = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    data: dict[str, Any] = {"model_type": "gemma3", "text_config": text, "vision_config": {"num_hidden_layers": 1}}
    data["architectures"] = ["Gemma3ForCausalLM"]
    assert not read_config(data).towers
    data["architectures"] = ["AnotherGemma3ForCausalLM"]
    assert read_config(data).towers


@pytest.mark.parametrize("model_type", ["voxtral"])
def test_a_partial_text_block_takes_the_wrappers_sizes(model_type: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = library.saved(model_type, {"text_config": {"num_hidden_layers": 2}})
        data["text_config"] = {"num_hidden_layers": 2}
        assert params(read_config(data)).total_params == library.parameters(data)


@pytest.mark.parametrize(
    ("model_type", "block", "change"),
    [("mistral3", "vision_config", {"head_dim": 128}), ("mistral3", "vision_config", {"num_attention_heads": 32}),
     ("kimi_k25", "", {"projection_hidden_size": 2304}), ("aria", "text_config", {"mlp_bias": True})],
)  # fmt: skip
def test_sizes_of_towers_and_projectors(model_type: str, block: str, change: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = library.saved(model_type, {})
        (data[block] if block else data).update(change)
        assert params(read_config(copy.deepcopy(data))).total_params == library.parameters(data)
