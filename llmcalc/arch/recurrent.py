"""Other recurrent mixers: RG-LRU, RWKV-4 and RWKV-7."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmcalc.arch.base import ONCE, Norm, Spec, State, StateDtype, Step, Weight, linear, prefixed
from llmcalc.arch.linear import conv_state
from llmcalc.arch.mixing import Counting, Term, no_dense_count, recurrence


@dataclass(frozen=True, slots=True)
class RgLru(Spec):
    """RecurrentGemma's real-gated linear recurrent unit behind a convolution (arXiv:2402.19427)."""

    hidden_size: int
    lru_width: int
    num_heads: int
    conv_kernel: int
    state_dtype: StateDtype = "fp32"
    activation: str = "gelu_pytorch_tanh"
    part = "mixer"
    source = "arXiv:2402.19427"

    @property
    def kind(self) -> str:
        return "rglru"

    def weights(self) -> Iterator[Weight]:
        d, width, heads = self.hidden_size, self.lru_width, self.num_heads
        block = width // heads
        yield from linear("linear_x", width, d, bias=True)
        yield from linear("linear_y", width, d, bias=True)
        yield Weight("conv_1d.weight", (width, 1, self.conv_kernel), "conv", split="column")
        yield Weight("conv_1d.bias", (width,), "bias", split="column")
        yield Weight("rg_lru.recurrent_param", (width,), "scalar", split="column")
        for gate in ("input_gate", "recurrent_gate"):
            yield Weight(f"rg_lru.{gate}_weight", (heads, block, block), "matmul", split="column")
            yield Weight(f"rg_lru.{gate}_bias", (heads, block), "bias", split="column")
        yield from linear("linear_out", d, width, bias=True, split="row")

    def state(self) -> Iterator[State]:
        yield State("recurrent_state", (self.lru_width,), ONCE, "recurrent", self.state_dtype)
        yield conv_state("conv_state", self.lru_width, 1, self.conv_kernel)

    def describe(self) -> str:
        return f"RG-LRU keeps {self.lru_width:,} channels and {self.conv_kernel - 1} columns"


@dataclass(frozen=True, slots=True)
class Rwkv4(Spec):
    """RWKV-4's time mixing (arXiv:2305.13048): numerator, denominator and maximum per channel, and the last input."""

    hidden_size: int
    attention_size: int
    state_dtype: StateDtype = "fp32"
    part = "mixer"
    source = "arXiv:2305.13048"

    @property
    def kind(self) -> str:
        return "rwkv4"

    def weights(self) -> Iterator[Weight]:
        d, width = self.hidden_size, self.attention_size
        yield Weight("time_decay", (width,), "scalar", split="column")
        yield Weight("time_first", (width,), "scalar", split="column")
        for name in ("key", "value", "receptance"):
            yield Weight(f"time_mix_{name}", (1, 1, d), "scalar")
            yield from linear(name, width, d)
        yield from linear("output", d, width, split="row")

    def state(self) -> Iterator[State]:
        for name in ("numerator", "denominator", "maximum"):
            yield State(name, (self.attention_size,), ONCE, "recurrent", self.state_dtype)
        yield State("last_input", (self.hidden_size,), ONCE, "recurrent", "model", replicated=True)

    def describe(self) -> str:
        return f"RWKV-4 time mixing keeps four vectors of {self.attention_size:,}"


@dataclass(frozen=True, slots=True)
class Rwkv4ChannelMix(Spec):
    """RWKV-4's feed-forward: two matrices and a receptance gate; it too keeps the last input."""

    hidden_size: int
    intermediate_size: int
    part = "mlp"

    def weights(self) -> Iterator[Weight]:
        d, f = self.hidden_size, self.intermediate_size
        yield Weight("time_mix_key", (1, 1, d), "scalar")
        yield Weight("time_mix_receptance", (1, 1, d), "scalar")
        yield from linear("key", f, d)
        yield from linear("receptance", d, d)
        yield from linear("value", d, f, split="row")

    def state(self) -> Iterator[State]:
        yield State("last_input_ffn", (self.hidden_size,), ONCE, "recurrent", "model", replicated=True)

    def describe(self) -> str:
        return f"channel mixing of width {self.intermediate_size:,}"


@dataclass(frozen=True, slots=True)
class Rwkv7(Spec):
    """RWKV-7's time mixing (arXiv:2503.14456): heads of 64 x 64 state; low-rank decay, rate, value and gate.

    Ranks are those of the low-rank projections w (decay), a (rate), v (value, not in layer 0) and g (gate).
    """

    hidden_size: int
    head_dim: int
    decay_rank: int
    rate_rank: int
    value_rank: int
    gate_rank: int
    state_dtype: StateDtype = "fp32"
    part = "mixer"
    source = "arXiv:2503.14456"

    @property
    def kind(self) -> str:
        return "rwkv7"

    @property
    def num_heads(self) -> int:
        """Heads, each with a norm and a state of its own."""
        return self.hidden_size // self.head_dim

    def weights(self) -> Iterator[Weight]:
        d = self.hidden_size
        for name in ("x_r", "x_w", "x_k", "x_v", "x_a", "x_g"):
            yield Weight(name, (d,), "scalar")
        for name in ("k_k", "k_a", "r_k"):
            yield Weight(name, (d,), "scalar", split="column")
        for name in ("r_proj", "k_proj", "v_proj"):
            yield from linear(name, d, d)
        yield from linear("o_proj", d, d, split="row")
        ranks = (("w", self.decay_rank, True), ("a", self.rate_rank, True), ("v", self.value_rank, True))
        for name, rank, bias in (*ranks, ("g", self.gate_rank, False)):
            if rank:
                yield from linear(f"{name}_lora.0", rank, d, split="none")
                yield from linear(f"{name}_lora.2", d, rank, bias=bias)
        yield from prefixed("g_norm", (w._replace(split="column") for w in Norm(d, "layer", bias=True).weights()))

    def state(self) -> Iterator[State]:
        yield State(
            "recurrent_state", (self.num_heads, self.head_dim, self.head_dim), ONCE, "recurrent", self.state_dtype
        )
        yield State("last_input", (self.hidden_size,), ONCE, "recurrent", "model", replicated=True)

    def mixing_flops(self, step: Step, counting: Counting) -> Iterator[Term]:
        # 9 a number of state: decay 1, its removal along a 4, rank-1 update 2, read 2. No form in blocks is counted.
        if counting.dense:
            raise no_dense_count("RWKV-7")
        yield recurrence(step.new, self.num_heads, self.head_dim**2, 9, "arXiv:2503.14456, section 4")

    def describe(self) -> str:
        return f"RWKV-7 keeps {self.num_heads} states of {self.head_dim} x {self.head_dim}"


@dataclass(frozen=True, slots=True)
class Rwkv7ChannelMix(Spec):
    """RWKV-7's feed-forward: two matrices behind a token shift."""

    hidden_size: int
    intermediate_size: int
    part = "mlp"

    def weights(self) -> Iterator[Weight]:
        yield Weight("x_k", (self.hidden_size,), "scalar")
        yield from linear("key", self.intermediate_size, self.hidden_size)
        yield from linear("value", self.hidden_size, self.intermediate_size, split="row")

    def state(self) -> Iterator[State]:
        yield State("last_input_ffn", (self.hidden_size,), ONCE, "recurrent", "model", replicated=True)

    def describe(self) -> str:
        return f"channel mixing of width {self.intermediate_size:,}"
