"""Hunyuan's mixtures: A13B, and Hunyuan-Large, whose neighbouring layers share one cache."""

from __future__ import annotations

from dataclasses import replace

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import Weight
from llmcalc.arch.families import moe
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Layer


def read(fields: Fields) -> Architecture:
    """Its row of the table; with ``use_cla``, a layer in ``cla_share_factor`` has a cache and the others read it."""
    layout, table = moe.FAMILIES["hunyuan_v1_moe"]
    built = moe.build(fields, layout, table._replace(refuses=("use_mla",)))
    if not fields.flag("use_cla"):
        return built
    factor = fields.integer("cla_share_factor", null=2)
    made: dict[tuple[Layer, bool], Layer] = {}
    layers = []
    for index, layer in enumerate(built.decoder.layers):
        key = (layer, index % factor != 0)
        if key not in made:
            made[key] = reader(layer) if key[1] else layer
        layers.append(made[key])
    return replace(built, decoder=replace(built.decoder, layers=tuple(layers)))


def reader(layer: Layer) -> Layer:
    """The same block without keys and values of its own; it norms the keys that it reads itself."""
    first, *rest = layer.sublayers
    if not isinstance(first.spec, Attention):
        raise TypeError(f"a Hunyuan block begins with {first.spec.kind}")
    norm = (Weight("k_norm.weight", (first.spec.head_dim,), "norm"),) if first.spec.qk_norm == "head" else ()
    spec = replace(first.spec, cache="borrowed", extra=(*first.spec.extra, *norm))
    return replace(layer, sublayers=(first._replace(spec=spec), *rest))
