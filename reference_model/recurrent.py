"""Older recurrences, token by token: RecurrentGemma's RG-LRU and RWKV-4's time and channel mixing.

Axes: B sequences, T new tokens, D stream, C channels, H blocks of W channels (C = H x W), F inner width.
Sources: arXiv:2402.19427 (RG-LRU), 2305.13048 (RWKV-4).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from llmcalc.arch.recurrent import RgLru as LruSpec
from llmcalc.arch.recurrent import Rwkv4 as TimeSpec
from llmcalc.arch.recurrent import Rwkv4ChannelMix as ChannelSpec
from reference_model.cache import Fixed, Flow, Formats, Slot
from reference_model.conv import CausalConv, state
from reference_model.ffn import activation
from reference_model.norms import wide
from reference_model.ssm import scan


class Gates(nn.Module):
    """The unit itself: two gates by block-diagonal matrices, and a decay of its own for every channel."""

    def __init__(self, spec: LruSpec) -> None:
        super().__init__()
        H, W = spec.num_heads, spec.lru_width // spec.num_heads
        self.recurrent_param = nn.Parameter(torch.ones(spec.lru_width))
        for name in ("input_gate", "recurrent_gate"):
            self.register_parameter(f"{name}_weight", nn.Parameter(torch.randn(H, W, W) * W**-0.5))
            self.register_parameter(f"{name}_bias", nn.Parameter(torch.zeros(H, W)))

    def gate(self, name: str, x_BTC: Tensor) -> Tensor:
        """sigmoid(x W + b), block by block: [B, T, C] -> [B, T, C]."""
        weight_HWW, bias_HW = getattr(self, f"{name}_weight"), getattr(self, f"{name}_bias")
        x_BTHW = x_BTC.unflatten(-1, bias_HW.shape)
        return torch.sigmoid(torch.einsum("bthi,hij->bthj", x_BTHW, weight_HWW) + bias_HW).flatten(2)


class RgLru(nn.Module):
    """h = a h + sqrt(1 - a^2) gate x behind a convolution, beside an activated branch: [B, T, D] -> [B, T, D]."""

    mixes = True

    def __init__(self, spec: LruSpec, depth: int = 0) -> None:
        super().__init__()
        self.spec, C = spec, spec.lru_width
        self.linear_x, self.linear_y = nn.Linear(spec.hidden_size, C), nn.Linear(spec.hidden_size, C)
        self.conv_1d, self.act = CausalConv(C, spec.conv_kernel, bias=True), activation(spec.activation)
        self.rg_lru, self.linear_out = Gates(spec), nn.Linear(C, spec.hidden_size)

    def allocate(self, batch: int, capacity: int, formats: Formats, device: torch.device, source: int) -> Slot:
        """The state [C] and K - 1 columns [C, K-1]."""
        s = self.spec
        states = Fixed(batch, (s.lru_width,), formats.of(s.state_dtype), device)
        return states, Fixed(batch, (s.lru_width, s.conv_kernel - 1), formats.model, device)

    def forward(self, x_BTD: Tensor, flow: Flow, slot: Slot | None) -> Tensor:
        """The first position of a sequence enters whole, without the root."""
        y_BTC = self.act(self.linear_y(x_BTD))
        x_BTC = self.conv_1d(self.linear_x(x_BTD), state(slot, 1), flow)
        first_BT1 = (flow.positions_BT == 0)[..., None]
        rate = wide(-8.0 * self.rg_lru.gate("recurrent_gate", x_BTC) * functional.softplus(self.rg_lru.recurrent_param))
        root = torch.where(first_BT1, 1.0, torch.sqrt(1 - torch.exp(2 * rate)))
        new_BTC = wide(x_BTC * self.rg_lru.gate("input_gate", x_BTC)) * root
        decay_BTC = torch.where(first_BT1, 0.0, rate.exp())

        def step(h_BC: Tensor, t: int) -> tuple[Tensor, Tensor]:
            h = decay_BTC[:, t] * h_BC + new_BTC[:, t]
            return h, h

        h_BTC = scan(new_BTC.new_zeros(len(new_BTC), new_BTC.shape[-1]), new_BTC.shape[1], flow, state(slot, 0), step)
        return self.linear_out(h_BTC.to(x_BTD.dtype) * y_BTC)


def shifted(x_BTD: Tensor, kept: Fixed | None, flow: Flow) -> Tensor:
    """Every token's predecessor, the last one of the pass before first: [B, T, D]; the state [D] moves on."""
    before_B1D = x_BTD.new_zeros(len(x_BTD), 1, x_BTD.shape[-1]) if kept is None else kept.data[:, None].to(x_BTD.dtype)
    all_BLD = torch.cat([before_B1D, x_BTD], 1)
    if kept is not None:
        kept.data.copy_(all_BLD[torch.arange(len(x_BTD), device=x_BTD.device), flow.new_B])
    return all_BLD[:, :-1]


class Rwkv4(nn.Module):
    """A weighted mean of all earlier values, weights decaying channel by channel: [B, T, D] -> [B, T, D]."""

    mixes = True

    def __init__(self, spec: TimeSpec, depth: int = 0) -> None:
        super().__init__()
        self.spec, D, C = spec, spec.hidden_size, spec.attention_size
        self.time_decay, self.time_first = nn.Parameter(torch.zeros(C)), nn.Parameter(torch.zeros(C))
        for name in ("key", "value", "receptance"):
            self.register_parameter(f"time_mix_{name}", nn.Parameter(torch.full((1, 1, D), 0.5)))
            self.add_module(name, nn.Linear(D, C, bias=False))
        self.output = nn.Linear(C, D, bias=False)

    def allocate(self, batch: int, capacity: int, formats: Formats, device: torch.device, source: int) -> Slot:
        """Numerator, denominator and maximum [3, C], and the last input [D]."""
        s = self.spec
        sums = Fixed(batch, (3, s.attention_size), formats.of(s.state_dtype), device)
        return sums, Fixed(batch, (s.hidden_size,), formats.model, device)

    def mixed(self, name: str, x: Tensor, before: Tensor) -> Tensor:
        """A projection of the token mixed with its predecessor."""
        share = getattr(self, f"time_mix_{name}")
        return getattr(self, name)(x * share + before * (1 - share))

    def forward(self, x_BTD: Tensor, flow: Flow, slot: Slot | None) -> Tensor:
        """Exponentials are kept relative to their running maximum."""
        before = shifted(x_BTD, state(slot, 1), flow)
        k, v = wide(self.mixed("key", x_BTD, before)), wide(self.mixed("value", x_BTD, before))
        decay, bonus = -wide(self.time_decay).exp(), wide(self.time_first)

        def step(sums_B3C: Tensor, t: int) -> tuple[Tensor, Tensor]:
            top, bottom, most = sums_B3C.unbind(1)
            peak = torch.maximum(most, k[:, t] + bonus)
            old, new = (most - peak).exp(), (k[:, t] + bonus - peak).exp()
            output = (old * top + new * v[:, t]) / (old * bottom + new)
            peak = torch.maximum(most + decay, k[:, t])
            old, new = (most + decay - peak).exp(), (k[:, t] - peak).exp()
            return torch.stack([old * top + new * v[:, t], old * bottom + new, peak], 1), output

        mean_BTC = scan(k.new_zeros(len(k), 3, k.shape[-1]), k.shape[1], flow, state(slot, 0), step)
        return self.output(torch.sigmoid(self.mixed("receptance", x_BTD, before)) * mean_BTC.to(x_BTD.dtype))


class Rwkv4ChannelMix(nn.Module):
    """sigmoid(r) * value(relu(key)^2) on the token mixed with its predecessor: [B, T, D] -> [B, T, D]."""

    mixes = True

    def __init__(self, spec: ChannelSpec, depth: int = 0) -> None:
        super().__init__()
        self.spec, D = spec, spec.hidden_size
        self.time_mix_key, self.time_mix_receptance = (nn.Parameter(torch.full((1, 1, D), 0.5)) for _ in range(2))
        self.key, self.receptance = nn.Linear(D, spec.intermediate_size, bias=False), nn.Linear(D, D, bias=False)
        self.value = nn.Linear(spec.intermediate_size, D, bias=False)

    def allocate(self, batch: int, capacity: int, formats: Formats, device: torch.device, source: int) -> Slot:
        """The last input [D]."""
        return (Fixed(batch, (self.spec.hidden_size,), formats.model, device),)

    def forward(self, x_BTD: Tensor, flow: Flow, slot: Slot | None) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        before = shifted(x_BTD, state(slot, 0), flow)
        key = self.key(x_BTD * self.time_mix_key + before * (1 - self.time_mix_key))
        gate = self.receptance(x_BTD * self.time_mix_receptance + before * (1 - self.time_mix_receptance))
        return torch.sigmoid(gate) * self.value(functional.relu(key) ** 2)
