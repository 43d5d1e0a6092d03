"""From a GGUF file's metadata to the config.json of one of our families.

One row of :data:`ROWS` an architecture of llama.cpp: the family, and the pieces that say which keys of the metadata are
which fields of its config.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from llmcalc.errors import UnsupportedArchitectureError
from llmcalc.sources import gguf_families as f
from llmcalc.sources import gguf_hybrids as h
from llmcalc.sources import gguf_pieces as p
from llmcalc.sources.gguf_header import GgufHeader
from llmcalc.sources.gguf_metadata import Fields, Gguf


class Row(NamedTuple):
    """A family of ours (or how to tell it) and the pieces of its config; ``drop``: common fields its class has not."""

    family: str | Callable[[Gguf], str]
    pieces: tuple[Callable[[Gguf], Fields], ...]
    drop: tuple[str, ...] = ()


SHARED: Final = p.shared_width("shared_expert_intermediate_size")
Q_BIAS: Final = "blk.*.attn_q.bias"
QKV_BIAS: Final = "blk.*.attn_qkv.bias"
NO_KV: Final = ("num_key_value_heads",)

ROWS: Final[Mapping[str, Row]] = {
    "llama": Row(f.llama, (f.llama_pieces,)),
    "mistral3": Row("ministral3", p.DENSE),
    "arcee": Row("arcee", (*p.DENSE, p.attention_bias, p.mlp_bias)),
    "llama4": Row("llama4_text", (p.heads, p.chunks, p.constant(interleave_moe_layer_step=1))),
    "qwen2": Row("qwen2", (*p.DENSE, p.full)),
    "qwen2vl": Row("qwen2_vl_text", (*p.DENSE, p.full)),
    "qwen2moe": Row(
        "qwen2_moe", (*p.SPARSE, SHARED, p.flag("qkv_bias", Q_BIAS), p.full, p.constant(decoder_sparse_step=1))
    ),
    "qwen3": Row("qwen3", (*p.DENSE, p.attention_bias, p.full)),
    "qwen3vl": Row("qwen3_vl_text", (*p.DENSE, p.attention_bias)),
    "qwen3moe": Row("qwen3_moe", (*p.SPARSE, p.attention_bias, p.full, p.constant(decoder_sparse_step=1))),
    "qwen3vlmoe": Row("qwen3_vl_moe_text", (*p.SPARSE, p.attention_bias, p.full, p.constant(decoder_sparse_step=1))),
    "qwen3next": Row("qwen3_next", (*p.SPARSE, SHARED, h.gated_delta, p.constant(decoder_sparse_step=1))),
    "qwen35": Row("qwen3_5_text", (*p.DENSE, h.gated_delta)),
    "qwen35moe": Row("qwen3_5_moe_text", (p.heads, p.experts, SHARED, h.gated_delta)),
    "gemma": Row("gemma", p.DENSE),
    "gemma2": Row("gemma2", (*p.DENSE, p.window_every(2, 4096))),
    "gemma3": Row("gemma3_text", (*p.DENSE, p.window_every(6))),
    "gemma3n": Row("gemma3n_text", (p.heads, p.widths, p.window_every(5), h.gemma3n)),
    "gemma4": Row("gemma4_text", (p.window, h.gemma4)),
    "phi2": Row("phi", (p.old_heads, p.dense)),
    "phi3": Row("phi3", (p.old_heads, p.dense, p.window)),
    "gpt2": Row("gpt2", (p.old_heads, p.dense), NO_KV),
    "starcoder": Row("gpt_bigcode", (p.old_heads, p.dense, p.constant(multi_query=True)), NO_KV),
    "starcoder2": Row("starcoder2", (*p.DENSE, p.window, p.flag("use_bias", Q_BIAS))),
    "gptneox": Row("gpt_neox", (p.old_heads, p.dense, p.flag("attention_bias", QKV_BIAS)), NO_KV),
    "bloom": Row("bloom", (p.old_heads, p.dense), NO_KV),
    "mpt": Row(
        "mpt",
        (
            p.old_heads,
            lambda g: {
                "no_bias": not g.has(QKV_BIAS),
                "expansion_ratio": p.ratio(g, g.rows("blk.*.ffn_up.weight") or 0, g.number("embedding_length")),
            },
        ),
        NO_KV,
    ),
    "falcon": Row("falcon", (p.old_heads, p.dense, f.falcon)),
    "phimoe": Row(
        "phimoe",
        (p.heads, p.plain_experts, p.attention_bias, p.flag("lm_head_bias", "output.bias"), p.window),
        ("head_dim",),
    ),
    "stablelm": Row(
        "stablelm",
        (
            p.old_heads,
            p.dense,
            p.flag("use_qkv_bias", Q_BIAS),
            p.flag("qk_layernorm", "blk.*.attn_q_norm.weight"),
            lambda g: {"use_parallel_residual": not g.has("blk.*.ffn_norm.weight")},
        ),
    ),
    "command-r": Row("cohere", (*p.DENSE, p.attention_bias, p.qk_norm)),
    "cohere2": Row("cohere2", (*p.DENSE, p.attention_bias, p.window_every(4))),
    "olmo": Row("olmo", (*p.DENSE, p.attention_bias)),
    "olmo2": Row(
        lambda g: "olmo3" if g.number("attention.sliding_window", 0) else "olmo2",
        (*p.DENSE, p.attention_bias, lambda g: p.window_every(4)(g) if g.number("attention.sliding_window", 0) else {}),
    ),
    "olmoe": Row("olmoe", (p.heads, p.plain_experts, p.attention_bias)),
    "minicpm3": Row("minicpm3", (p.latent,)),
    "granite": Row("granite", (*p.DENSE, p.attention_bias, p.mlp_bias)),
    "granitemoe": Row(
        lambda g: "granitemoeshared" if g.has("blk.*.ffn_up_shexp.weight") else "granitemoe",
        (
            p.heads,
            p.plain_experts,
            p.attention_bias,
            lambda g: {"shared_intermediate_size": g.rows("blk.*.ffn_up_shexp.weight")},
        ),
    ),
    "granite_swa": Row(
        lambda g: "granitemoe_swa" if g.number("expert_count", 0) else "granite_swa",
        (
            p.heads,
            p.window,
            p.attention_bias,
            lambda g: p.plain_experts(g) if g.number("expert_count", 0) else p.dense(g) | p.mlp_bias(g),
        ),
    ),
    "granitehybrid": Row(
        "granitemoehybrid",
        (
            p.heads,
            h.ssm,
            h.expand,
            h.kinds("attention", "mamba"),
            p.attention_bias,
            f.granite_experts,
            lambda g: {
                "shared_intermediate_size": g.number("expert_shared_feed_forward_length", 0)
                or g.number("feed_forward_length"),
                "position_embedding_type": "rope",
            },
        ),
        ("head_dim",),
    ),
    "falcon-h1": Row(
        "falcon_h1",
        (
            *p.DENSE,
            h.ssm,
            p.attention_bias,
            p.mlp_bias,
            lambda g: {"mamba_d_ssm": g.number("ssm.inner_size")},
            p.flag("mamba_rms_norm", "blk.*.ssm_norm.weight"),
        ),
    ),
    "deepseek2": Row(f.deepseek2, (p.latent, p.maybe_experts)),
    "deepseek32": Row(
        "deepseek_v32", (p.latent, p.maybe_experts, p.sparse_by_tensors, p.indexer), ("first_k_dense_replace",)
    ),
    "glm-dsa": Row(
        "glm_moe_dsa", (p.latent, p.maybe_experts, p.sparse_by_tensors, p.indexer), ("first_k_dense_replace",)
    ),
    "chatglm": Row(f.glm, (*p.DENSE, p.attention_bias)),
    "glm4": Row("glm4", (*p.DENSE, p.attention_bias)),
    "glm4moe": Row("glm4_moe", (*p.GLM, p.qk_norm)),
    "dots1": Row("dots1", (*p.GLM, p.full)),
    "nemotron": Row("nemotron", (*p.DENSE, p.attention_bias, p.mlp_bias)),
    "nemotron_h": Row("nemotron_h", (p.heads, h.nemotron_h, p.attention_bias)),
    "nemotron_h_moe": Row("nemotron_h", (p.heads, h.nemotron_h, p.attention_bias)),
    "exaone4": Row("exaone4", (*p.DENSE, p.window_every(4), p.constant(sliding_window_pattern=4))),
    "exaone-moe": Row(
        "exaone_moe",
        (*p.SPARSE, p.shared_count, p.window_every(4, 128), p.sparse_by_tensors, p.constant(sliding_window_pattern=4)),
    ),
    "mamba": Row(
        lambda g: "falcon_mamba" if g.value("ssm.dt_b_c_rms") is True else "mamba",
        (h.mamba,),
        ("max_position_embeddings",),
    ),
    "mamba2": Row("mamba2", (h.mamba2,), ("max_position_embeddings",)),
    "jamba": Row("jamba", (*p.DENSE, h.jamba)),
    "lfm2": Row("lfm2", (*p.DENSE, h.short_conv, p.constant(block_auto_adjust_ff_dim=False))),
    "lfm2moe": Row(
        "lfm2_moe",
        (*p.SPARSE, h.short_conv, p.leading("num_dense_layers"), p.flag("use_expert_bias", "blk.*.exp_probs_b.bias")),
    ),
    "gpt-oss": Row("gpt_oss", (p.heads, p.plain_experts, p.window_every(2), p.attention_bias)),
    "smollm3": Row("smollm3", (*p.DENSE, p.attention_bias, p.mlp_bias, p.full, p.constant(no_rope_layer_interval=4))),
    "hunyuan-dense": Row("hunyuan_v1_dense", (*p.DENSE, p.attention_bias)),
    "hunyuan-moe": Row("hunyuan_v1_moe", (p.heads, p.experts, p.shared_count, p.attention_bias)),
    "hy_v3": Row("hy_v3", (*p.SPARSE, p.shared_count, p.sparse_by_tensors, p.attention_bias)),
    "ernie4_5": Row("ernie4_5", (*p.DENSE, p.flag("use_bias", Q_BIAS))),
    "ernie4_5-moe": Row("ernie4_5_moe", (*p.SPARSE, p.shared_count, f.ernie_layers, p.flag("use_bias", Q_BIAS))),
    "seed_oss": Row(
        "seed_oss", (*p.DENSE, p.attention_bias, p.mlp_bias, p.flag("attention_out_bias", "blk.*.attn_output.bias"))
    ),
    "apertus": Row("apertus", (*p.DENSE, p.attention_bias)),
    "jais2": Row("jais2", (*p.DENSE, p.attention_bias, p.mlp_bias)),
    "minimax-m2": Row("minimax_m2", (p.heads, p.plain_experts)),
    "afmoe": Row(
        "afmoe",
        (*p.SPARSE, p.window_every(4), p.shared_count, p.sparse_by_tensors, p.constant(global_attn_every_n_layers=4)),
    ),
}


def config_of(header: GgufHeader, where: str) -> Fields:
    """The config.json that the header amounts to.

    Raises: UnsupportedArchitectureError for an architecture without a row, MalformedConfigError for what is missing.
    """
    gguf = Gguf(header, where)
    row = ROWS.get(gguf.arch)
    if row is None:
        raise UnsupportedArchitectureError(*_unknown(gguf))
    family = row.family if isinstance(row.family, str) else row.family(gguf)
    fields: Fields = {"model_type": family}
    for piece in (*p.COMMON, *row.pieces):
        fields |= piece(gguf)
    for name in row.drop:
        fields.pop(name, None)
    return {name: value for name, value in fields.items() if value is not None or name in p.NULLS}


def _unknown(gguf: Gguf) -> tuple[str, str]:
    kind = gguf.metadata.get("general.type")
    if gguf.arch == "clip" or kind == "mmproj":
        return (
            f"{gguf.where}: a vision or audio tower (mmproj), not a language model",
            "name the model's own .gguf file",
        )
    if kind in ("adapter", "imatrix"):
        return f"{gguf.where}: a GGUF file of type {kind}, not a model", "name the model's own .gguf file"
    import difflib

    near = ", ".join(difflib.get_close_matches(gguf.arch, ROWS, n=3, cutoff=0.5)) or "llama, qwen3, deepseek2"
    return (
        f"{gguf.where}: the GGUF architecture {gguf.arch!r:.40} is not known",
        f"close ones: {near}; the config.json of the same model may be of a family that is",
    )
