"""Nemotron-H and Nemotron 3: a string of blocks with one sublayer each."""

from __future__ import annotations

from llmcalc.arch.base import Spec, Weight
from llmcalc.arch.embedding import Projection
from llmcalc.arch.families import forward
from llmcalc.arch.families.build import decoder, embed, rms
from llmcalc.arch.families.dense import attention
from llmcalc.arch.families.hybrid import named_kinds, single, state_dtype
from llmcalc.arch.families.layouts import Layout
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Layer, Named, Stack
from llmcalc.arch.moe import MixtureOfExperts
from llmcalc.arch.ssm import Mamba2
from llmcalc.errors import InvalidInputError

LETTERS = {"M": "linear", "*": "full", "-": "mlp", "E": "moe"}
ALLOWED = ("linear", "full", "mlp", "moe")


def read(fields: Fields) -> Architecture:
    """The pattern decides how many layers there are; ``num_hidden_layers`` is deprecated in this class."""
    d = fields.integer("hidden_size")
    types = pattern(fields, "hybrid_override_pattern", "layers_block_type", "layer_types")
    if types is None:
        raise InvalidInputError(
            f"{fields.where}: {fields.label('layers_block_type')} and hybrid_override_pattern are missing, "
            "so the order of the layers is not known"
        )
    count = fields.optional("num_hidden_layers")
    if count is not None and count != len(types):
        fields.notes.warn(f"num_hidden_layers is {count} and the layer pattern has {len(types)}; the pattern is taken")
    norm, made = rms(d, fields), {kind: mixer(fields, kind, d) for kind in sorted(set(types))}
    layers = {kind: single("mixer", spec, norm) for kind, spec in made.items()}
    # inert in this class: expand (the width is heads x head_dim), attention and mamba projection biases, dt ranks
    fields.ignore(
        "expand", "attention_bias", "mamba_proj_bias", "time_step_rank", "num_logits_to_keep", "use_mamba_kernels",
        "sliding_window", "n_shared_experts", "moe_shared_expert_overlap", "intermediate_size", "partial_rotary_factor",
        "mtp_hybrid_override_pattern", "mtp_layers_block_type", "n_routed_experts", "num_experts_per_tok",
        "moe_intermediate_size", "moe_shared_expert_intermediate_size", "moe_latent_size", "mlp_bias",
    )  # fmt: skip
    return decoder(
        fields, [layers[kind] for kind in types], width=d, final=norm, prefix="backbone.layers",
        embedding=embed(fields, d, "backbone.embeddings"), final_name="backbone.norm_f", mtp=mtp(fields, d),
    )  # fmt: skip


def pattern(fields: Fields, letters: str, *names: str) -> list[str] | None:
    """Layer kinds from a list of names, or from a string of letters."""
    types = fields.strings(names[0], *names[1:])
    if types is not None:
        fields.ignore(letters)
        return named_kinds(fields, types, ALLOWED, names[0])
    text = fields.text(letters)
    for letter in text:
        if letter not in LETTERS:
            raise fields.wrong(letters, text, "a string of M, *, - and E")
    return [LETTERS[letter] for letter in text] or None


def mixer(fields: Fields, kind: str, d: int) -> Spec:
    """The one sublayer of a block."""
    act, bias = fields.text("mlp_hidden_act"), fields.flag("mlp_bias")
    match kind:
        case "linear":
            return mamba(fields, d)
        case "full":
            return attention(fields, Layout(positions="none"), d)
        case "mlp":
            return FeedForward(d, fields.integer("intermediate_size"), False, act, bias)
        case _:
            shared, size = fields.integer("moe_shared_expert_intermediate_size"), fields.optional("moe_latent_size")
            latent = (("fc1_latent_proj.bias", size), ("fc2_latent_proj.bias", d)) if bias and size else ()
            return forward.routed(fields, MixtureOfExperts(
                d, fields.integer("n_routed_experts"), fields.integer("num_experts_per_tok"),
                fields.integer("moe_intermediate_size"), gated=False, activation=act, correction="buffer",
                shared=FeedForward(d, shared, False, act, bias),
                latent_size=size or 0, router_dtype="fp32",
                extra=tuple(Weight(name, (width,), "bias") for name, width in latent),
            ))  # fmt: skip


def mamba(fields: Fields, d: int) -> Mamba2:
    """Mamba-2 of ``mamba_num_heads`` x ``mamba_head_dim`` channels; ``expand`` is not used."""
    return Mamba2(
        d, fields.integer("mamba_num_heads"), fields.integer("mamba_head_dim"), fields.integer("ssm_state_size"),
        fields.integer("n_groups", "mamba_n_groups"), fields.integer("conv_kernel", "mamba_d_conv"),
        fields.integer("chunk_size", "mamba_chunk_size"), fields.flag("use_conv_bias", "mamba_conv_bias"),
        fields.flag("use_bias"), state_dtype=state_dtype(fields),
        norm_groups=fields.integer("n_groups", "mamba_n_groups"),
        norm_eps=forward.number(fields, "layer_norm_epsilon", null=1e-5),
        time_step_limit=(forward.number(fields, "time_step_min", null=0.0), float("inf")),
    )  # fmt: skip


def mtp(fields: Fields, d: int) -> tuple[Stack, ...]:
    """The prediction head: norms and a projection before its pattern of blocks, a norm after (vLLM nemotron_h_mtp)."""
    heads = fields.integer("num_nextn_predict_layers", low=0) if fields.has("num_nextn_predict_layers") else 0
    types = pattern(fields, "mtp_hybrid_override_pattern", "mtp_layers_block_type") or ["full", "moe"]
    if not heads:
        return ()
    norm = rms(d, fields)
    layers: list[Layer] = [single("mixer", mixer(fields, kind, d), norm) for kind in types]
    stem = (
        Named("mtp.layers.0.enorm", norm),
        Named("mtp.layers.0.hnorm", norm),
        Named("mtp.layers.0.eh_proj", Projection(d, 2 * d)),
    )
    last = (Named(f"mtp.layers.{len(types) - 1}.final_layernorm", norm),)
    return tuple(Stack("mtp", "mtp.layers", tuple(layers), stem, last) for _ in range(heads))
