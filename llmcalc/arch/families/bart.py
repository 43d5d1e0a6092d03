"""BART and its kin, Whisper among them: every matrix biased, LayerNorms after or before each part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import BIDIRECTIONAL, FULL, SOURCE, Norm, Scope, Spec
from llmcalc.arch.families.build import divide, embed, layer_norm, table
from llmcalc.arch.families.pairs import assemble, own_or
from llmcalc.arch.families.towers import audio
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Layer, Named, Stack, Sublayer
from llmcalc.arch.positions import Sinusoidal

Side = Literal["encoder", "decoder"]


@dataclass(frozen=True, slots=True)
class Row:
    """The switches of a family.

    before: norms stand before the parts, and one at the end of each stack. embed_norm: one behind the token table.
    positions: a learned ``table`` (with ``offset`` unused rows), the same ``frozen`` to sines, or ``computed`` ones.
    logits_bias: a stored buffer beside the output matrix.
    """

    before: bool = False
    embed_norm: bool = False
    positions: Literal["table", "frozen", "computed"] = "table"
    offset: int = 0
    logits_bias: bool = True
    k_bias: bool = True


ROWS: dict[str, Row] = {
    "bart": Row(embed_norm=True, offset=2),
    "plbart": Row(embed_norm=True, offset=2),
    "mbart": Row(before=True, embed_norm=True, offset=2),
    "blenderbot": Row(before=True),
    "blenderbot-small": Row(embed_norm=True),
    "pegasus": Row(before=True, positions="frozen"),
    "marian": Row(positions="frozen"),
    "m2m_100": Row(before=True, positions="computed", logits_bias=False),
    "whisper": Row(before=True, logits_bias=False, k_bias=False),
}

INERT = (
    "num_hidden_layers", "num_attention_heads", "add_bias_logits", "add_final_layer_norm", "normalize_before",
    "normalize_embedding", "scale_embedding", "is_decoder", "encoder_layerdrop", "decoder_layerdrop",
    "static_position_embeddings", "extra_pos_embeddings", "force_bos_token_to_be_generated", "max_source_positions",
    "classifier_proj_size", "use_weighted_layer_sum", "apply_spec_augment", "median_filter_width",
    "mask_feature_length", "mask_feature_min_masks", "mask_feature_prob", "mask_time_length", "mask_time_min_masks",
    "mask_time_prob", "begin_suppress_tokens", "decoder_vocab_size", "share_encoder_decoder_embeddings",
    "num_key_value_heads", "output_past", "decoder_start_token_id",
)  # fmt: skip


def read(fields: Fields) -> Architecture:
    """Both stacks and the table they share."""
    row = ROWS[fields.model_type]
    fields.ignore(*INERT)
    d = fields.integer("hidden_size")
    whisper = fields.model_type == "whisper"
    tokens = embed(fields, d, "model.decoder.embed_tokens" if whisper else "model.shared")
    encoder = listener(fields, d) if whisper else stack(fields, row, "encoder", d)
    decoder = stack(fields, row, "decoder", d)
    if fields.model_type == "marian" and not fields.flag("share_encoder_decoder_embeddings", null=True):
        encoder = replace(encoder, stem=(embed(fields, d, "model.encoder.embed_tokens"), *encoder.stem))
        rows = fields.integer("decoder_vocab_size", null=fields.integer("vocab_size"))
        tokens = embed(fields, d, "model.decoder.embed_tokens", rows)
    limit = fields.optional("max_target_positions" if whisper else "max_position_embeddings")
    return assemble(
        fields, encoder, decoder, tokens, width=d, tie=fields.flag("tie_word_embeddings", null=True),
        logits_bias=row.logits_bias, max_positions=limit,
    )  # fmt: skip


def stack(fields: Fields, row: Row, side: Side, d: int) -> Stack:
    """One of the two streams."""
    root, norm = f"model.{side}", layer_norm(d)
    count = own_or(fields, f"{side}_layers", "num_hidden_layers")
    stem = [] if row.positions == "computed" else [positions(fields, row, root, d)]
    if row.embed_norm:
        stem.append(Named(f"{root}.layernorm_embedding", norm))
    tail = [Named(f"{root}.layer_norm", norm)] if row.before else []
    return Stack(side, f"{root}.layers", (layer(fields, row, side, d, norm),) * count, tuple(stem), tuple(tail))


def positions(fields: Fields, row: Row, root: str, d: int) -> Named:
    """A stack's table of positions."""
    name = "max_target_positions" if fields.model_type == "whisper" else "max_position_embeddings"
    return table(f"{root}.embed_positions", fields.integer(name) + row.offset, d)


def layer(fields: Fields, row: Row, side: Side, d: int, norm: Norm) -> Layer:
    """Self-attention, in the decoder attention to the source, then the feed-forward."""
    h = own_or(fields, f"{side}_attention_heads", "num_attention_heads")
    width = divide(fields, d, h, f"d_model / {side}_attention_heads")
    where = Sinusoidal() if row.positions != "table" else None
    scope = FULL if side == "decoder" else BIDIRECTIONAL
    own = Attention(
        d, h, h, width, width, scope, True, row.k_bias, True, True,
        cache="own" if side == "decoder" else "none", positions=where,
    )  # fmt: skip
    act = fields.text("hidden_act", null="gelu")
    ffn = FeedForward(d, own_or(fields, f"{side}_ffn_dim", "intermediate_size"), False, act, True)
    parts: list[tuple[str, Spec, str]] = [("self_attn", own, "self_attn_layer_norm")]
    if side == "decoder":
        source = Scope("fixed", fields.integer("max_source_positions")) if fields.model_type == "whisper" else SOURCE
        cross = replace(own, scope=source, positions=None)
        parts.append(("encoder_attn", cross, "encoder_attn_layer_norm"))
    parts.append(("mlp", ffn, "final_layer_norm"))
    return Layer(
        tuple(
            Sublayer(name, spec, Named(norm_name, norm)) if row.before else
            Sublayer(name, spec, outer=Named(norm_name, norm))
            for name, spec, norm_name in parts
        )
    )  # fmt: skip


def listener(fields: Fields, d: int) -> Stack:
    """Whisper's encoder: two convolutions over mel bins, fixed positions, plain blocks."""
    root = "model.encoder"
    count = own_or(fields, "encoder_layers", "num_hidden_layers")
    stem = audio.stem(fields, d, root)
    tail = (Named(f"{root}.layer_norm", layer_norm(d)),)
    return Stack("encoder", f"{root}.layers", (audio.layer(fields, d),) * count, tuple(stem), tail)
