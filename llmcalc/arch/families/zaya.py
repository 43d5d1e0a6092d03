"""Zaya: attention behind convolutions, and experts whose router is a network that carries a state between layers."""

from __future__ import annotations

from llmcalc.arch.base import FULL, Extra, Scope, Weight
from llmcalc.arch.cca import ConvolvedAttention
from llmcalc.arch.families.build import block, decoder, divide, head_width, key_value_heads, layer_types, rms, rope
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Named
from llmcalc.arch.moe import MixtureOfExperts


def read(fields: Fields) -> Architecture:
    """Every layer is a hybrid of attention and convolutions; the first router has no state to scale."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    types = layer_types(fields, count) or ["hybrid"] * count
    norm = rms(d, fields)
    residual = [Named(f"post_{part}_residual_scale", scales(d)) for part in ("attention", "mlp")]
    made = {}
    layers = []
    for index, kind in enumerate(types):
        if (kind, index == 0) not in made:
            mixer, ffn = attention(fields, d, kind), experts(fields, d, first=index == 0)
            made[kind, index == 0] = block(mixer, ffn, norm, residual=residual)
        layers.append(made[kind, index == 0])
    start = Extra(tuple(Weight(f"input_hidden_states_{name}", (d,), "scalar") for name in ("scale", "bias")))
    return decoder(
        fields, layers, width=d, final=norm, stem=[Named("model", start)], head_bias=fields.flag("lm_head_bias")
    )


def attention(fields: Fields, d: int, kind: str) -> ConvolvedAttention:
    """One attention; ``hybrid_sliding`` layers see a window."""
    heads = fields.integer("num_attention_heads")
    kv, width, bias = key_value_heads(fields, heads), head_width(fields, d, heads), fields.flag("attention_bias")
    divide(fields, kv * width, 2, "num_key_value_heads x head_dim / 2 (half of the values are delayed)")
    if kind not in ("hybrid", "hybrid_sliding"):
        raise fields.wrong("layer_types", kind, "hybrid or hybrid_sliding")
    scope = Scope("sliding", fields.integer("sliding_window")) if kind == "hybrid_sliding" else FULL
    fields.ignore("sliding_window")
    return ConvolvedAttention(
        d, heads, kv, width, width, scope, q_bias=bias, k_bias=bias, v_bias=bias, o_bias=bias,
        positions=rope(fields, width, kind), depthwise_kernel=fields.integer("cca_time0"),
        grouped_kernel=fields.integer("cca_time1"),
    )  # fmt: skip


def experts(fields: Fields, d: int, *, first: bool) -> MixtureOfExperts:
    """Experts and one more class that skips them all; the router is a network of ``router_hidden_size``."""
    e, r = fields.integer("num_experts"), fields.integer("router_hidden_size")
    tensors = [
        ("down_proj.weight", (r, d)), ("down_proj.bias", (r,)), ("router_mlp.norm.weight", (r,)),
        ("router_mlp.fc1.weight", (r, r)), ("router_mlp.fc1.bias", (r,)),
        ("router_mlp.fc2.weight", (r, r)), ("router_mlp.fc2.bias", (r,)), ("router_mlp.out_proj.weight", (e + 1, r)),
    ]  # fmt: skip
    if not first:
        tensors.append(("router_states_scale", (r,)))
    return MixtureOfExperts(
        d, e, fields.integer("num_experts_per_tok"), fields.integer("moe_intermediate_size"),
        activation=fields.text("hidden_act"), router=False, correction="buffer", zero_experts=1,
        router_extra=tuple(Weight(f"gate.{name}", shape, "router") for name, shape in tensors),
    )  # fmt: skip


def scales(d: int) -> Extra:
    """Scale and offset of the sublayer's output and of the stream."""
    names = ("hidden_states_scale", "hidden_states_bias", "residual_scale", "residual_bias")
    return Extra(tuple(Weight(name, (d,), "scalar") for name in names))
