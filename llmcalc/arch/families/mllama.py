"""Llama-3.2-Vision's decoder: some layers attend to the image instead of the text."""

from __future__ import annotations

from dataclasses import replace

from llmcalc.arch.base import IMAGE, Extra, Weight
from llmcalc.arch.families.build import block, decoder, embed, rms
from llmcalc.arch.families.dense import attention, feed_forward
from llmcalc.arch.families.layouts import LAYOUTS
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Named

CROSS_LAYERS = (3, 8, 13, 18, 23, 28, 33, 38)
ADDED_ROWS = 8  # image tokens: in the table, not in the output head

GATES = Extra((Weight("cross_attn_attn_gate", (1,), "scalar"), Weight("cross_attn_mlp_gate", (1,), "scalar")))


def read(fields: Fields) -> Architecture:
    """Llama layers, of which ``cross_attention_layers`` attend to the image, with norms of heads and two gates."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    cross = fields.integers("cross_attention_layers")
    chosen = set(CROSS_LAYERS if cross is None else cross)
    if any(index >= count for index in chosen):
        raise fields.wrong("cross_attention_layers", sorted(chosen), f"numbers below {count}, the number of layers")
    norm, ffn, own = (
        rms(d, fields),
        feed_forward(fields, LAYOUTS["mistral"], d),
        attention(fields, LAYOUTS["mistral"], d),
    )
    image = replace(own, scope=IMAGE, qk_norm="head", positions=None)
    plain = block(own, ffn, norm)
    crossed = block(image, ffn, norm, mixer_name="cross_attn", residual=(Named("", GATES),))
    layers = [crossed if index in chosen else plain for index in range(count)]
    vocab = fields.integer("vocab_size")
    return decoder(
        fields, layers, width=d, final=norm, embedding=embed(fields, d, rows=vocab + ADDED_ROWS), head_rows=vocab
    )
