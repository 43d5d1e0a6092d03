"""One shrunken config a layer kind, built by transformers on the meta device and counted live: equal to the last one.

33 tokens are no multiple of any block or window. Attention is eager; experts run through batched products; an operator
that multiplies and is not registered with the counter is an error.
"""

# ruff: noqa: TID253 - a live oracle needs torch; nothing but tests imports this

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from llmcalc import flops, read_config
from llmcalc.arch.model import Architecture
from llmcalc.calc.training import Trained
from tests.flops.oracle import UnregisteredProductError, build, counted, explicit_masks, passes

TOKENS = 33
SMALL = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
         "intermediate_size": 96, "vocab_size": 100, "pad_token_id": 0}  # fmt: skip
EXPERTS = {"num_local_experts": 6, "num_experts_per_tok": 2}
LATENT = {"q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12,
          "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "n_shared_experts": 1,
          "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "num_key_value_heads": 4}  # fmt: skip
SCAN = {"hidden_size": 64, "num_hidden_layers": 2, "state_size": 8, "vocab_size": 100, "conv_kernel": 4}

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {**SMALL, "head_dim": 24},
    "gemma2": {**SMALL, "head_dim": 16, "sliding_window": 8},
    "gemma3n_text": {
        **SMALL, "head_dim": 16, "sliding_window": 8, "num_hidden_layers": 5, "hidden_size_per_layer_input": 12,
        "vocab_size_per_layer_input": 100, "num_kv_shared_layers": 2, "laurel_rank": 6, "intermediate_size": [96] * 5,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention",
                        "full_attention"], "activation_sparsity_pattern": [0.0] * 5,
    },
    "gpt_oss": {**SMALL, **EXPERTS, "head_dim": 16, "sliding_window": 8},
    "mixtral": {**SMALL, **EXPERTS},
    "llama4_text": {**SMALL, "head_dim": 16, "attention_chunk_size": 8, "interleave_moe_layer_step": 9,
                    "intermediate_size_mlp": 96, "num_local_experts": 4},
    "deepseek_v3": {**SMALL, **LATENT, "head_dim": 8},
    "deepseek_v32": {**SMALL, **LATENT, "head_dim": 8, "index_n_heads": 4, "index_head_dim": 16, "index_topk": 8},
    "deepseek_v4": {
        **SMALL, "head_dim": 32, "q_lora_rank": 24, "qk_rope_head_dim": 8, "o_groups": 2, "o_lora_rank": 8,
        "sliding_window": 8, "index_n_heads": 4, "index_head_dim": 16, "index_topk": 4, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 40, "n_shared_experts": 1, "hc_mult": 2,
        "num_hash_layers": 1, "num_key_value_heads": 1,
    },
    "qwen3_next": {
        **SMALL, "num_hidden_layers": 4, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 8, "linear_value_head_dim": 12, "num_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48,
    },
    "kimi_linear": {
        **SMALL, **LATENT, "q_lora_rank": None, "num_hidden_layers": 4,
        "linear_attn_config": {"head_dim": 16, "num_heads": 4, "short_conv_kernel_size": 4, "full_attn_layers": [4],
                               "kda_layers": [1, 2, 3]},
    },
    "minimax": {**SMALL, **EXPERTS, "head_dim": 16, "num_hidden_layers": 4, "block_size": 256,
                "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"]},
    "mamba": {**SCAN, "intermediate_size": 128},
    "mamba2": {**SCAN, "num_heads": 8, "head_dim": 16, "n_groups": 2, "chunk_size": 16, "expand": 2},
    "nemotron_h": {
        **SMALL, "hybrid_override_pattern": "M-*E", "num_hidden_layers": 4, "head_dim": 16, "mamba_num_heads": 8,
        "mamba_head_dim": 16, "ssm_state_size": 8, "n_groups": 2, "chunk_size": 16, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 48,
    },
    "jamba": {**SMALL, "num_hidden_layers": 4, "attn_layer_period": 4, "attn_layer_offset": 2, "num_experts": 4,
              "num_experts_per_tok": 2, "mamba_d_state": 8},
    "lfm2": {**SMALL, "num_hidden_layers": 4, "layer_types": ["conv", "conv", "full_attention", "conv"],
             "conv_L_cache": 3, "block_auto_adjust_ff_dim": False},
    "recurrent_gemma": {**SMALL, "lru_width": 64, "head_dim": 16, "attention_window_size": 8, "intermediate_size": 192},
    "rwkv": {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100, "attention_hidden_size": 64,
             "intermediate_size": 128},
    "jetmoe": {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100, "num_key_value_heads": 2,
               "kv_channels": 16, "intermediate_size": 96, "num_local_experts": 4, "num_experts_per_tok": 2},
    "diffllama": {**SMALL, "head_dim": 16},
    "doge": {**SMALL, "head_dim": 16},
    "zamba2": {
        **SMALL, "num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "mamba_d_state": 8, "n_mamba_heads": 4, "mamba_expand": 2, "mamba_ngroups": 1, "chunk_size": 16,
        "num_mem_blocks": 1, "adapter_rank": 4, "num_key_value_heads": 4,
    },
}  # fmt: skip
MASKED = ("llama", "mixtral", "deepseek_v3", "deepseek_v32")
# JetMoE sorts tokens by their experts, for which it must know them: it runs on real numbers.
REAL = ("jetmoe",)
# RecurrentGemma does not hand out the cache that it makes: its step is held against the corpus alone.
CACHELESS = ("recurrent_gemma",)


def read(model: Any) -> Architecture:
    return read_config({**model.config.to_dict(), "architectures": [type(model).__name__]})


def ours(architecture: Architecture, **beside: int) -> tuple[int, int]:
    prompt = flops(architecture, TOKENS, convention="dense", logits="all", **beside)
    step = flops(architecture, phase="decode", past=TOKENS, convention="dense", mla="reexpand", **beside)
    return prompt.forward_flops, step.forward_flops


@pytest.mark.parametrize("kind", CONFIGS)
def test_prompt_and_step(kind: str) -> None:
    model = build({"model_type": kind, **CONFIGS[kind]}, device="cpu" if kind in REAL else "meta")
    prompt, step = passes(model, TOKENS, masked=kind in MASKED)
    own_prompt, own_step = ours(read(model))

    assert own_prompt == prompt
    assert (step is None) == (kind in CACHELESS)
    assert step is None or own_step == step


PAIRS: dict[str, dict[str, Any]] = {
    "t5": {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4},
    "longt5": {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4,
               "local_radius": 7},
    "bart": {"d_model": 64, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
             "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 80, "max_position_embeddings": 64},
}  # fmt: skip


def ids(tokens: int) -> Any:
    return torch.zeros((1, tokens), dtype=torch.long, device="meta")


@pytest.mark.parametrize("kind", PAIRS)
def test_encoder_and_decoder(kind: str) -> None:
    model = build({"model_type": kind, "vocab_size": 100, **PAIRS[kind]}, "AutoModelForSeq2SeqLM")
    with torch.no_grad(), explicit_masks(model, None):
        prompt, out = counted(lambda: model(input_ids=ids(21), decoder_input_ids=ids(TOKENS), use_cache=True))
        states = (out.encoder_last_hidden_state,)
        step, _ = counted(lambda: model(encoder_outputs=states, decoder_input_ids=ids(1), cache=out.past_key_values))

    assert ours(read(model), encoder_tokens=21) == (prompt, step)


def test_encoder_alone() -> None:
    data = {"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 96, "vocab_size": 100}  # fmt: skip
    model = build(data, "AutoModelForMaskedLM")
    with torch.no_grad(), explicit_masks(model, None):
        prompt, _ = counted(lambda: model(input_ids=ids(TOKENS)))

    assert flops(read(model), TOKENS, convention="dense", logits="all").forward_flops == prompt


def test_whisper_listens_to_twice_as_many_frames_as_positions() -> None:
    data = {"model_type": "whisper", "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 100,
            "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96,
            "num_mel_bins": 8, "max_source_positions": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
            "decoder_start_token_id": 1}  # fmt: skip
    model = build(data, "AutoModelForSpeechSeq2Seq")
    sound = torch.zeros((1, 8, 100), device="meta", dtype=torch.bfloat16)
    with torch.no_grad(), explicit_masks(model, None):
        prompt, out = counted(lambda: model(input_features=sound, decoder_input_ids=ids(TOKENS), use_cache=True))
        states = (out.encoder_last_hidden_state,)
        step, _ = counted(lambda: model(encoder_outputs=states, decoder_input_ids=ids(1), cache=out.past_key_values))

    assert ours(read(model)) == (prompt, step)


def test_layers_that_look_at_images() -> None:
    config = transformers.AutoConfig.for_model("mllama_text_model", **SMALL, cross_attention_layers=[1])
    config._attn_implementation = "eager"
    with torch.device("meta"):
        model = transformers.MllamaForCausalLM(config).to(torch.bfloat16).eval()
    image = torch.zeros((1, 17, 64), device="meta", dtype=torch.bfloat16)
    with torch.no_grad(), explicit_masks(model, None):
        blind, _ = counted(lambda: model(input_ids=ids(TOKENS), use_cache=True))
        prompt, out = counted(lambda: model(input_ids=ids(TOKENS), cross_attention_states=image, use_cache=True))
        step, _ = counted(lambda: model(input_ids=ids(1), cache=out.past_key_values, use_cache=True))

    assert ours(read(model), image_tokens=17) == (prompt, step)
    assert ours(read(model))[0] == blind < prompt


@pytest.mark.parametrize("kind", ["llama", "gemma2", "mixtral", "deepseek_v3"])
def test_forward_and_backward(kind: str) -> None:
    model = build({"model_type": kind, **CONFIGS[kind]}).train()
    with explicit_masks(model, None):
        forward, _ = counted(lambda: model(input_ids=ids(TOKENS), use_cache=False))
        both, _ = counted(lambda: model(input_ids=ids(TOKENS), use_cache=False).logits.sum().backward())
    step = flops(read(model), TOKENS, phase="train", convention="dense").training

    assert both == 3 * forward
    assert step is not None
    assert step.training_flops == both


@pytest.mark.parametrize(
    ("kind", "rows"), [("llama", 96 + 48 + 48), ("deepseek_v3", 24 + 40), ("mixtral", 64 + 32 + 32)]
)
def test_frozen_weights(kind: str, rows: int) -> None:
    """What the lowest trained block reads needs no gradient: its q, k and v are counted with one all the same."""
    model = build({"model_type": kind, **CONFIGS[kind]}).train()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("self_attn" in name)
    with explicit_masks(model, None):
        both, _ = counted(lambda: model(input_ids=ids(TOKENS), use_cache=False).logits.sum().backward())
    step = flops(read(model), TOKENS, phase="train", convention="dense", trained=Trained(("self_attn",))).training

    assert step is not None
    assert step.training_flops - both == 2 * TOKENS * 64 * rows


def test_an_unregistered_product_is_an_error() -> None:
    matrix, vector = torch.zeros((4, 4), device="meta"), torch.zeros(4, device="meta")

    with pytest.raises(UnregisteredProductError, match="mv"):
        counted(lambda: torch.mv(matrix, vector))
    assert counted(lambda: matrix @ matrix)[0] == 128
