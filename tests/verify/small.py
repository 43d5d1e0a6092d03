"""Small models of many families, as keyword arguments of their config classes in transformers 5.24."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

COMMON: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 96, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "head_dim": 8,
}  # fmt: skip
MOE: dict[str, Any] = {
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
}  # fmt: skip
SHARED = MOE | {"n_group": 1, "topk_group": 1, "n_shared_experts": 1, "num_shared_experts": 1}
MLA = SHARED | {
    "q_lora_rank": 16, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
    "first_k_dense_replace": 1, "num_key_value_heads": 4,
}  # fmt: skip
SPARSE = MLA | {"index_topk": 8, "index_n_heads": 2, "index_head_dim": 8}
MAMBA1 = {"state_size": 4, "time_step_rank": 4}
MAMBA2 = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_d_state": 8}
DELTA = {
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
}  # fmt: skip
BART = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
}  # fmt: skip
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}

PLAIN = (
    "llama mistral ministral ministral3 cwm helium arcee exaone granite granite_swa seed_oss smollm3 hyperclovax "
    "qwen2 qwen3 gemma gemma2 vaultgemma gemma3_text olmo olmo2 olmo3 exaone4 apertus glm glm4 glm4v_text "
    "hunyuan_v1_dense nemotron ernie4_5 bitnet nanochat starcoder2 jais2 phi persimmon gpt2 gpt_bigcode "
    "openai-gpt gpt_neox gptj codegen biogpt xglm bloom stablelm cohere cohere2 doge diffllama internlm3 "
    "iquestcoder granitemoe_swa recurrent_gemma rwkv qwen2_vl_text qwen2_5_vl_text qwen3_vl_text falcon lfm3 "
    "bert ernie roberta xlm-roberta camembert data2vec-text deberta-v2 mpnet modernbert nomic_bert"
)

FAMILIES: dict[str, dict[str, Any]] = {name: {} for name in PLAIN.split()}
FAMILIES |= dict.fromkeys("gpt_oss mixtral qwen3_moe olmoe phimoe granitemoe flex_olmo minimax_m2".split(), MOE)
FAMILIES |= dict.fromkeys("glm4_moe dots1 solar_open sarvam_moe exaone_moe glm4v_moe_text".split(), SHARED)
FAMILIES |= dict.fromkeys("deepseek_v2 deepseek_v3 glm4_moe_lite axk1 mistral4 sarvam_mla".split(), MLA)
DENSE_MLA = {key: size for key, size in MLA.items() if key not in SHARED}
FAMILIES |= dict.fromkeys(("minicpm3", "youtu"), DENSE_MLA)
FAMILIES |= dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), SPARSE)
FAMILIES |= dict.fromkeys("bart plbart mbart blenderbot blenderbot-small pegasus m2m_100".split(), BART)
FAMILIES |= dict.fromkeys("t5 mt5 umt5 longt5".split(), T5)
FAMILIES |= {
    "qwen2_moe": MOE | {"shared_expert_intermediate_size": 40},
    "qwen3_vl_moe_text": MOE,
    "mellum": MOE | {"layer_types": ["sliding_attention", "full_attention"], "mlp_layer_types": ["sparse", "dense"]},
    "granitemoeshared": MOE | {"shared_intermediate_size": 40},
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 1, "moe_intermediate_size": 24},
    "hunyuan_v1_moe": {"num_experts": 4, "moe_topk": 2, "num_shared_expert": 1},
    "hy_v3": MOE | {"num_shared_experts": 1},
    "afmoe": SHARED | {"num_dense_layers": 1, "layer_types": ["sliding_attention", "full_attention"]},
    "aria_text": {},
    "llama4_text": MOE | {"intermediate_size_mlp": 40, "attention_chunk_size": 16, "interleave_moe_layer_step": 2},
    "jetmoe": MOE | {"kv_channels": 8, "num_key_value_heads": 2},
    "minimax": MOE | {"layer_types": ["linear_attention", "full_attention"]},
    "phi3": {"rope_scaling": None},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64},
    "ctrl": {"dff": 48},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "xlstm": {"num_heads": 4},
    "mamba": MAMBA1,
    "falcon_mamba": MAMBA1,
    "mamba2": {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 2, "expand": 2},
    "jamba": MOE | {
        "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
        "mamba_d_state": 4, "mamba_dt_rank": 4,
    },
    "bamba": MAMBA2 | {"attn_layer_indices": [1]},
    "granitemoehybrid": MOE | MAMBA2 | {"shared_intermediate_size": 40, "layer_types": ["mamba", "attention"]},
    "falcon_h1": MAMBA2 | {"mamba_d_ssm": 64},
    "nemotron_h": MOE | {
        "hybrid_override_pattern": "M*-E", "num_hidden_layers": 4, "mamba_num_heads": 8, "mamba_head_dim": 8,
        "n_groups": 2, "ssm_state_size": 8, "moe_shared_expert_intermediate_size": 16, "n_group": 1, "topk_group": 1,
        "n_shared_experts": 1,
    },
    "qwen3_next": MOE | DELTA | {"shared_expert_intermediate_size": 24, "decoder_sparse_step": 1},
    "qwen3_5_text": DELTA,
    "qwen3_5_moe_text": MOE | DELTA | {"shared_expert_intermediate_size": 24},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": MOE | {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "gemma3n_text": {
        "num_hidden_layers": 5, "intermediate_size": [48] * 5,
        "layer_types": ["sliding_attention"] * 4 + ["full_attention"],
        "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 96, "laurel_rank": 4,
        "activation_sparsity_pattern": [0.0] * 5,
    },
    "gemma4_text": {
        "num_hidden_layers": 6, "global_head_dim": 16, "hidden_size_per_layer_input": 8, "sliding_window": 16,
        "vocab_size_per_layer_input": 96, "num_kv_shared_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 3,
    },
    "albert": {"embedding_size": 16},
    "electra": {"embedding_size": 16},
    "distilbert": {"hidden_dim": 48},
    "deepseek_v4": MOE,
    "bailing_hybrid": {},
    "switch_transformers": T5 | {"num_experts": 4},
}  # fmt: skip

TEXT = {key: value for key, value in COMMON.items() if key != "vocab_size"} | {"vocab_size": 128}
TURNED = TEXT | {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}}
CLIP = {
    "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 28,
    "patch_size": 14,
}  # fmt: skip
SIGLIP = CLIP | {"model_type": "siglip_vision_model", "vision_use_head": False}
IMAGE = {"image_token_index": 100}
VIDEO = {"image_token_id": 100, "video_token_id": 101, "vision_start_token_id": 102, "vision_end_token_id": 103}
QWEN2_TOWER = {
    "depth": 2, "embed_dim": 16, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2, "patch_size": 4,
    "spatial_merge_size": 2, "temporal_patch_size": 2,
}  # fmt: skip
QWEN_TOWER = {
    "depth": 2, "hidden_size": 16, "out_hidden_size": 32, "intermediate_size": 24, "num_heads": 2, "patch_size": 4,
    "spatial_merge_size": 2,
}  # fmt: skip
QWEN3_TOWER = QWEN_TOWER | {"deepstack_visual_indexes": [0], "num_position_embeddings": 16}


def wrapped(text: str, tower: dict[str, Any], more: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A language model behind a tower."""
    block = (TEXT if not fields else TEXT | fields) | ({"model_type": text} if text else {})
    return {"text_config": block, "vision_config": tower, **more}


WRAPPERS: dict[str, dict[str, Any]] = {
    "llava": wrapped("llama", CLIP | {"model_type": "clip_vision_model", "projection_dim": 8}, IMAGE),
    "llava_next": wrapped("llama", CLIP | {"model_type": "clip_vision_model", "projection_dim": 8}, IMAGE),
    "llava_onevision": wrapped("qwen2", CLIP | {"model_type": "siglip_vision_model"}, IMAGE),
    "paligemma": wrapped("gemma", SIGLIP, IMAGE | {"projection_dim": 32}),
    "gemma3": wrapped(
        "gemma3_text", SIGLIP, IMAGE | {"mm_tokens_per_image": 4, "boi_token_index": 101, "eoi_token_index": 102}
    ),
    "mistral3": wrapped("mistral", CLIP | {"model_type": "pixtral"}, IMAGE),
    "aya_vision": wrapped("cohere2", SIGLIP, IMAGE),
    "idefics3": wrapped("llama", CLIP, {"image_token_id": 100, "scale_factor": 2}),
    "internvl": wrapped("qwen2", CLIP | {"image_size": [28, 28], "patch_size": [14, 14]}, {"image_token_id": 100}),
    "llama4": wrapped(
        "",
        CLIP | {"intermediate_size": 64} | dict.fromkeys(
            ("projector_input_dim", "projector_output_dim", "vision_output_dim"), 32
        ),
        IMAGE, num_local_experts=4, num_experts_per_tok=1, intermediate_size_mlp=40, interleave_moe_layer_step=2,
    ),
    "qwen2_vl": wrapped("", QWEN2_TOWER, VIDEO, **TURNED),
    "qwen2_5_vl": wrapped("", QWEN_TOWER | {"fullatt_block_indexes": [1]}, VIDEO, **TURNED),
    "qwen3_vl": wrapped("", QWEN3_TOWER, VIDEO, **TURNED),
    "qwen3_vl_moe": wrapped(
        "", QWEN3_TOWER, VIDEO, **TURNED, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24
    ),
    "glm4v": wrapped(
        "", QWEN_TOWER | {"image_size": 16},
        {"image_token_id": 100, "video_token_id": 101}, **TURNED,
    ),
}  # fmt: skip

ENCODERS = (
    "bert ernie roberta xlm-roberta camembert data2vec-text electra albert distilbert deberta-v2 mpnet modernbert "
    "nomic_bert"
).split()


def config_of(name: str) -> Any:
    """The config object; common fields only where the class knows them."""
    from transformers import CONFIG_MAPPING

    kind = CONFIG_MAPPING[name]
    if name in WRAPPERS:
        return kind(**WRAPPERS[name])
    known = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    given = FAMILIES[name]
    common = {key: value for key, value in COMMON.items() if key in known or key in kind.attribute_map}
    return kind(**(common | given))


def save(name: str, folder: Path) -> Any:
    """Make the model and save it. Returns: the model."""
    import torch
    from transformers import (
        AutoModel,
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
        AutoModelForMaskedLM,
        AutoModelForSeq2SeqLM,
    )

    config = config_of(name)
    order = (AutoModelForSeq2SeqLM, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModel)
    if name in WRAPPERS:
        order = (AutoModelForImageTextToText,)
    elif name in ENCODERS:
        order = (AutoModelForMaskedLM, AutoModel)
    auto = next(kind for kind in order if type(config) in set(kind._model_mapping))
    with torch.device("meta"):
        assert sum(p.numel() for p in auto.from_config(config).parameters()) < 3e6, f"{name} is not small"
    model = auto.from_config(config)
    model.save_pretrained(folder)
    return model
