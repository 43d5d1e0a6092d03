"""Decoders with routed experts in place of some or all feed-forwards: one row of the table a family."""

from __future__ import annotations

from typing import Literal, NamedTuple

from llmcalc.arch.base import Norm, Scope, Spec, Weight
from llmcalc.arch.families import forward, windows
from llmcalc.arch.families.build import block, decoder
from llmcalc.arch.families.dense import attention, feed_forward, norm_of, refuse, style_of
from llmcalc.arch.families.layouts import LLAMA, QWEN3, Layout, Switch, switch
from llmcalc.arch.families.mtp import mtp_stack
from llmcalc.arch.families.placements import Placement, after_first, all_sparse, ernie_interval, flags, qwen_step, typed
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Layer, Stack
from llmcalc.arch.moe import MixtureOfExperts
from llmcalc.errors import InvalidInputError, UnsupportedLayerError

# -- what a sparse layer holds -----------------------------------------------------------------------------------


class Experts(NamedTuple):
    """The switches of a family's experts.

    width: the field of an expert's width. shared: where its shared expert's width comes from: ``count`` x width of an
    expert by ``n_shared_experts`` (``shared_usual`` where the file
    is silent), a ``field`` of its own, or ``none``.
    """

    placement: Placement = all_sparse
    width: str = "moe_intermediate_size"
    shared: Literal["none", "count", "field"] = "none"
    shared_field: str = "shared_expert_intermediate_size"
    shared_usual: int = 0
    shared_gate: bool = False
    correction: Literal["none", "buffer", "parameter"] = "none"
    router_bias: Switch = False
    expert_bias: Switch = False
    shared_bias: Switch = False
    gated: bool = True
    fp32_router: bool = False
    extra: tuple[Weight, ...] = ()
    refuses: tuple[str, ...] = ()
    inert: tuple[str, ...] = ()


def experts(fields: Fields, table: Experts, d: int, *, activation: str = "") -> MixtureOfExperts:
    """A family's mixture of experts."""
    count = fields.integer("num_experts")
    k = active(fields, count)
    width = uniform(fields, table.width, null=0) or fields.integer("intermediate_size")
    act = activation or fields.text("hidden_act", null="silu")
    return forward.routed(fields, MixtureOfExperts(
        d, count, k, width, table.gated, act,
        expert_bias=switch(fields, table.expert_bias), router_bias=switch(fields, table.router_bias),
        correction=table.correction, shared=shared_expert(fields, table, d, width, act),
        shared_gate=table.shared_gate, router_dtype="fp32" if table.fp32_router else "model", extra=table.extra,
    ))  # fmt: skip


def active(fields: Fields, count: int) -> int:
    """Experts a token passes; never more than there are."""
    k = uniform(fields, "num_experts_per_tok", low=1)
    if k > count:
        raise InvalidInputError(
            f"{fields.where}: {fields.label('num_experts_per_tok')} is {k}, more than the {count} experts there are"
        )
    return k


def shared_expert(fields: Fields, table: Experts, d: int, width: int, act: str) -> FeedForward | None:
    """The expert every token passes, if the family has one."""
    if table.shared == "none":
        return None
    if table.shared == "field":
        size = fields.integer(table.shared_field, null=0, low=0)
    else:
        size = uniform(fields, "n_shared_experts", null=table.shared_usual) * width
    return FeedForward(d, size, table.gated, act, switch(fields, table.shared_bias)) if size else None


def uniform(fields: Fields, name: str, *more: str, null: int | None = None, low: int = 0) -> int:
    """A number given once, or as a list with one entry a layer that all agree (Hunyuan)."""
    value = fields.raw(name, *more)
    if not isinstance(value, list):
        return fields.integer(name, *more, low=low, **({} if null is None else {"null": null}))
    numbers = {fields.as_integer(name, item, low) for item in value}
    if len(numbers) != 1:
        raise UnsupportedLayerError(
            f"{fields.where}: {fields.label(name)} differs from layer to layer: {sorted(numbers)}"
        )
    return numbers.pop()


GLM4 = Experts(after_first, shared="count", correction="buffer", fp32_router=True)
# Hunyuan's file is full of keys of a vision tower that the language model does not have.
HUNYUAN_INERT = tuple(
    """
    add_classification_head anyres_pooling_size anyres_vit_max_image_size anyres_vit_two_views cla_share_factor
    class_num dense_list group_limited_greedy im_end_id im_newline_id im_start_id intermediate_size mask_init_id
    mlp_bias moe_drop_tokens moe_layer_num_skipped moe_random_routing_dropped_token norm_type num_media_embeds
    org_vocab_size
    pad_id pool_type position_embedding_xdrope q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim
    skip_cls_token text_end_id text_start_id use_mixed_mlp_moe use_qk_norm use_rotary_pos_emb vit_add_patchemb_bias
    vit_input_resolution vit_mapping_type vit_norm_type vit_patch vit_path vit_remove_prenorm vit_token vit_type
    vit_used_rms_norm xdrope_section video_start_id video_end_id eod_token_id
    """.split()
)
QWEN_LAYOUT = QWEN3._replace(window="used")

FAMILIES: dict[str, tuple[Layout, Experts]] = {
    "mixtral": (Layout(window="every"), Experts(width="intermediate_size")),
    "qwen2_moe": (
        Layout(qkv="?qkv_bias", window="lower"),
        Experts(qwen_step, shared="field", shared_gate=True),
    ),
    "qwen3_moe": (
        QWEN_LAYOUT,
        Experts(qwen_step, inert=("qkv_bias", "use_qk_norm", "shared_expert_intermediate_size")),
    ),
    "qwen3_vl_moe_text": (QWEN3._replace(window="every"), Experts(qwen_step)),
    "qwen3_omni_moe_text": (QWEN3._replace(window="every"), Experts(qwen_step)),
    "olmoe": (
        Layout(qkv="?attention_bias", o="?attention_bias", qk_norm="full"),
        Experts(width="intermediate_size"),
    ),
    "flex_olmo": (
        Layout(qkv="?attention_bias", o="?attention_bias", qk_norm="full", style="post"),
        Experts(width="intermediate_size"),
    ),
    "phimoe": (
        Layout(qkv="?attention_bias", o="?attention_bias", norm="layer", head_bias="?lm_head_bias", window="every"),
        Experts(width="intermediate_size"),
    ),
    "gpt_oss": (
        Layout(qkv="?attention_bias", o="?attention_bias", sinks=True, window="alternate"),
        Experts(width="intermediate_size", router_bias=True, expert_bias=True, inert=("swiglu_limit",)),
    ),
    "granitemoe": (LLAMA, Experts(width="intermediate_size", inert=("mlp_bias",))),
    "granitemoe_swa": (
        LLAMA._replace(sinks=True, window="first4"),
        Experts(width="intermediate_size", shared="field", shared_field="shared_intermediate_size"),
    ),
    "granitemoeshared": (
        LLAMA,
        Experts(width="intermediate_size", shared="field", shared_field="shared_intermediate_size"),
    ),
    "glm4_moe": (Layout(qkv="?attention_bias", qk_norm="?use_qk_norm:head"), GLM4),
    "glm4v_moe_text": (Layout(qkv="?attention_bias"), GLM4),
    "solar_open": (Layout(qkv="?attention_bias", qk_norm="?use_qk_norm:head"), GLM4),
    "sarvam_moe": (Layout(qkv="?attention_bias", qk_norm="?use_qk_norm:head"), GLM4),
    "dots1": (QWEN3, GLM4),
    "minimax_m2": (
        Layout(qk_norm="full"),
        Experts(
            width="intermediate_size", correction="buffer", fp32_router=True,
            # The published files hold no MTP module; the other keys are those of the remote class, fixed in this one.
            inert=(
                "use_mtp", "num_mtp_modules", "mtp_transformer_layers", "attn_type_list", "qk_norm_type", "use_qk_norm",
                "use_routing_bias", "shared_intermediate_size", "sliding_window",
            ),
        ),
    ),
    "ernie4_5_moe": (
        Layout(qkv="?use_bias", o="?use_bias", mlp="?use_bias", head_bias="?use_bias"),
        Experts(
            ernie_interval, shared="count", correction="parameter", fp32_router=True, shared_bias="?use_bias",
            inert=("moe_gate", "moe_capacity", "moe_norm_min"),
        ),
    ),
    "hunyuan_v1_moe": (
        Layout(qkv="?attention_bias", o="?attention_bias", qk_norm="head"),
        Experts(shared="count", shared_usual=1, fp32_router=True, refuses=("use_cla", "use_mla"), inert=HUNYUAN_INERT),
    ),
    "hy_v3": (
        Layout(qkv="?attention_bias", o="?attention_bias", mlp="?mlp_bias", qk_norm="head"),
        Experts(
            typed, shared="count", correction="buffer", fp32_router=True, shared_bias="?mlp_bias",
            inert=("enable_moe_fp32_combine",),
        ),
    ),
    "exaone_moe": (
        Layout(qk_norm="head", window="exaone4"),
        Experts(flags, shared="count", correction="buffer", fp32_router=True, inert=("first_k_dense_replace",)),
    ),
    "mellum": (QWEN3._replace(window="typed"), Experts(typed)),
    "aria_text": (LLAMA, Experts(width="intermediate_size", shared="count", shared_bias="?mlp_bias")),
    "afmoe": (
        Layout(
            qkv="?attention_bias", o="?attention_bias", style="sandwich", qk_norm="head", gate="elementwise",
            window="nth_global",
        ),
        Experts(
            typed, shared="count", correction="parameter", fp32_router=True,
            inert=("mup_enabled", "global_attn_every_n_layers"),
        ),
    ),
}  # fmt: skip


def read(fields: Fields) -> Architecture:
    """A decoder with experts by its row of the table."""
    layout, table = FAMILIES[fields.model_type]
    return build(fields, layout, table)


def build(fields: Fields, layout: Layout, table: Experts) -> Architecture:
    """A decoder with experts by its switches."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    norm = norm_of(fields, layout, d)
    sparse = table.placement(fields, count)
    ffns: dict[bool, Spec] = {True: experts(fields, table, d)} if any(sparse) else {}
    if not all(sparse):
        ffns[False] = feed_forward(fields, layout, d)
    else:
        fields.ignore("intermediate_size")  # the width of dense layers, and there are none
    refuse(fields, table.refuses)
    fields.ignore(*table.inert)
    made: dict[tuple[Scope, bool, bool], Layer] = {}
    layers = []
    places = windows.turned(fields, windows.layer_scopes(fields, layout.window, count))
    for (scope, rotates), is_sparse in zip(places, sparse, strict=True):
        key = (scope, rotates, is_sparse)
        if key not in made:
            mixer = attention(fields, layout if rotates else layout._replace(positions="none"), d, scope)
            made[key] = block(mixer, ffns[is_sparse], norm, style=style_of(fields, layout))
        layers.append(made[key])
    mtp = glm_mtp(fields, d, norm, layers[-1]) if table is GLM4 and norm is not None else ()
    return decoder(fields, layers, width=d, final=norm, head_bias=switch(fields, layout.head_bias), mtp=mtp)


def glm_mtp(fields: Fields, d: int, norm: Norm, layer: Layer) -> tuple[Stack, ...]:
    """GLM-4.5's MTP layers are its last layer once more; the files of 4.5 and 4.7 repeat embedding and head in them.

    GLM-4.6 has the same config and repeats neither (safetensors totals of the published repositories).
    """
    count = fields.optional("num_nextn_predict_layers", low=0)
    if not count:
        return ()
    fields.notes.assume("the MTP layer repeats embedding and head, as in the files of GLM-4.5 and 4.7 (not of 4.6)")
    return (mtp_stack(fields, d, norm, layer, count, tables=True),)
