"""Families whose class is remote code: their configs are read, nothing is executed."""

from __future__ import annotations

from collections.abc import Callable

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import Norm
from llmcalc.arch.families.build import block, decoder, divide, head_width, key_value_heads, layer_norm, rms, rope
from llmcalc.arch.families.moe import Experts, experts
from llmcalc.arch.families.placements import after_first
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Layer
from llmcalc.errors import InvalidInputError


def qwen(fields: Fields) -> Architecture:
    """Qwen 1: biased q, k, v in one matrix; the file's intermediate_size is twice the width of the feed-forward."""
    d, h = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    width = head_width(fields, d, h)
    fields.ignore("use_dynamic_ntk", "use_logn_attn")
    bias = not fields.flag("no_bias", null=True)
    mixer = Attention(
        d, h, h, width, width, q_bias=True, k_bias=True, v_bias=True, o_bias=bias, positions=rope(fields, width)
    )
    half = divide(fields, fields.integer("intermediate_size"), 2, "intermediate_size / 2")
    norm = rms(d, fields)
    layer = block(mixer, FeedForward(d, half, True, "silu", bias), norm)
    return decoder(fields, [layer] * fields.integer("num_hidden_layers"), width=d, final=norm)


def chatglm(fields: Fields) -> Architecture:
    """ChatGLM 2, 3 and GLM-4 in their remote-code form."""
    d, h = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    width = head_width(fields, d, h)
    kv = fields.integer("multi_query_group_num") if fields.flag("multi_query_attention") else h
    if h % kv:
        raise InvalidInputError(f"{fields.where}: multi_query_group_num is {kv}, which does not divide {h} heads")
    bias = fields.flag("add_bias_linear")
    qkv = bias or fields.flag("add_qkv_bias")
    mixer = Attention(
        d, h, kv, width, width, q_bias=qkv, k_bias=qkv, v_bias=qkv, o_bias=bias, positions=rope(fields, width // 2)
    )
    norm = rms(d, fields) if fields.flag("rmsnorm", null=True) else layer_norm(d, fields)
    layer = block(mixer, FeedForward(d, fields.integer("intermediate_size"), True, "silu", bias), norm)
    final = norm if fields.flag("post_layer_norm", null=True) else None
    return decoder(fields, [layer] * fields.integer("num_hidden_layers"), width=d, final=final)


def bailing_moe(fields: Fields) -> Architecture:
    """Ling 1 and 2: fused q, k, v; per-head q/k norms; experts after the first dense layers."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    h = fields.integer("num_attention_heads")
    width, kv = head_width(fields, d, h), key_value_heads(fields, h)
    fields.ignore("norm_head", "norm_softmax")
    bias = fields.flag("use_bias")
    qkv = bias or fields.flag("use_qkv_bias")
    layer_form = not fields.flag("use_rmsnorm", null=True)
    mixer = Attention(
        d, h, kv, width, width, q_bias=qkv, k_bias=qkv, v_bias=qkv, o_bias=bias,
        qk_norm="head" if fields.flag("use_qk_norm") else "none", qk_norm_form="layer" if layer_form else "rms",
        qk_norm_bias=layer_form, positions=rope(fields, width),
    )  # fmt: skip
    norm: Norm = layer_norm(d, fields) if layer_form else rms(d, fields)
    balanced = fields.flag("moe_router_enable_expert_bias")
    table = Experts(after_first, shared="count", correction="buffer" if balanced else "none", fp32_router=True)
    moe = experts(
        fields,
        table._replace(shared="field", shared_field="moe_shared_expert_intermediate_size")
        if fields.has("moe_shared_expert_intermediate_size")
        else table,
        d,
    )
    dense = FeedForward(d, fields.integer("intermediate_size"), True, fields.text("hidden_act", null="silu"), bias)
    sparse_layer, dense_layer = block(mixer, moe, norm), block(mixer, dense, norm)
    layers = [sparse_layer if is_sparse else dense_layer for is_sparse in after_first(fields, count)]
    return decoder(fields, layers, width=d, final=norm)


def telechat2(fields: Fields) -> Architecture:
    """TeleChat-2: Llama's layout, biased on the attention output and down_proj alone."""
    d, h = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    width, kv = head_width(fields, d, h), key_value_heads(fields, h)
    mixer = Attention(d, h, kv, width, width, o_bias=True, positions=rope(fields, width))
    ffn = FeedForward(d, fields.integer("intermediate_size"), True, "silu", False, down_bias=True)
    norm = rms(d, fields)
    layer = block(mixer, ffn, norm)
    return decoder(fields, [layer] * fields.integer("num_hidden_layers"), width=d, final=norm)


def openelm(fields: Fields) -> Architecture:
    """OpenELM: heads and feed-forward width of every layer on their own, a q/k norm, a tied head (arXiv:2404.14619)."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    width = fields.integer("head_dim")
    queries, keys = fields.per_layer("num_query_heads", count, low=1), fields.per_layer("num_kv_heads", count, low=1)
    norm = rms(d, fields)
    widths = openelm_widths(fields, d, count)
    made: dict[tuple[int, int, int], Layer] = {}
    layers = []
    for key in zip(queries, keys, widths, strict=True):
        if key not in made:
            h, kv, f = key
            if h % kv:
                raise InvalidInputError(f"{fields.where}: {kv} key/value heads do not divide {h} query heads")
            mixer = Attention(
                d, h, kv, width, width, positions=rope(fields, width),
                qk_norm="head" if fields.flag("normalize_qk_projections", null=True) else "none",
            )  # fmt: skip
            made[key] = block(mixer, FeedForward(d, f, fields.flag("ffn_with_glu", null=True), "swish"), norm)
        layers.append(made[key])
    tie = fields.flag("share_input_output_layers", null=True)
    return decoder(fields, layers, width=d, final=norm, tie=tie)


def openelm_widths(fields: Fields, d: int, count: int) -> list[int]:
    """Feed-forward widths: the multiplier of each layer times the width, rounded to ``ffn_dim_divisor``."""
    multipliers = fields.sequence("ffn_multipliers")
    divisor = fields.integer("ffn_dim_divisor", null=256)
    if multipliers is None:
        fields.notes.warn("ffn_multipliers is not given: 4 x the width in every layer, as OpenELM's class has it")
        multipliers = [4.0] * count
    if len(multipliers) < count:
        raise fields.wrong("ffn_multipliers", f"{len(multipliers)} entries", f"one for each of {count} layers")
    widths = []
    for value in multipliers[:count]:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1024:
            raise fields.wrong("ffn_multipliers", value, "positive numbers")
        size = value * d
        rounded = max(divisor, int(size + divisor / 2) // divisor * divisor)
        widths.append(rounded + divisor if rounded < 0.9 * size else rounded)
    return widths


READERS: dict[str, Callable[[Fields], Architecture]] = {
    "qwen": qwen,
    "chatglm": chatglm,
    "bailing_moe": bailing_moe,
    "telechat": telechat2,
    "telechat2": telechat2,
    "openelm": openelm,
}


def read(fields: Fields) -> Architecture:
    """A remote-code family by its model_type."""
    return READERS[fields.model_type](fields)
