"""Lightning attention beside full attention: MiniMax-Text-01 and M1."""

from __future__ import annotations

from dataclasses import replace

from llmcalc.arch.families import forward
from llmcalc.arch.families.build import block, decoder, head_width, layer_types, rms
from llmcalc.arch.families.dense import attention
from llmcalc.arch.families.hybrid import named_kinds, state_dtype
from llmcalc.arch.families.layouts import Layout
from llmcalc.arch.fields import Fields
from llmcalc.arch.linear import DecayAttention
from llmcalc.arch.model import Architecture
from llmcalc.arch.moe import MixtureOfExperts

INERT = ("block_size", "postnorm", "shared_intermediate_size", "shared_moe_mode", "sliding_window")
FACTORS = (
    "full_attn_alpha_factor", "full_attn_beta_factor", "linear_attn_alpha_factor", "linear_attn_beta_factor",
    "mlp_alpha_factor", "mlp_beta_factor", "layernorm_full_attention_alpha", "layernorm_full_attention_beta",
    "layernorm_linear_attention_alpha", "layernorm_linear_attention_beta", "layernorm_mlp_alpha", "layernorm_mlp_beta",
)  # fmt: skip


def read(fields: Fields) -> Architecture:
    """MiniMax: ``layer_types``, or the original files' ``attn_type_list`` (1 full, 0 lightning); experts everywhere."""
    fields.ignore(*INERT, *FACTORS)
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    heads = fields.integer("num_attention_heads")
    width, norm = head_width(fields, d, heads), rms(d, fields)
    lightning = DecayAttention(
        d, heads, width, width, norm_size=heads * width, state_dtype=state_dtype(fields),
        layers=count,
    )  # fmt: skip
    ffn = forward.routed(fields, MixtureOfExperts(
        d, fields.integer("num_local_experts"), fields.integer("num_experts_per_tok"),
        fields.integer("intermediate_size"), activation=fields.text("hidden_act"),
    ))  # fmt: skip
    layers = {
        "full": replace(block(attention(fields, Layout(), d), ffn, norm), blend=blend(fields, "full_attn")),
        "linear": replace(block(lightning, ffn, norm), blend=blend(fields, "linear_attn")),
    }
    return decoder(fields, [layers[kind] for kind in order(fields, count)], width=d, final=norm)


def blend(fields: Fields, kind: str) -> tuple[tuple[float, float], ...]:
    """The factors of stream and output at attention and feed-forward, under either of their spellings."""
    long = "full_attention" if kind == "full_attn" else "linear_attention"
    return tuple(
        (
            forward.number(fields, f"{short}_alpha_factor", f"layernorm_{spelled}_alpha", null=1.0),
            forward.number(fields, f"{short}_beta_factor", f"layernorm_{spelled}_beta", null=1.0),
        )
        for short, spelled in ((kind, long), ("mlp", "mlp"))
    )


def order(fields: Fields, count: int) -> list[str]:
    """The kind of each layer; by class every other one is full, the first included."""
    types = layer_types(fields, count)
    if types is not None:
        fields.ignore("attn_type_list")
        return named_kinds(fields, types, ("linear", "full"))
    flags = fields.integers("attn_type_list")
    if flags is None:
        return ["linear" if index % 2 else "full" for index in range(count)]
    if len(flags) < count or any(flag > 1 for flag in flags):
        raise fields.wrong("attn_type_list", flags, f"0 or 1 for each of {count} layers")
    return ["full" if flag else "linear" for flag in flags[:count]]
