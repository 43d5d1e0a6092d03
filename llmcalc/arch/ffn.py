"""Dense feed-forward layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmcalc.arch.base import Norm, Spec, Weight, linear, prefixed


@dataclass(frozen=True, slots=True)
class FeedForward(Spec):
    """Gated (gate, up, down: 3 matrices, arXiv:2002.05202) or plain (up, down: 2). ``inner_norm``: BitNet's.

    In the forward pass alone: multipliers of gate and output (Falcon-H1); sparsity: the share of channels whose gate is
    closed (Gemma-3n); the epsilon of the inner norm.
    """

    hidden_size: int
    intermediate_size: int
    gated: bool = True
    activation: str = "silu"
    bias: bool = False
    down_bias: bool | None = None
    inner_norm: bool = False
    extra: tuple[Weight, ...] = ()
    multipliers: tuple[float, float] = (1.0, 1.0)
    sparsity: float = 0.0
    inner_norm_eps: float | None = None
    part = "mlp"

    @property
    def kind(self) -> str:
        return "dense"

    def weights(self) -> Iterator[Weight]:
        d, f = self.hidden_size, self.intermediate_size
        if self.gated:
            yield from linear("gate_proj", f, d, bias=self.bias)
        yield from linear("up_proj", f, d, bias=self.bias)
        down = self.bias if self.down_bias is None else self.down_bias
        yield from linear("down_proj", d, f, bias=down, split="row")
        if self.inner_norm:
            yield from prefixed("ffn_sub_norm", Norm(f).weights())
        yield from self.extra

    def describe(self) -> str:
        form = "gated feed-forward" if self.gated else "feed-forward"
        return f"{form} of width {self.intermediate_size:,} ({self.activation})"
