"""Phi-4-flash (SambaY): Mamba and differential attention below, one full cache, and layers above that only read."""

from __future__ import annotations

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import FULL, Norm, Scope, Spec, Weight, prefixed
from llmcalc.arch.families.build import block, decoder, divide, key_value_heads, layer_norm
from llmcalc.arch.families.hybrid import whole_or
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.memory import GatedMemory
from llmcalc.arch.model import Architecture, Layer
from llmcalc.arch.ssm import Mamba1


def read(fields: Fields) -> Architecture:
    """Layers take turns; from layer L/2 + 2 on, attention reads the cache of L/2 + 1 and scans become gates."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    turn, half = fields.integer("mb_per_layer", null=2), count // 2
    norm, bias = layer_norm(d, fields), fields.flag("mlp_bias")
    ffn = FeedForward(d, fields.integer("intermediate_size"), True, fields.text("hidden_act", null="silu"), bias)
    made: dict[str, Layer] = {}
    layers = []
    for index in range(count):
        kind = place(index, turn, half)
        if kind not in made:
            made[kind] = block(mixer(fields, d, kind, half), ffn, norm, mixer_name="attn")
        layers.append(made[kind])
    fields.ignore("layer_types", "sliding_window", "mamba_expand", "embd_layer")
    return decoder(
        fields, layers, width=d, final=norm, final_name="model.final_layernorm", head_bias=fields.flag("lm_head_bias"),
        tie=fields.flag("tie_word_embeddings", null=True),
    )  # fmt: skip


def place(index: int, turn: int, half: int) -> str:
    """What stands at a depth."""
    if index % turn == 0:
        return "gate" if index >= half + 2 else "scan"
    if index >= half + 2:
        return "reader"
    return "full" if index >= half else "sliding"


def mixer(fields: Fields, d: int, kind: str, half: int) -> Spec:
    """The mixer of one kind of layer."""
    inner = fields.integer("mamba_expand", null=2) * d
    if kind == "gate":
        return GatedMemory(d, inner, fields.flag("mamba_proj_bias"))
    if kind == "scan":
        return Mamba1(
            d, inner, fields.integer("mamba_d_state", null=16), whole_or(fields, "mamba_dt_rank", -(-d // 16)),
            fields.integer("mamba_d_conv", null=4), fields.flag("mamba_conv_bias", null=True),
            fields.flag("mamba_proj_bias"),
        )  # fmt: skip
    return attention(fields, d, kind, half)


def attention(fields: Fields, d: int, kind: str, half: int) -> Attention:
    """Differential attention without positions: heads in pairs, four vectors and a norm over both heads' values."""
    h = fields.integer("num_attention_heads")
    width, kv = divide(fields, d, h, "hidden_size / num_attention_heads"), key_value_heads(fields, h)
    vectors = tuple(Weight(f"lambda_{name}", (width,), "scalar", dtype="fp32") for name in ("q1", "k1", "q2", "k2"))
    extra = (*vectors, *prefixed("subln", Norm(2 * width).weights()))
    borrowed = kind == "reader"
    return Attention(
        d, h, kv, width, width, Scope("sliding", window(fields)) if kind == "sliding" else FULL, True, True, True, True,
        cache="borrowed" if borrowed else "own", cache_source=half + 1 if borrowed else None, extra=extra,
        differential=True,
    )  # fmt: skip


def window(fields: Fields) -> int:
    """The window of the lower layers, given once or as a list with an entry a layer."""
    value = fields.raw("sliding_window")
    if isinstance(value, list):
        value = next((item for item in value if item is not None), None)
        return fields.as_integer("sliding_window", value)
    return fields.integer("sliding_window")
