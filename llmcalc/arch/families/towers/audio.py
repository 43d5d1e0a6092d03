"""Whisper's encoder and the audio towers made from it: two convolutions, fixed or learned positions, plain blocks."""

from __future__ import annotations

from llmcalc.arch.base import Norm
from llmcalc.arch.families.build import block, table
from llmcalc.arch.families.towers.parts import conv_at, encoder_attention, linear_at, norm_at
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Layer, Named, Stack

NORMS = ("self_attn_layer_norm", "", "final_layer_norm", "")


def layer(fields: Fields, d: int) -> Layer:
    """A block; keys have no bias."""
    attention = encoder_attention(fields, d, k_bias=False)
    ffn = FeedForward(
        d, fields.integer("intermediate_size", "encoder_ffn_dim"), False, fields.text("hidden_act", null="gelu"), True
    )
    return block(attention, ffn, Norm(d, "layer", bias=True), names=NORMS)


def stem(fields: Fields, d: int, prefix: str, *, positions: bool = True) -> list[Named]:
    """The convolutions over mel bins and the table of positions."""
    out = [
        conv_at(f"{prefix}.conv1", (d, fields.integer("num_mel_bins"), 3), per_position=2),
        conv_at(f"{prefix}.conv2", (d, d, 3)),
    ]
    if positions:
        out.append(table(f"{prefix}.embed_positions", fields.integer("max_source_positions"), d))
    return out


def read(fields: Fields, prefix: str) -> Stack:
    """The tower of Qwen2-Audio and Voxtral; Qwen2.5-Omni's has a projection inside and computed positions."""
    d = fields.integer("hidden_size")
    omni = fields.model_type == "qwen2_5_omni_audio_encoder"
    first, last = stem(fields, d, prefix, positions=not omni), []
    if omni:
        outputs = fields.integer("output_dim")
        last = [
            norm_at(f"{prefix}.ln_post", d),
            linear_at(f"{prefix}.proj", outputs, d),
            table(f"{prefix}.audio_bos_eos_token", 2, outputs),
        ]
    else:
        last = [norm_at(f"{prefix}.layer_norm", d)]
    layers = (layer(fields, d),) * fields.integer("num_hidden_layers")
    return Stack("audio", f"{prefix}.layers", layers, tuple(first), tuple(last))
