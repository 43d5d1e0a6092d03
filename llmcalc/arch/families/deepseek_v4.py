"""DeepSeek-V4: compressed attention, experts in every layer, a residual stream of several copies."""

from __future__ import annotations

from typing import Literal

from llmcalc.arch.base import Norm, Spec
from llmcalc.arch.compressed import CompressedAttention, CompressedIndexer, Compressor
from llmcalc.arch.embedding import Projection
from llmcalc.arch.families.build import block, decoder, divide, rms, rope
from llmcalc.arch.families.moe import active
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Layer, Named, Stack
from llmcalc.arch.moe import MixtureOfExperts
from llmcalc.arch.residual import HyperConnection
from llmcalc.errors import UnsupportedLayerError

# compress_ratios: nothing, overlapping windows of 4 picked by an indexer (CSA), windows of 128 all read (HCA).
SPARSE_RATE = 4
HEAVY_RATE = 128
TYPES = {"sliding_attention": 0, "compressed_sparse_attention": SPARSE_RATE, "heavily_compressed_attention": HEAVY_RATE}


def read(fields: Fields) -> Architecture:
    """DeepSeek-V4 in any of its spellings."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    norm = rms(d, fields)
    hashed = fields.optional("num_hash_layers", low=0)
    kinds = fields.strings("mlp_layer_types")
    hash_layers = (
        [kind == "hash_moe" for kind in kinds[:count]]
        if kinds
        else [i < (3 if hashed is None else hashed) for i in range(count)]
    )
    mixers = {ratio: attention(fields, d, ratio) for ratio in set(ratios(fields, count))}
    ffns = {flag: experts(fields, d, hashed=flag) for flag in set(hash_layers)}
    sites = residual(fields, d)
    made: dict[tuple[int, bool], Layer] = {}
    for key in zip(ratios(fields, count), hash_layers, strict=True):
        if key not in made:
            made[key] = block(mixers[key[0]], ffns[key[1]], norm, residual=sites)
    layers = [made[key] for key in zip(ratios(fields, count), hash_layers, strict=True)]
    tail = [Named("model.hc_head", head_site(fields, d))]
    fields.ignore("num_key_value_heads", "attention_bias", "expert_dtype", "hc_sinkhorn_iters", "swiglu_limit")
    return decoder(fields, layers, width=d, final=norm, tail=tail, mtp=mtp(fields, d, norm, sites))


def ratios(fields: Fields, layers: int) -> list[int]:
    """One compression rate a layer; the file's list goes on for the MTP layers and is cut."""
    given = fields.integers("compress_ratios")
    if given is None:
        types = fields.strings("layer_types")
        if types is None:
            fields.notes.warn("compress_ratios is not given: two heavy layers, then heavy and sparse ones in turn")
            return [SPARSE_RATE if i > 2 and i % 2 else HEAVY_RATE for i in range(layers)]
        given = [TYPES.get(kind, -1) for kind in types]
    if len(given) < layers:
        raise fields.wrong("compress_ratios", f"{len(given)} entries", f"one for each of {layers} layers")
    for rate in given[:layers]:
        if rate not in (0, SPARSE_RATE, HEAVY_RATE):
            raise UnsupportedLayerError(
                f"{fields.where}: {fields.label('compress_ratios')} holds {rate}; "
                f"known are 0, {SPARSE_RATE} and {HEAVY_RATE}"
            )
    return given[:layers]


def attention(fields: Fields, d: int, rate: int) -> CompressedAttention:
    """The attention of one compression rate."""
    width, groups = fields.integer("head_dim"), fields.integer("o_groups")
    h, rank = fields.integer("num_attention_heads"), fields.integer("q_lora_rank")
    divide(fields, h * width, groups, "num_attention_heads x head_dim / o_groups")
    compressor = Compressor(d, width, rate, rate == SPARSE_RATE) if rate else None
    indexer = None
    if rate == SPARSE_RATE:
        small = fields.integer("index_head_dim")
        indexer = CompressedIndexer(
            rank, d, fields.integer("index_n_heads"), small, fields.integer("index_topk"),
            Compressor(d, small, rate, True, "index"),
        )  # fmt: skip
    return CompressedAttention(
        d, h, width, rank, groups, fields.integer("o_lora_rank"), fields.integer("sliding_window"), compressor, indexer,
        rope(fields, fields.integer("qk_rope_head_dim", null=64)),
    )  # fmt: skip


def experts(fields: Fields, d: int, *, hashed: bool) -> MixtureOfExperts:
    """Experts of every layer; the first layers route by a stored table instead of a learned balance."""
    count, width = fields.integer("num_experts"), fields.integer("moe_intermediate_size")
    act = fields.text("hidden_act", null="silu")
    fields.ignore("n_shared_experts")  # the class has one, whatever the file says
    shared = FeedForward(d, width, True, act, fields.flag("mlp_bias"))
    correction: Literal["none", "buffer"] = "none" if hashed else "buffer"
    return MixtureOfExperts(
        d, count, active(fields, count), width, True, act, correction=correction,
        shared=shared,
        hash_vocab=fields.integer("vocab_size") if hashed else 0, router_dtype="fp32",
    )  # fmt: skip


def residual(fields: Fields, d: int) -> tuple[Named, ...]:
    """The two sites of a layer: (2 + m) x m outputs and three scales each."""
    m = fields.integer("hc_mult")
    site: Spec = HyperConnection(d, m, (2 + m) * m, 3)
    return (Named("attn_hc", site), Named("ffn_hc", site))


def head_site(fields: Fields, d: int) -> HyperConnection:
    """Folds the copies of the stream into one before the head."""
    m = fields.integer("hc_mult")
    return HyperConnection(d, m, m, 1)


def mtp(fields: Fields, d: int, norm: Norm, sites: tuple[Named, ...]) -> tuple[Stack, ...]:
    """MTP layers: sliding only; embedding and stream projected apart, and a stream head of their own."""
    count = fields.integer("num_nextn_predict_layers", low=0) if fields.has("num_nextn_predict_layers") else 0
    if not count:
        return ()
    layer = block(attention(fields, d, 0), experts(fields, d, hashed=False), norm, residual=sites)
    stem: list[Named] = []
    for index in range(count):
        prefix = f"mtp.{index}"
        stem += [Named(f"{prefix}.{name}", norm) for name in ("enorm", "hnorm", "norm")]
        stem += [Named(f"{prefix}.{name}", Projection(d, d)) for name in ("e_proj", "h_proj")]
        stem.append(Named(f"{prefix}.hc_head", head_site(fields, d)))
    return (Stack("mtp", "mtp", (layer,) * count, tuple(stem)),)
