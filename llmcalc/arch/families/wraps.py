"""The table of wrappers: where each keeps its parts, and which towers and projectors it has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple


class Side(NamedTuple):
    """A tower beside the language model.

    kind: its class where the block names none. prefix, joint: the names of the tower and of its projector in the
    checkpoint. projector: the kind, empty where the tower has its own. default: a missing block means the class's
    default tower; optional: it means none. newline: a learned vector ends a row of patches.
    """

    field: str
    kind: str
    prefix: str
    projector: str = ""
    joint: str = ""
    default: bool = False
    newline: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A wrapper's row. text, head: where its checkpoint keeps the language model's body and head.

    owner: which block decides the tie: ``outer``, the ``text`` block, ``either`` of them, ``both`` together, the text
    where the outer says nothing (``given``), or ``never``. thinker: the class of a block between the file and the text
    block. uncounted: blocks that no reader describes. text_values: what the wrapper puts where its
    text block is silent.
    """

    text_type: str = "llama"
    sides: tuple[Side, ...] = ()
    text: str = "language_model.model"
    head: str = "language_model.lm_head"
    owner: Literal["outer", "text", "either", "both", "given", "never"] = "outer"
    thinker: str = ""
    uncounted: tuple[str, ...] = ()
    inert: tuple[str, ...] = ()
    text_inert: tuple[str, ...] = ()
    text_values: tuple[tuple[str, int], ...] = ()


# Keys of wrappers and towers without bearing on any figure: how images are cut, named, resampled and picked.
INERT = (
    "mm_tokens_per_image", "projector_hidden_act", "vision_feature_layer", "vision_feature_select_strategy",
    "image_seq_length", "image_grid_pinpoints", "ignore_index", "use_image_newline_parameter", "vision_aspect_ratio",
    "projection_dim", "media_placeholder_token_id", "text_hidden_size", "mm_hidden_size", "is_encoder_decoder",
    "image_size", "hidden_size", "vocab_size", "num_image_tokens", "vision_soft_tokens_per_image",
    "default_output_length", "pooling_kernel_size", "global_head_dim", "max_position_embeddings", "rope_parameters",
    "window_size", "fullatt_block_indexes", "tokens_per_second", "spatial_patch_size", "spatial_merge_size",
    "temporal_patch_size", "scale_factor", "pixel_shuffle_ratio", "multi_modal_projector_bias", "in_channels",
    "num_channels", "in_chans", "projector_input_dim", "projector_output_dim", "vision_output_dim", "size",
    "mm_projector_type", "merge_type", "merge_kernel_size", "pos_emb_type", "video_attn_type", "init_pos_emb_time",
    "pos_emb_time", "for_llm_compressor", "tile_size", "do_image_splitting", "max_image_tokens", "min_image_tokens",
    "max_tiles", "min_tiles", "use_thumbnail", "max_num_patches", "encoder_patch_size", "max_pixels_tolerance",
    "add_cross_attention", "num_beam_groups", "image_split", "use_base_siglip", "architectures", "vision_use_head",
    "attention_heads", "num_patches", "feature_layer", "deepstack_visual_indexes", "intermediate_layers_indices",
    "max_value_projector_patch_to_query_dict", "projector_patch_to_query_dict", "video_seq_length", "top_k",
    "hidden_stride", "dropout", "tie_encoder_decoder",
    "tie_word_embeddings", "spatial_pool_mode", "spatial_pool_stride", "projection_hidden_size", "attention_chunk_size",
    "attention_context_left", "attention_context_right", "attention_invalid_logits_value", "gradient_clipping",
    "residual_weight", "max_source_positions", "n_window", "position_id_per_seconds", "seconds_per_chunk",
    "use_unified_vision_chunk", "language_model_only", "conf_attention_chunk_size", "conf_attention_context_left",
    "conf_attention_context_right", "conf_reduction_factor", "conf_residual_weight", "sscp_conv_stride_size",
    "vocab_offset", "audio_soft_tokens_per_image",
)  # fmt: skip

# Keys that a nested text block repeats from the base class, or that only steer masks and quantization.
TEXT_INERT = (
    "is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder", "num_beam_groups", "top_k",
    "for_llm_compressor", "query_pre_attn_scalar", "use_bidirectional_attention", "num_image_tokens",
)  # fmt: skip


def vision(
    kind: str, projector: str = "", prefix: str = "vision_tower", joint: str = "multi_modal_projector", **more: bool
) -> tuple[Side, ...]:
    """A single vision tower."""
    return (Side("vision_config", kind, prefix, projector, joint, **more),)


def audio(kind: str, projector: str) -> tuple[Side, ...]:
    """A single audio tower."""
    return (Side("audio_config", kind, "audio_tower", projector, "multi_modal_projector", default=True),)


LLAVA = Wrapper(sides=vision("clip_vision_model", "llava"), owner="either")
NEXT = Wrapper(sides=vision("clip_vision_model", "llava", newline=True))
NESTED = Wrapper(text="model.language_model", head="lm_head")
QWEN2_VL = Wrapper(
    "qwen2_vl_text", vision("qwen2_vl_vision", prefix="visual", default=True), "model", "lm_head", owner="either"
)
QWEN3_VL = replace(
    NESTED, text_type="qwen3_vl_text", sides=vision("qwen3_vl_vision", prefix="model.visual", default=True)
)
GLM46V = replace(NESTED, text_type="glm4v_text", sides=vision("glm4v_vision", prefix="model.visual", default=True))
GLM4V = replace(GLM46V, owner="either")
IDEFICS3 = Wrapper(
    "llama", vision("idefics3_vision", "idefics3", "model.vision_model", "model.connector", default=True),
    "model.text_model", "lm_head",
)  # fmt: skip
INTERNVL = Wrapper("qwen2", vision("internvl_vision", "internvl", default=True))
OMNI = Wrapper(
    "qwen2_5_omni_text",
    (
        Side("vision_config", "qwen2_5_omni_vision_encoder", "thinker.visual", default=True),
        Side("audio_config", "qwen2_5_omni_audio_encoder", "thinker.audio_tower", default=True),
    ),
    "thinker.model", "thinker.lm_head",
)  # fmt: skip

OMNI3 = replace(
    OMNI,
    text_type="qwen3_omni_moe_text",
    sides=(
        Side("vision_config", "qwen3_omni_moe_vision_encoder", "thinker.visual", default=True),
        Side("audio_config", "qwen3_omni_moe_audio_encoder", "thinker.audio_tower", default=True),
    ),
)

VOXTRAL = (
    ("vocab_size", 131_072), ("hidden_size", 3072), ("intermediate_size", 8192), ("num_hidden_layers", 30),
    ("num_key_value_heads", 8), ("head_dim", 128), ("max_position_embeddings", 131_072),
)  # fmt: skip

ROWS: dict[str, Wrapper] = {
    "llava": LLAVA,
    "vipllava": Wrapper(sides=vision("clip_vision_model", "vipllava")),
    "llava_next": NEXT,
    "llava_next_video": replace(NEXT, owner="either"),
    "llava_onevision": Wrapper("qwen2", vision("siglip_vision_model", "llava", newline=True), owner="either"),
    "paligemma": Wrapper("gemma", vision("siglip_vision_model", "paligemma")),
    "gemma3": Wrapper("gemma3_text", vision("siglip_vision_model", "gemma3")),
    "gemma3n": replace(
        NESTED, text_type="gemma3n_text",
        sides=(
            Side("vision_config", "gemma3n_vision", "model.vision_tower", "gemma3n", "model.embed_vision"),
            Side("audio_config", "gemma3n_audio", "model.audio_tower", "gemma3n", "model.embed_audio"),
        ),
    ),
    "gemma4": replace(
        NESTED, text_type="gemma4_text",
        text_inert=("expert_intermediate_size", "num_experts", "num_global_key_value_heads", "top_k_experts",
                    "vocab_size_per_layer_input"),
        sides=(
            Side("vision_config", "gemma4_vision", "model.vision_tower", "gemma4", "model.embed_vision", optional=True),
            Side("audio_config", "gemma4_audio", "model.audio_tower", "gemma4", "model.embed_audio"),
        ),
    ),
    "mistral3": Wrapper("mistral", vision("pixtral", "mistral3")),
    "idefics3": IDEFICS3,
    "smolvlm": replace(
        IDEFICS3,
        sides=vision("smolvlm_vision", "idefics3", "model.vision_model", "model.connector", default=True),
    ),
    "aria": Wrapper("aria_text", vision("idefics3_vision", "aria"), text_inert=("mlp_bias",)),
    "internvl": INTERNVL,
    # OpenGVLab's remote code: the language model is a class of its own, which decides the tie.
    "internvl_chat": replace(INTERNVL, sides=vision("intern_vit_6b", "internvl", "vision_model", "mlp1"), owner="text"),
    "kimi_k25": Wrapper("deepseek_v3", vision("kimi_k25_vision", "kimi", joint="mm_projector", default=True)),
    # Kimi-K3's tower (vt_* keys, RMS norms, patchmergerv2) has no public class to check a count against.
    "kimi_k3": Wrapper("kimi_linear", uncounted=("vision_config",), inert=("image_placeholder",)),
    "lfm2_vl": replace(
        NESTED, text_type="lfm2",
        sides=vision("siglip2_vision_model", "lfm2", "model.vision_tower", "model.multi_modal_projector"),
    ),
    "aya_vision": Wrapper("cohere2", vision("siglip_vision_model", "gated")),
    "cohere2_vision": Wrapper("cohere2", vision("siglip_vision_model", "gated")),
    "glm4v": GLM4V,
    "glm46v": GLM46V,
    "glm4v_moe": replace(
        GLM4V, text_type="glm4v_moe_text", text_inert=("use_qk_norm",),
        sides=vision("glm4v_moe_vision", prefix="model.visual", default=True),
    ),
    "qwen2_vl": QWEN2_VL,
    "qwen2_5_vl": replace(
        QWEN2_VL, text_type="qwen2_5_vl_text", sides=vision("qwen2_5_vl_vision", prefix="visual", default=True)
    ),
    "qwen3_vl": QWEN3_VL,
    "qwen3_vl_moe": replace(
        QWEN3_VL, text_type="qwen3_vl_moe_text", text_inert=("intermediate_size",),
        sides=vision("qwen3_vl_moe_vision", prefix="model.visual", default=True),
    ),
    "qwen3_5": replace(
        QWEN3_VL, text_type="qwen3_5_text", sides=vision("qwen3_5_vision", prefix="model.visual", default=True)
    ),
    "qwen3_5_moe": replace(
        QWEN3_VL, text_type="qwen3_5_moe_text", sides=vision("qwen3_5_moe_vision", prefix="model.visual", default=True)
    ),
    "llama4": Wrapper(
        "llama4_text", vision("llama4_vision_model", "llama4", "vision_model", default=True),
        text_inert=("intermediate_size_mlp",), owner="text",
    ),
    "mllama": Wrapper(
        "mllama_text_model", vision("mllama_vision_model", "llama32", "vision_model", default=True), owner="never"
    ),
    "qwen2_5_omni_thinker": OMNI,
    "qwen2_5_omni": replace(OMNI, thinker="qwen2_5_omni_thinker", uncounted=("talker_config", "token2wav_config")),
    "qwen3_omni_moe_thinker": OMNI3,
    "qwen3_omni_moe": replace(
        OMNI3, thinker="qwen3_omni_moe_thinker", uncounted=("talker_config", "code2wav_config")
    ),
    # The connector, a perceiver, is not described.
    "idefics2": replace(
        IDEFICS3, text_type="mistral",
        sides=vision("idefics2_vision", "perceiver", "model.vision_model", "model.connector", default=True),
    ),
    "qwen2_audio": Wrapper("qwen2", audio("qwen2_audio_encoder", "qwen2_audio"), owner="never"),
    "voxtral": Wrapper("llama", audio("voxtral_encoder", "voxtral"), owner="never", text_values=VOXTRAL),
}  # fmt: skip
