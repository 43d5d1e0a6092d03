"""Grouped attention with a block indexer: MiniMax-M3, and Qwen4-Exp's delta layers, n-grams and stream of copies."""

from __future__ import annotations

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import Spec
from llmcalc.arch.families.build import block, decoder, divide, layer_types, rms
from llmcalc.arch.families.dense import attention
from llmcalc.arch.families.gated_delta import QWEN, delta, feed_forward
from llmcalc.arch.families.hybrid import every
from llmcalc.arch.families.layouts import Layout
from llmcalc.arch.families.moe import Experts, experts
from llmcalc.arch.families.placements import qwen_step, typed
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.indexed import BlockIndexer, IndexedAttention
from llmcalc.arch.model import Architecture, Layer, Named, Sublayer
from llmcalc.arch.ngram import NgramEmbedding, primes_from
from llmcalc.arch.residual import GatedResidual
from llmcalc.errors import InvalidInputError


def indexed(base: Attention, indexer: BlockIndexer) -> IndexedAttention:
    """The same attention behind an indexer."""
    return IndexedAttention(**{name: getattr(base, name) for name in base.__dataclass_fields__}, indexer=indexer)


# -- MiniMax-M3 ----------------------------------------------------------------------------------------------------

# The flat names, and those inside the published files' sparse_attention_config.
NESTED = {
    "index_n_heads": "sparse_num_index_heads", "index_head_dim": "sparse_index_dim",
    "index_block_size": "sparse_block_size", "index_topk_blocks": "sparse_topk_blocks",
    "index_local_blocks": "sparse_local_block",
}  # fmt: skip


def minimax_m3(fields: Fields) -> Architecture:
    """MiniMax-M3: full layers with a dense feed-forward first, then layers behind an indexer, with experts."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    full = attention(fields, Layout(qk_norm="head"), d)
    picks, inside = minimax_kinds(fields, count)
    mixers: dict[bool, Spec] = {False: full}
    if any(picks):
        size = {flat: minimax_size(fields, inside, flat) for flat in NESTED}
        mixers[True] = indexed(full, BlockIndexer(
            d, size["index_n_heads"], size["index_head_dim"], size["index_topk_blocks"], size["index_block_size"]
        ))  # fmt: skip
    sparse = minimax_sparse(fields, count)
    table = Experts(
        width="intermediate_size", shared="field", shared_field="shared_intermediate_size", correction="buffer",
        fp32_router=True,
    )  # fmt: skip
    ffns: dict[bool, Spec] = {True: experts(fields, table, d)} if any(sparse) else {}
    if not all(sparse):
        ffns[False] = FeedForward(d, fields.integer("dense_intermediate_size"), activation="silu")
    norm = rms(d, fields)
    keys = list(zip(picks, sparse, strict=True))
    made = {key: block(mixers[key[0]], ffns[key[1]], norm) for key in dict.fromkeys(keys)}
    fields.ignore(
        "dense_intermediate_size", "swiglu_alpha", "swiglu_limit", *NESTED, "use_qk_norm", "qk_norm_type",
        "use_gemma_norm", "attn_type_list", "use_routing_bias", "n_shared_experts", "use_mtp", "num_mtp_modules",
    )  # fmt: skip
    return decoder(fields, [made[key] for key in keys], width=d, final=norm)


def minimax_size(fields: Fields, inside: Fields | None, flat: str) -> int:
    """A size of the indexer: the nested block's, else the flat key's or the class's."""
    nested = None if inside is None else inside.optional(NESTED[flat], low=0)
    return fields.integer(flat, low=0) if nested is None else nested


def minimax_kinds(fields: Fields, count: int) -> tuple[list[bool], Fields | None]:
    """Which layers are behind an indexer, and the block that says how."""
    types, inside = layer_types(fields, count), fields.child("sparse_attention_config")
    marks = None if inside is None else inside.integers("sparse_attention_freq")
    if inside is not None:
        inside.ignore("use_sparse_attention", "sparse_disable_index_value", "sparse_init_block", "sparse_score_type")
    if types is not None:
        return [kind == "minimax_m3_sparse" for kind in types], inside
    if marks is None:
        return [False] * count, inside
    if len(marks) < count:
        raise fields.wrong("sparse_attention_freq", f"{len(marks)} entries", f"one for each of {count} layers")
    return [bool(mark) for mark in marks[:count]], inside


def minimax_sparse(fields: Fields, count: int) -> list[bool]:
    """``mlp_layer_types``, ``moe_layer_freq`` as a list of flags, else experts everywhere."""
    if fields.has("mlp_layer_types") or fields.has("moe_layer_freq"):
        return typed(fields, count)
    return [True] * count


# -- Qwen4-Exp -----------------------------------------------------------------------------------------------------


def qwen4_exp(fields: Fields) -> Architecture:
    """Qwen4-Exp: gated delta and indexed full layers on a stream of copies; the layers of a list add n-grams."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    m, rank = fields.integer("hc_count"), fields.integer("hc_lowrank")
    period = fields.integer("full_attention_interval", null=4)
    types = layer_types(fields, count) or every(count, period, period - 1, "indexed_attention", "linear_attention")
    linear = [kind == "linear_attention" for kind in types]
    mixers: dict[bool, Spec] = {True: delta(fields, d)} if any(linear) else {}
    if not all(linear):
        mixers[False] = qsa(fields, d)
    ffn = feed_forward(fields, d, sparse=qwen_step(fields, 1)[0])
    site: Spec = GatedResidual(d, m, rank)
    sites = (Named("attn_hyper_connection", site), Named("mlp_hyper_connection", site))
    listed = sorted(set(fields.integers("ple_layer_ids", low=1) or ()))
    made: dict[tuple[bool, int], Layer] = {}
    layers = []
    for index, is_linear in enumerate(linear):
        place = listed.index(index + 1) + 1 if index + 1 in listed else 0
        if (is_linear, place) not in made:
            made[is_linear, place] = qwen4_layer(fields, d, mixers[is_linear], ffn, sites, place)
        layers.append(made[is_linear, place])
    fields.ignore("output_gate_type", "seed", "split_ngram_parts", "number_of_conv_states", "full_attention_interval")
    fields.ignore("ple_layer_ids", "ple_embed_dim", "ple_conv_kernel_size", "ngram_size", "heads_per_ngram",
                  "ngram_vocab_size_base", "make_ngram_vocab_size_divisible_by", "indexer_kv_heads")  # fmt: skip
    tail = [Named("model.hyper_connection_mixer", GatedResidual(d, m, rank, writes=False))]
    return decoder(fields, layers, width=d, final=None, tail=tail)


def qwen4_layer(fields: Fields, d: int, mixer: Spec, ffn: Spec, sites: tuple[Named, ...], place: int) -> Layer:
    """A block without norms of its own; ``place`` among the layers with n-grams, 0 where it is none."""
    name = "self_attn" if isinstance(mixer, Attention) else "linear_attn"
    base = block(mixer, ffn, None, mixer_name=name, style="none", residual=sites)
    if not place:
        return base
    return Layer((Sublayer("ple", ngrams(fields, d, place)), *base.sublayers), base.residual)


def qsa(fields: Fields, d: int) -> IndexedAttention:
    """Gated attention to ``indexer_budget`` positions, picked in blocks of ``indexer_compress_ratio``."""
    budget, rate = fields.integer("indexer_budget"), fields.integer("indexer_compress_ratio")
    if fields.integer("indexer_kv_heads", null=1) != 1:
        raise fields.wrong("indexer_kv_heads", fields.raw("indexer_kv_heads"), "one key head")
    indexer = BlockIndexer(
        d, fields.integer("indexer_n_heads"), fields.integer("indexer_head_dim"), budget // rate, rate, pooled=True
    )
    return indexed(attention(fields, QWEN, d), indexer)


def ngrams(fields: Fields, d: int, place: int) -> NgramEmbedding:
    """The n-gram tables of one layer: each has a prime number of rows, all layers' primes in one sequence."""
    longest, each = fields.integer("ngram_size", low=2), fields.integer("heads_per_ngram")
    heads, size = (longest - 1) * each, fields.integer("ple_embed_dim", null=d)
    base, multiple = fields.integer("ngram_vocab_size_base"), fields.integer("make_ngram_vocab_size_divisible_by")
    if base > MOST_ROWS or place * heads > MOST_TABLES:
        raise InvalidInputError(f"{fields.where}: n-gram tables of {base:,} rows, {place * heads:,} of them")
    divide(fields, size, heads, "ple_embed_dim by its n-gram heads")
    rows = sum(primes_from(base, place * heads)[-heads:])
    rows = -(-rows // multiple) * multiple
    return NgramEmbedding(
        d, fields.integer("hc_count"), size, heads, rows, fields.integer("ple_conv_kernel_size"), longest
    )


# Looking for primes beyond these would take too long.
MOST_ROWS = 10**9
MOST_TABLES = 4096


def read(fields: Fields) -> Architecture:
    """A family by its model_type."""
    return minimax_m3(fields) if fields.model_type == "minimax_m3_vl_text" else qwen4_exp(fields)
