"""Falcon: one or two norms by generation, a single key/value head or groups of them."""

from __future__ import annotations

from llmcalc.arch.attention import Attention
from llmcalc.arch.families.build import block, decoder, divide, layer_norm, rope
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture
from llmcalc.arch.positions import Alibi, Positions
from llmcalc.errors import InvalidInputError


def read(fields: Fields) -> Architecture:
    """Falcon 7B, 40B, 180B and RW."""
    d, h = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    new, bias = fields.flag("new_decoder_architecture"), fields.flag("bias")
    width = divide(fields, d, h, "hidden_size / num_attention_heads")
    # multi_query wins over any number of key/value heads, except in the new architecture, where it is ignored.
    kv = fields.integer("num_key_value_heads", null=h)
    fields.ignore("multi_query", "parallel_attn")
    if not new:
        kv = 1 if fields.flag("multi_query") else h
    if h % kv:
        raise InvalidInputError(f"{fields.where}: num_kv_heads is {kv}, which does not divide {h} heads")
    positions: Positions = Alibi(scaled=True) if fields.flag("alibi") else rope(fields, width)
    mixer = Attention(d, h, kv, width, width, q_bias=bias, k_bias=bias, v_bias=bias, o_bias=bias, positions=positions)
    act = fields.text("activation", null="gelu")
    ffn = FeedForward(d, fields.integer("intermediate_size", null=4 * d), False, act, bias)
    norm = layer_norm(d, fields)
    if new or fields.flag("parallel_attn"):
        norms = fields.integer("num_ln_in_parallel_attn", null=2 if new else 1)
        layer = block(mixer, ffn, norm, style="parallel", parallel_norms=norms)
    else:
        layer = block(mixer, ffn, norm)
    return decoder(fields, [layer] * fields.integer("num_hidden_layers"), width=d, final=norm)
