"""The spellings that config files use for one quantity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Spellings of the same quantity; the first one is the name used in code and in ``--set``.
ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "hidden_size": ("n_embd", "d_model", "n_embed", "emb_dim", "embedding_dim", "model_dim", "dim"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers", "num_transformer_layers", "num_blocks"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads", "attention_heads", "num_query_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv", "num_attention_groups", "num_query_groups"),
    "head_dim": ("attention_head_dim", "kv_channels", "d_kv", "dim_head", "hidden_size_per_head"),
    "intermediate_size": ("ffn_dim", "ffn_hidden_size", "n_inner", "d_ff", "dff", "dim_ff"),
    "vocab_size": ("padded_vocab_size",),
    "max_position_embeddings": ("n_positions", "max_sequence_length", "seq_length", "n_ctx", "max_seq_len",
                                "max_context_length", "model_max_length"),
    "num_experts_per_tok": ("num_experts_per_token", "experts_per_token", "moe_topk", "moe_top_k", "moe_k",
                            "num_selected_experts", "top_k_experts"),
    "num_experts": ("n_routed_experts", "num_local_experts", "moe_num_experts", "num_routed_experts"),
    "moe_intermediate_size": ("expert_ffn_hidden_size", "moe_ffn_hidden_size"),
    "n_shared_experts": ("num_shared_experts", "moe_num_shared_experts", "num_shared_expert"),
    "sliding_window": ("sliding_window_size", "attention_window_size", "window_size"),
    "hidden_act": ("activation_function", "hidden_activation", "mlp_hidden_act", "afn", "activation"),
    "tie_word_embeddings": (),
}  # fmt: skip
