"""Mamba layers and a few of attention: Jamba, Bamba, Granite-4-H, and Falcon-H1, which runs both in each layer."""

from __future__ import annotations

from dataclasses import replace

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import Spec
from llmcalc.arch.families import forward
from llmcalc.arch.families.build import block, decoder, rms
from llmcalc.arch.families.dense import attention
from llmcalc.arch.families.hybrid import every, kinds, mamba1, mamba2, scaled
from llmcalc.arch.families.layouts import Layout
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Layer, Parallel, Sublayer
from llmcalc.arch.moe import MixtureOfExperts
from llmcalc.arch.ssm import Mamba2

NAMES = ("input_layernorm", "", "pre_ff_layernorm", "")
MIXED = ("linear", "full")
INERT = ("use_mamba_kernels", "num_logits_to_keep", "use_mambapy", "use_associative_scan", "time_step_limit")


def read(fields: Fields) -> Architecture:
    """One of the four classes."""
    fields.ignore(*INERT)
    return {"jamba": jamba, "bamba": bamba, "granitemoehybrid": granite, "falcon_h1": falcon_h1}[fields.model_type](
        fields
    )


def jamba(fields: Fields) -> Architecture:
    """One attention in eight layers, experts in every second; both feed-forwards have the same width."""
    fields.ignore("sliding_window")
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    act, width, experts = fields.text("hidden_act"), fields.integer("intermediate_size"), fields.integer("num_experts")
    rule = every(count, fields.integer("attn_layer_period"), fields.integer("attn_layer_offset", low=0))
    period, offset = fields.integer("expert_layer_period"), fields.integer("expert_layer_offset", low=0)
    sparse = every(count, period, offset, "moe", "mlp")
    dense = FeedForward(d, width, activation=act)
    k = fields.integer("num_experts_per_tok")
    moe = forward.routed(fields, MixtureOfExperts(d, experts, k, width, activation=act))
    ffns: dict[str, Spec] = {"mlp": dense, "moe": moe if experts > 1 else dense}
    mixers: dict[str, Spec] = {
        "full": attention(fields, Layout(positions="none"), d),
        "linear": mamba1(fields, d, scaled(fields, "mamba_expand", d), inner_norms=True),
    }
    norm = rms(d, fields)
    types = kinds(fields, count, rule, MIXED)
    made = {
        (mixer, ffn): block(
            mixers[mixer], ffns[ffn], norm, mixer_name="self_attn" if mixer == "full" else "mamba",
            ffn_name="feed_forward", names=NAMES,
        )
        for mixer in mixers for ffn in ffns
    }  # fmt: skip
    layers = [made[pair] for pair in zip(types, sparse, strict=True)]
    return decoder(fields, layers, width=d, final=norm, final_name="model.final_layernorm")


def bamba(fields: Fields) -> Architecture:
    """Mamba-2, attention where ``attn_layer_indices`` says so, a dense feed-forward in each layer."""
    fields.ignore("attn_rotary_emb")
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    chosen = set(fields.integers("attn_layer_indices") or ())
    rule = ["full" if index in chosen else "linear" for index in range(count)]
    bias = fields.flag("mlp_bias")
    ffn = FeedForward(d, fields.integer("intermediate_size"), activation=fields.text("hidden_act"), bias=bias)
    layout = Layout(qkv="?attention_bias", o="?attention_bias")
    norm = rms(d, fields)
    full, scan = attention(fields, layout, d), mamba2(fields, d, scaled(fields, "mamba_expand", d))
    layers = {
        "full": block(full, ffn, norm, ffn_name="feed_forward", names=NAMES),
        "linear": block(scan, ffn, norm, mixer_name="mamba", ffn_name="feed_forward", names=NAMES),
    }
    types = kinds(fields, count, rule, MIXED)
    made = [layers[kind] for kind in types]
    return decoder(fields, made, width=d, final=norm, final_name="model.final_layernorm")


def granite(fields: Fields) -> Architecture:
    """Granite-4-H: mamba-2 nearly everywhere; a shared feed-forward in each layer, experts beside it or none."""
    fields.ignore("mlp_bias", "normalization_function")
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    ffn, name = granite_ffn(fields, d)
    rotates = fields.text("position_embedding_type") == "rope"
    layout = Layout(qkv="?attention_bias", o="?attention_bias", positions="rope" if rotates else "none")
    types = kinds(fields, count, ["linear"] * count, MIXED)
    norm = rms(d, fields)
    layers: dict[str, Layer] = {}
    if "full" in types:
        layers["full"] = block(attention(fields, layout, d), ffn, norm, ffn_name=name)
    if "linear" in types:
        scan = mamba2(fields, d, scaled(fields, "mamba_expand", d))
        layers["linear"] = block(scan, ffn, norm, mixer_name="mamba", ffn_name=name)
    fields.ignore(*(key for key in fields.data if key.startswith("mamba_")))
    fields.ignore("attention_bias", "num_attention_heads", "num_key_value_heads")
    return decoder(fields, [layers[kind] for kind in types], width=d, final=norm)


def granite_ffn(fields: Fields, d: int) -> tuple[Spec, str]:
    """``intermediate_size`` is the experts' width, ``shared_intermediate_size`` that of what every token passes."""
    act, experts = fields.text("hidden_act"), fields.integer("num_local_experts", low=0)
    shared = FeedForward(d, fields.integer("shared_intermediate_size"), activation=act)
    if not experts:
        fields.ignore("intermediate_size", "num_experts_per_tok")
        return shared, "shared_mlp"
    k, width = fields.integer("num_experts_per_tok"), fields.integer("intermediate_size")
    moe = MixtureOfExperts(d, experts, k, width, activation=act, shared=shared)
    return forward.routed(fields, moe), "block_sparse_moe"


def falcon_h1(fields: Fields) -> Architecture:
    """Falcon-H1: attention and mamba-2 read the same input in every layer and are summed."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    inner = fields.optional("mamba_d_ssm") or scaled(fields, "mamba_expand", d)
    fields.ignore(
        "mamba_expand",
        "mamba_norm_before_gate",
        "mamba_use_mlp",
        "attn_layer_indices",
        "mlp_expansion_factor",
        "mlp_multipliers",
        "ssm_multipliers",
    )
    scan = mamba2(fields, d, inner, gated_norm=fields.flag("mamba_rms_norm"), out_bias=fields.flag("projectors_bias"))
    full = attention(fields, Layout(qkv="?attention_bias", o="?attention_bias"), d)
    norm, bias = rms(d, fields), fields.flag("mlp_bias")
    ffn = FeedForward(d, fields.integer("intermediate_size"), activation=fields.text("hidden_act"), bias=bias)
    full, scan, ffn = multiplied(fields, full, scan, ffn)
    both = Parallel((Sublayer("self_attn", full), Sublayer("mamba", scan)))
    layer = block(both, ffn, norm, mixer_name="", ffn_name="feed_forward", names=NAMES)
    return decoder(fields, [layer] * count, width=d, final=norm, final_name="model.final_layernorm")


def multiplied(
    fields: Fields, full: Attention, scan: Mamba2, ffn: FeedForward
) -> tuple[Attention, Mamba2, FeedForward]:
    """Falcon-H1's factors (maximal update parametrisation)."""
    names = ("attention_in_multiplier", "key_multiplier", "attention_out_multiplier")
    attention_factors = tuple(forward.number(fields, name, null=1.0) for name in names)
    outside = [forward.number(fields, name, null=1.0) for name in ("ssm_in_multiplier", "ssm_out_multiplier")]
    inside, both = forward.numbers(fields, "ssm_multipliers", 5), forward.numbers(fields, "mlp_multipliers", 2)
    return (
        replace(full, multipliers=(attention_factors[0], attention_factors[1], attention_factors[2])),
        replace(scan, multipliers=(*outside, *inside)),
        replace(ffn, multipliers=(both[0], both[1])),
    )
