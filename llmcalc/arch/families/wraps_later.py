"""Further wrappers: the language model is counted, and the towers whose kind is described; the others are named."""

from __future__ import annotations

from dataclasses import replace

from llmcalc.arch.families.wraps import GLM46V, NESTED, VOXTRAL, Wrapper, vision

BESIDE = ("vision_config", "audio_config")
PIXTRAL = vision("pixtral", "mistral3", "model.vision_tower", "model.multi_modal_projector")


def beside(text_type: str, *uncounted: str, inert: tuple[str, ...] = (), text_inert: tuple[str, ...] = ()) -> Wrapper:
    """A language model beside parts that nobody describes."""
    return replace(
        NESTED, text_type=text_type, uncounted=uncounted or BESIDE, inert=(*PROJECTORS, *inert), text_inert=text_inert
    )


# What wrappers say of the projectors and cuttings of the towers that are not counted.
PROJECTORS = (
    "projector_bias", "projection_hidden_dim", "multimodal_projector_bias", "downsample_factor",
    "projector_use_layernorm",
    "use_cls_token", "projector_hidden_size", "boi_token", "pooler_merge_size", "downsample_rate", "audio_merge_size",
    "adapter_config", "vq_config", "high_res_vision_config", "qformer_config", "encoder_config", "projector_config",
    "vocabulary_map", "audio_length_per_tok", "text_dim", "mlp_ratio", "modality_projector_config",
    "downsample_ratio", "default_num_delay_tokens", "has_lora_adapter", "window_size", "query_num", "insert_layer_id",
    "visual_indicator_token_ids", "num_query_tokens", "drop_vision_last_layer", "vision_lora", "speech_lora",
    "batch_vision_input", "image_size", "out_hidden_size", "merged_hidden_size", "downsample_mode", "merger_times",
    "patch_size", "density_router_hidden_size", "density_router_threshold", "image_patch_id", "force_image_size",
    "vision_hidden_size", "audio_frame_step", "image_start_id", "image_end_id", "slice_start_id", "slice_end_id",
    "newline_id", "im_start_id", "im_end_id", "im_newline_id", "spatial_target_layers", "spatial_vision_layer",
    "deepstack_layer_map", "token_classification_bias",
)  # fmt: skip

LATER: dict[str, Wrapper] = {
    "step3p7": beside("step3p5"),
    "minimax_m3_vl": replace(beside("minimax_m3_vl_text"), owner="either"),
    "mistral_large4": replace(NESTED, text_type="mistral_large4_text", sides=PIXTRAL),
    "glm5_next": beside("glm5_next_text"),
    "muse_spark": replace(beside("muse_spark_text"), owner="both"),
    "muse_glimmer": beside("muse_glimmer_text"),
    "inkling_mm_model": beside("inkling_text"),
    "inkling2": beside("inkling2_text"),
    "inkling2_loop": beside("inkling2_loop_text"),
    "qwen4_exp": beside("qwen4_exp_text"),
    "hy_v4_vl": beside("hy_v4_vl_text"),
    "dots3_note": beside("dots3_note_text"),
    "exaone4_5": beside("exaone4"),
    "apertus1p5": beside("apertus1p5_text"),
    "glmga": GLM46V,
    "glm_ocr": replace(beside("glm_ocr_text"), owner="either"),
    "paddleocr_vl": replace(beside("paddleocr_vl_text"), owner="either"),
    "granite_docling": replace(beside("granite_docling_text"), text="model.text_model"),
    "granite4_vision": beside("granite4_vision_text", "vision_config", "qformer_config"),
    "molmo2": replace(beside("molmo2_text", "vision_config", "adapter_config"), owner="both"),
    "cosmos3_edge": replace(beside("cosmos3_edge_text"), owner="both"),
    "cosmos3_omni": beside("qwen3_vl_text"),
    "voxtral_realtime": replace(
        beside("voxtral_realtime_text"),
        text_values=(*VOXTRAL, ("intermediate_size", 9216), ("num_hidden_layers", 26), ("sliding_window", 8192)),
    ),
    "emu3": replace(beside("emu3_text_model", "vq_config"), text="model.text_model"),
    "deepseek_vl": beside("llama"),
    "deepseek_vl_hybrid": beside("llama", "vision_config", "high_res_vision_config"),
    "janus": beside("llama", "vision_config", "vq_config"),
    "got_ocr2": beside("qwen2"),
    "ovis2": beside("qwen2"),
    "hyperclovax_vision_v2": beside("hyperclovax"),
    "lfm3_vl": beside("lfm3"),
    "lighton_ocr": replace(
        NESTED, text_type="qwen3", uncounted=("vision_config",), inert=PROJECTORS
    ),
    "minicpm_ocr": beside("qwen3_5_text"),
    "minicpmv4_6": beside("qwen3_5_text"),
    "minicpmv4_7": beside("qwen3_5_text"),
    "nemotron_h_omni": replace(beside("nemotron_h"), owner="both"),
    "perception_lm": replace(beside("llama"), owner="given"),
    "qianfan_ocr": beside("qwen3"),
    "shieldgemma2": replace(
        Wrapper("gemma3_text", vision("siglip_vision_model", "gemma3")), inert=("yes_token_index", "no_token_index"),
        owner="either",
    ),
    "video_llama_3": replace(beside("qwen2"), owner="either"),
    "video_llava": beside("llama"),
    "fast_vlm": replace(beside("qwen2"), owner="either"),
    "audioflamingo3": replace(beside("qwen2"), owner="both"),
    "musicflamingo": replace(beside("qwen2"), owner="both"),
    "granite_speech": beside("granite", "encoder_config", "projector_config"),
    "glmasr": replace(
        beside("llama"),
        text_values=(
            ("vocab_size", 59_264), ("hidden_size", 2048), ("intermediate_size", 6144), ("num_hidden_layers", 28),
            ("num_attention_heads", 16), ("num_key_value_heads", 4), ("max_position_embeddings", 8192),
        ),
    ),
    "qwen3_asr": beside("qwen3"),
    "phi4_multimodal": beside("phi3"),
    # Phi-4-multimodal's published file: adapters of its own for pictures and speech.
    "phi4mm": beside("phi3", "img_processor", "audio_processor", "embd_layer", "vision_lora", "speech_lora"),
    "deepseek_ocr2": beside("deepseek_ocr2_text"),
    "step3_vl": beside("step3_text"),
    "ernie4_5_vl_moe": beside("ernie4_5_vl_moe_text"),
    "ernie4_5_moe_vl": beside("ernie4_5_vl_moe_text"),
    "hunyuan_vl": replace(beside("hunyuan_vl_text"), owner="either"),
    "gemma4_unified": beside("gemma4_unified_text"),
}  # fmt: skip
