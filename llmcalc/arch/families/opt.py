"""OPT: learned positions with an offset, a table that may be narrower than the stream."""

from __future__ import annotations

from dataclasses import replace

from llmcalc.arch.embedding import Projection
from llmcalc.arch.families.build import block, decoder, embed, layer_norm, table
from llmcalc.arch.families.dense import attention, feed_forward
from llmcalc.arch.families.layouts import CLASSIC
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Named

# The first two rows of OPT's position table are never used; the file counts without them.
POSITION_OFFSET = 2


def read(fields: Fields) -> Architecture:
    """OPT in all its sizes; OPT-350M is narrower at both ends and has no final norm."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    layout = CLASSIC._replace(qkv="?enable_bias", o="?enable_bias", mlp="?enable_bias", positions="learned")
    affine = fields.flag("layer_norm_elementwise_affine", null=True)
    norm = replace(layer_norm(d, fields), learned=affine)
    before = fields.flag("do_layer_norm_before", null=True)
    mixer, ffn = attention(fields, layout, d), feed_forward(fields, layout, d)
    layer = block(mixer, ffn, norm, style="pre" if before else "outer")
    narrow = fields.integer("word_embed_proj_dim", null=d)
    stem = [
        table("model.embed_positions", fields.integer("max_position_embeddings") + POSITION_OFFSET, d, POSITION_OFFSET)
    ]
    tail = []
    if narrow != d:
        stem.append(Named("model.project_in", Projection(d, narrow)))
        tail.append(Named("model.project_out", Projection(narrow, d)))
    final = norm if before and not fields.flag("_remove_final_layer_norm") else None
    return decoder(
        fields, [layer] * count, width=d, final=final, stem=stem, tail=tail, embedding=embed(fields, narrow),
        head_width=narrow,
    )  # fmt: skip
