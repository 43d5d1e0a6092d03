"""ERNIE-4.5-VL: a set of experts for text and one for pictures in each sparse layer, shared experts beside them."""

from __future__ import annotations

from dataclasses import replace

from llmcalc.arch.base import Spec, Weight, prefixed
from llmcalc.arch.families.build import block, decoder, rms
from llmcalc.arch.families.dense import attention
from llmcalc.arch.families.layouts import Layout
from llmcalc.arch.families.placements import typed
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture
from llmcalc.arch.moe import MixtureOfExperts
from llmcalc.errors import InvalidInputError

LAYOUT = Layout(qkv="?use_bias", o="?use_bias", mlp="?use_bias")


def read(fields: Fields) -> Architecture:
    """The language model; a token of text passes the experts for text alone."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    act, bias = fields.text("hidden_act", null="silu"), fields.flag("use_bias")
    sparse = sparse_layers(fields, count)
    norm, mixer = rms(d, fields), attention(fields, LAYOUT, d)
    ffns: dict[bool, Spec] = {True: experts(fields, d, act)} if any(sparse) else {}
    if not all(sparse):
        ffns[False] = FeedForward(d, fields.integer("intermediate_size"), activation=act, bias=bias)
    fields.ignore("moe_norm_min", "moe_gate", "moe_capacity", "moe_layer_start_index", "moe_layer_end_index",
                  "moe_layer_interval", "moe_multimodal_dispatch_use_allgather", "moe_use_aux_free", "freq_allocation",
                  "moe_group", "use_rmsnorm")  # fmt: skip
    made = {flag: block(mixer, ffn, norm) for flag, ffn in ffns.items()}
    return decoder(fields, [made[flag] for flag in sparse], width=d, final=norm)


def sparse_layers(fields: Fields, count: int) -> list[bool]:
    """``mlp_layer_types``, else from ``moe_layer_start_index`` (a number, or a list with one a modality) on."""
    if fields.has("mlp_layer_types"):
        return typed(fields, count)
    first = min(pair(fields, "moe_layer_start_index", null=1))
    last = fields.raw("moe_layer_end_index")
    end = count - 1 if last in (None, -1) else max(pair(fields, "moe_layer_end_index"))
    every = fields.integer("moe_layer_interval", null=1)
    return [first <= index <= end and (index + 1) % every == 0 for index in range(count)]


def pair(fields: Fields, name: str, null: int | None = None) -> tuple[int, int]:
    """A size for text and one for pictures; a single number stands for both."""
    value = fields.raw(name)
    if value is None and null is not None:
        return null, null
    if not isinstance(value, list):
        size = fields.integer(name, low=0)
        return size, size
    if len(value) != 2:
        raise fields.wrong(name, value, "a number for text and one for pictures")
    return fields.as_integer(name, value[0], 0), fields.as_integer(name, value[1], 0)


def experts(fields: Fields, d: int, act: str) -> MixtureOfExperts:
    """The experts for text; those for pictures are stored beside them."""
    counts, widths = pair(fields, "num_experts"), pair(fields, "moe_intermediate_size")
    k, shared = fields.integer("num_experts_per_tok"), fields.integer("n_shared_experts", null=0, low=0)
    if k > min(counts):
        raise InvalidInputError(f"{fields.where}: {fields.label('moe_k')} is {k}, more than the {min(counts)} experts")
    sets = [
        MixtureOfExperts(d, total, k, width, True, act, correction="parameter", router_dtype="fp32")
        for total, width in zip(counts, widths, strict=True)
    ]
    pictures: tuple[Weight, ...] = tuple(
        weight._replace(active=0) for weight in prefixed("vision_moe", sets[1].weights())
    )
    width = shared * widths[0]
    return replace(sets[0], shared=FeedForward(d, width, True, act) if shared else None, extra=pictures)
