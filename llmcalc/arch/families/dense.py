"""Dense decoders that differ by the switches of :mod:`.layouts`."""

from __future__ import annotations

from dataclasses import replace

from llmcalc.arch.attention import Attention, QkNorm
from llmcalc.arch.base import FULL, Extra, Norm, Scope, Weight
from llmcalc.arch.families import forward, windows
from llmcalc.arch.families.build import block, decoder, embed, head_width, key_value_heads, layer_norm, rms, rope, table
from llmcalc.arch.families.layouts import LAYOUTS, Layout, Style, differential, doge_mask, switch
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Layer, Named
from llmcalc.arch.positions import Alibi, Positions
from llmcalc.errors import UnsupportedLayerError


def norm_of(fields: Fields, layout: Layout, size: int) -> Norm:
    """The family's norm of that many channels."""
    if layout.norm == "none":
        classic = fields.model_type == "olmo"
        return Norm(
            size, "layer" if classic else "rms", learned=False, eps=1e-5 if classic else forward.norm_eps(fields)
        )
    if layout.norm == "rms":
        return rms(size, fields, offset=layout.norm_offset)
    return replace(layer_norm(size, fields, bias=switch(fields, layout.norm_bias)), offset=layout.norm_offset)


QK_NORMS: dict[str, QkNorm] = {
    "none": "none", "head": "head", "full": "full", "per_head": "per_head", "weightless": "weightless", "keys": "keys",
}  # fmt: skip
STYLES: dict[str, Style] = {
    "pre": "pre", "sandwich": "sandwich", "post": "post", "outer": "outer", "parallel": "parallel", "none": "none",
}  # fmt: skip


def choice(fields: Fields, value: str, otherwise: str) -> str:
    """A word, or ``?field:word``: the word where the config sets the field, else ``otherwise``."""
    if not value.startswith("?"):
        return value
    name, _, word = value[1:].partition(":")
    return word if fields.flag(name) else otherwise


def qk_norm_of(fields: Fields, layout: Layout) -> QkNorm:
    """The family's q/k norm."""
    return QK_NORMS[choice(fields, layout.qk_norm, "none")]


def positions_of(fields: Fields, layout: Layout, width: int, kind: str = "") -> Positions | None:
    """What a layer's attention does with positions."""
    match layout.positions:
        case "rope":
            return rope(fields, width, kind)
        case "alibi":
            return Alibi(max_bias=forward.alibi_max(fields))
        case "sinusoidal":
            return forward.sinusoidal(fields)
        case _:
            return None


def attention(fields: Fields, layout: Layout, d: int, scope: Scope = FULL, extra: tuple[Weight, ...] = ()) -> Attention:
    """The family's attention in one scope."""
    h = fields.integer("num_attention_heads")
    width, kv = head_width(fields, d, h), key_value_heads(fields, h)
    if layout.square and h * width != d:
        raise fields.wrong("head_dim", width, f"{d // h}: the output matrix of this class is hidden_size x hidden_size")
    if layout.multi_query:
        kv = 1 if fields.flag("multi_query") else h
    if layout.attention_extra is not None:
        extra = (*extra, *layout.attention_extra(h, kv, width))
        if layout.attention_extra is doge_mask and switch(fields, layout.qkv):
            extra = (*extra, Weight("dt_proj.bias", (kv,), "bias"))
    if layout.inner_norm:
        extra = (*extra, Weight("attn_sub_norm.weight", (h * width,), "norm", split="column"))
    qkv = switch(fields, layout.qkv)
    kind = {"sliding": "sliding_attention", "full": "full_attention"}.get(scope.kind, "")
    return Attention(
        d, h, kv, width, width, scope,
        q_bias=qkv, k_bias=qkv, v_bias=qkv, o_bias=switch(fields, layout.o),
        qk_norm=qk_norm_of(fields, layout), qk_norm_form=layout.qk_form, qk_norm_bias=layout.qk_norm_bias,
        sinks=layout.sinks, gate=layout.gate, positions=positions_of(fields, layout, width, kind), extra=extra,
        softcap=forward.maybe(fields, "attn_logit_softcapping"), scale=forward.attention_scale(fields),
        qk_norm_eps=forward.norm_eps(fields), qk_norm_offset=layout.norm_offset and layout.norm == "rms",
        differential=layout.attention_extra is differential,
        dynamic_window=forward.dynamic_window(fields),
        qk_norm_after_rope=fields.model_type in forward.AFTER_ROPE, clip=forward.maybe(fields, "clip_qkv"),
    )  # fmt: skip


def feed_forward(fields: Fields, layout: Layout, d: int) -> FeedForward:
    """The family's feed-forward; classic families default to four times the width."""
    f = (
        fields.integer("intermediate_size", null=layout.width_factor * d)
        if layout.width_factor
        else fields.integer("intermediate_size")
    )
    plain = {"bloom": "gelu_new", "ctrl": "relu"}.get(fields.model_type, "gelu")
    act = fields.text("hidden_act", null="silu" if layout.gated else plain)
    return FeedForward(
        d, f, layout.gated, act, switch(fields, layout.mlp),
        inner_norm=layout.inner_norm, extra=layout.ffn_extra, inner_norm_eps=forward.norm_eps(fields),
    )  # fmt: skip


def style_of(fields: Fields, layout: Layout) -> Style:
    """Where the norms stand."""
    return STYLES[choice(fields, layout.style, "pre")]


def read(fields: Fields) -> Architecture:
    """A dense decoder by its row of the table."""
    return build(fields, LAYOUTS[fields.model_type])


def refuse(fields: Fields, names: tuple[str, ...]) -> None:
    """Stop at a flag that means a layout nobody describes.

    Raises: UnsupportedLayerError.
    """
    for name in names:
        if fields.flag(name):
            raise UnsupportedLayerError(f"{fields.where}: {fields.label(name)} is true: that layout is not described")


def build(fields: Fields, layout: Layout) -> Architecture:
    """A dense decoder by its switches."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    norm = norm_of(fields, layout, d)
    ffn, style = feed_forward(fields, layout, d), style_of(fields, layout)
    residual = tuple(Named("", Extra((Weight(name, (d,), "scalar"),))) for name in layout.residual_vectors)
    made: dict[tuple[Scope, bool], Layer] = {}
    layers = []
    for key in windows.turned(fields, windows.layer_scopes(fields, layout.window, count)):
        if key not in made:
            mixer = attention(fields, layout if key[1] else layout._replace(positions="none"), d, key[0])
            made[key] = block(mixer, ffn, norm, style=style, parallel_norms=layout.parallel_norms, residual=residual)
        layers.append(made[key])
    stem = []
    if layout.positions == "learned":
        offset = layout.position_offset
        stem.append(table("model.embed_positions", fields.integer("max_position_embeddings") + offset, d, offset))
    if layout.embed_norm or fields.model_type == "nanochat":
        stem.append(Named("model.embed_layernorm", norm))
    refuse(fields, layout.refuses)
    fields.ignore(*layout.inert)
    return decoder(
        fields, layers, width=d, final=norm if layout.final else None, stem=stem, embedding=embed(fields, d),
        head_bias=switch(fields, layout.head_bias),
    )  # fmt: skip
