"""Encoders: BERT and the families made from it, one row of the table each; ALBERT calls one block L times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import BIDIRECTIONAL, Extra, Norm, Weight
from llmcalc.arch.embedding import Projection
from llmcalc.arch.families.build import divide, dtype_of, embed, layer_norm, positions_text, table
from llmcalc.arch.families.encoder_heads import Frame, Style, tail
from llmcalc.arch.families.towers.parts import tensor
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Call, Layer, Named, Stack, Sublayer
from llmcalc.arch.positions import Disentangled
from llmcalc.errors import UnsupportedLayerError


@dataclass(frozen=True, slots=True)
class Encoder:
    """The switches of a family. body, blocks: where the checkpoint keeps the layers.

    inner: the token table has a width of its own (``embedding_size``). types: rows of token types are read.
    """

    body: str
    style: Style
    blocks: str = "encoder.layer"
    inner: bool = False
    positions: Literal["table", "relative", "deberta"] = "table"
    types: bool = True


BERT = Style(
    "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.decoder",
    "bert.pooler.dense", pretraining="sentence",
)  # fmt: skip
ROBERTA = Style("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "pooler.dense", "dense")

INERT = (
    "position_embedding_type", "is_encoder_decoder", "directionality", "pooler_fc_size", "pooler_num_attention_heads",
    "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "max_relative_positions", "sinusoidal_pos_embds",
    "task_type_vocab_size",
)  # fmt: skip

ROWS: dict[str, Encoder] = {
    "bert": Encoder("bert", BERT),
    "ernie": Encoder("ernie", BERT),
    "roberta": Encoder("roberta", ROBERTA),
    "xlm-roberta": Encoder("roberta", ROBERTA),
    "camembert": Encoder("roberta", ROBERTA),
    "data2vec-text": Encoder("data2vec_text", ROBERTA),
    "electra": Encoder(
        "electra",
        Style("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head",
              classify="dense", pretraining="replaced"),
        inner=True,
    ),
    "albert": Encoder(
        "albert",
        Style("predictions.dense", "predictions.LayerNorm", "predictions.decoder", "albert.pooler",
              pretraining="sentence"),
        "encoder.albert_layer_groups", inner=True,
    ),
    "distilbert": Encoder(
        "distilbert",
        Style("vocab_transform", "vocab_layer_norm", "vocab_projector", classify="dense", dense="pre_classifier"),
        "transformer.layer", types=False,
    ),
    "deberta-v2": Encoder(
        "deberta",
        Style("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.decoder",
              classify="dense", dense="pooler.dense"),
        inner=True, positions="deberta",
    ),
    "mpnet": Encoder("mpnet", ROBERTA, positions="relative", types=False),
}  # fmt: skip


# Their heads and the output matrix have a bias each, which the tie makes one.
TWO_BIASES = ("bert", "ernie", "roberta", "xlm-roberta", "camembert", "data2vec-text", "albert", "deberta-v2")


def read(fields: Fields) -> Architecture:
    """An encoder by its row of the table."""
    row = ROWS[fields.model_type]
    fields.ignore(*INERT)
    if fields.flag("add_cross_attention"):
        raise UnsupportedLayerError(f"{fields.where}: add_cross_attention: BERT as a decoder is not described")
    if fields.flag("is_decoder"):
        fields.notes.warn("is_decoder: described as an encoder all the same, without a causal mask and without a cache")
    d = fields.integer("hidden_size")
    inner = fields.integer("embedding_size", null=d) if row.inner else d
    block = layer(fields, row, d)
    count = fields.integer("num_hidden_layers")
    blocks: Sequence[Layer] = (block,) * count
    schedule: tuple[Call, ...] = ()
    if fields.model_type == "albert":
        blocks, schedule = repeated(fields, block, count)
    stem = _stem(fields, row, d, inner)
    frame = Frame(fields, d, inner, fields.integer("vocab_size"), f"{row.body}.embeddings.word_embeddings")
    stack = Stack(
        "encoder", f"{row.body}.{row.blocks}", tuple(blocks), tuple(stem),
        (*_behind(fields, row, d), *tail(frame, row.style)), schedule,
    )  # fmt: skip
    return architecture(fields, stack, frame, row.style)


def architecture(fields: Fields, stack: Stack, frame: Frame, style: Style) -> Architecture:
    """The encoder as a model without a decoder, its masked-token head tied to the token table where there is one."""
    tie = fields.flag("tie_word_embeddings", null=True)
    has_head = any(named.name == style.decoder for named in stack.tail)
    ties = ((f"{style.decoder}.weight", f"{frame.table}.weight"),) if has_head and tie else ()
    if has_head and not tie and fields.model_type in TWO_BIASES:
        bias = tensor(f"{style.decoder.rpartition('.')[0]}.bias", (frame.rows,), "bias")
        stack = replace(stack, tail=(*stack.tail, bias))
    return Architecture(
        model_type=fields.model_type,
        decoder=Stack("decoder", "", ()),
        encoder=stack,
        ties=ties,
        hidden_size=frame.width,
        vocab_size=frame.rows,
        max_position_embeddings=fields.optional("max_position_embeddings"),
        tie_word_embeddings=bool(ties),
        positions=positions_text(stack.layers, stack.stem),
        dtype=dtype_of(fields),
        classes="encoder",
    )


def layer(fields: Fields, row: Encoder, d: int) -> Layer:
    """BERT's block: attention and a plain feed-forward, everything biased, a norm after each sum."""
    h = fields.integer("num_attention_heads")
    width = divide(fields, d, h, "hidden_size / num_attention_heads")
    extra = _deberta_attention(fields, d) if row.positions == "deberta" else ()
    relative = row.positions == "deberta" and fields.flag("relative_attention")
    attention = Attention(
        d, h, h, width, width, BIDIRECTIONAL, True, True, True, True, cache="none", extra=extra,
        positions=Disentangled(_span(fields)) if relative else None,
    )  # fmt: skip
    f = fields.integer("intermediate_size", "hidden_dim")
    ffn = FeedForward(d, f, False, fields.text("hidden_act", null="gelu"), True)
    norm = layer_norm(d, fields)
    return Layer(
        (
            Sublayer("attention", attention, outer=Named("attention.output.LayerNorm", norm)),
            Sublayer("ffn", ffn, outer=Named("output.LayerNorm", norm)),
        )
    )


def repeated(fields: Fields, block: Layer, count: int) -> tuple[Sequence[Layer], tuple[Call, ...]]:
    """ALBERT: G groups of I blocks; layer i runs all blocks of group i G / L."""
    groups = fields.integer("num_hidden_groups")
    inside = fields.integer("inner_group_num")
    fields.ignore("down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks")
    calls = tuple(
        Call(index * groups // count * inside + number, index) for index in range(count) for number in range(inside)
    )
    return (block,) * (groups * inside), calls


def _stem(fields: Fields, row: Encoder, d: int, inner: int) -> list[Named]:
    root = f"{row.body}.embeddings"
    out = [embed(fields, inner, f"{root}.word_embeddings")]
    rows = fields.integer("max_position_embeddings")
    if row.positions != "deberta" or fields.flag("position_biased_input"):
        out.append(table(f"{root}.position_embeddings", rows, inner))
    types = fields.integer("type_vocab_size", null=0, low=0) if row.types else 0
    if types:
        out.append(table(f"{root}.token_type_embeddings", types, inner))
    if fields.model_type == "ernie" and fields.flag("use_task_id"):
        out.append(table(f"{root}.task_type_embeddings", fields.integer("task_type_vocab_size"), inner))
    norm = Named(f"{root}.LayerNorm", layer_norm(inner, fields))
    if row.positions == "deberta":  # the norm stands behind the projection, which has no bias
        project = [Named(f"{root}.embed_proj", Projection(d, inner))] if inner != d else []
        return [*out, *project, Named(f"{root}.LayerNorm", layer_norm(d, fields))]
    name = {"electra": "electra.embeddings_project", "albert": "albert.encoder.embedding_hidden_mapping_in"}
    always = fields.model_type == "albert"
    if row.inner and (inner != d or always):
        return [*out, norm, Named(name[fields.model_type], Projection(d, inner, True))]
    return [*out, norm]


def _behind(fields: Fields, row: Encoder, d: int) -> list[Named]:
    """Tables and convolutions that the layers share."""
    if row.positions == "relative":
        buckets, h = fields.integer("relative_attention_num_buckets"), fields.integer("num_attention_heads")
        return [table(f"{row.body}.encoder.relative_attention_bias", buckets, h)]
    if row.positions != "deberta":
        return []
    out, root = [], f"{row.body}.encoder"
    if fields.flag("relative_attention"):
        out.append(table(f"{root}.rel_embeddings", 2 * _span(fields), d))
        if "layer_norm" in fields.text("norm_rel_ebd").lower():
            out.append(Named(f"{root}.LayerNorm", layer_norm(d, fields)))
    taps = fields.integer("conv_kernel_size", null=0, low=0)
    if taps:
        groups = fields.integer("conv_groups", null=1)
        kernel = (Weight("weight", (d, divide(fields, d, groups, "hidden_size / conv_groups"), taps), "conv"),)
        out.append(Named(f"{root}.conv.conv", Extra((*kernel, Weight("bias", (d,), "bias")))))
        out.append(Named(f"{root}.conv.LayerNorm", Norm(d, "layer", bias=True)))
    return out


def _span(fields: Fields) -> int:
    """DeBERTa's relative distances in one direction."""
    buckets = fields.integer("position_buckets", null=0, low=-1)
    distances = fields.integer("max_relative_positions", null=-1, low=-1)
    if distances < 1:
        distances = fields.integer("max_position_embeddings")
    return buckets if buckets > 0 else distances


def _deberta_attention(fields: Fields, d: int) -> tuple[Weight, ...]:
    """Projections of the relative table, where the layers do not share those of keys and queries."""
    fields.ignore("conv_act", "legacy", "pooler_hidden_size", "pooler_hidden_act", "share_att_key")
    value = fields.raw("pos_att_type")
    kinds = value.split("|") if isinstance(value, str) else fields.strings("pos_att_type") or []
    if not fields.flag("relative_attention") or fields.flag("share_att_key"):
        return ()
    out: list[Weight] = []
    for kind, name in (("c2p", "pos_key_proj"), ("p2c", "pos_query_proj")):
        if kind in kinds:
            out += [Weight(f"{name}.weight", (d, d), "matmul"), Weight(f"{name}.bias", (d,), "bias")]
    return tuple(out)
