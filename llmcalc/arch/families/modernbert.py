"""Newer encoders: ModernBERT (windows, gated, no biases) and Nomic-BERT (BERT's order, rotary, gated)."""

from __future__ import annotations

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import BIDIRECTIONAL, Norm, Scope
from llmcalc.arch.families.build import (
    SLIDING,
    divide,
    embed,
    every_nth_full,
    layer_norm,
    layer_types,
    rope,
    table,
)
from llmcalc.arch.families.encoder_heads import Frame, Style, encoder_task, masked_head, sentence, tail
from llmcalc.arch.families.encoders import BERT, architecture
from llmcalc.arch.families.heads import labels
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Layer, Named, Stack, Sublayer

MODERN = Style("head.dense", "head.norm", "decoder", classify="dense", dense="head.dense", bias=False, norm_bias=False)
NOMIC = BERT._replace(pooler="", norm="cls.predictions.transform.layer_norm", classify="dense",
                      dense="nomic_bert.pooler.dense")  # fmt: skip


def read(fields: Fields) -> Architecture:
    """One of the two."""
    return modern(fields) if fields.model_type == "modernbert" else nomic(fields)


def modern(fields: Fields) -> Architecture:
    """ModernBERT: one layer in three is global, the others see half of ``local_attention`` on either side."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    bias = fields.flag("norm_bias")
    norm = Norm(d, "layer", bias=bias)
    half = fields.integer("local_attention") // 2
    period = fields.integer("global_attn_every_n_layers", null=3)
    types = layer_types(fields, count)
    full = every_nth_full(count, period, last=False) if types is None else [kind not in SLIDING for kind in types]
    qkv, mlp = fields.flag("attention_bias"), fields.flag("mlp_bias")
    ffn = FeedForward(d, fields.integer("intermediate_size"), True, fields.text("hidden_act"), mlp)
    layers = []
    for index, is_full in enumerate(full):
        scope = BIDIRECTIONAL if is_full else Scope("bidirectional", half)
        attention = _attention(fields, d, scope, bias=qkv, kind="full_attention" if is_full else "sliding_attention")
        # The first layer takes the embedding's norm for its own.
        before = Named("attn_norm", norm) if index else None
        layers.append(Layer((Sublayer("attn", attention, before), Sublayer("mlp", ffn, Named("mlp_norm", norm)))))
    fields.ignore("deterministic_flash_attn", "sparse_prediction", "sparse_pred_ignore_index", "classifier_pooling")
    fields.ignore("global_rope_theta", "local_rope_theta", "classifier_activation", "reference_compile", "norm_eps")
    fields.ignore(
        "position_embedding_type", "repad_logits_with_grad", "is_encoder_decoder", "embedding_dropout", "decoder_bias"
    )
    style = MODERN._replace(bias=fields.flag("classifier_bias"), norm_bias=bias)
    frame = Frame(fields, d, d, fields.integer("vocab_size"), "model.embeddings.tok_embeddings")
    stem = (embed(fields, d, frame.table), Named("model.embeddings.norm", norm))
    stack = Stack(
        "encoder", "model.layers", tuple(layers), stem, (Named("model.final_norm", norm), *_behind(frame, style))
    )
    return architecture(fields, stack, frame, style)


def _behind(frame: Frame, style: Style) -> tuple[Named, ...]:
    """A matrix and a norm before the output matrix or the classifier, whatever the task."""
    fields, d, task = frame.fields, frame.width, encoder_task(frame.fields)
    if task == "body":
        return ()
    if task in ("masked", "causal"):
        return tuple(masked_head(frame, style, head_bias=fields.flag("decoder_bias")))
    first = masked_head(frame, style)[:2]
    return (*first, sentence("classifier", 1 if task == "choice" else labels(fields), d))


def nomic(fields: Fields) -> Architecture:
    """Nomic-BERT; its published files spell the sizes as GPT-2 does."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    norm = layer_norm(d, fields)
    attention = _attention(fields, d, BIDIRECTIONAL, bias=fields.flag("qkv_proj_bias"))
    bias = fields.flag("mlp_fc1_bias")
    ffn = FeedForward(d, fields.integer("intermediate_size"), True, "silu", bias, fields.flag("mlp_fc2_bias"))
    block = Layer(
        (
            Sublayer("self_attn", attention, outer=Named("post_attention_layernorm", norm)),
            Sublayer("mlp", ffn, outer=Named("post_mlp_layernorm", norm)),
        )
    )
    fields.ignore("is_encoder_decoder")
    root = "nomic_bert.embeddings"
    stem = [embed(fields, d, f"{root}.word_embeddings")]
    types = fields.integer("type_vocab_size", null=0, low=0)
    if types:
        stem.append(table(f"{root}.token_type_embeddings", types, d))
    stem.append(Named(f"{root}.LayerNorm", norm))
    frame = Frame(fields, d, d, fields.integer("vocab_size"), f"{root}.word_embeddings")
    stack = Stack("encoder", "nomic_bert.layers", (block,) * count, tuple(stem), tail(frame, NOMIC))
    return architecture(fields, stack, frame, NOMIC)


def _attention(fields: Fields, d: int, scope: Scope, *, bias: bool, kind: str = "") -> Attention:
    h = fields.integer("num_attention_heads")
    width = fields.optional("head_dim") or divide(fields, d, h, "hidden_size / num_attention_heads")
    where = rope(fields, width, kind)
    return Attention(d, h, h, width, width, scope, bias, bias, bias, bias, cache="none", positions=where)
