"""Gated memory units: an earlier layer's scan output, gated (SambaY)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmcalc.arch.base import Spec, Weight, linear


@dataclass(frozen=True, slots=True)
class GatedMemory(Spec):
    """Phi-4-flash's GMU: a gate made from the stream multiplies what one Mamba layer scanned; it keeps nothing.

    Source: arXiv:2507.06607, section 2.
    """

    hidden_size: int
    inner: int
    bias: bool = False
    part = "mixer"
    source = "arXiv:2507.06607"

    @property
    def kind(self) -> str:
        return "gated_memory"

    def weights(self) -> Iterator[Weight]:
        yield from linear("in_proj", self.inner, self.hidden_size, bias=self.bias)
        yield from linear("out_proj", self.hidden_size, self.inner, bias=self.bias, split="row")

    def describe(self) -> str:
        return f"a gate over the {self.inner:,} channels that an earlier layer scanned"
