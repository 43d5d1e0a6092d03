"""Looped decoders: the same blocks run several times, with a cache for every visit."""

from __future__ import annotations

from dataclasses import replace

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import Extra, Norm, Scope, Weight
from llmcalc.arch.families import windows
from llmcalc.arch.families.build import block, decoder, head_width, rope
from llmcalc.arch.families.dense import attention
from llmcalc.arch.families.layouts import Layout
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Call, Named


def read(fields: Fields) -> Architecture:
    """One of the looped classes."""
    return dory(fields) if fields.model_type == "dory" else hrm_text(fields)


def hrm_text(fields: Fields) -> Architecture:
    """HRM-Text: two stacks, a low one that runs ``L_cycles`` times and a high one after it, ``H_cycles`` times over.

    In a file that has ``num_layers_per_stack``, ``num_hidden_layers`` is the number of visits.
    """
    fields.ignore("L_bp_cycles", "embedding_scale", "prefix_lm")
    d, visits = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    count = fields.integer("num_layers_per_stack", null=visits)
    high, low = fields.integer("H_cycles"), fields.integer("L_cycles")
    heads, bias = fields.integer("num_attention_heads"), fields.flag("attention_bias")
    width = head_width(fields, d, heads)
    mixer = Attention(
        d, heads, heads, width, width, q_bias=bias, k_bias=bias, v_bias=bias, o_bias=bias, gate="elementwise",
        positions=rope(fields, width),
        extra=(Weight("gate_proj.bias", (heads * width,), "bias", split="column"),) if bias else (),
    )  # fmt: skip
    ffn = FeedForward(
        d, fields.integer("intermediate_size"), activation=fields.text("hidden_act"), bias=fields.flag("mlp_bias")
    )
    layer = block(mixer, ffn, Norm(d, learned=False))
    schedule, depth = [], 0
    for _ in range(high):
        for stack in (*[0] * low, 1):
            for index in range(count):
                schedule.append(Call(stack * count + index, depth))
                depth += 1
    start = Named("model", Extra((Weight("z_L_init", (d,), "scalar"),)))
    return decoder(
        fields, [layer] * (2 * count), width=d, final=Norm(d, learned=False), schedule=schedule, stem=[start]
    )


def dory(fields: Fields) -> Architecture:
    """Dory: input layers, a core that runs ``n_recurrent_loops`` times, output layers; nothing has a learned norm.

    Released files list attention and feed-forward as blocks of their own, two a layer.
    """
    d, types, halved = fields.integer("hidden_size"), fields.strings("layer_types"), 1
    count = fields.integer("num_hidden_layers")
    if types is not None and "mlp" in types:
        types, halved, count = types[::2], 2, count // 2
    types = types or ["sliding_attention" if (index + 1) % 4 else "full_attention" for index in range(count)]
    if len(types) < count:
        raise fields.wrong("layer_types", f"a list of {len(types)}", f"one entry for each of {count} layers")
    scopes = windows.by_type(fields, types[:count])
    first, last = (fields.integer(f"n_{name}_layers", low=0) // halved for name in ("input", "output"))
    core = fields.integer("n_recurrent_layers", null=0, low=0) // halved or count - first - last
    if core < 0 or first + core > count:
        raise fields.wrong("n_input_layers", first, f"input, looped and output layers that fit {count}")
    order = [*range(first), *[*range(first, first + core)] * fields.integer("n_recurrent_loops"),
             *range(count - last, count)]  # fmt: skip
    if fields.text("recurrent_kv_cache_mode") == "last_loop":
        fields.notes.warn("recurrent_kv_cache_mode is last_loop; a cache for every loop is counted")
    scales = Extra((Weight("lambda_1", (d,), "scalar"), Weight("lambda_2", (d,), "scalar")))
    layers = [
        block(dory_attention(fields, d, scope), dory_mlp(fields, d), None, residual=[Named("", scales)])
        for scope in scopes
    ]
    tail = [Named("lm_head", Extra((Weight("logit_scale", (fields.integer("vocab_size"),), "scalar"),)))]
    fields.ignore("ngpt_alpha_init", "sliding_window")
    return decoder(
        fields, layers, width=d, final=Norm(d, learned=False), tail=tail,
        schedule=[Call(block, depth) for depth, block in enumerate(order)],
    )  # fmt: skip


def dory_attention(fields: Fields, d: int, scope: Scope) -> Attention:
    """Gated attention with a learned scale for each query channel and one inside the gate."""
    base = attention(fields, Layout(qkv="?attention_bias", o="?attention_bias", gate="elementwise"), d, scope)
    width = base.num_attention_heads * base.head_dim
    extra = tuple(Weight(name, (width,), "scalar", split="column") for name in ("sqk", "s_gate"))
    return replace(base, extra=extra)


def dory_mlp(fields: Fields, d: int) -> FeedForward:
    """A gated feed-forward with a learned scale for each inner channel, twice."""
    width = fields.integer("intermediate_size")
    extra = tuple(Weight(name, (width,), "scalar", split="column") for name in ("suv_gate", "suv_up"))
    return FeedForward(d, width, activation=fields.text("hidden_act"), bias=fields.flag("mlp_bias"), extra=extra)
