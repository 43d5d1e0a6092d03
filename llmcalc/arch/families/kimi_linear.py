"""Kimi delta attention beside latent attention without positions: Kimi-Linear, and the text model of Kimi-K3."""

from __future__ import annotations

from llmcalc.arch.base import Extra, Spec, Weight
from llmcalc.arch.families import forward
from llmcalc.arch.families.build import block, decoder, layer_types, rms
from llmcalc.arch.families.hybrid import every, named_kinds, state_dtype
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.latent import LatentAttention
from llmcalc.arch.linear import KimiDelta
from llmcalc.arch.model import Architecture, Layer, Named
from llmcalc.arch.moe import MixtureOfExperts

INERT = (
    "num_key_value_heads", "head_dim", "mla_use_nope", "moe_renormalize", "moe_router_activation_func",
    "use_grouped_topk", "num_expert_group", "pretraining_tp", "activation_situ_beta", "activation_situ_linear_beta",
    "num_nextn_predict_layers", "qk_head_dim", "top_k",
)  # fmt: skip


def read(fields: Fields) -> Architecture:
    """Delta layers and latent ones as ``linear_attn_config`` lists them; experts from the second layer on."""
    fields.ignore(*INERT)
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    mixers: dict[str, Spec] = {"full": latent(fields, d), "linear": delta(fields, d)}
    norm, sites = rms(d, fields), fields.optional("attn_res_block_size") is not None
    residual = [Named("self_attention_res", residual_site(d)), Named("mlp_res", residual_site(d))] if sites else []
    made: dict[tuple[str, bool], Layer] = {}
    for kind, sparse in pairs(fields, count):
        if (kind, sparse) not in made:
            ffn = experts(fields, d) if sparse else FeedForward(
                d, fields.integer("intermediate_size"), activation=fields.text("hidden_act")
            )  # fmt: skip
            made[kind, sparse] = block(mixers[kind], ffn, norm, residual=residual)
    tail = [Named("model.output_res", residual_site(d))] if sites else []
    return decoder(fields, [made[pair] for pair in pairs(fields, count)], width=d, final=norm, tail=tail)


def residual_site(d: int) -> Extra:
    """Attention over the outputs of earlier blocks instead of their sum: a norm and a score for each (Kimi-K3)."""
    return Extra((Weight("norm.weight", (d,), "norm"), Weight("proj.weight", (1, d))))


def pairs(fields: Fields, count: int) -> list[tuple[str, bool]]:
    """The mixer of each layer, and whether it has experts."""
    types = layer_types(fields, count)
    kinds = named_kinds(fields, types, ("linear", "full")) if types is not None else numbered(fields, count)
    named = fields.strings("mlp_layer_types")
    dense, step = fields.integer("first_k_dense_replace", null=1, low=0), fields.integer("moe_layer_freq", null=1)
    if named is not None and len(named) < count:
        raise fields.wrong("mlp_layer_types", f"a list of {len(named)}", f"one entry for each of {count} layers")
    sparse = [index >= dense and index % step == 0 for index in range(count)]
    return list(zip(kinds, sparse if named is None else [kind == "sparse" for kind in named[:count]], strict=True))


def numbered(fields: Fields, count: int) -> list[str]:
    """The published files' lists of layers, which count from 1."""
    block = fields.child("linear_attn_config")
    full = block.integers("full_attn_layers", low=1) if block else None
    linear = block.integers("kda_layers", low=1) if block else None
    if full is None or linear is None:
        return ["full" if index and kind == "full" else "linear" for index, kind in enumerate(every(count, 4, 0))]
    if sorted(full + linear) != list(range(1, count + 1)):
        raise fields.wrong("linear_attn_config", "not a partition", f"each of the layers 1 to {count} in one list")
    chosen = set(full)
    return ["full" if index + 1 in chosen else "linear" for index in range(count)]


def latent(fields: Fields, d: int) -> LatentAttention:
    """Latent attention whose rotary part is kept and never rotated; Kimi-K3 gates its output."""
    return LatentAttention(
        d, fields.integer("num_attention_heads"), fields.optional("q_lora_rank"), fields.integer("kv_lora_rank"),
        fields.integer("qk_nope_head_dim"), fields.integer("qk_rope_head_dim", low=0), fields.integer("v_head_dim"),
        bias=fields.flag("attention_bias"), gate="elementwise" if fields.flag("mla_use_output_gate") else "none",
    )  # fmt: skip


def delta(fields: Fields, d: int) -> KimiDelta:
    """Kimi delta attention, its sizes from ``linear_attn_config`` where the file has it."""
    block = fields.child("linear_attn_config")
    given = {} if block is None else {
        "linear_num_heads": block.optional("num_heads"), "linear_head_dim": block.optional("head_dim"),
        "linear_conv_kernel_dim": block.optional("short_conv_kernel_size"),
    }  # fmt: skip
    if block is not None:
        block.ignore("gate_lower_bound", "full_attn_layers", "kda_layers")
    heads, width, kernel = (
        given.get(name) or fields.integer(name)
        for name in ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    )
    full = block is not None and block.flag("use_full_rank_gate")
    return KimiDelta(
        d, heads, width, kernel, gate="full" if full else "low_rank", state_dtype=state_dtype(fields),
        norm_eps=forward.number(fields, "rms_norm_eps", null=1e-6),
    )  # fmt: skip


def experts(fields: Fields, d: int) -> MixtureOfExperts:
    """Experts, at a latent width in Kimi-K3, beside shared ones at full width."""
    act, width = fields.text("hidden_act"), fields.integer("moe_intermediate_size")
    shared = fields.integer("n_shared_experts", null=0, low=0) * width
    size = fields.integer("routed_expert_hidden_size", null=0)
    return forward.routed(fields, MixtureOfExperts(
        d, fields.integer("num_experts"), fields.integer("num_experts_per_tok"), width, activation=act,
        correction="buffer", shared=FeedForward(d, shared, activation=act) if shared else None, latent_size=size,
        latent_norm=bool(size) and fields.flag("latent_moe_use_norm"), router_dtype="fp32",
    ))  # fmt: skip
