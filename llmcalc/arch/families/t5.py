"""T5 and its kin: RMS norms before each part, no biases, a relative bias in the first layer of each stack."""

from __future__ import annotations

from dataclasses import replace

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import BIDIRECTIONAL, FULL, SOURCE, Norm, Scope, Spec
from llmcalc.arch.families import forward
from llmcalc.arch.families.build import embed, rms, table
from llmcalc.arch.families.pairs import assemble, vector
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Layer, Named, Stack, StackName, Sublayer
from llmcalc.arch.moe import MixtureOfExperts
from llmcalc.arch.positions import RelativeBias

INERT = (
    "is_gated_act", "dense_act_fn", "scale_decoder_outputs", "is_decoder", "n_positions", "expert_capacity",
    "router_ignore_padding_tokens", "add_router_probs", "add_cross_attention", "global_block_size", "local_radius",
    "num_sparse_encoder_layers", "num_sparse_decoder_layers", "classifier_dropout",
)  # fmt: skip


def read(fields: Fields) -> Architecture:
    """Both stacks; a file that says ``tie_word_embeddings: false`` holds an output matrix of its own.

    The library's T5 class ties whatever the file says; the published v1.1 and FLAN files do hold an ``lm_head``.
    """
    fields.ignore(*INERT)
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    layers = fields.integer("num_decoder_layers", null=count)
    tie = fields.flag("tie_word_embeddings", null=True)
    tokens = embed(fields, d, "shared")
    encoder, decoder = stack(fields, "encoder", d, count), stack(fields, "decoder", d, layers)
    scaled = forward.flag(fields, "scale_decoder_outputs", null=tie)
    return assemble(fields, encoder, decoder, tokens, width=d, tie=tie, scale=d**-0.5 if scaled else 1.0)


def stack(fields: Fields, name: StackName, d: int, count: int) -> Stack:
    """One of the two streams. Tables of relative distances stand outside the layers, which are thus all alike."""
    norm = rms(d, fields)
    dense = feed_forward(fields, d)
    sparse = experts(fields, d) if fields.model_type == "switch_transformers" else None
    chosen = sparse_layers(fields, name, count) if sparse is not None else set()
    own = attention(fields, d, FULL if name == "decoder" else BIDIRECTIONAL)
    made: dict[bool, Layer] = {}
    for is_sparse in {index in chosen for index in range(count)}:
        made[is_sparse] = layer(fields, name, own, sparse if is_sparse and sparse is not None else dense, norm)
    layers = tuple(made[index in chosen] for index in range(count))
    tail = (Named(f"{name}.final_layer_norm", norm),)
    return Stack(name, f"{name}.block", layers, tuple(tables(fields, name, count)), tail)


def attention(fields: Fields, d: int, scope: Scope) -> Attention:
    """Heads of ``d_kv``, whatever d / heads is."""
    h, width = fields.integer("num_attention_heads"), fields.integer("head_dim")
    buckets = fields.integer("relative_attention_num_buckets")
    bias = RelativeBias(buckets, h, fields.integer("relative_attention_max_distance", null=128))
    return Attention(
        d,
        h,
        h,
        width,
        width,
        scope,
        cache="none" if scope.kind == "bidirectional" else "own",
        positions=bias,
        scale=1.0,
    )


def layer(fields: Fields, name: StackName, own: Attention, ffn: Spec, norm: Norm) -> Layer:
    """Self-attention, in the decoder attention to the source, then the feed-forward."""
    kind, d = "SelfAttention", own.hidden_size
    parts: list[tuple[str, Spec]] = []
    if name == "encoder" and fields.model_type == "longt5":
        wide = fields.pick("encoder_attention_type", of=("local", "transient-global")) == "transient-global"
        kind = "TransientGlobalSelfAttention" if wide else "LocalSelfAttention"
        own = replace(
            own, scope=Scope("bidirectional", fields.integer("local_radius")),
            extra=(vector("global_input_layer_norm", d),) if wide else (),
        )  # fmt: skip
    parts.append((kind, own))
    if name == "decoder":
        parts.append(("EncDecAttention", replace(own, scope=SOURCE, positions=None)))
    parts.append(("DenseReluDense" if isinstance(ffn, FeedForward) else "mlp", ffn))
    return Layer(
        tuple(
            Sublayer(f"layer.{index}.{part}", spec, Named(f"layer.{index}.layer_norm", norm))
            for index, (part, spec) in enumerate(parts)
        )
    )


def feed_forward(fields: Fields, d: int) -> FeedForward:
    """Gated where ``is_gated_act`` or ``feed_forward_proj`` says so (v1.1, FLAN, mT5)."""
    form = fields.text("feed_forward_proj", null="relu")
    act = "gelu_new" if form == "gated-gelu" else form.removeprefix("gated-")
    gated = fields.flag("is_gated_act") if fields.has("is_gated_act") else form.startswith("gated-")
    return FeedForward(d, fields.integer("intermediate_size"), gated, act)


def tables(fields: Fields, name: StackName, count: int) -> list[Named]:
    """The relative biases: the first layer's in T5, every layer's in UMT5."""
    buckets, h = fields.integer("relative_attention_num_buckets"), fields.integer("num_attention_heads")
    owners = range(count if fields.model_type == "umt5" else min(1, count))
    kinds = ["SelfAttention.relative_attention_bias"]
    if name == "encoder" and fields.model_type == "longt5":
        wide = fields.text("encoder_attention_type") == "transient-global"
        root = "TransientGlobalSelfAttention" if wide else "LocalSelfAttention"
        kinds = [f"{root}.relative_attention_bias"] + [f"{root}.global_relative_attention_bias"] * wide
    return [table(f"{name}.block.{index}.layer.0.{kind}", buckets, h) for index in owners for kind in kinds]


def experts(fields: Fields, d: int) -> MixtureOfExperts:
    """Switch: plain experts, one a token (arXiv:2101.03961)."""
    width = fields.integer("intermediate_size")
    return MixtureOfExperts(
        d, fields.integer("num_experts"), 1, width, gated=False, activation=fields.text("dense_act_fn", null="relu"),
        router_bias=fields.flag("router_bias"),
    )  # fmt: skip


def sparse_layers(fields: Fields, name: StackName, count: int) -> set[int]:
    """Layer i where i % step is 1; the step is given or follows from the number of sparse layers."""
    sparse = fields.integer(f"num_sparse_{name}_layers", null=0, low=0)
    step = fields.integer(f"{name}_sparse_step", null=count // sparse if sparse else count, low=0)
    if step == 0:
        return set()
    return {index for index in range(count) if step == 1 or index % step == 1}
