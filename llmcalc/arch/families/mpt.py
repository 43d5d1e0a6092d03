"""MPT: ALiBi, bias-free norms, an expansion ratio in place of a width; its attention is a block of its own."""

from __future__ import annotations

from llmcalc.arch.attention import Attention
from llmcalc.arch.families.build import block, decoder, divide, layer_norm
from llmcalc.arch.families.dense import refuse
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture
from llmcalc.arch.positions import Alibi
from llmcalc.errors import InvalidInputError, UnsupportedLayerError


def read(fields: Fields) -> Architecture:
    """MPT. The library's class always uses ALiBi, and one key/value head a query head unless the block says less."""
    d, h = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    width, bias = divide(fields, d, h, "d_model / n_heads"), not fields.flag("no_bias", null=True)
    attn = fields.child("attn_config", model_type="mpt_attention") or fields.block({}, "attn_config", "mpt_attention")
    kind = attn.text("attn_type", null="multihead_attention")
    kv = attn.integer("kv_n_heads", null=1 if kind == "multiquery_attention" else h)
    if h % kv:
        raise InvalidInputError(f"{fields.where}: attn_config.kv_n_heads is {kv}, which does not divide {h} heads")
    refuse(attn, ("qk_ln",))
    if not attn.flag("alibi", null=True):
        raise UnsupportedLayerError(f"{fields.where}: {attn.label('alibi')} is false: MPT is read with ALiBi alone")
    attn.ignore("attn_impl", "prefix_lm", "alibi_bias_max", "attn_uses_sequence_id", "softmax_scale")
    fields.ignore("embedding_fraction", "learned_pos_emb", "norm_type", "verbose")
    mixer = Attention(d, h, kv, width, width, q_bias=bias, k_bias=bias, v_bias=bias, o_bias=bias, positions=Alibi())
    ffn = FeedForward(d, fields.integer("expansion_ratio", null=4) * d, False, "gelu", bias)
    norm = layer_norm(d, fields, bias=bias)
    layer = block(mixer, ffn, norm)
    return decoder(fields, [layer] * fields.integer("num_hidden_layers"), width=d, final=norm)
