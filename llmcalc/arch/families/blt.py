"""BLT (arXiv:2412.09871): a small encoder of bytes, a large transformer of patches, a small decoder of bytes."""

from __future__ import annotations

from dataclasses import replace

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import FULL, SOURCE, Norm, Scope
from llmcalc.arch.embedding import Embedding, Head, Projection
from llmcalc.arch.families.build import block, dtype_of, positions_text, table, tied
from llmcalc.arch.families.dense import attention
from llmcalc.arch.families.layouts import LLAMA
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Layer, Named, Stack, Sublayer

BYTE_GROUPS = (3, 4, 5, 6, 7, 8)
INERT = (
    "patch_in_forward", "patching_mode", "patching_threshold", "patching_batch_size", "max_patch_length",
    "local_attention_window_len", "tie_word_embeddings", "is_encoder_decoder", "vocab_size", "hidden_size_global",
    "cross_attn_k", "max_position_embeddings", "cross_attn_all_layers", "encoder_cross_output_size", "sliding_window",
    "monotonicity", "patch_size",
)  # fmt: skip


def read(fields: Fields) -> Architecture:
    """The three streams as one list of layers; the patcher, which only cuts the bytes, as the encoder."""
    small, large, last, cutter = (
        _part(fields, f"{name}_config", f"blt_{kind}")
        for name, kind in (
            ("encoder", "local_encoder"), ("global", "global_transformer"), ("decoder", "local_decoder"),
            ("patcher", "patcher"),
        )
    )  # fmt: skip
    patch = max(1, int(fields.number("patch_size", null=1)))
    fields.notes.warn(
        f"patches are taken to be {patch} bytes long for the cache, and every layer to run on every byte for operations"
    )
    window = fields.optional("local_attention_window_len")
    near = Scope("sliding", window) if window else FULL
    middle = layers(large, Scope("compressed", patch) if patch > 1 else FULL)
    first, end = layers(small, near), layers(last, near)
    d = last.integer("hidden_size")
    tokens = Named(
        "model.local_encoder.embed_tokens", Embedding(small.integer("vocab_size"), small.integer("hidden_size"))
    )
    stem = (tokens, _hashes(fields, small), *_joints(fields, small, large, last))
    rows = (fields if fields.has("vocab_size") else last).integer("vocab_size")
    tail = (Named("model.local_decoder.norm", Norm(d)), Named("lm_head", Head(rows, d)))
    ties = (("lm_head.weight", f"{tokens.name}.weight"),) if tied(fields) else ()
    cuts = fields.flag("patch_in_forward", null=True)
    stack = Stack("decoder", "model.layers", (*_crossed(first, small), *middle, *_crossed(end, last)), stem, tail)
    for part in (fields, small, large, last, cutter):
        part.ignore(*INERT)
    return Architecture(
        model_type=fields.model_type, decoder=stack, encoder=patcher(cutter) if cuts else None, ties=ties,
        hidden_size=d, vocab_size=rows, max_position_embeddings=fields.optional("max_position_embeddings"),
        tie_word_embeddings=bool(ties), positions=positions_text(stack.layers, stem), dtype=dtype_of(fields, small),
    )  # fmt: skip


def _part(fields: Fields, name: str, kind: str) -> Fields:
    part = fields.child(name, model_type=kind, language=False)
    return part if part is not None else fields.block({}, name, kind, language=False)


def layers(part: Fields, scope: Scope) -> list[Layer]:
    """A stream's Llama layers; the width 8/3 d where none is given."""
    d = part.integer("hidden_size")
    width = part.integer("intermediate_size", null=8 * d // 3)
    ffn = FeedForward(d, width, activation=part.text("hidden_act", null="silu"))
    return [block(attention(part, LLAMA, d, scope), ffn, Norm(d))] * part.integer("num_hidden_layers")


def _crossed(streams: list[Layer], part: Fields) -> list[Layer]:
    """Attention between bytes and patches: in every layer, or in one."""
    own = streams[0].mixers[0] if streams else None
    if not isinstance(own, Attention):
        return streams
    cross = replace(own, scope=SOURCE, cache="none", positions=None, qk_norm="full")
    joined = replace(streams[0], sublayers=(*streams[0].sublayers, Sublayer("cross_attn", cross)))
    everywhere = part.flag("cross_attn_all_layers")
    first = part.model_type == "blt_local_decoder"
    chosen = range(len(streams)) if everywhere else ((0,) if first else (len(streams) - 1,))
    return [joined if index in chosen else layer for index, layer in enumerate(streams)]


def _hashes(fields: Fields, small: Fields) -> Named:
    """One table for all hashed groups of bytes."""
    groups = fields.integers("encoder_hash_byte_group_size", low=1) or list(BYTE_GROUPS)
    rows = len(groups) * fields.integer("encoder_hash_byte_group_nb_functions")
    rows *= fields.integer("encoder_hash_byte_group_vocab")
    return table("model.encoder_hash_tok_embedding", rows, small.integer("hidden_size"))


def _joints(fields: Fields, small: Fields, large: Fields, last: Fields) -> list[Named]:
    """Projections between the widths of the streams."""
    near, wide, far = small.integer("hidden_size"), large.integer("hidden_size"), last.integer("hidden_size")
    joined = near * fields.integer("cross_attn_k")
    out = [
        Named("model.local_encoder.patch_embedding_projection", Projection(near * small.integer("cross_attn_k"), near)),
        Named("model.local_decoder.patch_embedding_projection", Projection(far * last.integer("cross_attn_k"), wide)),
    ]
    if joined != wide:
        out.append(Named("model.global_transformer.token_embedding_projection", Projection(wide, joined)))
    return out


def patcher(part: Fields) -> Stack:
    """The small byte model whose entropy sets the patches; its cache is not kept."""
    d, rows = part.integer("hidden_size"), part.integer("vocab_size")
    window = part.optional("sliding_window")
    made = [
        replace(layer, sublayers=tuple(_forgetful(item) for item in layer.sublayers))
        for layer in layers(part, Scope("sliding", window) if window else FULL)
    ]
    stem = (Named("model.patcher.embed_tokens", Embedding(rows, d)),)
    tail = (Named("model.patcher.norm", Norm(d)), Named("model.patcher.lm_head", Projection(rows, d)))
    return Stack("encoder", "model.patcher.layers", tuple(made), stem, tail)


def _forgetful(item: Sublayer) -> Sublayer:
    spec = item.spec
    return item._replace(spec=replace(spec, cache="none")) if isinstance(spec, Attention) else item
