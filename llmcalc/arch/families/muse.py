"""Muse-Spark: gated attention with weightless norms, experts at a narrower width, gates on the residual."""

from __future__ import annotations

from llmcalc.arch.base import Extra, Scope, Spec, Weight
from llmcalc.arch.families import forward
from llmcalc.arch.families.build import block, decoder, rms
from llmcalc.arch.families.dense import attention
from llmcalc.arch.families.layouts import Layout
from llmcalc.arch.families.moe import active
from llmcalc.arch.families.placements import typed
from llmcalc.arch.families.windows import layer_scopes
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Layer, Named
from llmcalc.arch.moe import MixtureOfExperts

LAYOUT = Layout(qkv="?attention_bias", o="?attention_bias", qk_norm="weightless", gate="elementwise")
FULL_LAYOUT = LAYOUT._replace(positions="none")


def read(fields: Fields) -> Architecture:
    """Muse-Spark's language model."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    sparse = typed(fields, count) if fields.has("mlp_layer_types") else [True] * count
    ffns: dict[bool, Spec] = {True: experts(fields, d)} if any(sparse) else {}
    if not all(sparse):
        ffns[False] = FeedForward(d, fields.integer("intermediate_size"), activation=fields.text("hidden_act"))
    fields.ignore(
        "intermediate_size", "layer_rope_theta", "qk_scale_factor", "output_multiplier", "residual_gate_temperature"
    )
    norm = rms(d, fields)
    gates = [Named("", Extra(tuple(Weight(f"post_{part}_residual_gate.gate", (d,), "scalar") for part in PARTS)))]
    made: dict[tuple[Scope, bool], Layer] = {}
    keys = list(zip(layer_scopes(fields, "from_end", count), sparse, strict=True))
    for scope, is_sparse in keys:
        if (scope, is_sparse) not in made:
            # Full layers have no positions; the norm after the attention has no weight.
            mixer = attention(fields, FULL_LAYOUT if scope.kind == "full" else LAYOUT, d, scope)
            made[scope, is_sparse] = block(mixer, ffns[is_sparse], norm, names=NAMES, residual=gates)
    return decoder(fields, [made[key] for key in keys], width=d, final=norm)


PARTS = ("attention", "feedforward")
NAMES = ("input_layernorm", "", "pre_feedforward_layernorm", "post_feedforward_layernorm")


def experts(fields: Fields, d: int) -> MixtureOfExperts:
    """Experts that work at ``moe_hidden_size``, between two projections with a norm each."""
    count, inner = fields.integer("num_experts"), fields.integer("moe_hidden_size")
    return forward.routed(fields, MixtureOfExperts(
        d, count, active(fields, count), fields.integer("moe_intermediate_size"), activation=fields.text("hidden_act"),
        correction="buffer", latent_size=inner, latent_norm=True, router_dtype="fp32",
        extra=(Weight("experts.post_expert_norm.weight", (inner,), "norm"),),
    ))  # fmt: skip
