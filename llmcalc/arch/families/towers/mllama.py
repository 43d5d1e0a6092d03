"""Llama-3.2-Vision's tower: local and gated global layers, positions a tile and an aspect ratio."""

from __future__ import annotations

from dataclasses import replace

from llmcalc.arch.base import Extra, Norm, Weight
from llmcalc.arch.families.build import block, table
from llmcalc.arch.families.towers.parts import channels, conv_at, encoder_attention, grid, norm_at, pair, tensor
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Named, Stack

ASPECT_RATIOS = 8  # arrangements of up to four tiles, the class's own list
OUTPUT_LAYERS = (3, 7, 15, 23, 30)


def read(fields: Fields, prefix: str) -> Stack:
    """The tower; its output is the last layer beside ``intermediate_layers_indices`` of the local ones."""
    d, tiles = fields.integer("hidden_size"), fields.integer("max_num_tiles")
    ratios = fields.sequence("supported_aspect_ratios")
    kinds = (ASPECT_RATIOS if ratios is None else len(ratios)) + 1
    rows, (height, width) = grid(fields) + 1, pair(fields, "patch_size")
    norm = Norm(d, "layer", bias=True)
    attention = encoder_attention(fields, d, qkv=False, o=False)
    ffn = FeedForward(d, fields.integer("intermediate_size"), False, fields.text("hidden_act"), True)
    local = block(attention, ffn, norm)
    gates = Extra((Weight("gate_attn", (1,), "scalar"), Weight("gate_ffn", (1,), "scalar")))
    whole = replace(local, residual=(Named("", gates),))
    layers = (local,) * fields.integer("num_hidden_layers") + (whole,) * fields.integer("num_global_layers")
    gated = f"{prefix}.gated_positional_embedding"
    stem = [
        tensor(f"{prefix}.class_embedding", (d,), "embedding"),
        conv_at(f"{prefix}.patch_embedding", (d, channels(fields), height, width), bias=False),
        tensor(f"{gated}.gate", (1,), "scalar"),
        tensor(f"{gated}.embedding", (rows, d), "embedding", "embeddings"),
        table(f"{gated}.tile_embedding", kinds, tiles * rows * d),
    ]
    for place in ("pre", "post"):
        name = f"{prefix}.{place}_tile_positional_embedding"
        stem += [tensor(f"{name}.gate", (1,), "scalar"), table(f"{name}.embedding", kinds, tiles * d)]
    stem.append(norm_at(f"{prefix}.layernorm_pre", d))
    return Stack(
        "vision", f"{prefix}.transformer.layers", layers, tuple(stem), (norm_at(f"{prefix}.layernorm_post", d),)
    )


def output_width(fields: Fields) -> int:
    """``vision_output_dim``, else the width times the layers that are joined."""
    picked = fields.integers("intermediate_layers_indices") or list(OUTPUT_LAYERS)
    return fields.integer("vision_output_dim", null=fields.integer("hidden_size") * (len(picked) + 1))
