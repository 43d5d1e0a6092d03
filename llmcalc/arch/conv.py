"""Short convolutions as a mixer (LFM2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmcalc.arch.base import Spec, State, Weight, linear
from llmcalc.arch.linear import conv_state


@dataclass(frozen=True, slots=True)
class ShortConv(Spec):
    """A gated causal convolution of ``conv_kernel`` taps over the whole width (LFM2's ``conv_L_cache``)."""

    hidden_size: int
    conv_kernel: int
    bias: bool = False
    part = "mixer"
    source = "LFM2 (arXiv:2511.23404)"

    @property
    def kind(self) -> str:
        return "short_conv"

    def weights(self) -> Iterator[Weight]:
        d = self.hidden_size
        yield from linear("in_proj", 3 * d, d, bias=self.bias)
        yield Weight("conv.weight", (d, 1, self.conv_kernel), "conv", split="column")
        if self.bias:
            yield Weight("conv.bias", (d,), "bias", split="column")
        yield from linear("out_proj", d, d, bias=self.bias, split="row")

    def state(self) -> Iterator[State]:
        yield conv_state("conv_state", self.hidden_size, 1, self.conv_kernel)

    def describe(self) -> str:
        return f"a short convolution keeps {self.conv_kernel - 1} columns of {self.hidden_size:,}"
