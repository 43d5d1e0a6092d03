"""Grouped heads that differ from layer to layer, and their neighbours: Laguna, Step-3.5 and 3.7, Command A+."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from llmcalc.arch.attention import Attention, Gate
from llmcalc.arch.base import FULL, Scope, Spec
from llmcalc.arch.families.build import block, decoder, layer_norm, layer_types, rms, rope, scopes
from llmcalc.arch.families.dense import attention
from llmcalc.arch.families.layouts import COHERE
from llmcalc.arch.families.moe import Experts, experts
from llmcalc.arch.families.placements import typed
from llmcalc.arch.families.windows import by_type
from llmcalc.arch.families.windows import typed as typed_scopes
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import ABSENT, Fields
from llmcalc.arch.model import Architecture, Layer
from llmcalc.errors import InvalidInputError


def gated(
    fields: Fields, d: int, h: int, scope: Scope, *, kv: int = 0, width: int = 0, gate: Gate = "per_head"
) -> Attention:
    """Attention with q/k norms and a gate on its output."""
    width, kv = width or fields.integer("head_dim"), kv or fields.integer("num_key_value_heads")
    if h % kv:
        raise InvalidInputError(f"{fields.where}: {kv} key/value heads do not divide {h} query heads")
    bias = fields.flag("attention_bias")
    kind = "sliding_attention" if scope.kind == "sliding" else "full_attention"
    return Attention(
        d, h, kv, width, width, scope, bias, bias, bias, bias, qk_norm="head", gate=gate,
        positions=rope(fields, width, kind),
    )  # fmt: skip


def stacked(mixers: list[Spec], sparse: list[bool], ffns: dict[bool, Spec], fields: Fields, d: int) -> list[Layer]:
    """Blocks of these mixers, equal ones once."""
    norm, made, layers = rms(d, fields), dict[tuple[Spec, bool], Layer](), []
    for key in zip(mixers, sparse, strict=True):
        if key not in made:
            made[key] = block(key[0], ffns[key[1]], norm)
        layers.append(made[key])
    return layers


def laguna(fields: Fields) -> Architecture:
    """Laguna: query heads a layer, a gate a head, dense in the first layer, a stored balancing parameter."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    heads = fields.per_layer("num_attention_heads_per_layer", count, low=1) if fields.has(
        "num_attention_heads_per_layer"
    ) else [fields.integer("num_attention_heads")] * count  # fmt: skip
    fields.ignore("num_attention_heads")
    sparse = typed(fields, count) if fields.has("mlp_layer_types") else [index > 0 for index in range(count)]
    gate: Gate = "per_head" if fields.raw("gating") in (True, "per-head") else "elementwise"
    mixers: list[Spec] = [
        gated(fields, d, h, scope, gate=gate) for h, scope in zip(heads, typed_scopes(fields, count), strict=True)
    ]
    table = Experts(shared="field", correction="parameter", fp32_router=True)
    ffns: dict[bool, Spec] = {True: experts(fields, table, d)} if any(sparse) else {}
    if not all(sparse):
        ffns[False] = FeedForward(d, fields.integer("intermediate_size"), activation=fields.text("hidden_act"))
    fields.ignore("moe_apply_router_weight_on_input", "swa_attention_sink_enabled")
    return decoder(fields, stacked(mixers, sparse, ffns, fields, d), width=d, final=rms(d, fields))


STEP_INERT = (
    "per_layer_config", "mtp_layer_types", "mtp_mlp_layer_types", "swiglu_limits", "swiglu_limits_shared",
    "partial_rotary_factors", "yarn_only_types", "use_head_wise_attn_gate", "use_moe", "moe_every_n_layer",
    "moe_router_activation", "use_moe_router_bias", "need_fp32_gate", "norm_expert_weight", "use_qk_norm",
    "att_impl_type",
    "num_local_experts", "zero_centered", "rope_theta", "use_rope_layers", "sink", "max_seq_len",
)  # fmt: skip


def step(fields: Fields) -> Architecture:
    """Step-3.5 and 3.7: sliding layers with query heads of their own, a gate a head, dense in the first layers."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    types = layer_types(fields, count)
    spans = [FULL] * count if types is None else by_type(fields, types)
    other = fields.child("attention_other_setting")
    if other is not None:
        other.ignore("attention_type", "true_head_dim")
    h, kv, width = step_heads(fields, other)
    full = gated(fields, d, fields.integer("num_attention_heads"), FULL)
    mixers: list[Spec] = [
        full if scope.kind == "full" else gated(fields, d, h, scope, kv=kv, width=width) for scope in spans
    ]
    sparse = step_sparse(fields, count)
    table = Experts(shared="field", shared_field="share_expert_dim", correction="buffer", fp32_router=True)
    ffns: dict[bool, Spec] = {}
    bias = fields.flag("mlp_bias")
    if any(sparse):
        moe = experts(fields, table, d)
        ffns[True] = replace(moe, shared=replace(moe.shared, bias=bias)) if moe.shared is not None else moe
    if not all(sparse):
        ffns[False] = FeedForward(
            d, fields.integer("intermediate_size"), activation=fields.text("hidden_act"), bias=bias
        )
    fields.ignore(*STEP_INERT)
    architecture = decoder(fields, stacked(mixers, sparse, ffns, fields, d), width=d, final=rms(d, fields))
    if fields.optional("num_nextn_predict_layers", low=0):
        return replace(architecture, uncounted=(fields.label("num_nextn_predict_layers"),))
    return architecture


def step_heads(fields: Fields, other: Fields | None) -> tuple[int, int, int]:
    """Query heads, key/value heads and width of the sliding layers."""
    h = fields.optional("num_sliding_attention_heads")
    if other is None:
        return h or fields.integer("num_attention_heads"), 0, 0
    given = other.optional("num_attention_heads")
    return h or given or fields.integer("num_attention_heads"), other.optional("num_key_value_heads") or 0, (
        other.optional("head_dim") or 0
    )  # fmt: skip


def step_sparse(fields: Fields, count: int) -> list[bool]:
    """``mlp_layer_types``, else ``moe_layers_enum`` ("3,4,5" or a list), else all but the first three."""
    listed = fields.explicit("moe_layers_enum")
    if fields.has("mlp_layer_types"):
        return typed(fields, count)
    if listed is ABSENT or listed is None:
        return [index >= 3 for index in range(count)]
    items = listed.split(",") if isinstance(listed, str) else listed
    if not isinstance(items, list) or not all(str(item).strip().isdecimal() for item in items if str(item).strip()):
        raise fields.wrong("moe_layers_enum", listed, "a list of layers")
    chosen = {int(str(item)) for item in items if str(item).strip() and len(str(item)) < 10}
    return [index in chosen for index in range(count)]


def cohere2_moe(fields: Fields) -> Architecture:
    """Command A+: Cohere's parallel block with experts; the dense layers before them have windows of their own."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    norm = rms(d, fields) if fields.raw("rms_norm_eps") is not None else layer_norm(d, fields, bias=False)
    dense = fields.integer("first_k_dense_replace", null=0, low=0)
    sparse = typed(fields, count) if fields.has("mlp_layer_types") else [index >= dense for index in range(count)]
    ffns: dict[bool, Spec] = {}
    if any(sparse):
        ffns[True] = experts(fields, Experts(width="intermediate_size", shared="count"), d)
    if not all(sparse):
        width = fields.optional("prefix_dense_intermediate_size") or fields.integer("intermediate_size")
        ffns[False] = FeedForward(d, width, activation=fields.text("hidden_act"))
    fields.ignore(
        "prefix_dense_intermediate_size", "shared_expert_combination_strategy", "expert_selection_fn", "use_qk_norm"
    )
    layout = COHERE._replace(qk_norm="none")
    made: dict[tuple[Scope, bool], Layer] = {}
    keys = list(zip(cohere_scopes(fields, count, min(dense, count)), sparse, strict=True))
    for scope, is_sparse in keys:
        if (scope, is_sparse) not in made:
            mixer = attention(fields, layout, d, scope)
            made[scope, is_sparse] = block(mixer, ffns[is_sparse], norm, style="parallel")
    return decoder(fields, [made[key] for key in keys], width=d, final=norm)


def cohere_scopes(fields: Fields, count: int, dense: int) -> list[Scope]:
    """``layer_types``, else one in a period is full, the last of each group, counted anew after the dense layers."""
    types = layer_types(fields, count)
    first = fields.integer("prefix_dense_sliding_window_pattern", null=1)
    rest = fields.integer("sliding_window_pattern", null=4)
    if types is not None:
        return by_type(fields, types)
    full = [(i + 1) % first == 0 for i in range(dense)] + [(i + 1) % rest == 0 for i in range(count - dense)]
    return scopes(fields, full, fields.optional("sliding_window"))


READERS: dict[str, Callable[[Fields], Architecture]] = {"laguna": laguna, "step3p5": step, "cohere2_moe": cohere2_moe}


def read(fields: Fields) -> Architecture:
    """A family by its model_type."""
    return READERS[fields.model_type](fields)
