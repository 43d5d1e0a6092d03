"""Selective state spaces, token by token: Mamba and Mamba-2.

Axes: B sequences, T new tokens, D stream, C channels, N numbers of state a channel, H heads of P channels, G groups
that share b and c, R rank of the time step. Sources: arXiv:2312.00752, 2405.21060.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from llmcalc.arch import base
from llmcalc.arch.ssm import Mamba1 as Spec1
from llmcalc.arch.ssm import Mamba2 as Spec2
from llmcalc.errors import UnsupportedLayerError
from reference_model.cache import Fixed, Flow, Formats, Slot
from reference_model.conv import CausalConv, state
from reference_model.norms import GatedNorm, Norm, scaled, wide


def scan(
    start: Tensor, steps: int, flow: Flow, kept: Fixed | None, step: Callable[[Tensor, int], tuple[Tensor, Tensor]]
) -> Tensor:
    """Run ``step(state, t) -> (state, output)`` over the tokens; padded tokens leave the state as it is.

    Returns the outputs stacked along axis 1: [B, T, ...].
    """
    held = wide(kept.data).to(start.dtype) if kept is not None else start
    valid_BT, outputs = flow.valid_BT, []
    for t in range(steps):
        moved, output = step(held, t)
        if not flow.whole:
            moved = torch.where(valid_BT[:, t].view(-1, *[1] * (held.dim() - 1)), moved, held)
        held = moved
        outputs.append(output)
    if kept is not None:
        kept.data.copy_(held)
    return torch.stack(outputs, 1)


def headed(matrix: nn.Linear, x_BTHP: Tensor) -> Tensor:
    """Every head through its own rows of a matrix: [B, T, H, P] -> [B, T, H, R]."""
    H = x_BTHP.shape[2]
    if H == 1:
        return matrix(x_BTHP)
    y_BTHR = torch.einsum("bthp,hrp->bthr", x_BTHP, matrix.weight.unflatten(0, (H, -1)))
    return y_BTHR if matrix.bias is None else y_BTHR + matrix.bias.unflatten(0, (H, -1))


class Mamba1(nn.Module):
    """in_proj -> x, gate; conv; dt, b, c from x; h = exp(dt A) h + dt b x; y = c h + D x, gated; out_proj.

    H heads of P channels (Zamba; elsewhere one head of all) have their own dt, b and c.
    """

    mixes = True

    def __init__(self, spec: Spec1, depth: int = 0) -> None:
        super().__init__()
        if spec.heads > 1 and (spec.inner_norms or spec.weightless_norms):
            raise UnsupportedLayerError("Mamba with heads and norms of dt, b and c")
        self.spec, (D, C, N) = spec, (spec.hidden_size, spec.inner, spec.state_size)
        R, H = spec.time_step_rank, spec.heads
        self.in_proj = nn.Linear(D, 2 * C, spec.proj_bias)
        self.conv1d = CausalConv(C, spec.conv_kernel, bias=spec.conv_bias)
        self.x_proj = nn.Linear(C // H, H * (R + 2 * N), bias=False)  # every head's rows, one head after another
        self.dt_proj = nn.Linear(R, C)
        self.A_log = nn.Parameter(torch.log(torch.arange(1.0, N + 1)).expand(C, N).clone())
        self.D = nn.Parameter(torch.ones(C))
        normed = spec.inner_norms or spec.weightless_norms
        sizes = (("dt_layernorm", R), ("b_layernorm", N), ("c_layernorm", N)) if normed else ()
        for name, size in sizes:
            self.add_module(name, Norm(base.Norm(size, learned=not spec.weightless_norms, eps=spec.norm_eps)))
        self.out_proj = nn.Linear(C, D, spec.proj_bias)

    def allocate(self, batch: int, capacity: int, formats: Formats, device: torch.device, source: int) -> Slot:
        """The state [C, N] and K - 1 columns [C, K-1]."""
        s = self.spec
        states = Fixed(batch, (s.inner, s.state_size), formats.of(s.state_dtype), device)
        return states, Fixed(batch, (s.inner, s.conv_kernel - 1), formats.model, device)

    def forward(self, x_BTD: Tensor, flow: Flow, slot: Slot | None) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        s = self.spec
        x_BTC, gate_BTC = self.in_proj(x_BTD).chunk(2, -1)
        x_BTC = functional.silu(self.conv1d(x_BTC, state(slot, 1), flow))
        x_BTHP = x_BTC.unflatten(-1, (s.heads, -1))
        dt, b, c = headed(self.x_proj, x_BTHP).split([s.time_step_rank, s.state_size, s.state_size], -1)
        if s.inner_norms or s.weightless_norms:
            dt, b, c = self.dt_layernorm(dt), self.b_layernorm(b), self.c_layernorm(c)
        dt_BTHP = wide(functional.softplus(headed(self.dt_proj, dt)))
        x_BTHP, b_BTHN, c_BTHN = wide(x_BTHP), wide(b), wide(c)
        a_HPN, d_HP = -wide(self.A_log).exp().unflatten(0, (s.heads, -1)), wide(self.D).unflatten(0, (s.heads, -1))

        def step(h_BCN: Tensor, t: int) -> tuple[Tensor, Tensor]:
            dt_BHP, x_BHP = dt_BTHP[:, t], x_BTHP[:, t]
            new_BHPN = (dt_BHP * x_BHP)[..., None] * b_BTHN[:, t, :, None]
            h_BHPN = (dt_BHP[..., None] * a_HPN).exp() * h_BCN.unflatten(1, (s.heads, -1)) + new_BHPN
            y_BHP = (h_BHPN @ c_BTHN[:, t, ..., None])[..., 0] + d_HP * x_BHP
            return h_BHPN.flatten(1, 2), y_BHP.flatten(1)

        start_BCN = x_BTHP.new_zeros(len(x_BTHP), s.inner, s.state_size)
        y_BTC = scan(start_BCN, x_BTHP.shape[1], flow, state(slot, 0), step)
        return self.out_proj(y_BTC.to(x_BTD.dtype) * functional.silu(gate_BTC))


class Mamba2(nn.Module):
    """in_proj -> gate, (x, b, c), dt; conv over the three; h = exp(dt A) h + dt x b; y = h c + D x; gated norm."""

    mixes = True

    def __init__(self, spec: Spec2, depth: int = 0) -> None:
        super().__init__()
        self.spec, H = spec, spec.num_heads
        self.inner = H * spec.head_dim
        self.channels = self.inner + 2 * spec.n_groups * spec.state_size
        self.in_proj = nn.Linear(spec.hidden_size, self.inner + self.channels + H, spec.proj_bias)
        self.conv1d = CausalConv(self.channels, spec.conv_kernel, bias=spec.conv_bias)
        self.A_log = nn.Parameter(torch.log(torch.arange(1.0, H + 1)))
        self.D, self.dt_bias = nn.Parameter(torch.ones(H)), nn.Parameter(torch.ones(H))
        self.norm = GatedNorm(self.inner, spec.norm_eps, groups=spec.norm_groups) if spec.gated_norm else None
        self.out_proj = nn.Linear(
            self.inner, spec.hidden_size, spec.proj_bias if spec.out_bias is None else spec.out_bias
        )

    def allocate(self, batch: int, capacity: int, formats: Formats, device: torch.device, source: int) -> Slot:
        """The state [H, P, N] and K - 1 columns of x, b and c."""
        s = self.spec
        states = Fixed(batch, (s.num_heads, s.head_dim, s.state_size), formats.of(s.state_dtype), device)
        return states, Fixed(batch, (self.channels, s.conv_kernel - 1), formats.model, device)

    def forward(self, x_BTD: Tensor, flow: Flow, slot: Slot | None) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        s, (B, T, _) = self.spec, x_BTD.shape
        gate_BTC, mixed, dt_BTH = self.projected(x_BTD)
        mixed = functional.silu(self.conv1d(mixed, state(slot, 1), flow))
        width = s.n_groups * s.state_size
        x, b, c = (wide(part) for part in mixed.split([self.inner, width, width], -1))
        x_BTHP, each = x.unflatten(-1, (s.num_heads, s.head_dim)), s.num_heads // s.n_groups
        b_BTHN, c_BTHN = (
            part.unflatten(-1, (s.n_groups, 1, s.state_size)).expand(-1, -1, -1, each, -1).flatten(2, 3)
            for part in (b, c)
        )
        dt_BTH = functional.softplus(wide(dt_BTH) + wide(self.dt_bias)).clamp(*s.time_step_limit)
        decay_BTH = (dt_BTH * -wide(self.A_log).exp()).exp()

        def step(h_BHPN: Tensor, t: int) -> tuple[Tensor, Tensor]:
            new = (dt_BTH[:, t, :, None] * x_BTHP[:, t])[..., None] * b_BTHN[:, t, :, None]
            h = decay_BTH[:, t, :, None, None] * h_BHPN + new
            return h, (h @ c_BTHN[:, t, ..., None])[..., 0] + wide(self.D)[:, None] * x_BTHP[:, t]

        start = x.new_zeros(B, s.num_heads, s.head_dim, s.state_size)
        y_BTC = scan(start, T, flow, state(slot, 0), step).flatten(2).to(x_BTD.dtype)
        y_BTC = y_BTC * functional.silu(gate_BTC) if self.norm is None else self.norm(y_BTC, gate_BTC)
        return scaled(self.out_proj(y_BTC), s.multipliers[1])

    def projected(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gate, (x, b, c) and dt, each with its factor: [B, T, C], [B, T, channels], [B, T, H]."""
        s, width = self.spec, self.spec.n_groups * self.spec.state_size
        sizes = [self.inner, self.inner, width, width, s.num_heads]
        parts = self.in_proj(scaled(x_BTD, s.multipliers[0])).split(sizes, -1)
        gate, x, b, c, dt = (scaled(part, factor) for part, factor in zip(parts, s.multipliers[2:], strict=True))
        return gate, torch.cat([x, b, c], -1), dt
