"""What stands before and after the layers: tables of tokens and positions, projections, the output head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmcalc.arch.base import Rows, Spec, Weight


@dataclass(frozen=True, slots=True)
class Embedding(Spec):
    """A table of ``rows`` x ``width``; a token reads one row. ``tokens`` is false for position and type tables.

    scale: multiplies the rows read (Gemma). offset: row of the first position (OPT).
    """

    rows: int
    width: int
    tokens: bool = True
    scale: float = 1.0
    offset: int = 0
    part: str = "embeddings"

    def weights(self) -> Iterator[Weight]:
        yield Weight("weight", (self.rows, self.width), "embedding", split="vocab" if self.tokens else "none")

    def describe(self) -> str:
        return f"{self.rows:,} x {self.width:,}"


@dataclass(frozen=True, slots=True)
class Head(Spec):
    """The output matrix over the vocabulary, ``[rows, width]``; ``scale`` and ``softcap`` of its logits."""

    rows: int
    width: int
    bias: bool = False
    scale: float = 1.0
    softcap: float | None = None
    part = "lm_head"

    def weights(self) -> Iterator[Weight]:
        yield Weight("weight", (self.rows, self.width), "head", rows="last", split="vocab")
        if self.bias:
            yield Weight("bias", (self.rows,), "bias", rows="last", split="vocab")


@dataclass(frozen=True, slots=True)
class Projection(Spec):
    """One matrix ``[outputs, inputs]`` on its own (embedding projections, projectors, heads of encoders)."""

    outputs: int
    inputs: int
    bias: bool = False
    part: str = "other"
    rows: Rows = "every"

    def weights(self) -> Iterator[Weight]:
        yield Weight("weight", (self.outputs, self.inputs), "matmul", rows=self.rows)
        if self.bias:
            yield Weight("bias", (self.outputs,), "bias", rows=self.rows)
