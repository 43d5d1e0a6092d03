"""Pieces of a config.json for models that scan, convolve or keep further streams, from a GGUF header."""

from __future__ import annotations

from collections.abc import Callable

from llmcalc.errors import MalformedConfigError, UnsupportedArchitectureError
from llmcalc.sources.gguf_metadata import Fields, Gguf
from llmcalc.sources.gguf_pieces import depth, experts, ratio


def mamba(g: Gguf) -> Fields:
    """Mamba-1 alone."""
    return {
        "intermediate_size": g.number("ssm.inner_size"), "state_size": g.number("ssm.state_size"),
        "time_step_rank": g.number("ssm.time_step_rank"), "conv_kernel": g.number("ssm.conv_kernel"),
        "use_conv_bias": g.has("blk.*.ssm_conv1d.bias"), "use_bias": False,
    }  # fmt: skip


def mamba2(g: Gguf) -> Fields:
    """Mamba-2 alone; what the file calls the rank of time steps is the number of heads."""
    inner, count = g.number("ssm.inner_size"), g.number("ssm.time_step_rank")
    return {
        "num_heads": count, "head_dim": ratio(g, inner, count), "expand": ratio(g, inner, g.number("embedding_length")),
        "state_size": g.number("ssm.state_size"), "n_groups": g.number("ssm.group_count"),
        "conv_kernel": g.number("ssm.conv_kernel"), "use_conv_bias": g.has("blk.*.ssm_conv1d.bias"), "use_bias": False,
    }  # fmt: skip


def ssm(g: Gguf) -> Fields:
    """Mamba-2 beside attention (Granite-4-H, Bamba, Falcon-H1)."""
    inner, count = g.number("ssm.inner_size"), g.number("ssm.time_step_rank")
    return {
        "mamba_n_heads": count, "mamba_d_head": ratio(g, inner, count), "mamba_d_state": g.number("ssm.state_size"),
        "mamba_n_groups": g.number("ssm.group_count"), "mamba_d_conv": g.number("ssm.conv_kernel"),
        "mamba_conv_bias": g.has("blk.*.ssm_conv1d.bias"), "mamba_proj_bias": False,
    }  # fmt: skip


def expand(g: Gguf) -> Fields:
    """The width of the scan as a multiple of the stream's."""
    return {"mamba_expand": ratio(g, g.number("ssm.inner_size"), g.number("embedding_length"))}


def kinds(attention: str, other: str, marker: str = "attn_q.weight") -> Callable[[Gguf], Fields]:
    """Which layers attend, as the tensors say; ``attention`` and ``other``: the class's words."""

    def piece(g: Gguf) -> Fields:
        names = ("attn_qkv.weight", marker)
        attends = [any(f"blk.{i}.{name}" in g.shapes for name in names) for i in range(depth(g))]
        return {"layer_types": [attention if does else other for does in attends]}

    return piece


def jamba(g: Gguf) -> Fields:
    """Jamba: periods of attention and of experts from where they stand."""
    attends = [i for i in range(depth(g)) if f"blk.{i}.attn_q.weight" in g.shapes]
    sparse = [i for i in range(depth(g)) if f"blk.{i}.ffn_gate_inp.weight" in g.shapes]
    fields: Fields = {
        "layers_block_type": ["attention" if i in set(attends) else "mamba" for i in range(depth(g))],
        "mamba_expand": ratio(g, g.number("ssm.inner_size"), g.number("embedding_length")),
        "mamba_d_state": g.number("ssm.state_size"), "mamba_dt_rank": g.number("ssm.time_step_rank"),
        "mamba_d_conv": g.number("ssm.conv_kernel"), "mamba_conv_bias": g.has("blk.*.ssm_conv1d.bias"),
        "mamba_proj_bias": False, "num_experts": max(g.number("expert_count", 0), 1),
        "num_experts_per_tok": max(g.number("expert_used_count", 0), 1),
    }  # fmt: skip
    fields |= _period(g, "attn_layer", attends)
    return fields | _period(g, "expert_layer", sparse)


def _period(g: Gguf, name: str, places: list[int]) -> Fields:
    """A first place and a step; every place must follow from the two."""
    layers = depth(g)
    first = places[0] if places else 0
    step = places[1] - first if len(places) > 1 else max(layers, 1)
    if places != (list(range(first, layers, step)) if places else []):
        raise UnsupportedArchitectureError(
            f"{g.where}: {g.arch}: {name}s do not stand at regular intervals: {places[:8]}"
        )
    return {f"{name}_period": step, f"{name}_offset": first}


def nemotron_h(g: Gguf) -> Fields:
    """Nemotron-H: one kind of sublayer a block, read from its tensors."""
    marks = (("ssm_in.weight", "M"), ("attn_q.weight", "*"), ("ffn_gate_inp.weight", "E"), ("ffn_up.weight", "-"))
    pattern = ""
    for index in range(depth(g)):
        pattern += next((mark for name, mark in marks if f"blk.{index}.{name}" in g.shapes), "?")
    if "?" in pattern:
        raise MalformedConfigError(f"{g.where}: {g.arch}: block {pattern.index('?')} has no tensors of a known kind")
    inner, count = g.number("ssm.inner_size"), g.number("ssm.time_step_rank")
    fields: Fields = {
        "hybrid_override_pattern": pattern, "mamba_num_heads": count, "mamba_head_dim": ratio(g, inner, count),
        "ssm_state_size": g.number("ssm.state_size"), "n_groups": g.number("ssm.group_count"),
        "conv_kernel": g.number("ssm.conv_kernel"), "use_conv_bias": g.has("blk.*.ssm_conv1d.bias"), "use_bias": False,
        "intermediate_size": g.rows("blk.*.ffn_up.weight"), "mlp_bias": g.has("blk.*.ffn_up.bias"),
    }  # fmt: skip
    if "E" in pattern:
        found = experts(g)
        fields |= {
            "n_routed_experts": found["num_experts"], "num_experts_per_tok": found["num_experts_per_tok"],
            "moe_intermediate_size": found["moe_intermediate_size"],
            "moe_shared_expert_intermediate_size": g.rows("blk.*.ffn_up_shexp.weight") or 0,
            "moe_latent_size": g.number("moe_latent_size", 0) or None, "n_shared_experts": 1,
        }  # fmt: skip
    return fields


def short_conv(g: Gguf) -> Fields:
    """LFM2: short convolutions and a few layers of attention."""
    return {
        "conv_L_cache": g.number("shortconv.l_cache"), "conv_bias": g.has("blk.*.shortconv.conv.bias"),
        **kinds("full_attention", "conv")(g),
    }  # fmt: skip


def gated_delta(g: Gguf) -> Fields:
    """Qwen3-Next and Qwen3.5: gated delta layers, full attention in one of four."""
    inner, values = g.number("ssm.inner_size"), g.number("ssm.time_step_rank")
    return {
        "linear_num_value_heads": values, "linear_num_key_heads": g.number("ssm.group_count"),
        "linear_key_head_dim": g.number("ssm.state_size"), "linear_value_head_dim": ratio(g, inner, values),
        "linear_conv_kernel_dim": g.number("ssm.conv_kernel"),
        **kinds("full_attention", "linear_attention", "attn_k.weight")(_without_fused(g)),
    }  # fmt: skip


def _without_fused(g: Gguf) -> Gguf:
    """A view in which the fused projections of delta layers are not taken for attention."""
    view = object.__new__(Gguf)
    view.where, view.metadata, view.arch, view.dtypes = g.where, g.metadata, g.arch, g.dtypes
    view.shapes = {name: shape for name, shape in g.shapes.items() if not name.endswith("attn_qkv.weight")}
    return view


def gemma3n(g: Gguf) -> Fields:
    """Gemma-3n: streams, side paths and per-layer inputs."""
    width = g.number("embedding_length_per_layer_input")
    return {
        "hidden_size_per_layer_input": width, "num_kv_shared_layers": g.number("attention.shared_kv_layers", 0),
        "altup_num_inputs": g.number("altup.num_inputs"), "laurel_rank": g.rows("blk.*.laurel_l.weight"),
        "vocab_size_per_layer_input": g.rows("per_layer_token_embd.weight"),
    }  # fmt: skip


def gemma4(g: Gguf) -> Fields:
    """Gemma-4: full layers of wider heads, which may take values from keys; caches shared by the upper layers."""
    full, sliding = g.number("attention.key_length"), g.number("attention.key_length_swa")
    pattern = g.numbers("attention.sliding_window_pattern") or []
    wide = [index for index, slides in enumerate(pattern[: depth(g)]) if not slides]
    narrow = [index for index, slides in enumerate(pattern[: depth(g)]) if slides]
    borrowed = g.number("attention.shared_kv_layers", 0)
    own = [index for index in wide if index < depth(g) - borrowed]
    tied = bool(own) and f"blk.{own[0]}.attn_v.weight" not in g.shapes
    fields: Fields = {
        "num_attention_heads": g.number("attention.head_count"), "head_dim": sliding, "global_head_dim": full,
        "num_key_value_heads": _kv(g, narrow, sliding), "attention_k_eq_v": tied, "num_kv_shared_layers": borrowed,
        "num_global_key_value_heads": _kv(g, own, full) if tied else None, "use_double_wide_mlp": False,
        "hidden_size_per_layer_input": g.number("embedding_length_per_layer_input", 0),
        "vocab_size_per_layer_input": g.rows("per_layer_token_embd.weight"),
        "intermediate_size": g.numbers("feed_forward_length"), "enable_moe_block": bool(g.number("expert_count", 0)),
    }  # fmt: skip
    if fields["enable_moe_block"]:
        found = experts(g)
        fields |= {**found, "top_k_experts": found["num_experts_per_tok"]}
        del fields["num_experts_per_tok"]
    return fields


def _kv(g: Gguf, layers: list[int], width: int) -> int:
    rows = next((g.shapes[name][0] for i in layers if (name := f"blk.{i}.attn_k.weight") in g.shapes), None)
    return ratio(g, rows, width) if rows else g.number("attention.head_count_kv")
