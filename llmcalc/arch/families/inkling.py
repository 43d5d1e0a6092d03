"""Inkling, Inkling-2 and its looped variant: convolved attention with a bias by distance, experts in most layers."""

from __future__ import annotations

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import FULL, Extra, Scope, Spec, Weight
from llmcalc.arch.convolved import ConvolvedAttention
from llmcalc.arch.families import forward
from llmcalc.arch.families.build import block, decoder, embed, layer_types, rms
from llmcalc.arch.families.moe import active
from llmcalc.arch.families.placements import typed
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Call, Layer, Named
from llmcalc.arch.moe import MixtureOfExperts
from llmcalc.arch.residual import AttentionResidual
from llmcalc.errors import InvalidInputError

INERT = (
    "log_scaling_n_floor", "log_scaling_alpha", "route_scale", "logits_mup_width_multiplier", "num_mtp_layers",
    "chain_hidden_post_norm", "mtp_hidden_states_first", "mtp_local_layer_ids", "number_of_conv_states",
    "shared_expert_sink", "qk_l2_clip_threshold", "rel_l2_clip_threshold", "n_layers_per_attn_res_block", "loop_config",
    "unpadded_vocab_size", "dense_mlp_idx", "local_layer_ids", "sliding_window_size", "swa_num_attention_heads",
    "swa_num_key_value_heads", "swa_head_dim", "num_key_value_heads", "num_attention_heads", "head_dim",
    "intermediate_size", "dense_intermediate_size", "rms_norm_eps_moe_gate", "tie_word_embeddings",
)  # fmt: skip


def read(fields: Fields) -> Architecture:
    """A family by its model_type."""
    built = inkling(fields) if fields.model_type == "inkling_text" else inkling2(fields)
    fields.ignore(*INERT)
    return built


def kinds(fields: Fields, count: int) -> list[bool]:
    """Which layers slide: as the file lists them, else all but every sixth."""
    types, local = layer_types(fields, count), fields.integers("local_layer_ids")
    if types is not None:
        return [kind in ("hybrid_sliding", "sliding_attention") for kind in types]
    chosen = set(local or ())
    return [bool((index + 1) % 6) if local is None else index in chosen for index in range(count)]


def mixer(fields: Fields, d: int, *, slides: bool, second: bool = False) -> ConvolvedAttention:
    """The attention of one kind of layer; sliding layers have heads of their own and a bias as wide as the window."""
    prefix = "swa_" if slides else ""
    h, kv = fields.integer(f"{prefix}num_attention_heads"), fields.integer(f"{prefix}num_key_value_heads")
    width = fields.integer(f"{prefix}head_dim")
    if h % kv:
        raise InvalidInputError(f"{fields.where}: {kv} key/value heads do not divide {h} query heads")
    window = fields.integer("sliding_window_size")
    return ConvolvedAttention(
        d, h, kv, width, width, Scope("sliding", window) if slides else FULL,
        qk_norm="none" if second else "head", gate="elementwise" if second else "none",
        relative_size=fields.integer("d_rel"), relative_extent=window if slides else fields.integer("rel_extent"),
        conv_kernel=fields.integer("conv_kernel_size"), clipped=second, dynamic=second and not slides,
    )  # fmt: skip


def convolutions(fields: Fields, d: int) -> Named:
    """The convolutions on the outputs of both sublayers."""
    shape = (d, 1, fields.integer("conv_kernel_size"))
    return Named("", Extra(tuple(Weight(f"{name}_sconv.weight", shape, "conv") for name in ("attn", "mlp"))))


def normed_embedding(fields: Fields, d: int) -> tuple[Named, Named]:
    """The token table, and the norm of what is read from it."""
    return embed(fields, d), Named("model.embed_tokens.embed_norm", rms(d, fields))


# -- Inkling -------------------------------------------------------------------------------------------------------


def inkling(fields: Fields) -> Architecture:
    """Inkling: the router weighs the shared experts too."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    slides = kinds(fields, count)
    dense = fields.integer("dense_mlp_idx", null=0, low=0)
    sparse = typed(fields, count) if fields.has("mlp_layer_types") else [index >= dense for index in range(count)]
    # A file with dense_intermediate_size has the experts' width in intermediate_size.
    width = fields.optional("dense_intermediate_size")
    inner = fields.integer("intermediate_size") if width else fields.integer("moe_intermediate_size")
    act = fields.text("hidden_act")
    ffns: dict[bool, Spec] = {True: inkling_experts(fields, d, inner, act)} if any(sparse) else {}
    if not all(sparse):
        scale = (Weight("global_scale", (1,), "scalar"),)
        ffns[False] = FeedForward(d, width or fields.integer("intermediate_size"), activation=act, extra=scale)
    norm, beside = rms(d, fields), [convolutions(fields, d)]
    mixers: dict[bool, Attention] = {flag: mixer(fields, d, slides=flag) for flag in dict.fromkeys(slides)}
    keys = list(zip(slides, sparse, strict=True))
    made = {key: block(mixers[key[0]], ffns[key[1]], norm, residual=beside) for key in dict.fromkeys(keys)}
    table, first = normed_embedding(fields, d)
    return decoder(fields, [made[key] for key in keys], width=d, final=norm, embedding=table, stem=[first], tie=False)


def inkling_experts(fields: Fields, d: int, width: int, act: str) -> MixtureOfExperts:
    """Routed experts, and shared ones that the same router weighs."""
    total, shared = fields.integer("num_experts"), fields.integer("n_shared_experts", null=0, low=0)
    router = (
        Weight("gate.weight", (total + shared, d), "router", dtype="fp32"),
        Weight("gate.global_scale", (1,), "scalar"),
        Weight("gate.e_score_correction_bias", (total,), "buffer", dtype="fp32"),
    )
    return forward.routed(fields, MixtureOfExperts(
        d, total, active(fields, total), width, activation=act, router=False, router_extra=router,
        shared=FeedForward(d, shared * width, activation=act) if shared else None,
    ))  # fmt: skip


# -- Inkling-2 -----------------------------------------------------------------------------------------------------


def inkling2(fields: Fields) -> Architecture:
    """Inkling-2: sublayers read earlier blocks of the stream; the looped variant runs its middle several times."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    slides, total = kinds(fields, count), fields.integer("num_experts")
    ffn = forward.routed(fields, MixtureOfExperts(
        d, total, active(fields, total), fields.integer("moe_intermediate_size"), activation=fields.text("hidden_act"),
        correction="buffer", router_dtype="fp32",
    ))  # fmt: skip
    first, last, passes, rank = loop(fields, count)
    norm = rms(d, fields)
    made: dict[tuple[bool, bool, bool], Layer] = {}
    keys = [(slides[index], index == 0, first <= index < last) for index in range(count)]
    for key in keys:
        if key not in made:
            beside = [
                convolutions(fields, d),
                *residual(d, slides=key[0], start=key[1]),
                *gates(d, rank if key[2] else 0),
            ]
            made[key] = inkling2_layer(
                mixer(fields, d, slides=key[0], second=True), ffn, norm_names(key[0]), beside, d, fields
            )
    order = [*range(first), *[*range(first, last)] * passes, *range(last, count)]
    table, normed = normed_embedding(fields, d)
    tail = [Named("model.final_input", AttentionResidual(d))]
    if passes > 1:
        query = Weight("model.message_input.query", (last - first, 4, d), "scalar")
        tail.append(Named("", Extra((query,))))
    return decoder(
        fields, [made[key] for key in keys], width=d, final=norm, embedding=table, stem=[normed], tail=tail, tie=False,
        head_rows=fields.integer("unpadded_vocab_size"),
        schedule=[Call(index, depth) for depth, index in enumerate(order)],
    )  # fmt: skip


def loop(fields: Fields, count: int) -> tuple[int, int, int, int]:
    """First looped layer, the one after the last, passes, and the rank of the gates on messages."""
    if fields.model_type != "inkling2_loop_text":
        return count, count, 1, 0
    nested = fields.child("loop_config")

    def size(name: str, inner: str, low: int) -> int:
        given = None if nested is None else nested.optional(inner, low=low)
        return fields.integer(name, low=low) if given is None else given

    first, last = size("loop_layer_index_start", "core_start", 1), size("loop_layer_index_end", "core_end", 0)
    if not 0 < first <= last <= count:
        raise fields.wrong("loop_layer_index_end", last, f"loop layers {first} to {last} within {count}")
    return first, last, size("loop_num_passes", "num_passes", 1), size("loop_gate_rank", "gate_rank", 1)


def norm_names(slides: bool) -> tuple[str, ...]:
    """Norms before the attention: one, or one each for queries, keys and values in full layers."""
    return ("input_layernorm",) if slides else ("q_input_layernorm", "k_input_layernorm", "v_input_layernorm")


def residual(d: int, *, slides: bool, start: bool) -> list[Named]:
    """Sites that read earlier blocks; the first layer's attention has nothing to read."""
    sites = [Named("mlp_input", AttentionResidual(d))]
    if start:
        return sites
    return [Named("attention_input", AttentionResidual(d, 1 if slides else 3)), *sites]


def gates(d: int, rank: int) -> list[Named]:
    """Low-rank gates on the messages of the pass before, for queries, keys, values and the experts."""
    if not rank:
        return []
    wide = ("down_proj", (rank, 2 * d)), ("forget_gate_proj", (d, rank)), ("message_gate_proj", (d, rank))
    tensors = tuple(Weight(f"{name}.weight", shape) for name, shape in wide)
    return [Named(f"{part}_message_gate", Extra(tensors)) for part in ("q", "k", "v", "mlp")]


def inkling2_layer(
    attention: Attention, ffn: Spec, names: tuple[str, ...], beside: list[Named], d: int, fields: Fields
) -> Layer:
    """A block whose attention has one norm before it or three."""
    norm = rms(d, fields)
    base = block(attention, ffn, norm, names=(names[0], "", "", ""), residual=beside)
    more = tuple(Named(name, norm) for name in names[1:])
    return Layer(base.sublayers, (*more, *base.residual))
