"""Small models of many families, built by transformers from configs that both sides read."""

from __future__ import annotations

import json
from pathlib import Path

SMALL = {
    "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 320,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 64,
}  # fmt: skip
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
LATENT = {
    "q_lora_rank": 64, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 32, "v_head_dim": 32,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "n_shared_experts": 1, "num_key_value_heads": 4,
}  # fmt: skip
FAMILIES: dict[str, dict[str, object]] = {
    "llama": {},
    "mistral": {},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {},
    "gemma2": {},
    "gemma3_text": {},
    "phi3": {"pad_token_id": 0},
    "olmo2": {},
    "cohere2": {},
    "granite": {},
    "starcoder2": {},
    "gpt_neox": {"tie_word_embeddings": False},
    "gpt2": {"n_embd": 128, "n_layer": 3, "n_head": 4, "n_positions": 64},
    "mixtral": {"num_local_experts": 4},
    "qwen3_moe": MOE,
    "qwen2_moe": {**MOE, "shared_expert_intermediate_size": 128},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "deepseek_v2": {**LATENT, "norm_topk_prob": False},
    "deepseek_v3": LATENT,
    "glm4_moe": {**MOE, "n_routed_experts": 4, "n_shared_experts": 1, "first_k_dense_replace": 1},
    "qwen3_next": {
        **MOE, "shared_expert_intermediate_size": 128, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 32, "linear_value_head_dim": 32, "num_hidden_layers": 4,
    },
    "mamba2": {"num_heads": 8, "head_dim": 32, "state_size": 16, "n_groups": 1, "expand": 2},
    "lfm2": {"layer_types": ["conv", "full_attention", "conv"]},
    "falcon_h1": {"mamba_d_ssm": 128, "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 16},
    "jamba": {
        "num_experts": 4, "num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": 8,
        "expert_layer_period": 2, "expert_layer_offset": 1, "use_mamba_kernels": False, "pad_token_id": 0,
    },
}  # fmt: skip


# Sizes that a family spells otherwise, so that its class leaves these alone.
FOREIGN = {"gpt2": tuple(SMALL)[:4] + tuple(SMALL)[5:], "gpt_neox": ("num_key_value_heads", "head_dim")}


def config(model_type: str, **more: object) -> object:
    """transformers' own config of a small model."""
    from transformers import AutoConfig

    own = {key: value for key, value in SMALL.items() if key not in FOREIGN.get(model_type, ())}
    return AutoConfig.for_model(model_type, **{**own, **FAMILIES[model_type], "dtype": "bfloat16", **more})


def build(model_type: str, *, meta: bool = False, **more: object) -> object:
    """The model itself, in bf16."""
    import torch
    from transformers import AutoModelForCausalLM

    made = config(model_type, **more)
    with torch.device("meta" if meta else "cpu"):
        return AutoModelForCausalLM.from_config(made, dtype=torch.bfloat16)


def saved(model: object, folder: Path) -> tuple[dict[str, object], int]:
    """Write a model with safetensors; its config as written, and the bytes of its tensors by the file's own header."""
    model.save_pretrained(folder)  # type: ignore[attr-defined]
    size = 0
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        header.pop("__metadata__", None)
        size += sum(end - start for start, end in (item["data_offsets"] for item in header.values()))
    return json.loads((folder / "config.json").read_text()), size
