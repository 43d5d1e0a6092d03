"""CPM-Ant and ModernBERT's decoder."""

from __future__ import annotations

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import Extra, Norm, Weight
from llmcalc.arch.embedding import Projection
from llmcalc.arch.families.build import block, decoder, embed, head_width, rms, table
from llmcalc.arch.families.dense import attention
from llmcalc.arch.families.layouts import Layout
from llmcalc.arch.families.windows import layer_scopes
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Layer, Named


def read(fields: Fields) -> Architecture:
    """One of the two."""
    return cpmant(fields) if fields.model_type == "cpmant" else modernbert_decoder(fields)


def cpmant(fields: Fields) -> Architecture:
    """CPM-Ant: tables of prompts and segments, a position bias of buckets and segment pairs, an untied head."""
    d, h = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    width, norm = head_width(fields, d, h), rms(d, fields)
    layer = block(
        Attention(d, h, h, width, width), FeedForward(d, fields.integer("intermediate_size"), activation="gelu"), norm
    )
    vocab, segments = fields.integer("vocab_size"), fields.integer("segment_types")
    prompts = fields.integer("prompt_types") * fields.integer("prompt_length")
    rows = segments * segments + fields.integer("position_bias_num_buckets")
    bias = Extra((Weight("relative_attention_bias", (rows, h), "embedding", split="none"),), "embeddings")
    stem = [table("cpmant.segment_embedding", segments, d), Named("cpmant.position_bias", bias)]
    fields.ignore("position_bias_max_distance", "tie_word_embeddings")
    fields.notes.assume(
        f"the prompt of {fields.integer('prompt_length')} positions that the class puts first is no part of n"
    )
    return decoder(
        fields, [layer] * fields.integer("num_hidden_layers"), width=d, final=norm, stem=stem, tie=False,
        embedding=embed(fields, d, "cpmant.input_embedding", vocab + prompts), head_rows=vocab,
    )  # fmt: skip


def modernbert_decoder(fields: Fields) -> Architecture:
    """ModernBERT's decoder: a norm after the embedding that is the first layer's own, a matrix before the head."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    norm = Norm(d, "layer", bias=fields.flag("norm_bias"))
    layout = Layout(qkv="?attention_bias", o="?attention_bias")
    act, bias = fields.text("hidden_act", null="gelu"), fields.flag("mlp_bias")
    ffn = FeedForward(d, fields.integer("intermediate_size"), True, act, bias)
    names = ("attn_norm", "", "mlp_norm", "")
    layers: list[Layer] = [
        block(attention(fields, layout, d, scope), ffn, norm, mixer_name="attn", names=names)
        for scope in layer_scopes(fields, "third", count)
    ]
    if layers:
        first, *rest = layers[0].sublayers
        layers[0] = Layer((first._replace(before=None), *rest))
    fields.ignore("local_rope_theta", "global_rope_theta", "norm_eps", "classifier_bias", "classifier_activation",
                  "embedding_dropout", "decoder_bias", "initializer_cutoff_factor", "reference_compile",
                  "global_attn_every_n_layers", "deterministic_flash_attn", "sparse_prediction",
                  "sparse_pred_ignore_index", "position_embedding_type", "repad_logits_with_grad")  # fmt: skip
    tail = [
        Named("lm_head.dense", Projection(d, d, fields.flag("classifier_bias"), rows="last")),
        Named("lm_head.norm", norm),
    ]
    return decoder(
        fields, layers, width=d, final=norm, final_name="model.final_norm", tail=tail,
        stem=[Named("model.embeddings.norm", norm)], embedding=embed(fields, d, "model.embeddings.tok_embeddings"),
        head_bias=fields.flag("decoder_bias"),
    )  # fmt: skip
