"""Ling and Ring hybrids: lightning attention (2.0-linear, 2.5) or Kimi delta attention (Ling-3) beside full layers."""

from __future__ import annotations

from llmcalc.arch.base import Spec
from llmcalc.arch.families.build import block, decoder, head_width, layer_types, rms, rope
from llmcalc.arch.families.dense import attention
from llmcalc.arch.families.hybrid import mtp_head, named_kinds, state_dtype
from llmcalc.arch.families.layouts import Layout
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.latent import LatentAttention
from llmcalc.arch.linear import DecayAttention, KimiDelta
from llmcalc.arch.model import Architecture, Layer
from llmcalc.arch.moe import MixtureOfExperts

INERT = (
    "layer_group_size", "group_norm_size", "linear_silu", "use_linear_silu", "linear_backend", "linear_rope", "block",
    "kda_safe_gate", "kda_lower_bound", "no_kda_lora", "norm_head", "norm_softmax", "score_function",
    "num_key_value_heads",
    "moe_router_enable_shared_expert", "use_rmsnorm", "rotary_dim", "linear_attn_norm_group_size", "max_window_layers",
    "use_sliding_window", "sliding_window", "full_attention_type", "linear_mode", "use_mla_nope", "moe_renormalize",
    "num_expert_group", "router_dtype", "linear_scale", "qk_head_dim",
)  # fmt: skip


def read(fields: Fields) -> Architecture:
    """Linear layers in groups, the last of each group full."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    mixers: dict[str, Spec] = {"linear": linear(fields, d), "full": full(fields, d)}
    norm, types = rms(d, fields), order(fields, count)
    sparse_from = fields.integer("first_k_dense_replace", null=0, low=0)
    named = fields.strings("mlp_layer_types")
    if named is not None and len(named) < count:
        raise fields.wrong("mlp_layer_types", f"a list of {len(named)}", f"one entry for each of {count} layers")
    sparse = [i >= sparse_from if named is None else named[i] == "sparse" for i in range(count)]
    made: dict[tuple[str, bool], Layer] = {}
    for kind, has_experts in {*zip(types, sparse, strict=True), ("full", True)}:
        ffn = experts(fields, d) if has_experts else dense(fields, d)
        made[kind, has_experts] = block(mixers[kind], ffn, norm, mixer_name="attention")
    heads = fields.explicit("num_nextn_predict_layers", "num_mtp_layers")
    extra = [made["full", True]] * heads if isinstance(heads, int) and 0 < heads < 100 else []
    if extra:
        fields.notes.assume("the multi-token-prediction layer is a full-attention layer with experts")
    fields.ignore(*INERT)
    layers = [made[pair] for pair in zip(types, sparse, strict=True)]
    return decoder(fields, layers, width=d, final=norm, mtp=mtp_head(fields, extra, d, norm))


def order(fields: Fields, count: int) -> list[str]:
    """The kind of each layer."""
    types = layer_types(fields, count)
    if types is not None:
        return named_kinds(fields, types, ("linear", "full"))
    group = fields.integer("layer_group_size")
    # Ling-2.5's own code makes what is left past the last whole group full; the library's class does not.
    rest = count if delta_rule(fields) else count // group * group
    return ["full" if (index + 1) % group == 0 or index >= rest else "linear" for index in range(count)]


def delta_rule(fields: Fields) -> bool:
    """Ling-3 and Ling-2.5 share a model_type; only Ling-3 convolves, only 2.5 has lightning's switches."""
    if fields.model_type == "bailing_moe_linear" or fields.has("group_norm_size") or fields.has("linear_silu"):
        return False
    return not str(fields.raw("architectures")).startswith("['BailingMoeV2")


def linear(fields: Fields, d: int) -> Spec:
    """Lightning with q/k norms and one norm over all heads, or delta attention with full-rank decay and gate."""
    heads = fields.integer("linear_num_heads", "num_attention_heads")
    if delta_rule(fields):
        kernel = fields.integer("linear_conv_kernel_dim", "short_conv_kernel_size")
        width = fields.integer("linear_head_dim", "head_dim")
        return KimiDelta(d, heads, width, kernel, "full", "full", state_dtype(fields))
    width, bias = head_width(fields, d, heads), fields.flag("use_bias")
    return DecayAttention(
        d, heads, width, width, norm_size=heads * width, qk_norm=fields.flag("use_qk_norm"),
        state_dtype=state_dtype(fields), bias=bias or fields.flag("use_qkv_bias"), out_bias=bias,
    )  # fmt: skip


def full(fields: Fields, d: int) -> Spec:
    """Latent attention (gated per head in Ling-3) where the file has its sizes, else grouped heads."""
    if fields.model_type == "bailing_moe_linear" and not fields.has("kv_lora_rank"):
        bias = fields.flag("use_bias")
        norm = "head" if fields.flag("use_qk_norm") else "none"
        return attention(fields, Layout(qkv=bias or fields.flag("use_qkv_bias"), o=bias, qk_norm=norm), d)
    rotary = fields.integer("qk_rope_head_dim", low=0)
    return LatentAttention(
        d, fields.integer("num_attention_heads"), fields.optional("q_lora_rank"), fields.integer("kv_lora_rank"),
        fields.integer("qk_nope_head_dim"), rotary, fields.integer("v_head_dim"), bias=fields.flag("attention_bias"),
        gate="per_head" if delta_rule(fields) else "none", positions=rope(fields, rotary) if rotary else None,
    )  # fmt: skip


def dense(fields: Fields, d: int) -> FeedForward:
    """The feed-forward of the first layers."""
    return FeedForward(d, fields.integer("intermediate_size"), activation=fields.text("hidden_act", null="silu"))


def experts(fields: Fields, d: int) -> MixtureOfExperts:
    """Experts with a stored balancing term, beside a shared one."""
    act, width = fields.text("hidden_act", null="silu"), fields.integer("moe_intermediate_size")
    count = fields.integer("n_shared_experts", null=0, low=0)
    shared = fields.integer("moe_shared_expert_intermediate_size", null=width) * count
    return MixtureOfExperts(
        d, fields.integer("num_experts"), fields.integer("num_experts_per_tok"), width, activation=act,
        correction="buffer" if fields.flag("moe_router_enable_expert_bias", null=True) else "none",
        shared=FeedForward(d, shared, activation=act) if shared else None, router_dtype="fp32",
    )  # fmt: skip
