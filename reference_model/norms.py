"""Normalisation of the stream: RMSNorm and LayerNorm, learned or not.

Axes: B sequences, T tokens, D channels of whatever is normed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from llmcalc.arch import base


def scaled(x: Tensor, factor: float) -> Tensor:
    """x times a factor of the config; for one, which nearly all are, nothing is launched."""
    return x if factor == 1.0 else x * factor


def wide(x: Tensor) -> Tensor:
    """At least fp32: sums of squares are taken there."""
    return x if x.dtype == torch.float64 else x.float()


def wide_dtype() -> torch.dtype:
    """Of parameters that models of 16 bits keep in fp32."""
    return torch.promote_types(torch.get_default_dtype(), torch.float32)


def rms(x: Tensor, eps: float) -> Tensor:
    """x over the root of its mean square, along the last axis; same shape, at least fp32."""
    x = wide(x)
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def standard(x: Tensor, eps: float) -> Tensor:
    """x less its mean, over its standard deviation, along the last axis; same shape, at least fp32."""
    x = wide(x)
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps)


class Norm(nn.Module):
    """weight_D * normed(x) + bias_D; ``offset``: the file stores the weight minus one (Gemma).

    ``shape``: of the weight, where it is not one vector (a vector a head: [H, d]).
    """

    def __init__(self, spec: base.Norm, shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.layer_form, self.offset = spec.form == "layer", spec.offset
        self.eps = spec.eps if spec.eps is not None else (1e-5 if self.layer_form else 1e-6)
        self.weight = nn.Parameter(torch.ones(shape or (spec.size,)) - float(spec.offset)) if spec.learned else None
        self.bias = nn.Parameter(torch.zeros(shape or (spec.size,))) if spec.learned and spec.bias else None

    def plain(self, x: Tensor) -> bool:
        """Whether torch's own kernel, which is one launch, computes the same."""
        if self.layer_form or self.offset or self.bias is not None:
            return False
        return self.weight is None or (self.weight.dim() == 1 and self.weight.dtype == x.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., D] -> [..., D]."""
        if self.plain(x):
            return functional.rms_norm(x, x.shape[-1:], self.weight, self.eps)
        y = standard(x, self.eps) if self.layer_form else rms(x, self.eps)
        if self.weight is not None:
            y = y * (wide(self.weight) + 1.0 if self.offset else wide(self.weight))
        if self.bias is not None:
            y = y + wide(self.bias)
        return y.to(x.dtype)


class GatedNorm(nn.Module):
    """RMSNorm of groups of channels and a gate: Mamba-2 gates first, the delta rules norm first.

    The gate opens with SiLU, in Kimi's delta attention with a plain sigmoid.
    """

    def __init__(
        self, size: int, eps: float, *, groups: int = 1, gate_first: bool = True, sigmoid: bool = False
    ) -> None:
        super().__init__()
        self.groups, self.eps, self.gate_first, self.sigmoid = groups, eps, gate_first, sigmoid
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        """x, gate [..., D] -> [..., D]."""
        opened = wide(gate).sigmoid() if self.sigmoid else functional.silu(wide(gate))
        y = wide(x) * opened if self.gate_first else wide(x)
        y = rms(y.unflatten(-1, (self.groups, -1)), self.eps).flatten(-2) * wide(self.weight)
        return (y if self.gate_first else y * opened).to(x.dtype)
