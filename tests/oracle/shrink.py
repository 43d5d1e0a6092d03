"""A tiny copy of an architecture that keeps its pattern: the order of its layers and every switch of every spec.

Widths become small ones (equal ones stay equal, unequal ones unequal), shared heads stay shared, windows shrink to a
few positions, and of each group of equal layers the first two are kept.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from llmcalc.arch import attention, conv, embedding, latent, linear, moe, positions, recurrent, residual, ssm
from llmcalc.arch.base import Extra, Norm, Scope, Spec, Weight
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.model import Architecture, Call, Layer, Named, Parallel, Stack, Sublayer
from reference_model.residual import NORM, PROJECTION, TABLE

HEAD = 8  # channels of a shrunken head
VOCABULARY = 61


class Widths:
    """Small widths for large ones: the stream's first, then others in the order in which they turn up."""

    def __init__(self, hidden: int) -> None:
        self.known = {hidden: 32}
        self.scopes: dict[int, int] = {}

    def of(self, width: int) -> int:
        """The small width; twice the stream stays twice the stream."""
        hidden = next(iter(self.known))
        if width == 2 * hidden:
            return 64
        return self.known.setdefault(width, 20 + 4 * len(self.known))

    def scope(self, scope: Scope) -> Scope:
        """Windows of 7, 9, 11 ... positions."""
        if not scope.size:
            return scope
        return Scope(scope.kind, self.scopes.setdefault(scope.size, 7 + 2 * len(self.scopes)))


def heads(queries: int, keys: int) -> tuple[int, int]:
    """At most two key heads, at most three queries to each, more than one where there was more than one."""
    small = min(keys, 2)
    return small * min(queries // keys, 3), small


def _rope(spec: Any, head: int, size: int = HEAD) -> Any:
    if isinstance(spec, positions.RelativeBias):
        return replace(spec, buckets=8, max_distance=12)
    if not isinstance(spec, positions.Rope):
        return spec
    width = max(2, 2 * round(size * spec.width / head / 2))
    scaling = tuple((key, value[: width // 2] if isinstance(value, tuple) else value) for key, value in spec.scaling)
    limits = {"original_max_position_embeddings": 16}
    scaling = tuple((key, limits.get(key, value)) for key, value in scaling)
    return replace(spec, width=width, scaling=scaling, context=24)


def _attention(spec: attention.Attention, widths: Widths) -> Spec:
    h, kv = heads(spec.num_attention_heads, spec.num_key_value_heads)
    values = HEAD if spec.v_head_dim == spec.head_dim else HEAD - 2
    return replace(
        spec, hidden_size=widths.of(spec.hidden_size), num_attention_heads=h, num_key_value_heads=kv, head_dim=HEAD,
        v_head_dim=values, scope=widths.scope(spec.scope), positions=_rope(spec.positions, spec.head_dim),
        output_size=widths.of(spec.output_size) if spec.output_size else 0,
        dynamic_window=min(spec.dynamic_window, 5), extra=tuple(_beside(weight, h, kv) for weight in spec.extra),
    )  # fmt: skip


def _beside(weight: Weight, h: int, kv: int) -> Weight:
    """What an attention stores beside its matrices, small."""
    shapes: dict[str, tuple[int, ...]] = {
        "A": (kv,), "dt_proj.weight": (kv, kv * HEAD), "dt_proj.bias": (kv,), "attn_sub_norm.weight": (h * HEAD,),
    }  # fmt: skip
    return weight._replace(shape=shapes.get(weight.name, (HEAD,)))  # lambdas are as wide as a head


def _latent(spec: latent.LatentAttention, widths: Widths) -> Spec:
    rotary = 4 if spec.qk_rope_head_dim else 0
    indexer = spec.indexer and replace(
        spec.indexer, hidden_size=widths.of(spec.hidden_size), query_size=12 if spec.q_lora_rank else 32,
        index_n_heads=16, index_head_dim=8, index_topk=5,
    )  # fmt: skip
    rope = _rope(spec.positions, spec.positions.width, rotary) if isinstance(spec.positions, positions.Rope) else None
    return replace(
        spec, hidden_size=widths.of(spec.hidden_size), num_attention_heads=3, q_lora_rank=spec.q_lora_rank and 12,
        kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=rotary, v_head_dim=7, indexer=indexer, positions=rope,
        index_topk=spec.index_topk and 5, scope=widths.scope(spec.scope),
    )  # fmt: skip


def _experts(spec: moe.MixtureOfExperts, widths: Widths) -> Spec:
    groups = min(spec.n_group, 4)
    return replace(
        spec, hidden_size=widths.of(spec.hidden_size), num_experts=8,
        num_experts_per_tok=min(spec.num_experts_per_tok, 3), moe_intermediate_size=12, n_group=groups,
        topk_group=min(spec.topk_group, 2) if groups > 1 else 1,
        latent_size=spec.latent_size and 20, shared=spec.shared and _feed_forward(spec.shared, widths),
    )  # fmt: skip


def _feed_forward(spec: FeedForward, widths: Widths) -> FeedForward:
    return replace(spec, hidden_size=widths.of(spec.hidden_size), intermediate_size=24)


def _mixer(spec: Spec, widths: Widths) -> Spec:
    """Scans and convolutions."""
    hidden = {"hidden_size": widths.of(getattr(spec, "hidden_size", 0))}
    match spec:
        case linear.GatedDelta():
            each = min(spec.num_value_heads // spec.num_key_heads, 2)
            return replace(spec, **hidden, num_key_heads=2, num_value_heads=2 * each, key_head_dim=6, value_head_dim=8)
        case linear.KimiDelta():
            return replace(spec, **hidden, num_heads=3, head_dim=6)
        case linear.DecayAttention():
            size = 24 if spec.norm_size else 0
            return replace(spec, **hidden, num_heads=3, key_head_dim=6, value_head_dim=8, norm_size=size)
        case ssm.Mamba1():
            return replace(spec, **hidden, inner=48, state_size=6, time_step_rank=4)
        case ssm.Mamba2():
            groups = min(spec.n_groups, 2)
            return replace(spec, **hidden, num_heads=4, head_dim=6, state_size=6, n_groups=groups,
                           norm_groups=min(spec.norm_groups, groups))  # fmt: skip
        case conv.ShortConv():
            return replace(spec, **hidden)
        case recurrent.RgLru():
            return replace(spec, **hidden, lru_width=24, num_heads=3)
        case recurrent.Rwkv4():
            return replace(spec, **hidden, attention_size=28)
        case recurrent.Rwkv4ChannelMix():
            return replace(spec, **hidden, intermediate_size=24)
    raise TypeError(type(spec).__name__)


def spec(found: Spec, widths: Widths) -> Spec:
    """A spec of any kind, small."""
    match found:
        case Parallel():
            return Parallel(tuple(sublayer(branch, widths) for branch in found.branches))
        case Norm():
            return replace(found, size=widths.of(found.size))
        case attention.Attention():
            return _attention(found, widths)
        case latent.LatentAttention():
            return _latent(found, widths)
        case moe.MixtureOfExperts():
            return _experts(found, widths)
        case FeedForward():
            return _feed_forward(found, widths)
        case embedding.Embedding():
            rows = VOCABULARY if found.tokens else 64 + found.offset
            return replace(found, rows=rows, width=widths.of(found.width))
        case embedding.Head():
            return replace(found, rows=VOCABULARY, width=widths.of(found.width))
        case embedding.Projection():
            return replace(found, outputs=widths.of(found.outputs), inputs=widths.of(found.inputs))
        case residual.AlternatingUpdates():
            return replace(found, hidden_size=widths.of(found.hidden_size))
        case Extra():
            return replace(found, tensors=tuple(_small(weight, widths) for weight in found.tensors))
        case _:
            return _mixer(found, widths)


def _small(weight: Weight, widths: Widths) -> Weight:
    """One number stays one number; adapters (Zamba) have the rank 4."""
    if weight.name.endswith("0.weight"):
        return weight._replace(shape=(4, widths.of(weight.shape[1])))
    if weight.name.endswith("1.weight"):
        return weight._replace(shape=(2 * HEAD if weight.name.startswith("linear_") else 48, 4))
    return weight._replace(shape=tuple(widths.of(size) if size > 1 else 1 for size in weight.shape))


def named(found: Named | None, widths: Widths) -> Any:
    """A named spec, small."""
    return None if found is None else Named(found.name, spec(found.spec, widths))


def sublayer(found: Sublayer, widths: Widths) -> Sublayer:
    """A sublayer, small."""
    norms = (named(norm, widths) for norm in (found.before, found.after, found.outer))
    return Sublayer(found.name, spec(found.spec, widths), *norms)


def kept(stack: Stack) -> list[int]:
    """The first two blocks of each group, and whatever their caches are borrowed from."""
    chosen = {index for _, members in stack.groups for index in members[:2]}
    for index in sorted(chosen):
        for mixer in stack.layers[index].mixers:
            if getattr(mixer, "cache_source", None) is not None:
                chosen.add(mixer.cache_source)  # type: ignore[attr-defined]
    return sorted(chosen)


def stack(found: Stack, widths: Widths) -> Stack:
    """A stack, small and short."""
    chosen = kept(found)
    small: dict[int, Layer] = {}
    layers = []
    for index in chosen:
        layer = found.layers[index]
        if id(layer) not in small:
            parts = tuple(sublayer(part, widths) for part in layer.sublayers)
            small[id(layer)] = replace(layer, sublayers=parts, residual=tuple(named(n, widths) for n in layer.residual))
        layers.append(moved(small[id(layer)], chosen))
    schedule: list[Call] = []
    for number, call in enumerate(found.schedule):
        beside = any(getattr(mixer, "output_size", 0) for mixer in found.layers[call.block].mixers)
        if beside and found.schedule[number + 1].block not in chosen:
            continue  # a shared block goes with the layer after it (Zamba)
        if call.block in chosen and len(schedule) < 4 * len(chosen):
            schedule.append(Call(chosen.index(call.block), len(schedule)))
    ends = [tuple(named(n, widths) for n in group) for group in (found.stem, found.tail)]
    stem = own_inputs(ends[0], len(layers))
    return replace(found, layers=tuple(layers), schedule=tuple(schedule), stem=stem, tail=ends[1])


def own_inputs(stem: tuple[Named, ...], layers: int) -> tuple[Named, ...]:
    """The stem with tables of per-layer inputs as wide as so many layers need."""
    sizes = [named.spec.size for named in stem if named.name.endswith(NORM) and isinstance(named.spec, Norm)]
    out = []
    for name, found in stem:
        field = {TABLE: "width", PROJECTION: "outputs"}.get(name.rpartition(".")[2])
        wide = {field: layers * sizes[0]} if field else {}
        out.append(Named(name, replace(found, **wide)))  # type: ignore[type-var]
    return tuple(out)


def moved(layer: Layer, chosen: list[int]) -> Layer:
    """The layer with its borrowed cache's new place."""

    def part(found: Sublayer) -> Sublayer:
        source = getattr(found.spec, "cache_source", None)
        if source is None or not is_dataclass(found.spec):
            return found
        return found._replace(spec=replace(found.spec, cache_source=chosen.index(source)))

    return replace(layer, sublayers=tuple(part(found) for found in layer.sublayers))


def shrunken(found: Architecture) -> Architecture:
    """The whole architecture, small; its encoder too."""
    widths = Widths(found.hidden_size)
    small = {"decoder": stack(found.decoder, widths), "hidden_size": 32, "vocab_size": VOCABULARY, "dtype": "bf16"}
    if found.encoder is not None:
        small["encoder"] = stack(found.encoder, widths)
    given = {item.name: getattr(found, item.name) for item in fields(found)}
    return Architecture(**{**given, **small, "towers": (), "mtp": ()})
