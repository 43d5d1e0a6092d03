"""Causal depthwise convolutions over the last few tokens, and LFM2's short convolution as a mixer of its own.

Axes: B sequences, T new tokens, C channels, K taps, D stream.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from llmcalc.arch.conv import ShortConv as Spec
from reference_model.cache import Fixed, Flow, Formats, Slot


def state(slot: Slot | None, index: int) -> Fixed | None:
    """The index-th fixed state of a slot; None where nothing is kept."""
    if not isinstance(slot, tuple):
        return None
    found = slot[index]
    return found if isinstance(found, Fixed) else None


class CausalConv(nn.Module):
    """K taps a channel, over the token itself and the K - 1 before it; those are what the state keeps."""

    def __init__(self, channels: int, taps: int, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, taps) / taps)
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None

    def forward(self, x_BTC: Tensor, kept: Fixed | None, flow: Flow) -> Tensor:
        """[B, T, C] -> [B, T, C]; the state [B, C, K-1] moves on by the true tokens of each sequence."""
        C, _, K = self.weight.shape
        before = kept.data.to(x_BTC.dtype) if kept is not None else x_BTC.new_zeros(len(x_BTC), C, K - 1)
        x_BCL = torch.cat([before, x_BTC.transpose(1, 2)], -1)
        if kept is not None:
            columns = flow.new_B[:, None] + torch.arange(K - 1, device=x_BTC.device)
            kept.data.copy_(x_BCL.gather(-1, columns[:, None].expand(-1, C, -1)))
        return functional.conv1d(x_BCL, self.weight, self.bias, groups=C).transpose(1, 2)


class ShortConv(nn.Module):
    """b, c, x = in_proj; out_proj(c * conv(b * x)): [B, T, D] -> [B, T, D]."""

    mixes = True

    def __init__(self, spec: Spec, depth: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self.in_proj = nn.Linear(spec.hidden_size, 3 * spec.hidden_size, spec.bias)
        self.conv = CausalConv(spec.hidden_size, spec.conv_kernel, bias=spec.bias)
        self.out_proj = nn.Linear(spec.hidden_size, spec.hidden_size, spec.bias)

    def allocate(self, batch: int, capacity: int, formats: Formats, device: torch.device, source: int) -> Slot:
        """The last K - 1 gated inputs: [D, K-1]."""
        row = (self.spec.hidden_size, self.spec.conv_kernel - 1)
        return (Fixed(batch, row, formats.model, device),)

    def forward(self, x_BTD: Tensor, flow: Flow, slot: Slot | None) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        b, c, x = self.in_proj(x_BTD).chunk(3, -1)
        return self.out_proj(c * self.conv(b * x, state(slot, 0), flow))
