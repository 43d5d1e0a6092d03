"""Gemma-3n and Gemma-4: caches shared by the upper layers, per-layer inputs, and their wider residual streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from llmcalc.arch.attention import Attention, Cache
from llmcalc.arch.base import FULL, Extra, Norm, Scope, Spec, Weight
from llmcalc.arch.embedding import Embedding, Projection
from llmcalc.arch.families import forward
from llmcalc.arch.families.build import block, decoder, key_value_heads, layer_types, rms, rope
from llmcalc.arch.families.moe import active
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Layer, Named, Parallel, Sublayer
from llmcalc.arch.moe import MixtureOfExperts
from llmcalc.arch.residual import AlternatingUpdates
from llmcalc.errors import InvalidInputError

SLIDING: Literal["sliding_attention"] = "sliding_attention"
PERIODS = {"gemma3n_text": 5, "gemma4_text": 6, "gemma4_unified_text": 6}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a layer stands: its kind, and the layer whose keys and values it borrows, if it does."""

    sliding: bool
    source: int | None
    ffn: int
    sparsity: float = 0.0


def places(fields: Fields, layers: int) -> list[Place]:
    """A place for each layer.

    The last ``num_kv_shared_layers`` read the cache of the last layer of their own kind before them.
    """
    period = PERIODS[fields.model_type]
    kinds = layer_types(fields, layers)
    sliding = [kind == SLIDING for kind in kinds] if kinds else [(i + 1) % period != 0 for i in range(layers)]
    if fields.model_type != "gemma3n_text":
        sliding[-1] = False
    shared = fields.integer("num_kv_shared_layers", null=0, low=0)
    first = layers - shared
    if shared and not 0 < first < layers:
        raise InvalidInputError(f"{fields.where}: num_kv_shared_layers = {shared} of num_hidden_layers = {layers}")
    widths = fields.per_layer("intermediate_size", layers, low=1)
    double = fields.flag("use_double_wide_mlp")
    owners = {sliding[index]: index for index in range(first)}
    out = []
    for index in range(layers):
        source = None
        if index >= first:
            source = owners.get(sliding[index])
            if source is None:
                raise InvalidInputError(f"{fields.where}: layer {index} shares a cache that no layer of its kind owns")
        width = widths[index] * (2 if double and source is not None else 1)
        out.append(Place(sliding[index], source, width, forward.sparsity(fields, index)))
    return out


def attention(fields: Fields, d: int, place: Place) -> Attention:
    """A layer's attention; Gemma-4's full layers may have wider and fewer heads, and take values from keys."""
    h, kv, width = fields.integer("num_attention_heads"), 0, fields.integer("head_dim")
    tied = False
    if fields.model_type != "gemma3n_text" and not place.sliding:
        saved = saved_sizes(fields)
        width = saved.get("head_dim") or fields.integer("global_head_dim", null=512)
        tied = fields.flag("attention_k_eq_v")
        kv = (saved.get("num_key_value_heads") or fields.optional("num_global_key_value_heads") or 0) if tied else 0
    kv = kv or key_value_heads(fields, h)
    if h % kv:
        raise InvalidInputError(f"{fields.where}: num_global_key_value_heads = {kv} does not divide {h} heads")
    window = fields.integer("sliding_window") if place.sliding else 0
    cache: Cache = "borrowed" if place.source is not None else "tied" if tied else "own"
    bias = fields.flag("attention_bias")
    return Attention(
        d, h, kv, width, width, Scope("sliding", window) if window else FULL,
        q_bias=bias, k_bias=bias, v_bias=bias, o_bias=bias, qk_norm="head", cache=cache, cache_source=place.source,
        positions=rope(fields, width, SLIDING if place.sliding else "full_attention"), scale=1.0, v_norm=True,
        qk_norm_eps=forward.norm_eps(fields),
    )  # fmt: skip


def saved_sizes(fields: Fields) -> dict[str, int]:
    """Sizes of the full layers in ``per_layer_config``, the spelling in which transformers 5 saves them."""
    entries = [value for value in fields.mapping("per_layer_config").values() if isinstance(value, dict)]
    names = ("head_dim", "num_key_value_heads")
    return {name: fields.as_integer(f"per_layer_config.{name}", entry[name])
            for entry in entries[:1] for name in names if name in entry}  # fmt: skip


def per_layer_input(d: int, width: int, norm: Norm) -> tuple[Named, ...]:
    """What a layer stores to take in its own slice of the per-layer embedding."""
    return (
        Named("per_layer_input_gate", Projection(width, d)),
        Named("per_layer_projection", Projection(d, width)),
        Named("post_per_layer_input_norm", norm),
    )


def per_layer_stem(fields: Fields, d: int, layers: int, width: int) -> list[Named]:
    """The global per-layer table (rows are read, never multiplied), its projection and norm."""
    rows = fields.integer("vocab_size_per_layer_input")
    return [
        Named("model.embed_tokens_per_layer", Embedding(rows, layers * width, part="per_layer_embeddings")),
        Named("model.per_layer_model_projection", Projection(layers * width, d)),
        Named("model.per_layer_projection_norm", rms(width, fields)),
    ]


def altup(fields: Fields, d: int, norm: Norm) -> tuple[Named, ...]:
    """Gemma-3n's alternating updates (arXiv:2301.13310) and its low-rank side path LAuReL (arXiv:2411.07501)."""
    streams, rank = fields.integer("altup_num_inputs"), fields.integer("laurel_rank")
    return (
        Named("", AlternatingUpdates(d, streams)),
        Named("altup.router_norm", norm),
        Named("laurel.linear_left", Projection(rank, d)),
        Named("laurel.linear_right", Projection(d, rank)),
        Named("laurel.post_laurel_norm", norm),
    )


def experts_beside(fields: Fields, d: int, dense: FeedForward, norm: Norm) -> Spec:
    """Gemma-4 with experts: each layer runs the dense branch and the routed one, each with norms of its own."""
    count = fields.integer("num_experts")
    scales = (Weight("gate.scale", (d,), "router"), Weight("gate.per_expert_scale", (count,), "router"))
    moe = forward.routed(fields, MixtureOfExperts(
        d, count, active(fields, count), fields.integer("moe_intermediate_size", "expert_intermediate_size"), True,
        dense.activation, router_extra=scales,
    ))  # fmt: skip
    return Parallel((
        Sublayer("mlp", dense, None, Named("post_feedforward_layernorm_1", norm)),
        Sublayer("moe", moe, Named("pre_feedforward_layernorm_2", norm), Named("post_feedforward_layernorm_2", norm)),
    ))  # fmt: skip


def read(fields: Fields) -> Architecture:
    """Gemma-3n or Gemma-4, the language model."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    norm = rms(d, fields)
    fields.ignore("altup_active_idx", "altup_coef_clip")
    width = fields.integer("hidden_size_per_layer_input", null=0, low=0)
    streams = fields.model_type == "gemma3n_text"
    residual = per_layer_input(d, width, norm) if width else ()
    if streams:
        residual = (*residual, *altup(fields, d, norm))
    else:
        residual = (*residual, Named("", Extra((Weight("layer_scalar", (1,), "buffer"),))))
    made: dict[Place, Layer] = {}
    layers = []
    for place in places(fields, count):
        if place not in made:
            act = fields.text("hidden_act", null="gelu_pytorch_tanh")
            ffn: Spec = FeedForward(d, place.ffn, True, act, sparsity=place.sparsity)
            if not streams and fields.flag("enable_moe_block"):
                ffn = experts_beside(fields, d, FeedForward(d, place.ffn, True, act), norm)
            made[place] = block(attention(fields, d, place), ffn, norm, style="sandwich", residual=residual)
        layers.append(made[place])
    stem = per_layer_stem(fields, d, count, width) if width else []
    tail: list[Named] = []
    if streams:
        for index in range(fields.integer("altup_num_inputs") - 1):
            stem.append(Named(f"model.altup_projections.{index}", Projection(d, d)))
            tail.append(Named(f"model.altup_unembed_projections.{index}", Projection(d, d)))
    return decoder(fields, layers, width=d, final=norm, stem=stem, tail=tail)
