"""Recurrent decoders: RecurrentGemma, RWKV-4, xLSTM."""

from __future__ import annotations

from dataclasses import replace

from llmcalc.arch.base import Scope
from llmcalc.arch.families.build import block, decoder, divide, embed, layer_norm, rms
from llmcalc.arch.families.dense import attention
from llmcalc.arch.families.hybrid import named_kinds, scaled, state_dtype
from llmcalc.arch.families.layouts import Layout
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.linear import MatrixMemory
from llmcalc.arch.model import Architecture, Named
from llmcalc.arch.recurrent import RgLru, Rwkv4, Rwkv4ChannelMix

XLSTM_INERT = (
    "norm_reduction_force_float32", "add_out_norm", "chunkwise_kernel", "sequence_kernel", "step_kernel", "mode",
    "chunk_size", "return_last_states", "autocast_kernel_dtype", "weight_mode", "max_inference_chunksize",
    "force_bos_token_insert", "add_embedding_dropout", "add_post_blocks_norm", "add_forward_backend_padding",
)  # fmt: skip


def read(fields: Fields) -> Architecture:
    """One of the three classes."""
    return {"recurrent_gemma": recurrent_gemma, "rwkv": rwkv, "xlstm": xlstm}[fields.model_type](fields)


def recurrent_gemma(fields: Fields) -> Architecture:
    """RG-LRU layers and sliding attention in a repeated pattern; the feed-forward is half as wide as the file says."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    cycle = fields.strings("block_types")
    if not cycle:
        raise fields.wrong("block_types", cycle, "a list of recurrent and attention")
    types = named_kinds(fields, cycle, ("linear", "full"), "block_types")
    heads = fields.integer("num_attention_heads")
    divide(fields, d, heads, "hidden_size / num_attention_heads")
    width = fields.integer("lru_width", null=d)
    divide(fields, width, heads, "lru_width / num_attention_heads")
    size = divide(fields, fields.integer("intermediate_size"), 2, "intermediate_size / 2")
    ffn = FeedForward(d, size, activation=fields.text("hidden_activation"), bias=True)
    scope = Scope("sliding", fields.integer("attention_window_size"))
    layout, norm = Layout(qkv="?attention_bias", o=True), rms(d, fields, offset=True)
    names = ("temporal_pre_norm", "", "channel_pre_norm", "")
    mixers = {
        "full": attention(fields, layout, d, scope),
        "linear": RgLru(
            d,
            width,
            heads,
            fields.integer("conv1d_width"),
            state_dtype(fields),
            fields.text("hidden_activation", null="gelu_pytorch_tanh"),
        ),
    }
    layers = {
        kind: block(mixer, ffn, norm, mixer_name="temporal_block", ffn_name="mlp_block", names=names)
        for kind, mixer in mixers.items()
    }
    fields.ignore("w_init_variance_scale", "final_w_init_variance_scale", "embeddings_scale_by_sqrt_dim")
    made = [layers[types[index % len(types)]] for index in range(count)]
    return decoder(fields, made, width=d, final=norm, final_name="model.final_norm")


def rwkv(fields: Fields) -> Architecture:
    """RWKV-4: time mixing and channel mixing; the first block norms the embeddings too."""
    fields.ignore("rescale_every")
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    mixer = Rwkv4(d, fields.integer("attention_hidden_size", null=d), state_dtype(fields))
    ffn, norm = Rwkv4ChannelMix(d, fields.integer("intermediate_size", null=4 * d)), layer_norm(d, fields)
    layer = block(mixer, ffn, norm, mixer_name="attention", ffn_name="feed_forward", names=("ln1", "", "ln2", ""))
    return decoder(
        fields, [layer] * count, width=d, final=norm, prefix="rwkv.blocks",
        embedding=embed(fields, d, "rwkv.embeddings"), stem=[Named("rwkv.blocks.0.pre_ln", norm)],
        final_name="rwkv.ln_out", max_positions=fields.optional("context_length"),
    )  # fmt: skip


def xlstm(fields: Fields) -> Architecture:
    """xLSTM-7B: an mLSTM and a gated feed-forward a block."""
    d, count, heads = fields.integer("hidden_size"), fields.integer("num_hidden_layers"), fields.integer("num_heads")
    for twin, size in (("embedding_dim", d), ("num_blocks", count)):
        if fields.has(twin) and fields.integer(twin) != size:
            raise fields.wrong(twin, fields.integer(twin), f"{size}, as the same size is under its other name")
    keys, values = scaled(fields, "qk_dim_factor", d), scaled(fields, "v_dim_factor", d)
    key = divide(fields, keys, heads, "the width of queries and keys / num_heads")
    value = divide(fields, values, heads, "the width of values / num_heads")
    bias = fields.flag("use_bias")
    mixer = MatrixMemory(d, heads, key, value, bias, bias, state_dtype(fields, "inference_state_dtype"))
    multiple, factor = fields.integer("ffn_round_up_to_multiple_of"), fields.number("ffn_proj_factor")
    if not 0 < factor < 2**20:
        raise fields.wrong("ffn_proj_factor", factor, "a positive factor")
    width = int((factor * d + multiple - 1) // multiple) * multiple
    ffn, norm = FeedForward(d, width, bias=bias), replace(rms(d, fields), bias=bias)
    layer = block(mixer, ffn, norm, mixer_name="mlstm_layer", ffn_name="ffn", names=("norm_mlstm", "", "norm_ffn", ""))
    fields.ignore(*XLSTM_INERT)
    return decoder(
        fields, [layer] * count, width=d, final=rms(d, fields), prefix="backbone.blocks",
        final_name="backbone.out_norm", embedding=embed(fields, d, "backbone.embeddings"),
    )  # fmt: skip
