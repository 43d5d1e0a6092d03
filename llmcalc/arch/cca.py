"""Attention whose queries and keys pass short convolutions, and half of whose values come from the token before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import ONCE, State, Weight, linear


@dataclass(frozen=True, slots=True)
class ConvolvedAttention(Attention):
    """Zaya's CCA (arXiv:2510.04476): a depthwise and then a grouped convolution over the q and k channels.

    Beside keys and values it keeps the convolutions' last inputs and the delayed half of the last token's values.
    """

    depthwise_kernel: int = 2
    grouped_kernel: int = 2

    @property
    def channels(self) -> int:
        """Channels of both convolutions: queries and keys."""
        return (self.num_attention_heads + self.num_key_value_heads) * self.head_dim

    def weights(self) -> Iterator[Weight]:
        d, channels = self.hidden_size, self.channels
        queries, keys = self.num_attention_heads * self.head_dim, self.num_key_value_heads * self.head_dim
        yield from linear("qkv_proj.q_proj", queries, d, bias=self.q_bias)
        yield from linear("qkv_proj.k_proj", keys, d, bias=self.k_bias)
        yield from linear("qkv_proj.v_proj_current", keys // 2, d, bias=self.v_bias)
        yield from linear("qkv_proj.v_proj_delayed", keys // 2, d, bias=self.v_bias)
        yield Weight("qkv_proj.conv_qk_depthwise.weight", (channels, 1, self.depthwise_kernel), "conv", split="column")
        yield Weight("qkv_proj.conv_qk_depthwise.bias", (channels,), "bias", split="column")
        grouped = (channels, self.head_dim, self.grouped_kernel)
        yield Weight("qkv_proj.conv_qk_grouped.weight", grouped, "conv", split="column")
        yield Weight("qkv_proj.conv_qk_grouped.bias", (channels,), "bias", split="column")
        yield Weight("qk_norm.temp", (self.num_key_value_heads,), "scalar", split="column")
        yield from linear("o_proj", d, queries, bias=self.o_bias, split="row")

    def state(self) -> Iterator[State]:
        yield from Attention.state(self)
        heads, kv = self.num_attention_heads + self.num_key_value_heads, self.num_key_value_heads
        columns = self.depthwise_kernel + self.grouped_kernel - 2
        yield State("conv_state", (heads, self.head_dim, columns), ONCE, "conv", "model")
        yield State("delayed_values", (kv * self.head_dim // 2,), ONCE, "recurrent", "model")

    def describe(self) -> str:
        return f"{Attention.describe(self)}, queries and keys behind two convolutions"
