"""Linear attention: a matrix of state per head instead of keys and values, updated by a rule and read by the query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from llmcalc.arch.base import ONCE, Norm, Spec, State, StateDtype, Step, Weight, linear, prefixed
from llmcalc.arch.mixing import Counting, Term, blockwise, no_dense_count, recurrence

DELTA_BLOCK = 64  # tokens that the kernels of flash-linear-attention and the library take together
LIGHTNING_BLOCK = 256
DELTA_RULE = "arXiv:2406.06484, section 3.2; 2412.06464, section 3.3"
SOURCES = {"lightning": "arXiv:2401.04658, section 3.2", "retention": "arXiv:2307.08621, eq. 7",
           "gla": "arXiv:2312.06635, section 3"}  # fmt: skip
MLSTM = "arXiv:2405.04517, section 2.3"


def conv_state(name: str, groups: int, width: int, kernel: int) -> State:
    """The last ``kernel`` - 1 inputs of a causal depthwise convolution over ``groups`` x ``width`` channels."""
    return State(name, (groups, width, kernel - 1), ONCE, "conv", "model")


def delta_rule(step: Step, counting: Counting, heads: int, dk: int, dv: int) -> Iterator[Term]:
    """Operations of a delta rule; its blocks form k k^T, q k^T and three products with values, and solve a triangle.

    Token by token 7 a number of state: decay 1, read by k 2, rank-1 update 2, read by q 2. The library does that, and
    the triangle, element-wise, so that a counter of products sees neither.
    """
    if counting.scan == "recurrent":
        if not counting.dense:
            yield recurrence(step.new, heads, dk * dv, 7, DELTA_RULE)
        return
    squared, linear = 2 * (2 * dk + dv), 6 * dk * dv
    yield from blockwise(step.new, DELTA_BLOCK, heads, squared, linear, padded=counting.dense, source=DELTA_RULE)
    if not counting.dense:
        pairs = blockwise(step.new, DELTA_BLOCK, heads, dk + dv, 0, padded=False, source=DELTA_RULE)[0]
        yield pairs._replace(name="triangular solves")


@dataclass(frozen=True, slots=True)
class GatedDelta(Spec):
    """Gated delta rule (arXiv:2412.06464): value heads of key x value state, one convolution over q, k and v.

    layout: ``fused`` Qwen3-Next's qkvz and ba matrices, ``split`` Qwen3.5's qkv, z, b and a, ``separate`` one matrix
    and one convolution each (OLMo-Hybrid, FLA): names differ, sizes do not.
    """

    hidden_size: int
    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    state_dtype: StateDtype = "fp32"
    norm: bool = True
    extra: tuple[Weight, ...] = ()
    layout: Literal["fused", "split", "separate"] = "split"
    norm_eps: float = 1e-6
    negative: bool = False
    part = "mixer"
    source = "arXiv:2412.06464"

    @property
    def kind(self) -> str:
        return "linear_attention"

    def weights(self) -> Iterator[Weight]:
        separate, values = self.layout == "separate", self.num_value_heads * self.value_head_dim
        for name, rows in self._projections():
            yield from linear(name, rows, self.hidden_size)
        for name, channels in self._convolutions():
            yield Weight(f"{name}.weight", (channels, 1, self.conv_kernel), "conv", split="column")
        yield Weight("A_log", (self.num_value_heads,), "scalar", split="column")
        yield Weight("dt_bias", (self.num_value_heads,), "scalar", split="column")
        yield from prefixed("o_norm" if separate else "norm", Norm(self.value_head_dim).weights())
        yield from linear("o_proj" if separate else "out_proj", self.hidden_size, values, split="row")
        yield from self.extra

    def _projections(self) -> tuple[tuple[str, int], ...]:
        keys, values = self.num_key_heads * self.key_head_dim, self.num_value_heads * self.value_head_dim
        heads = self.num_value_heads
        match self.layout:
            case "fused":
                return ("in_proj_qkvz", 2 * keys + 2 * values), ("in_proj_ba", 2 * heads)
            case "split":
                qkv = ("in_proj_qkv", 2 * keys + values)
                return qkv, ("in_proj_z", values), ("in_proj_b", heads), ("in_proj_a", heads)
            case "separate":
                wide = (("q_proj", keys), ("k_proj", keys), ("v_proj", values), ("g_proj", values))
                return *wide, ("b_proj", heads), ("a_proj", heads)

    def _convolutions(self) -> tuple[tuple[str, int], ...]:
        keys, values = self.num_key_heads * self.key_head_dim, self.num_value_heads * self.value_head_dim
        if self.layout == "separate":
            return ("q_conv1d", keys), ("k_conv1d", keys), ("v_conv1d", values)
        return (("conv1d", 2 * keys + values),)

    def state(self) -> Iterator[State]:
        heads, dk, dv = self.num_value_heads, self.key_head_dim, self.value_head_dim
        yield State("recurrent_state", (heads, dk, dv), ONCE, "recurrent", self.state_dtype)
        yield conv_state("conv_state_qk", self.num_key_heads, 2 * dk, self.conv_kernel)
        yield conv_state("conv_state_v", heads, dv, self.conv_kernel)

    def mixing_flops(self, step: Step, counting: Counting) -> Iterator[Term]:
        return delta_rule(step, counting, self.num_value_heads, self.key_head_dim, self.value_head_dim)

    def describe(self) -> str:
        return (
            f"a gated delta rule keeps {self.num_value_heads} states of {self.key_head_dim} x {self.value_head_dim} "
            f"({self.num_key_heads} key heads) and {self.conv_kernel - 1} columns of convolution"
        )


@dataclass(frozen=True, slots=True)
class KimiDelta(Spec):
    """Kimi delta attention (arXiv:2510.26692): a decay per channel; q, k and v each with a convolution.

    decay, gate: ``low_rank`` lin(d, head_dim) + lin(head_dim, q), or ``full`` lin(d, q).
    """

    hidden_size: int
    num_heads: int
    head_dim: int
    conv_kernel: int
    decay: Literal["low_rank", "full"] = "low_rank"
    gate: Literal["low_rank", "full"] = "low_rank"
    state_dtype: StateDtype = "fp32"
    norm_eps: float = 1e-5
    part = "mixer"
    source = "arXiv:2510.26692"

    @property
    def kind(self) -> str:
        return "linear_attention"

    def weights(self) -> Iterator[Weight]:
        d, width = self.hidden_size, self.num_heads * self.head_dim
        for name in ("q", "k", "v"):
            yield from linear(f"{name}_proj", width, d)
            yield Weight(f"{name}_conv1d.weight", (width, 1, self.conv_kernel), "conv", split="column")
        yield from self._projection("f", self.decay)
        yield Weight("dt_bias", (width,), "scalar", split="column", dtype="fp32")
        yield Weight("A_log", (self.num_heads,), "scalar", split="column", dtype="fp32")
        yield from linear("b_proj", self.num_heads, d)
        yield from self._projection("g", self.gate)
        yield from prefixed("o_norm", Norm(self.head_dim).weights())
        yield from linear("o_proj", d, width, split="row")

    def _projection(self, name: str, form: str) -> Iterator[Weight]:
        width = self.num_heads * self.head_dim
        if form == "full":
            yield from linear(f"{name}_proj", width, self.hidden_size)
        else:
            yield from linear(f"{name}_a_proj", self.head_dim, self.hidden_size, split="none")
            yield from linear(f"{name}_b_proj", width, self.head_dim)

    def state(self) -> Iterator[State]:
        heads, width = self.num_heads, self.head_dim
        yield State("recurrent_state", (heads, width, width), ONCE, "recurrent", self.state_dtype)
        yield conv_state("conv_state", heads, 3 * width, self.conv_kernel)

    def mixing_flops(self, step: Step, counting: Counting) -> Iterator[Term]:
        return delta_rule(step, counting, self.num_heads, self.head_dim, self.head_dim)

    def describe(self) -> str:
        return (
            f"Kimi delta attention keeps {self.num_heads} states of {self.head_dim} x {self.head_dim} "
            f"and {self.conv_kernel - 1} columns of three convolutions"
        )


@dataclass(frozen=True, slots=True)
class DecayAttention(Spec):
    """Linear attention with a decay: lightning (fixed slopes), retention (fixed), GLA (learned, low rank).

    ``conv_kernel``: FLA's optional convolutions on q, k and v (0: none). ``gate``: on the output, lin(d, values).
    Source: arXiv:2401.04658 (lightning), 2307.08621 (retention), 2312.06635 (GLA).
    """

    hidden_size: int
    num_heads: int
    key_head_dim: int
    value_head_dim: int
    rule: Literal["lightning", "retention", "gla"] = "lightning"
    gate_rank: int = 0
    norm_size: int = 0
    qk_norm: bool = False
    state_dtype: StateDtype = "fp32"
    extra: tuple[Weight, ...] = ()
    gate: bool = True
    bias: bool = False
    out_bias: bool = False
    conv_kernel: int = 0
    norm_eps: float = 1e-6
    layers: int = 1
    part = "mixer"
    source = "arXiv:2401.04658, 2307.08621, 2312.06635"

    @property
    def kind(self) -> str:
        return "linear_attention"

    def weights(self) -> Iterator[Weight]:
        d, keys, values = self.hidden_size, self.num_heads * self.key_head_dim, self.num_heads * self.value_head_dim
        for name, width in (("q", keys), ("k", keys), ("v", values)):
            yield from linear(f"{name}_proj", width, d, bias=self.bias)
            if self.conv_kernel:
                yield Weight(f"{name}_conv1d.weight", (width, 1, self.conv_kernel), "conv", split="column")
        if self.gate_rank:
            yield from linear("gk_a_proj", self.gate_rank, d, split="none")
            yield from linear("gk_b_proj", keys, self.gate_rank, bias=True)
        if self.gate:
            yield from linear("g_proj", values, d)
        if self.norm_size:
            yield from prefixed("norm", Norm(self.norm_size).weights())
        if self.qk_norm:
            yield Weight("q_norm.weight", (self.key_head_dim,), "norm")
            yield Weight("k_norm.weight", (self.key_head_dim,), "norm")
        yield from linear("o_proj", d, values, bias=self.out_bias, split="row")
        yield from self.extra

    def state(self) -> Iterator[State]:
        row = (self.num_heads, self.key_head_dim, self.value_head_dim)
        yield State("recurrent_state", row, ONCE, "recurrent", self.state_dtype)
        if self.conv_kernel:
            width = 2 * self.key_head_dim + self.value_head_dim
            yield conv_state("conv_state", self.num_heads, width, self.conv_kernel)

    def mixing_flops(self, step: Step, counting: Counting) -> Iterator[Term]:
        dk, dv = self.key_head_dim, self.value_head_dim
        if counting.dense and self.rule != "lightning":
            raise no_dense_count(f"{self.rule} attention")
        source = SOURCES[self.rule]
        if counting.scan == "chunked":
            size = LIGHTNING_BLOCK if self.rule == "lightning" else DELTA_BLOCK
            per_pair, per_token = 2 * (dk + dv), 4 * dk * dv
            return iter(blockwise(step.new, size, self.num_heads, per_pair, per_token, padded=False, source=source))
        return iter((recurrence(step.new, self.num_heads, dk * dv, 4 if counting.dense else 5, source),))

    def describe(self) -> str:
        return f"{self.rule} attention keeps {self.num_heads} states of {self.key_head_dim} x {self.value_head_dim}"


@dataclass(frozen=True, slots=True)
class MatrixMemory(Spec):
    """xLSTM's mLSTM (arXiv:2405.04517): a matrix, a normaliser and a stabiliser per head."""

    hidden_size: int
    num_heads: int
    key_head_dim: int
    value_head_dim: int
    bias: bool = False
    norm_bias: bool = False
    state_dtype: StateDtype = "fp32"
    part = "mixer"
    source = "arXiv:2405.04517"

    @property
    def kind(self) -> str:
        return "mlstm"

    def weights(self) -> Iterator[Weight]:
        d, keys, values = self.hidden_size, self.num_heads * self.key_head_dim, self.num_heads * self.value_head_dim
        yield from linear("q", keys, d, bias=self.bias)
        yield from linear("k", keys, d, bias=self.bias)
        yield from linear("v", values, d, bias=self.bias)
        yield from linear("ogate_preact", values, d, bias=self.bias)
        yield from linear("igate_preact", self.num_heads, d, bias=True)
        yield from linear("fgate_preact", self.num_heads, d, bias=True)
        norm = Norm(values, "layer", bias=self.norm_bias)  # of each head alone
        yield from prefixed("multihead_norm", (weight._replace(split="column") for weight in norm.weights()))
        yield from linear("out_proj", d, values, bias=self.bias, split="row")

    def state(self) -> Iterator[State]:
        heads, dk, dv = self.num_heads, self.key_head_dim, self.value_head_dim
        yield State("matrix_memory", (heads, dk, dv), ONCE, "recurrent", self.state_dtype)
        yield State("normaliser", (heads, dk), ONCE, "recurrent", self.state_dtype)
        yield State("stabiliser", (heads,), ONCE, "recurrent", self.state_dtype)

    def mixing_flops(self, step: Step, counting: Counting) -> Iterator[Term]:
        dk, dv = self.key_head_dim, self.value_head_dim
        if counting.dense:
            raise no_dense_count("mLSTM")
        if counting.scan == "chunked":
            per_pair, per_token, size = 2 * (dk + dv), 4 * dk * dv, DELTA_BLOCK
            return iter(blockwise(step.new, size, self.num_heads, per_pair, per_token, padded=False, source=MLSTM))
        return iter((recurrence(step.new, self.num_heads, dk * dv, 5, MLSTM),))

    def describe(self) -> str:
        return f"an mLSTM keeps {self.num_heads} states of {self.key_head_dim} x {self.value_head_dim}"
