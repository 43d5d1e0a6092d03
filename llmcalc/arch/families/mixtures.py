"""Families with experts that no row of the table describes: Llama-4, MiMo-V2-Flash, DBRX, JetMoE, Arctic."""

from __future__ import annotations

from collections.abc import Callable

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import FULL, Scope, Weight
from llmcalc.arch.families import forward
from llmcalc.arch.families.build import (
    block,
    decoder,
    divide,
    head_width,
    key_value_heads,
    layer_norm,
    layer_types,
    rms,
    rope,
)
from llmcalc.arch.families.moe import Experts, active, experts
from llmcalc.arch.families.placements import after_first, llama4_step, typed
from llmcalc.arch.families.windows import by_type
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Layer, Named, Parallel, Sublayer
from llmcalc.arch.moe import MixtureOfAttentionHeads, MixtureOfExperts
from llmcalc.errors import InvalidInputError


def llama4(fields: Fields) -> Architecture:
    """Llama-4: chunked layers with rotary positions, every fourth full without; experts beside a shared one."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    h = fields.integer("num_attention_heads")
    width, kv = head_width(fields, d, h), key_value_heads(fields, h)
    norm, act = rms(d, fields), fields.text("hidden_act", null="silu")
    f, bias = fields.integer("intermediate_size"), fields.flag("attention_bias")
    total = fields.integer("num_experts")
    k, shared = active(fields, total), FeedForward(d, f, True, act)
    moe = forward.routed(fields, MixtureOfExperts(d, total, k, f, True, act, shared=shared))
    sparse = llama4_step(fields, count)
    dense = None if all(sparse) else FeedForward(d, fields.integer("intermediate_size_mlp"), True, act)
    made: dict[tuple[Scope, bool], Layer] = {}
    layers = []
    for key in zip(llama4_scopes(fields, count), sparse, strict=True):
        if key not in made:
            scope, is_sparse = key
            mixer = Attention(
                d, h, kv, width, width, scope, bias, bias, bias, bias,
                qk_norm="weightless" if fields.flag("use_qk_norm") and scope.kind != "full" else "none",
                positions=rope(fields, width) if scope.kind != "full" else None, qk_norm_after_rope=True,
                qk_norm_eps=forward.number(fields, "rms_norm_eps", null=1e-5),
                temperature=llama4_temperature(fields) if scope.kind == "full" else None,
            )  # fmt: skip
            made[key] = block(mixer, moe if is_sparse else dense, norm, ffn_name="feed_forward")
        layers.append(made[key])
    return decoder(fields, layers, width=d, final=norm)


def llama4_temperature(fields: Fields) -> tuple[float, float, int] | None:
    """The scale of queries by their position in layers without rotary positions (arXiv:2501.19399)."""
    if not forward.flag(fields, "attn_temperature_tuning"):
        return None
    return forward.number(fields, "attn_scale", null=0.1), forward.number(fields, "floor_scale", null=8192.0), 1


def llama4_scopes(fields: Fields, count: int) -> list[Scope]:
    """``layer_types``, else ``no_rope_layers`` (0: no positions, full), else every fourth layer full."""
    types = layer_types(fields, count)
    if types is not None:
        return by_type(fields, types)
    chunk = fields.optional("attention_chunk_size")
    marks = fields.integers("no_rope_layers")
    every = fields.integer("no_rope_layer_interval", "nope_layer_interval", null=4)
    rotary = [bool(mark) for mark in marks] if marks else [(index + 1) % every != 0 for index in range(count)]
    if len(rotary) < count:
        raise fields.wrong("no_rope_layers", f"{len(rotary)} entries", f"one for each of {count} layers")
    return [Scope("chunked", chunk) if has_rope and chunk else FULL for has_rope in rotary[:count]]


def mimo(fields: Fields) -> Architecture:
    """MiMo-V2-Flash: sliding layers with heads, widths and sinks of their own; keys wider than values."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    norm = rms(d, fields)
    fields.ignore("attention_chunk_size", "n_shared_experts", "sliding_window")
    pattern = fields.integers("hybrid_layer_pattern")
    types = layer_types(fields, count)
    if pattern is not None:
        sliding = [mark == 1 for mark in pattern]
    elif types is not None:
        sliding = [kind == "sliding_attention" for kind in types]
    else:
        sliding = [index > 0 and (index + 1) % 6 != 0 for index in range(count)]
    sparse = after_first(fields, count) if fields.has("moe_layer_freq") else typed(fields, count)
    if not (fields.has("moe_layer_freq") or fields.has("mlp_layer_types")):
        sparse = [index > 0 for index in range(count)]
    if len(sliding) < count:
        raise fields.wrong("hybrid_layer_pattern", f"{len(sliding)} entries", f"one for each of {count} layers")
    moe = experts(fields, Experts(correction="buffer", fp32_router=True), d)
    dense = FeedForward(d, fields.integer("intermediate_size"), True, fields.text("hidden_act", null="silu"))
    mixers = {flag: mimo_attention(fields, d, sliding=flag) for flag in set(sliding[:count])}
    made = {
        key: block(mixers[key[0]], moe if key[1] else dense, norm)
        for key in {(a, b) for a, b in zip(sliding[:count], sparse, strict=True)}
    }
    layers = [made[key] for key in zip(sliding[:count], sparse, strict=True)]
    return decoder(fields, layers, width=d, final=norm)


def mimo_attention(fields: Fields, d: int, *, sliding: bool) -> Attention:
    """Full layers read the plain fields, sliding ones ``swa_*`` where given.

    ``sliding_window_size`` counts the earlier tokens a query sees; the library's ``sliding_window`` is one more.
    """
    prefix = "swa_" if sliding else ""

    def size(name: str) -> int:
        return fields.optional(prefix + name) or fields.integer(name)

    h = size("num_attention_heads")
    kv = fields.optional(prefix + "num_key_value_heads")
    kv = kv or fields.integer("num_key_value_heads") * (2 if sliding else 1)
    if h % kv:
        raise InvalidInputError(f"{fields.where}: {kv} key/value heads do not divide {h} query heads")
    window = fields.explicit("sliding_window_size")
    earlier = fields.integer("sliding_window_size") if isinstance(window, int) else fields.integer("sliding_window") - 1
    sinks = fields.flag(f"add_{'swa' if sliding else 'full'}_attention_sink_bias", null=sliding)
    theta = fields.number("swa_rope_theta", null=10_000.0) if sliding else None
    width, bias = size("head_dim"), fields.flag("attention_bias")
    return Attention(
        d, h, kv, width, size("v_head_dim"), Scope("sliding", earlier) if sliding else FULL,
        q_bias=bias, k_bias=bias, v_bias=bias, sinks=sinks,
        positions=rope(fields, width, "sliding_attention" if sliding else "full_attention", theta),
    )  # fmt: skip


def dbrx(fields: Fields) -> Architecture:
    """DBRX: its attention and its experts are blocks of their own in the file."""
    d, h = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    attn = fields.child("attn_config", model_type="dbrx") or fields.block({}, "attn_config", "dbrx")
    ffn = fields.child("ffn_config", model_type="dbrx") or fields.block({}, "ffn_config", "dbrx")
    width = divide(fields, d, h, "d_model / n_heads")
    kv = attn.integer("kv_n_heads", null=1)
    if h % kv:
        raise InvalidInputError(f"{fields.where}: attn_config.kv_n_heads is {kv}, which does not divide {h} heads")
    attn.ignore("clip_qkv")
    ffn.ignore("ffn_act_fn", "moe_normalize_expert_weights", "uniform_expert_assignment")
    fields.ignore("move_model_to_device")
    clip = forward.maybe(attn, "clip_qkv")
    mixer = Attention(d, h, kv, width, width, positions=rope(attn, width), clip=clip)
    total = ffn.integer("moe_num_experts", null=4)
    k = ffn.integer("moe_top_k", null=1)
    if k > total:
        raise InvalidInputError(f"{fields.where}: ffn_config.moe_top_k is {k}, more than {total} experts")
    moe = forward.routed(fields, MixtureOfExperts(d, total, k, ffn.integer("ffn_hidden_size", null=3584), True, "silu"))
    norm = layer_norm(d, fields, bias=False)
    layer = block(mixer, moe, norm)
    return decoder(fields, [layer] * fields.integer("num_hidden_layers"), width=d, final=norm)


def jetmoe(fields: Fields) -> Architecture:
    """JetMoE: experts in the feed-forward and in the query and output matrices of its attention."""
    d, kv, width = fields.integer("hidden_size"), fields.integer("num_key_value_heads"), fields.integer("kv_channels")
    total = fields.integer("num_experts")
    k = active(fields, total)
    f = fields.integer("intermediate_size")
    fields.ignore("num_attention_heads")
    mixer = MixtureOfAttentionHeads(d, total, k, kv, width, positions=rope(fields, width))
    bias = Weight("output_bias", (d,), "bias")
    moe = forward.routed(fields, MixtureOfExperts(d, total, k, f, True, "silu", extra=(bias,)))
    norm = rms(d, fields)
    layer = block(mixer, moe, norm)
    return decoder(fields, [layer] * fields.integer("num_hidden_layers"), width=d, final=norm)


def arctic(fields: Fields) -> Architecture:
    """Snowflake Arctic: every ``moe_layer_frequency``-th layer runs a dense branch beside its experts."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    h = fields.integer("num_attention_heads")
    width, kv = head_width(fields, d, h), key_value_heads(fields, h)
    every = fields.integer("moe_layer_frequency", null=2)
    f, norm = fields.integer("intermediate_size"), rms(d, fields)
    mixer = Attention(d, h, kv, width, width, positions=rope(fields, width))
    dense = FeedForward(d, f, True, "silu")
    total = fields.integer("num_experts")
    moe = forward.routed(fields, MixtureOfExperts(d, total, active(fields, total), f, True, "silu"))
    beside = bool(fields.flag("parallel_attn_mlp_res") | fields.flag("use_residual"))
    residual = FeedForward(d, d, True, "silu")
    both = Parallel((
        Sublayer("residual_mlp", residual, Named("residual_layernorm", norm)),
        Sublayer("block_sparse_moe", moe, Named("post_attention_layernorm", norm)),
    ))  # fmt: skip
    sparse = Layer((Sublayer("self_attn", mixer, Named("input_layernorm", norm)), Sublayer("", both)))
    if not beside:
        sparse = block(mixer, moe, norm)
    plain = block(mixer, dense, norm)
    layers = [sparse if (index + 1) % every == 0 else plain for index in range(count)]
    return decoder(fields, layers, width=d, final=norm)


READERS: dict[str, Callable[[Fields], Architecture]] = {
    "llama4_text": llama4,
    "mimo_v2_flash": mimo,
    "dbrx": dbrx,
    "jetmoe": jetmoe,
    "arctic": arctic,
}


def read(fields: Fields) -> Architecture:
    """A family by its model_type."""
    return READERS[fields.model_type](fields)
