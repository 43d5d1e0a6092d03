"""The library flash-linear-attention: RWKV-7, GLA, RetNet, and hybrids of them with attention in some layers."""

from __future__ import annotations

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import FULL, Scope, Spec
from llmcalc.arch.families.build import block, decoder, divide, embed, layer_norm, rms
from llmcalc.arch.families.hybrid import scaled, state_dtype
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.linear import DecayAttention
from llmcalc.arch.model import Architecture, Layer, Named
from llmcalc.arch.positions import Rope
from llmcalc.arch.recurrent import Rwkv7, Rwkv7ChannelMix

INERT = (
    "attn_mode", "fuse_norm", "fuse_swiglu", "fuse_cross_entropy", "fuse_linear_cross_entropy", "use_l2warp",
    "feature_map", "clamp_min", "hidden_ratio", "use_gk", "use_gv", "elementwise_affine", "attn", "num_heads",
    "head_dim",
)  # fmt: skip
NAMES = ("attn_norm", "", "mlp_norm", "")


def read(fields: Fields) -> Architecture:
    """One of the classes."""
    architecture = rwkv7(fields) if fields.model_type == "rwkv7" else gated(fields)
    fields.ignore(*INERT)
    return architecture


def gated(fields: Fields) -> Architecture:
    """GLA or RetNet with a gated feed-forward."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    chosen = attention_layers(fields, d)
    mixer, norm = decay(fields, d), rms(d, fields)
    given = fields.optional("intermediate_size")
    width = given or -(-(2 * scaled(fields, "hidden_ratio", d) // 3) // 256) * 256
    ffn = FeedForward(d, width, activation=fields.text("hidden_act"))
    made = {id(spec): block(spec, ffn, norm, mixer_name="attn", names=NAMES) for spec in {mixer, *chosen.values()}}
    layers = [made[id(chosen.get(index, mixer))] for index in range(count)]
    return decoder(fields, layers, width=d, final=norm, embedding=embed(fields, d, "model.embeddings"))


def decay(fields: Fields, d: int) -> DecayAttention:
    """Retention (fixed decay) or gated linear attention (a learned one of rank 16)."""
    heads = fields.integer("num_heads")
    if fields.integer("num_kv_heads", null=heads) != heads:
        raise fields.wrong("num_kv_heads", fields.raw("num_kv_heads"), "null or num_heads")
    keys, values = scaled(fields, "expand_k", d), scaled(fields, "expand_v", d)
    key = divide(fields, keys, heads, "the key width / num_heads")
    value = divide(fields, values, heads, "the value width / num_heads")
    learned = fields.model_type == "gla"
    return DecayAttention(
        d, heads, key, value, "gla" if learned else "retention", 16 if learned else 0,
        value if fields.flag("elementwise_affine", null=True) else 0, state_dtype=state_dtype(fields),
        gate=fields.flag("use_output_gate"),
        conv_kernel=fields.integer("conv_size") if fields.flag("use_short_conv") else 0,
    )  # fmt: skip


def attention_layers(fields: Fields, d: int) -> dict[int, Spec]:
    """Layers that ``attn`` turns into attention."""
    block_ = fields.child("attn")
    if block_ is None:
        return {}
    heads = block_.integer("num_heads")
    kv = block_.integer("num_kv_heads", null=heads)
    width = divide(fields, d, heads, "hidden_size / attn.num_heads")
    divide(fields, heads, kv, "attn.num_heads / attn.num_kv_heads")
    window, bias = block_.optional("window_size"), block_.flag("qkv_bias")
    theta = block_.number("rope_theta", null=10_000.0)
    mixer = Attention(
        d, heads, kv, width, width, Scope("sliding", window) if window else FULL, q_bias=bias, k_bias=bias, v_bias=bias,
        positions=Rope(float(theta), width),
    )  # fmt: skip
    block_.ignore("rope_max_position_embeddings", "qk_norm")
    return dict.fromkeys(block_.integers("layers") or [], mixer)


def rwkv7(fields: Fields) -> Architecture:
    """RWKV-7: the first block norms the embeddings too, and has no value residual."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    norm = layer_norm(d, fields, bias=fields.flag("norm_bias", null=True))
    size = fields.optional("intermediate_size") or -(-scaled(fields, "hidden_ratio", d) // 32) * 32
    ffn = Rwkv7ChannelMix(d, size)
    chosen, names = attention_layers(fields, d), ("attn_norm", "", "ffn_norm", "")

    def layer(mixer: Spec) -> Layer:
        return block(mixer, ffn, norm, mixer_name="attn", ffn_name="ffn", names=names)

    first, other = layer(time_mix(fields, d, first=True)), layer(time_mix(fields, d, first=False))
    full = {id(spec): layer(spec) for spec in chosen.values()}
    layers = [full[id(chosen[i])] if i in chosen else other if i else first for i in range(count)]
    stem: list[Named] = []
    if fields.flag("norm_first", null=True):
        stem.append(Named("model.layers.0.pre_norm", norm))
    return decoder(fields, layers, width=d, final=norm, stem=stem, embedding=embed(fields, d, "model.embeddings"))


def time_mix(fields: Fields, d: int, *, first: bool) -> Rwkv7:
    """Time mixing; a low rank that the file does not give follows from the width, as the class has it."""
    width = fields.optional("head_dim") or divide(fields, d, fields.integer("num_heads"), "hidden_size / num_heads")
    divide(fields, d, width, "hidden_size / head_dim")

    def rank(name: str, factor: float, *, wider: bool = True) -> int:
        computed = round(factor * d**0.5 * (width / 64 if wider else 1) / 32) * 32
        return fields.integer(name, null=max(32, computed))

    value = rank("v_low_rank_dim", 1.7)
    if fields.raw("value_dim") not in (None, d, [d] * fields.integer("num_hidden_layers")):
        raise fields.wrong("value_dim", fields.raw("value_dim"), f"hidden_size = {d}")
    return Rwkv7(
        d, width, rank("decay_low_rank_dim", 2.5), rank("a_low_rank_dim", 2.5), 0 if first else value,
        rank("gate_low_rank_dim", 5, wider=False), state_dtype(fields),
    )  # fmt: skip
