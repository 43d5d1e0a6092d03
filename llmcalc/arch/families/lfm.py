"""Short convolutions beside attention: LFM2, LFM2-MoE, LFM3."""

from __future__ import annotations

from llmcalc.arch.base import FULL, Norm, Scope, Spec
from llmcalc.arch.conv import ShortConv
from llmcalc.arch.families import forward
from llmcalc.arch.families.build import block, decoder, embed, rms
from llmcalc.arch.families.dense import attention
from llmcalc.arch.families.hybrid import kinds
from llmcalc.arch.families.layouts import Layout
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Layer
from llmcalc.arch.moe import MixtureOfExperts

PRE = ("operator_norm", "", "ffn_norm", "")
SANDWICH = ("operator_norm", "post_operator_norm", "ffn_norm", "post_ffn_norm")

INERT = (
    "block_dim", "conv_dim", "conv_dim_out", "block_use_swiglu", "use_pos_enc", "block_mlp_init_scale",
    "block_out_init_scale", "norm_topk_prob", "conv_use_xavier_init", "block_use_xavier_init",
)  # fmt: skip


def read(fields: Fields) -> Architecture:
    """Convolutions, with attention where the list of layers says so."""
    fields.ignore(*INERT)
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    types = kinds(fields, count, rule(fields, count), ("conv", "full", "sliding"))
    fields.ignore("full_attn_idxs", "sliding_window", "conv_L_cache", "conv_bias")
    first = fields.integer("num_dense_layers", low=0) if fields.model_type == "lfm2_moe" else count
    dense, experts = feed_forward(fields, d, sparse=False), feed_forward(fields, d, sparse=first < count)
    made: dict[tuple[str, Spec], Layer] = {}
    layers = []
    for index, kind in enumerate(types):
        ffn = dense if index < first else experts
        if (kind, ffn) not in made:
            made[kind, ffn] = layer(fields, d, kind, ffn, rms(d, fields))
        layers.append(made[kind, ffn])
    return decoder(
        fields, layers, width=d, final=rms(d, fields), final_name="model.embedding_norm",
        embedding=embed(fields, d), tie=fields.flag("tie_embedding", "tie_word_embeddings"),
    )  # fmt: skip


def rule(fields: Fields, count: int) -> list[str]:
    """The class's own order where the file lists no kinds."""
    if fields.model_type == "lfm3":
        return ["full" if i % 4 == 2 else "sliding" if i % 4 == 0 and i else "conv" for i in range(count)]
    given = fields.integers("full_attn_idxs")
    chosen = set(range(count) if given is None else given)
    return ["full" if index in chosen else "conv" for index in range(count)]


def layer(fields: Fields, d: int, kind: str, ffn: Spec, norm: Norm) -> Layer:
    """One block; LFM3 has norms on both sides."""
    sandwich = fields.model_type == "lfm3" and fields.flag("use_sandwich_norm")
    names = SANDWICH if sandwich else PRE
    if kind == "conv":
        conv = ShortConv(d, fields.integer("conv_L_cache"), fields.flag("conv_bias"))
        return block(conv, ffn, norm, mixer_name="conv", ffn_name="feed_forward", names=names)
    gated = fields.model_type == "lfm3" and fields.flag("use_attention_gate")
    biased = fields.model_type == "lfm3" and fields.flag("attention_bias")
    layout = Layout(qkv=biased, o=biased, qk_norm="head", gate="per_head" if gated else "none")
    scope = Scope("sliding", fields.integer("sliding_window")) if kind == "sliding" else FULL
    return block(attention(fields, layout, d, scope), ffn, norm, ffn_name="feed_forward", names=names)


def feed_forward(fields: Fields, d: int, *, sparse: bool) -> Spec:
    """A gated feed-forward, or from ``num_dense_layers`` on experts with a stored balancing term."""
    if fields.model_type != "lfm2_moe":
        return FeedForward(d, width(fields))
    if not sparse:
        return FeedForward(d, fields.integer("intermediate_size"))
    return forward.routed(fields, MixtureOfExperts(
        d, fields.integer("num_experts"), fields.integer("num_experts_per_tok"),
        fields.integer("moe_intermediate_size"), correction="buffer" if fields.flag("use_expert_bias") else "none",
    ))  # fmt: skip


def width(fields: Fields) -> int:
    """LFM2 re-derives its width: two thirds, times a factor, rounded up to a multiple (12,288 becomes 8,192)."""
    size = fields.integer("block_ff_dim", "intermediate_size")
    fields.ignore("block_multiple_of", "block_ffn_dim_multiplier")
    if fields.model_type == "lfm3" or not fields.flag("block_auto_adjust_ff_dim"):
        return size
    multiple = fields.integer("block_multiple_of")
    size = int(fields.number("block_ffn_dim_multiplier", null=1.0) * int(2 * size / 3))
    if size < 1:
        raise fields.wrong("block_ffn_dim_multiplier", fields.raw("block_ffn_dim_multiplier"), "a positive factor")
    return -(-size // multiple) * multiple
