"""Inkling's attention: keys and values pass short convolutions, and a learned bias depends on the distance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import State, Step, Weight, linear
from llmcalc.arch.linear import conv_state
from llmcalc.arch.mixing import Counting, Term, no_dense_count


@dataclass(frozen=True, slots=True)
class ConvolvedAttention(Attention):
    """Grouped attention with causal convolutions of ``conv_kernel`` taps on keys, values and both sublayers' outputs.

    relative_size: numbers a head from which a table of ``relative_extent`` distances makes its bias on the scores.
    clipped: Inkling-2's learned scales of queries and of those numbers, and sinks made from the stream.
    dynamic: the convolutions on keys and values add taps that each token makes for itself.
    The two convolutions on outputs are stored beside the sublayers; what they keep is counted here.
    Source: modeling_inkling.py, modeling_inkling2.py of transformers 5.24.
    """

    relative_size: int = 16
    relative_extent: int = 1024
    conv_kernel: int = 4
    clipped: bool = False
    dynamic: bool = False
    source = "modeling_inkling.py, modeling_inkling2.py of transformers 5.24"

    def weights(self) -> Iterator[Weight]:
        yield from Attention.weights(self)
        h, numbers = self.num_attention_heads, self.relative_size
        yield from linear("r_proj", h * numbers, self.hidden_size)
        yield Weight("rel_logits_proj.proj", (numbers, self.relative_extent), "scalar")
        if self.clipped:
            yield from linear("sink_proj", h, self.hidden_size)
            yield Weight("q_scale", (h, self.head_dim), "scalar", split="column")
            yield Weight("r_scale", (h, numbers), "scalar", split="column")
        for name, width in (("k", self.head_dim), ("v", self.v_head_dim)):
            kv = self.num_key_value_heads
            yield Weight(f"{name}_sconv.weight", (kv * width, 1, self.conv_kernel), "conv", split="column")
            if self.dynamic:
                yield from linear(f"{name}_sconv.weight_proj", kv * self.conv_kernel, self.hidden_size)

    def state(self) -> Iterator[State]:
        yield from Attention.state(self)
        kv, kernel = self.num_key_value_heads, self.conv_kernel
        yield conv_state("conv_state_k", kv, self.head_dim, kernel)
        yield conv_state("conv_state_v", kv, self.v_head_dim, kernel)
        for name in ("attention", "mlp"):
            yield conv_state(f"conv_state_{name}", self.hidden_size, 1, kernel)._replace(replicated=True)

    def mixing_flops(self, step: Step, counting: Counting) -> Iterator[Term]:
        if counting.dense:
            raise no_dense_count("attention with convolved keys")
        yield from Attention.mixing_flops(self, step, counting)
        each = (("", 2), ("heads", self.num_attention_heads), ("numbers", self.relative_size))
        yield Term("bias by distance", "attention", "tokens", step.new, (*each, ("distances", self.relative_extent)))

    def describe(self) -> str:
        return f"{Attention.describe(self)}; convolutions keep {self.conv_kernel - 1} columns"
