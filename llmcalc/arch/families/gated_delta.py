"""Gated delta rule beside full attention: Qwen3-Next, Qwen3.5 (dense and MoE), Lara-Mini, OLMo-Hybrid."""

from __future__ import annotations

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import FULL, Scope, Spec
from llmcalc.arch.families import forward
from llmcalc.arch.families.build import block, decoder, divide, rms
from llmcalc.arch.families.dense import attention
from llmcalc.arch.families.hybrid import every, kinds, mtp_head, state_dtype
from llmcalc.arch.families.layouts import Layout
from llmcalc.arch.families.placements import qwen_step
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.linear import GatedDelta
from llmcalc.arch.model import Architecture, Layer, Stack
from llmcalc.arch.moe import MixtureOfExperts

QWEN = Layout(qkv="?attention_bias", o="?attention_bias", qk_norm="head", gate="fused", norm_offset=True)
LARA = Layout(qkv="?attention_bias", o="?attention_bias", qk_norm="head")
OLMO = Layout(qkv="?attention_bias", o="?attention_bias", qk_norm="full")


def read(fields: Fields) -> Architecture:
    """A decoder of gated delta layers, every fourth a full attention."""
    fields.ignore(
        "output_gate_type", "partial_rotary_factor", "attn_output_gate", "intermediate_size", "mlp_only_layers",
        "decoder_sparse_step", "full_attention_interval", "mamba_ssm_dtype",
    )  # fmt: skip
    return {"olmo_hybrid": olmo_hybrid, "lara_mini": lara_mini}.get(fields.model_type, qwen)(fields)


def delta(fields: Fields, d: int) -> GatedDelta:
    """Qwen's mixer; Qwen3-Next fuses its projections."""
    keys, values = fields.integer("linear_num_key_heads"), fields.integer("linear_num_value_heads")
    divide(fields, values, keys, "linear_num_value_heads / linear_num_key_heads")
    return GatedDelta(
        d, keys, values, fields.integer("linear_key_head_dim"), fields.integer("linear_value_head_dim"),
        fields.integer("linear_conv_kernel_dim"), state_dtype(fields),
        layout="fused" if fields.model_type == "qwen3_next" else "split",
        norm_eps=forward.number(fields, "rms_norm_eps", null=1e-6),
    )  # fmt: skip


def feed_forward(fields: Fields, d: int, *, sparse: bool) -> Spec:
    """Experts with a gated shared one, or a dense feed-forward in the layers (or classes) without."""
    act = fields.text("hidden_act")
    experts = 0 if fields.model_type == "qwen3_5_text" else fields.integer("num_experts", low=0)
    if not experts or not sparse:
        return FeedForward(d, fields.integer("intermediate_size"), activation=act)
    shared = fields.integer("shared_expert_intermediate_size", low=0)
    return forward.routed(fields, MixtureOfExperts(
        d, experts, fields.integer("num_experts_per_tok"), fields.integer("moe_intermediate_size"), activation=act,
        shared=FeedForward(d, shared, activation=act) if shared else None,
        shared_gate=bool(shared) and fields.model_type != "lara_mini",
    ))  # fmt: skip


def qwen(fields: Fields) -> Architecture:
    """Three gated delta layers, then a gated full attention; experts in every layer, or in none."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    period = fields.integer("full_attention_interval", null=4)
    types = kinds(fields, count, every(count, period, period - 1), ("linear", "full"))
    norm, full, linear = rms(d, fields, offset=True), attention(fields, QWEN, d), delta(fields, d)
    sparse = qwen_step(fields, count)
    ffns = {flag: feed_forward(fields, d, sparse=flag) for flag in set(sparse)}
    made: dict[tuple[str, Spec], Layer] = {}

    def layer(kind: str, index: int) -> Layer:
        ffn = ffns[sparse[index]]
        if (kind, ffn) not in made:
            name = "self_attn" if kind == "full" else "linear_attn"
            made[kind, ffn] = block(full if kind == "full" else linear, ffn, norm, mixer_name=name)
        return made[kind, ffn]

    layers = [layer(kind, index) for index, kind in enumerate(types)]
    return decoder(fields, layers, width=d, final=norm, mtp=mtp(fields, layer("full", count - 1), d))


def mtp(fields: Fields, layer: Layer, d: int) -> tuple[Stack, ...]:
    """The prediction head: full-attention layers of the model's own kind."""
    count = fields.optional("mtp_num_hidden_layers", "num_nextn_predict_layers", low=0)
    if count is None:
        # Qwen3-Next files hold one head and have no key for it.
        count = 1 if fields.model_type == "qwen3_next" else 0
        if count:
            fields.notes.assume("one multi-token-prediction head, as the published files have it without a key")
    own = fields.flag("mtp_use_dedicated_embeddings")
    return mtp_head(fields, [layer] * count, d, rms(d, fields, offset=True), embedding=own)


def lara_mini(fields: Fields) -> Architecture:
    """Lara-Mini: delta, sliding and full attention (without positions) in a pattern of five; experts everywhere."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    cycle = ("linear", "sliding", "linear", "full", "sliding")
    types = kinds(fields, count, [cycle[index % 5] for index in range(count)], ("linear", "sliding", "full"))
    norm, ffn = rms(d, fields), feed_forward(fields, d, sparse=qwen_step(fields, 1)[0])
    layers: dict[str, Layer] = {}
    for kind in dict.fromkeys(types):
        if kind == "linear":
            layers[kind] = block(delta(fields, d), ffn, norm, mixer_name="linear_attn")
        else:
            layout = LARA if kind == "sliding" else LARA._replace(positions="none")
            scope = Scope("sliding", fields.integer("sliding_window")) if kind == "sliding" else FULL
            layers[kind] = block(attention(fields, layout, d, scope), ffn, norm)
    return decoder(fields, [layers[kind] for kind in types], width=d, final=norm)


def olmo_hybrid(fields: Fields) -> Architecture:
    """OLMo-Hybrid: norms before a gated delta layer, after an attention one."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    heads = fields.integer("num_attention_heads")
    rule = every(count, 4, 3)
    if "full" not in rule:
        rule[-1] = "full"
    types = kinds(fields, count, rule, ("linear", "full"))
    keys, values = (fields.integer(f"linear_num_{name}_heads", null=heads) for name in ("key", "value"))
    divide(fields, values, keys, "linear_num_value_heads / linear_num_key_heads")
    width = fields.integer("linear_key_head_dim", null=max(1, 3 * d // (4 * keys)))
    mixer = GatedDelta(
        d, keys, values, width, fields.integer("linear_value_head_dim", null=2 * width),
        fields.integer("linear_conv_kernel_dim"), state_dtype(fields), layout="separate",
        norm_eps=1e-5,
        negative=forward.flag(fields, "linear_allow_neg_eigval"),
    )  # fmt: skip
    rotates = fields.mapping("rope_parameters").get("rope_theta") or fields.raw("rope_theta")
    layout = OLMO if rotates else OLMO._replace(positions="none")
    full: Attention = attention(fields, layout, d)
    norm = rms(d, fields)
    ffn = FeedForward(d, fields.integer("intermediate_size"), activation=fields.text("hidden_act"))
    layers = {
        "full": block(full, ffn, norm, style="post"),
        "linear": block(mixer, ffn, norm, mixer_name="linear_attn"),
    }
    fields.ignore("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_allow_neg_eigval")
    return decoder(fields, [layers[kind] for kind in types], width=d, final=norm)
