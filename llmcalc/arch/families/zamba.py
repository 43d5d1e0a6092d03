"""Zamba and Zamba2: mamba layers, and one or more transformer blocks that are stored once and called at many depths."""

from __future__ import annotations

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import Extra, Spec, Weight
from llmcalc.arch.embedding import Projection
from llmcalc.arch.families import forward
from llmcalc.arch.families.build import decoder, divide, key_value_heads, rms, rope
from llmcalc.arch.families.hybrid import kinds, mamba1, scaled, state_dtype
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Call, Layer, Named, Sublayer
from llmcalc.arch.ssm import Mamba2

INERT = (
    "use_mamba_kernels", "num_logits_to_keep", "use_mem_eff_path", "kv_channels", "num_query_groups",
    "hybrid_layer_ids",
    "mamba_headdim", "use_shared_mlp_adapter", "use_long_context",
    "use_conv_bias", "mamba_dt_rank", "adapter_rank", "num_mem_blocks", "ffn_hidden_size", "use_associative_scan",
    "mamba_conv_bias", "gated_linear_unit", "vocab_size_original", "attn_layer_period", "attn_layer_offset",
)  # fmt: skip


def read(fields: Fields) -> Architecture:
    """Each layer has its mamba; at a hybrid layer a shared block runs first and its output is added to the input.

    The shared blocks stand after the layers in the stack; the schedule calls them at the depths of the hybrid layers,
    each with a cache of its own.
    """
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    types = kinds(fields, count, rule(fields, count), ("linear", "hybrid"))
    second = fields.model_type == "zamba2"
    scan = mamba2(fields, d) if second else mamba1(
        fields, d, scaled(fields, "mamba_expand", d), heads=fields.integer("n_mamba_heads")
    )  # fmt: skip
    copies = fields.integer("num_mem_blocks") if second else 1
    shared = shared_block(fields, d)
    plain, hybrid = mamba_layer(fields, scan, ()), mamba_layer(fields, scan, adapters(fields, d))
    layers = [hybrid if kind == "hybrid" else plain for kind in types]
    calls, met = [], 0
    for depth, kind in enumerate(types):
        if kind == "hybrid":
            calls.append(Call(count + met % copies, depth))
            met += 1
        calls.append(Call(depth, depth))
    blocks = [shared] * min(copies, met)
    fields.ignore(*INERT)
    return decoder(
        fields, [*layers, *blocks], width=d, final=rms(d, fields), final_name="model.final_layernorm", schedule=calls
    )


def rule(fields: Fields, count: int) -> list[str]:
    """The classes' own order where the file lists no kinds."""
    if fields.model_type == "zamba2":
        ids = fields.integers("hybrid_layer_ids")
        if ids is not None:
            chosen = set(ids)
            return ["hybrid" if index in chosen else "linear" for index in range(count)]
        group = ["linear"] * 5 + ["hybrid"]
        types = ["linear", *group * 7, *["linear"] * 4, "hybrid", *["linear"] * 3, "hybrid", "linear", "linear"]
        if len(types) != count:
            raise fields.wrong(
                "layers_block_type", None, f"a list of {count} kinds (the class has one of {len(types)})"
            )
        return types
    period, offset = fields.integer("attn_layer_period"), fields.integer("attn_layer_offset", low=0)
    types = ["linear", "linear", "hybrid"]
    types += ["hybrid" if index % period == offset else "linear" for index in range(max(0, count - 3))]
    return types[:count]


def mamba2(fields: Fields, d: int) -> Mamba2:
    """Zamba2's mixer: its convolution is always biased, ``add_bias_linear`` goes for both projections."""
    inner, heads = scaled(fields, "mamba_expand", d), fields.integer("n_mamba_heads")
    return Mamba2(
        d, heads, divide(fields, inner, heads, "the mamba width / n_mamba_heads"), fields.integer("mamba_d_state"),
        fields.integer("mamba_ngroups"), fields.integer("mamba_d_conv"), fields.integer("chunk_size"), True,
        fields.flag("add_bias_linear"), state_dtype=state_dtype(fields), norm_groups=fields.integer("mamba_ngroups"),
        time_step_limit=forward.time_steps(fields),
    )  # fmt: skip


def mamba_layer(fields: Fields, scan: Spec, own: tuple[Named, ...]) -> Layer:
    """A mamba behind one norm; ``own``: what a call site of the shared block stores itself."""
    prefix = "mamba_decoder." if own else ""
    norm = rms(fields.integer("hidden_size"), fields)
    return Layer((Sublayer(f"{prefix}mamba", scan, Named(f"{prefix}input_layernorm", norm)),), own)


def shared_block(fields: Fields, d: int) -> Layer:
    """A transformer block over the stream beside the embeddings: attention reads 2 d channels and writes d."""
    heads, second = fields.integer("num_attention_heads"), fields.model_type == "zamba2"
    kv = key_value_heads(fields, heads)
    inner, width = joined(fields, d), fields.optional("attention_head_dim")
    width = width or divide(fields, 2 * d, heads, "2 x hidden_size / num_attention_heads")
    rotates = second and fields.flag("use_mem_rope")
    mixer = Attention(
        inner, heads, kv, width, width, positions=rope(fields, width) if rotates else None, output_size=d,
        scale=(width / 2) ** -0.5,
    )  # fmt: skip
    size = fields.integer("intermediate_size", null=4 * d)
    bias = second and fields.flag("add_bias_linear")
    ffn = FeedForward(d, size, activation=fields.text("hidden_act"), bias=bias)
    name = "shared_transformer" if second else "shared_transf"
    return Layer((
        Sublayer(f"{name}.self_attn", mixer, Named(f"{name}.input_layernorm", rms(inner, fields))),
        Sublayer(f"{name}.feed_forward", ffn, Named(f"{name}.pre_ff_layernorm", rms(d, fields))),
    ))  # fmt: skip


def joined(fields: Fields, d: int) -> int:
    """Channels that the shared block reads: the stream beside the embeddings."""
    return fields.integer("attention_hidden_size", null=2 * d)


def adapters(fields: Fields, d: int) -> tuple[Named, ...]:
    """What a call site owns: a matrix after the shared block, and in Zamba2 low-rank additions to its projections."""
    own = [Named("linear", Projection(d, d))]
    if fields.model_type != "zamba2":
        return tuple(own)
    rank, size = fields.integer("adapter_rank"), fields.integer("intermediate_size", null=4 * d)
    name = "shared_transformer.feed_forward.gate_up_proj_adapter_list"
    own.append(Named(name, Extra(low_rank("", d, rank, 2 * size), "mlp")))
    if fields.flag("use_shared_attention_adapter"):
        wide = joined(fields, d)
        parts = [low_rank(f"linear_{part}_adapter_list.", wide, rank, wide) for part in "qkv"]
        tensors = tuple(tensor for pair in parts for tensor in pair)
        own.append(Named("shared_transformer.self_attn", Extra(tensors, "attention")))
    return tuple(own)


def low_rank(name: str, inputs: int, rank: int, outputs: int) -> tuple[Weight, Weight]:
    """Two matrices down to the rank and up again."""
    return Weight(f"{name}0.weight", (rank, inputs)), Weight(f"{name}1.weight", (outputs, rank), split="column")
