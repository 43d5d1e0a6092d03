"""Linear attention, token by token: the gated delta rule, Kimi's, and lightning attention.

A head keeps a matrix of state [K, V] instead of keys and values; a rule decays and updates it, the query reads it.
Axes: B sequences, T new tokens, D stream, H value heads, J key heads (H is a multiple), K key and V value channels.
Sources: arXiv:2412.06464 (gated delta), 2510.26692 (KDA), 2401.04658 (lightning).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from llmcalc.arch.linear import DecayAttention as DecaySpec
from llmcalc.arch.linear import GatedDelta as DeltaSpec
from llmcalc.arch.linear import KimiDelta as KimiSpec
from llmcalc.errors import UnsupportedLayerError
from reference_model.cache import Fixed, Flow, Formats, Slot
from reference_model.conv import CausalConv, state
from reference_model.norms import GatedNorm, rms, wide
from reference_model.ssm import scan


def unit(x: Tensor) -> Tensor:
    """x at length one along the last axis."""
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, flow: Flow, kept: Fixed | None) -> Tensor:
    """S = decay S; S += k beta (v - S^T k); o = S^T q.

    q, k [B, T, H, K] of length one (q also over the root of K), v [B, T, H, V], decay [B, T, H, 1 or K], beta
    [B, T, H] -> [B, T, H, V]; the state [B, H, K, V] is kept.
    """

    def step(s_BHKV: Tensor, t: int) -> tuple[Tensor, Tensor]:
        s = s_BHKV * decay[:, t, ..., None]
        error_BHV = v[:, t] - (k[:, t, :, None] @ s)[:, :, 0]
        s = s + k[:, t, ..., None] * (beta[:, t, :, None] * error_BHV)[:, :, None]
        return s, (q[:, t, :, None] @ s)[:, :, 0]

    start = v.new_zeros(len(v), v.shape[2], k.shape[-1], v.shape[-1])
    return scan(start, v.shape[1], flow, kept, step)


class GatedDelta(nn.Module):
    """q, k, v behind convolutions, a decay and a step size a head, the delta rule, a norm gated by z."""

    mixes = True

    def __init__(self, spec: DeltaSpec, depth: int = 0) -> None:
        super().__init__()
        if spec.extra:
            raise UnsupportedLayerError("gated delta with " + ", ".join(weight.name for weight in spec.extra))
        self.spec, self.keys = spec, spec.num_key_heads * spec.key_head_dim
        self.values, H, D = spec.num_value_heads * spec.value_head_dim, spec.num_value_heads, spec.hidden_size  # noqa: N806
        shapes = {
            "fused": {"in_proj_qkvz": 2 * self.keys + 2 * self.values, "in_proj_ba": 2 * H},
            "split": {"in_proj_qkv": 2 * self.keys + self.values, "in_proj_z": self.values, "in_proj_b": H, "in_proj_a": H},
            "separate": {"q_proj": self.keys, "k_proj": self.keys, "v_proj": self.values, "g_proj": self.values,
                         "b_proj": H, "a_proj": H},
        }[spec.layout]  # fmt: skip
        for name, rows in shapes.items():
            self.add_module(name, nn.Linear(D, rows, bias=False))
        separate = spec.layout == "separate"
        convs = {"q_conv1d": self.keys, "k_conv1d": self.keys, "v_conv1d": self.values}
        for name, channels in (convs if separate else {"conv1d": 2 * self.keys + self.values}).items():
            self.add_module(name, CausalConv(channels, spec.conv_kernel))
        self.A_log, self.dt_bias = nn.Parameter(torch.zeros(H)), nn.Parameter(torch.ones(H))
        norm, out = GatedNorm(spec.value_head_dim, spec.norm_eps, gate_first=False), nn.Linear(self.values, D, bias=False)
        self.add_module("o_norm" if separate else "norm", norm)
        self.add_module("o_proj" if separate else "out_proj", out)

    def allocate(self, batch: int, capacity: int, formats: Formats, device: torch.device, source: int) -> Slot:
        """The state [H, K, V] and K - 1 columns of q, k and v (three arrays where there are three convolutions)."""
        s = self.spec
        states = Fixed(batch, (s.num_value_heads, s.key_head_dim, s.value_head_dim), formats.of(s.state_dtype), device)
        parts = (self.keys, self.keys, self.values)
        widths = parts if s.layout == "separate" else (sum(parts),)
        return states, *(Fixed(batch, (width, s.conv_kernel - 1), formats.model, device) for width in widths)

    def projected(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q k v side by side [B, T, C], z [B, T, H, V], b and a [B, T, H]."""
        s = self.spec
        if s.layout == "separate":
            qkv = torch.cat([self.q_proj(x_BTD), self.k_proj(x_BTD), self.v_proj(x_BTD)], -1)
            z, b, a = self.g_proj(x_BTD), self.b_proj(x_BTD), self.a_proj(x_BTD)
        elif s.layout == "split":
            qkv, z, b, a = (getattr(self, f"in_proj_{name}")(x_BTD) for name in ("qkv", "z", "b", "a"))
        else:  # rows stand key head by key head
            each = s.num_value_heads // s.num_key_heads
            sizes = [s.key_head_dim, s.key_head_dim, each * s.value_head_dim, each * s.value_head_dim]
            parts = self.in_proj_qkvz(x_BTD).unflatten(-1, (s.num_key_heads, -1)).split(sizes, -1)
            q, k, v, z = (part.flatten(2) for part in parts)
            b, a = (part.flatten(2) for part in self.in_proj_ba(x_BTD).unflatten(-1, (s.num_key_heads, -1)).chunk(2, -1))
            qkv = torch.cat([q, k, v], -1)
        return qkv, z.unflatten(-1, (s.num_value_heads, s.value_head_dim)), b, a

    def convolved(self, qkv: Tensor, flow: Flow, slot: Slot | None) -> list[Tensor]:
        """q, k, v after their convolutions and SiLU: [B, T, C] each."""
        sizes = [self.keys, self.keys, self.values]
        if self.spec.layout != "separate":
            return list(functional.silu(self.conv1d(qkv, state(slot, 1), flow)).split(sizes, -1))
        convs = (self.q_conv1d, self.k_conv1d, self.v_conv1d)
        parts = zip(convs, qkv.split(sizes, -1), strict=True)
        return [functional.silu(conv(part, state(slot, 1 + i), flow)) for i, (conv, part) in enumerate(parts)]

    def forward(self, x_BTD: Tensor, flow: Flow, slot: Slot | None) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        s = self.spec
        qkv, z_BTHV, b_BTH, a_BTH = self.projected(x_BTD)
        q, k, v = (wide(part) for part in self.convolved(qkv, flow, slot))
        each = s.num_value_heads // s.num_key_heads
        q, k = (unit(part.unflatten(-1, (s.num_key_heads, -1))).repeat_interleave(each, 2) for part in (q, k))
        decay_BTH = (-wide(self.A_log).exp() * functional.softplus(wide(a_BTH) + wide(self.dt_bias))).exp()
        beta_BTH = wide(b_BTH).sigmoid() * (2.0 if s.negative else 1.0)
        v_BTHV = v.unflatten(-1, (s.num_value_heads, s.value_head_dim))
        o = delta_rule(q * s.key_head_dim**-0.5, k, v_BTHV, decay_BTH[..., None], beta_BTH, flow, state(slot, 0))
        separate = s.layout == "separate"
        o = (self.o_norm if separate else self.norm)(o.to(x_BTD.dtype), z_BTHV).flatten(2)
        return (self.o_proj if separate else self.out_proj)(o)
