"""Residual streams that are more than a sum: hyper-connections."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmcalc.arch.base import Spec, Step, Weight
from llmcalc.arch.mixing import Counting, Term
from llmcalc.errors import UnsupportedLayerError

ALTUP = "arXiv:2301.13310, section 3"


@dataclass(frozen=True, slots=True)
class AlternatingUpdates(Spec):
    """Gemma-3n's AltUp: ``streams`` copies, mixed by small matrices that a router makes (arXiv:2301.13310)."""

    hidden_size: int
    streams: int

    def weights(self) -> Iterator[Weight]:
        d, m = self.hidden_size, self.streams
        yield Weight("altup.correct_output_scale", (d,), "scalar")
        yield Weight("altup.correction_coefs.weight", (m, m), "matmul")
        yield Weight("altup.prediction_coefs.weight", (m * m, m), "matmul")
        yield Weight("altup.modality_router.weight", (m, d), "matmul")

    def mixing_flops(self, step: Step, counting: Counting) -> Iterator[Term]:
        del counting
        each = (("", 2), ("streams", self.streams), ("wide", self.hidden_size))
        yield Term("mixing of the streams", "mixing", "tokens", step.new, (("streams", self.streams), *each), ALTUP)
        yield Term("the router again, to correct", "mixing", "tokens", step.new, each, ALTUP)

    def describe(self) -> str:
        return f"a residual stream of {self.streams} copies, updated in turn"


@dataclass(frozen=True, slots=True)
class HyperConnection(Spec):
    """One site of a stream of ``streams`` copies: how a sublayer reads, writes and mixes them (arXiv:2409.19606).

    ``outputs``: rows of the projection, (2 + m) x m with a mixing matrix (mHC), 2 x m without, m at the head.
    """

    hidden_size: int
    streams: int
    outputs: int
    scales: int

    def weights(self) -> Iterator[Weight]:
        yield Weight("fn", (self.outputs, self.streams * self.hidden_size), "matmul", dtype="fp32")
        yield Weight("base", (self.outputs,), "scalar", dtype="fp32")
        yield Weight("scale", (self.scales,), "scalar", dtype="fp32")

    def mixing_flops(self, step: Step, counting: Counting) -> Iterator[Term]:
        del counting
        if self.outputs == (2 + self.streams) * self.streams:
            each = (("", 2), ("streams", self.streams), ("streams", self.streams), ("wide", self.hidden_size))
            yield Term("mixing of the streams", "mixing", "tokens", step.new, each, "arXiv:2409.19606, section 2")

    def describe(self) -> str:
        return f"a residual stream of {self.streams} copies"


@dataclass(frozen=True, slots=True)
class GatedResidual(Spec):
    """One site of Qwen4-Exp's stream of copies: what a sublayer reads, gated at a low rank, and where it writes.

    ``writes`` is false where the stream is folded for the head. Source: modeling_qwen4_exp.py of transformers 5.24.
    """

    hidden_size: int
    streams: int
    rank: int
    writes: bool = True

    def weights(self) -> Iterator[Weight]:
        width = self.streams * self.hidden_size
        yield Weight("hc_norm.weight", (width,), "norm")
        yield Weight("input_mix_weight_down.weight", (self.rank, width), "matmul")
        yield Weight("input_mix_weight_up.weight", (width, self.rank), "matmul")
        if self.writes:
            yield Weight("block_inject_weight.weight", (self.streams, width), "matmul")

    def describe(self) -> str:
        return f"a residual stream of {self.streams} copies, gated"


@dataclass(frozen=True, slots=True)
class AttentionResidual(Spec):
    """Inkling-2 reads earlier blocks' outputs by ``queries`` learned vectors instead of their sum."""

    hidden_size: int
    queries: int = 1

    def weights(self) -> Iterator[Weight]:
        shape = (self.queries, self.hidden_size) if self.queries > 1 else (self.hidden_size,)
        yield Weight("query", shape, "scalar")

    def mixing_flops(self, step: Step, counting: Counting) -> Iterator[Term]:
        raise UnsupportedLayerError(f"{self.describe()}: its operations are not described")

    def describe(self) -> str:
        return "attention to earlier blocks of the residual stream"
