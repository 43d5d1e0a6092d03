"""LongCat-Flash: two latent attentions and two dense feed-forwards a layer, experts beside them."""

from __future__ import annotations

from llmcalc.arch.families.build import decoder, rms
from llmcalc.arch.families.latent import latent
from llmcalc.arch.families.moe import active
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Layer, Named, Sublayer
from llmcalc.arch.moe import MixtureOfExperts


def read(fields: Fields) -> Architecture:
    """LongCat-Flash: each layer holds two latent attentions, two dense feed-forwards, and experts beside them.

    Zero experts enlarge the router and own nothing; they make k an upper bound on the experts computed.
    """
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    norm, mixer = rms(d, fields), latent(fields, d)
    act = fields.text("hidden_act", null="silu")
    dense = FeedForward(d, fields.integer("intermediate_size"), True, act)
    total = fields.integer("num_experts")
    moe = MixtureOfExperts(
        d, total, min(active(fields, total), total), fields.integer("moe_intermediate_size"), True, act,
        router_bias=fields.flag("router_bias"), correction="buffer", router_dtype="fp32",
        zero_experts=fields.integer("zero_expert_num", null=0, low=0),
    )  # fmt: skip
    halves = [
        (
            Sublayer(f"self_attn.{i}", mixer, Named(f"input_layernorm.{i}", norm)),
            Sublayer(f"mlps.{i}", dense, Named(f"post_attention_layernorm.{i}", norm)),
        )
        for i in (0, 1)
    ]
    layer = Layer((*halves[0], Sublayer("mlp", moe), *halves[1]))
    return decoder(fields, [layer] * count, width=d, final=norm)
