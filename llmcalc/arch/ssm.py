"""Selective state-space models: Mamba 1 and Mamba 2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmcalc.arch.base import ONCE, Norm, Spec, Split, State, StateDtype, Step, Weight, linear, prefixed
from llmcalc.arch.linear import conv_state
from llmcalc.arch.mixing import Counting, Term, recurrence, whole_blocks

MAMBA = "arXiv:2312.00752, section 3.3 and algorithm 2"
SSD = "arXiv:2405.21060, section 6 and listing 1"


@dataclass(frozen=True, slots=True)
class Mamba1(Spec):
    """Mamba (arXiv:2312.00752): ``inner`` channels of ``state_size`` numbers; its convolution covers x alone.

    ``heads``: Zamba splits the channels into groups with their own dt, B, C. ``inner_norms``: Jamba's on dt, B, C
    (``weightless_norms``: Falcon-Mamba's, which store nothing).
    """

    hidden_size: int
    inner: int
    state_size: int
    time_step_rank: int
    conv_kernel: int
    conv_bias: bool = True
    proj_bias: bool = False
    inner_norms: bool = False
    heads: int = 1
    state_dtype: StateDtype = "fp32"
    weightless_norms: bool = False
    norm_eps: float = 1e-6
    part = "mixer"
    source = "arXiv:2312.00752"

    @property
    def kind(self) -> str:
        return "mamba1"

    def weights(self) -> Iterator[Weight]:
        channels, n, rank, heads = self.inner, self.state_size, self.time_step_rank, self.heads
        yield from linear("in_proj", 2 * channels, self.hidden_size, bias=self.proj_bias)
        yield Weight("conv1d.weight", (channels, 1, self.conv_kernel), "conv", split="column")
        if self.conv_bias:
            yield Weight("conv1d.bias", (channels,), "bias", split="column")
        # One matrix reads the channels of all ranks; each head's own reads that head's.
        split: Split = "row" if heads == 1 else "column"
        yield Weight("x_proj.weight", (heads * (rank + 2 * n), channels // heads), "matmul", split=split)
        yield Weight("dt_proj.weight", (channels, rank), "matmul", split="column")
        yield Weight("dt_proj.bias", (channels,), "bias", split="column")
        yield Weight("A_log", (channels, n), "scalar", split="column")
        yield Weight("D", (channels,), "scalar", split="column")
        if self.inner_norms:
            for name, size in (("dt_layernorm", rank), ("b_layernorm", n), ("c_layernorm", n)):
                yield from prefixed(name, Norm(size).weights())
        yield from linear("out_proj", self.hidden_size, channels, bias=self.proj_bias, split="row")

    def state(self) -> Iterator[State]:
        yield State("recurrent_state", (self.inner, self.state_size), ONCE, "recurrent", self.state_dtype)
        yield conv_state("conv_state", self.inner, 1, self.conv_kernel)

    def mixing_flops(self, step: Step, counting: Counting) -> Iterator[Term]:
        # There is no form in blocks. 9 a number of state (decay, input, update, read); a counter sees the read alone.
        yield recurrence(step.new, 1, self.inner * self.state_size, 2 if counting.dense else 9, MAMBA)

    def describe(self) -> str:
        return f"Mamba keeps {self.inner:,} channels of {self.state_size} and {self.conv_kernel - 1} columns"


@dataclass(frozen=True, slots=True)
class Mamba2(Spec):
    """Mamba-2 / SSD (arXiv:2405.21060): heads x head_dim x state_size; its convolution covers x, B and C.

    ``proj_bias``: on both projections; ``out_bias`` where the output's differs (Falcon-H1).
    ``multipliers``: of input, output, gate, x, b, c and dt, in the forward pass alone.
    """

    hidden_size: int
    num_heads: int
    head_dim: int
    state_size: int
    n_groups: int
    conv_kernel: int
    chunk_size: int = 256
    conv_bias: bool = True
    proj_bias: bool = False
    gated_norm: bool = True
    state_dtype: StateDtype = "fp32"
    out_bias: bool | None = None
    norm_groups: int = 1
    norm_eps: float = 1e-5
    time_step_limit: tuple[float, float] = (0.0, float("inf"))
    multipliers: tuple[float, ...] = (1.0,) * 7
    part = "mixer"
    source = "arXiv:2405.21060"

    @property
    def kind(self) -> str:
        return "mamba2"

    @property
    def inner(self) -> int:
        """Channels: heads x head_dim."""
        return self.num_heads * self.head_dim

    @property
    def conv_width(self) -> int:
        """Channels of the convolution: x, B and C."""
        return self.inner + 2 * self.n_groups * self.state_size

    def weights(self) -> Iterator[Weight]:
        rows = self.inner + self.conv_width + self.num_heads
        yield from linear("in_proj", rows, self.hidden_size, bias=self.proj_bias)
        yield Weight("conv1d.weight", (self.conv_width, 1, self.conv_kernel), "conv", split="column")
        if self.conv_bias:
            yield Weight("conv1d.bias", (self.conv_width,), "bias", split="column")
        for name in ("A_log", "D", "dt_bias"):
            yield Weight(name, (self.num_heads,), "scalar", split="column")
        if self.gated_norm:
            yield Weight("norm.weight", (self.inner,), "norm", split="column")
        bias = self.proj_bias if self.out_bias is None else self.out_bias
        yield from linear("out_proj", self.hidden_size, self.inner, bias=bias, split="row")

    def state(self) -> Iterator[State]:
        row = (self.num_heads, self.head_dim, self.state_size)
        yield State("recurrent_state", row, ONCE, "recurrent", self.state_dtype)
        yield conv_state("conv_state_x", self.num_heads, self.head_dim, self.conv_kernel)
        yield conv_state("conv_state_bc", self.n_groups, 2 * self.state_size, self.conv_kernel)

    def mixing_flops(self, step: Step, counting: Counting) -> Iterator[Term]:
        """SSD in blocks: C B^T and its product with x inside them, states into and out of them, a pass over states.

        C B^T is one matrix a group in the kernels, one a head in the library, whose pass over states is quadratic in
        the number of blocks.
        """
        state = self.head_dim * self.state_size
        if counting.scan == "recurrent":
            yield recurrence(step.new, self.num_heads, state, 2 if counting.dense else 5, SSD)
            return
        size = self.chunk_size
        tokens = whole_blocks(step.new, size)
        each = tokens if counting.dense else step.new
        groups = self.num_heads if counting.dense else self.n_groups
        inside = (("", 2), ("tokens of a block", size))
        held = (("heads", self.num_heads), ("numbers of state", state))
        yield Term(
            "C B^T inside the blocks",
            "scan",
            "tokens",
            each,
            (*inside, ("groups", groups), ("states", self.state_size)),
            SSD,
        )
        yield Term("its product with x", "scan", "tokens", each, (*inside, ("channels", self.inner)), SSD)
        yield Term("to and from the state", "scan", "tokens", each, (("", 4), *held), SSD)
        blocks = tokens // size
        passes, unit = ((blocks + 1) ** 2, "pairs of blocks") if counting.dense else (blocks, "blocks")
        yield Term("pass over the states", "scan", unit, passes, (("", 2), *held), SSD)

    def describe(self) -> str:
        return (
            f"Mamba-2 keeps {self.num_heads} heads of {self.head_dim} x {self.state_size} "
            f"and {self.conv_kernel - 1} columns of {self.conv_width:,} channels"
        )
