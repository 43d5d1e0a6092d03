"""Gemma's audio towers (3n and 4): conformer blocks of feed-forward, attention, convolution, feed-forward."""

from __future__ import annotations

from llmcalc.arch.base import Extra, Norm, Weight
from llmcalc.arch.families.towers.parts import bounds, conv_at, encoder_attention, linear_at, norm_at
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Layer, Named, Stack, Sublayer


def read(fields: Fields, prefix: str) -> Stack:
    """The tower: two strided convolutions over mel bins, then the blocks."""
    second = fields.model_type == "gemma4_audio"
    d, bins = fields.integer("hidden_size"), 128 if second else fields.integer("input_feat_size")
    widths = fields.integers("subsampling_conv_channels" if second else "sscp_conv_channel_size", low=1) or []
    root = f"{prefix}.subsample_conv_projection"
    stem, inputs, rows = [], 1, bins
    for index, (outputs, (high, wide)) in enumerate(zip(widths, _kernels(fields, second, len(widths)), strict=True)):
        name = f"{root}.{'layer' if second else 'conv_'}{index}"
        stem += [
            conv_at(f"{name}.conv", (outputs, inputs, high, wide), bias=False),
            norm_at(f"{name}.norm", outputs, bias=False),
        ]
        inputs, rows = outputs, (rows + 1) // 2
    stem.append(linear_at(f"{root}.input_proj_linear", d, inputs * rows, bias=False))
    tail = [linear_at(f"{prefix}.output_proj", fields.integer("output_proj_dims"), d)] if second else []
    layers = (_layer(fields, d, second),) * fields.integer("num_hidden_layers", "conf_num_hidden_layers")
    return Stack("audio", f"{prefix}.{'layers' if second else 'conformer'}", layers, tuple(stem), tuple(tail))


def _kernels(fields: Fields, second: bool, count: int) -> list[tuple[int, int]]:
    """Kernel sizes of the convolutions; Gemma-4's are 3 x 3 throughout."""
    if second:
        return [(3, 3)] * count
    out = []
    for entry in fields.sequence("sscp_conv_kernel_size") or []:
        if not isinstance(entry, list) or len(entry) != 2:
            raise fields.wrong("sscp_conv_kernel_size", entry, "a list of two numbers")
        first, last = (fields.as_integer("sscp_conv_kernel_size", size) for size in entry)
        out.append((first, last))
    if len(out) != count:
        raise fields.wrong("sscp_conv_kernel_size", f"{len(out)} entries", f"{count} of them")
    return out


def _layer(fields: Fields, d: int, second: bool) -> Layer:
    norm = Norm(d)
    heads = fields.integer("num_attention_heads", "conf_num_attention_heads")
    position = "relative_k_proj" if second else "relative_position_embedding.pos_proj"
    extra: tuple[Weight, ...] = (
        Weight("per_dim_scale", (d // heads,), "scalar"),
        Weight(f"{position}.weight", (d, d), "matmul"),
    )
    clipped = second and fields.flag("use_clipped_linears")
    if clipped:
        extra += bounds("q_proj", "k_proj", "v_proj", "post")
    attention = encoder_attention(fields, d, qkv=False, o=False, extra=extra)
    ffn = FeedForward(d, 4 * d, False, "silu", extra=bounds("ffw_layer_1", "ffw_layer_2") if clipped else ())
    conv = _convolution(fields, d, clipped=clipped)
    names = ("feed_forward1", "feed_forward2") if second else ("ffw_layer_start", "ffw_layer_end")

    def feed(name: str) -> Sublayer:
        return Sublayer(name, ffn, Named(f"{name}.pre_layer_norm", norm), Named(f"{name}.post_layer_norm", norm))

    before, after = (
        ("norm_pre_attn", "norm_post_attn") if second else ("attention.pre_attn_norm", "attention.post_norm")
    )
    return Layer(
        (
            feed(names[0]),
            Sublayer("self_attn" if second else "attention.attn", attention, Named(before, norm), Named(after, norm)),
            Sublayer("lconv1d", conv, Named("lconv1d.pre_layer_norm", norm)),
            feed(names[1]),
        ),
        (Named("norm_out" if second else "norm", norm),),
    )


def _convolution(fields: Fields, d: int, *, clipped: bool) -> Extra:
    """A gated matrix, a depthwise convolution, a norm, a matrix."""
    taps = fields.integer("conv_kernel_size", "conf_conv_kernel_size")
    return Extra(
        (
            Weight("linear_start.weight", (2 * d, d), "matmul"),
            Weight("depthwise_conv1d.weight", (d, 1, taps), "conv"),
            Weight("conv_norm.weight", (d,), "norm"),
            Weight("linear_end.weight", (d, d), "matmul"),
            *(bounds("linear_start", "linear_end") if clipped else ()),
        ),
        "mixer",
    )
