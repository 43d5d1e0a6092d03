"""Linear attention, token by token: the gated delta rule, Kimi's, and lightning attention.

A head keeps a matrix of state [K, V] instead of keys and values; a rule decays and updates it, the query reads it.
Axes: B sequences, T new tokens, D stream, H value heads, J key heads (H is a multiple), K key and V value channels.
Sources: arXiv:2412.06464 (gated delta), 2510.26692 (KDA), 2401.04658 (lightning).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from llmcalc.arch import base
from llmcalc.arch.linear import DecayAttention as DecaySpec
from llmcalc.arch.linear import GatedDelta as DeltaSpec
from llmcalc.arch.linear import KimiDelta as KimiSpec
from llmcalc.errors import UnsupportedLayerError
from reference_model.cache import Fixed, Flow, Formats, Slot
from reference_model.conv import CausalConv, state
from reference_model.norms import GatedNorm, Norm, wide, wide_dtype
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
        error_BHV = v[:, t] - (k[:, t, ..., None] * s).sum(-2)
        s = s + k[:, t, ..., None] * (beta[:, t, :, None] * error_BHV)[:, :, None]
        return s, (q[:, t, ..., None] * s).sum(-2)

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
        self.values, H, D = spec.num_value_heads * spec.value_head_dim, spec.num_value_heads, spec.hidden_size
        shapes = {
            "fused": {"in_proj_qkvz": 2 * self.keys + 2 * self.values, "in_proj_ba": 2 * H},
            "split": {"in_proj_qkv": 2 * self.keys + self.values, "in_proj_z": self.values, "in_proj_b": H,
                      "in_proj_a": H},
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
        norm, out = (
            GatedNorm(spec.value_head_dim, spec.norm_eps, gate_first=False),
            nn.Linear(self.values, D, bias=False),
        )
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
            b, a = (
                part.flatten(2) for part in self.in_proj_ba(x_BTD).unflatten(-1, (s.num_key_heads, -1)).chunk(2, -1)
            )
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


class KimiDelta(nn.Module):
    """Kimi's delta attention: as the gated delta rule, with a decay for every channel of a key."""

    mixes = True

    def __init__(self, spec: KimiSpec, depth: int = 0) -> None:
        super().__init__()
        self.spec, D = spec, spec.hidden_size
        self.width = spec.num_heads * spec.head_dim
        for name in ("q", "k", "v"):
            self.add_module(f"{name}_proj", nn.Linear(D, self.width, bias=False))
            self.add_module(f"{name}_conv1d", CausalConv(self.width, spec.conv_kernel))
        for name, form in (("f", spec.decay), ("g", spec.gate)):
            if form == "full":
                self.add_module(f"{name}_proj", nn.Linear(D, self.width, bias=False))
            else:
                self.add_module(f"{name}_a_proj", nn.Linear(D, spec.head_dim, bias=False))
                self.add_module(f"{name}_b_proj", nn.Linear(spec.head_dim, self.width, bias=False))
        self.dt_bias = nn.Parameter(torch.ones(self.width, dtype=wide_dtype()))
        self.A_log = nn.Parameter(torch.zeros(spec.num_heads, dtype=wide_dtype()))
        self.b_proj = nn.Linear(D, spec.num_heads, bias=False)
        self.o_norm = GatedNorm(spec.head_dim, spec.norm_eps, gate_first=False, sigmoid=True)
        self.o_proj = nn.Linear(self.width, D, bias=False)

    def allocate(self, batch: int, capacity: int, formats: Formats, device: torch.device, source: int) -> Slot:
        """The state [H, K, K] and K - 1 columns each of q, k and v."""
        s = self.spec
        states = Fixed(batch, (s.num_heads, s.head_dim, s.head_dim), formats.of(s.state_dtype), device)
        return states, *(Fixed(batch, (self.width, s.conv_kernel - 1), formats.model, device) for _ in "qkv")

    def lowered(self, name: str, form: str, x_BTD: Tensor) -> Tensor:
        """A full or a low-rank projection."""
        if form == "full":
            return getattr(self, f"{name}_proj")(x_BTD)
        return getattr(self, f"{name}_b_proj")(getattr(self, f"{name}_a_proj")(x_BTD))

    def forward(self, x_BTD: Tensor, flow: Flow, slot: Slot | None) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        s, parts = self.spec, []
        for index, name in enumerate("qkv"):
            conv, projected = getattr(self, f"{name}_conv1d"), getattr(self, f"{name}_proj")(x_BTD)
            mixed = functional.silu(conv(projected, state(slot, 1 + index), flow))
            parts.append(wide(mixed).unflatten(-1, (s.num_heads, s.head_dim)))
        q, k, v = unit(parts[0]) * s.head_dim**-0.5, unit(parts[1]), parts[2]
        raw_BTC = wide(self.lowered("f", s.decay, x_BTD)) + wide(self.dt_bias)
        rate_BTHK = functional.softplus(raw_BTC).unflatten(-1, (s.num_heads, s.head_dim))
        decay_BTHK = (-wide(self.A_log).exp()[:, None] * rate_BTHK).exp()
        o = delta_rule(q, k, v, decay_BTHK, wide(self.b_proj(x_BTD)).sigmoid(), flow, state(slot, 0))
        gate = self.lowered("g", s.gate, x_BTD).unflatten(-1, (s.num_heads, s.head_dim))
        return self.o_proj(self.o_norm(o.to(x_BTD.dtype), gate).flatten(2))


def decays(spec: DecaySpec, depth: int) -> Tensor:
    """exp(-slope): slopes fall with the head's number and, linearly, with depth: [H]."""
    heads = torch.arange(1, spec.num_heads + 1, dtype=torch.float64)
    fall = 1 - depth / (spec.layers - 1 + 1e-5) + 1e-5
    return (-(2 ** (-8 / spec.num_heads * heads)) * fall).exp()


class DecayAttention(nn.Module):
    """Lightning attention: S = decay S + k v, o = q S, the decay fixed by head and depth; a norm, a sigmoid gate."""

    mixes = True

    def __init__(self, spec: DecaySpec, depth: int = 0) -> None:
        super().__init__()
        if spec.rule != "lightning" or spec.extra or spec.conv_kernel or spec.gate_rank or spec.qk_norm:
            raise UnsupportedLayerError(f"{spec.rule} attention")
        if not spec.norm_size or not spec.gate:
            raise UnsupportedLayerError("lightning attention without a norm or a gate")
        self.spec, self.depth = spec, depth
        self.fallen_H: Tensor | None = None
        keys, values = spec.num_heads * spec.key_head_dim, spec.num_heads * spec.value_head_dim
        for name, width in (("q", keys), ("k", keys), ("v", values)):
            self.add_module(f"{name}_proj", nn.Linear(spec.hidden_size, width, spec.bias))
        self.g_proj = nn.Linear(spec.hidden_size, values, bias=False)
        self.norm = Norm(base.Norm(spec.norm_size, eps=spec.norm_eps))
        self.o_proj = nn.Linear(values, spec.hidden_size, spec.out_bias)

    def allocate(self, batch: int, capacity: int, formats: Formats, device: torch.device, source: int) -> Slot:
        """The state [H, K, V]."""
        s = self.spec
        row = (s.num_heads, s.key_head_dim, s.value_head_dim)
        return (Fixed(batch, row, formats.of(s.state_dtype), device),)

    def decay(self) -> Tensor:
        """Of every head: [H]."""
        return decays(self.spec, self.depth)

    def forward(self, x_BTD: Tensor, flow: Flow, slot: Slot | None) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        s = self.spec
        q, k, v = (
            wide(functional.silu(getattr(self, f"{name}_proj")(x_BTD))).unflatten(-1, (s.num_heads, -1))
            for name in "qkv"
        )
        if self.fallen_H is None or self.fallen_H.device != q.device or self.fallen_H.dtype != q.dtype:
            self.fallen_H = self.decay().to(q)  # once: a copy from the host would stop a decode step
        decay_H11 = self.fallen_H[:, None, None]

        def step(s_BHKV: Tensor, t: int) -> tuple[Tensor, Tensor]:
            moved = s_BHKV * decay_H11 + k[:, t, ..., None] @ v[:, t, :, None]
            return moved, (q[:, t, :, None] @ moved)[:, :, 0]

        start = v.new_zeros(len(v), s.num_heads, s.key_head_dim, s.value_head_dim)
        o = self.norm(scan(start, v.shape[1], flow, state(slot, 0), step).flatten(2).to(x_BTD.dtype))
        return self.o_proj(torch.sigmoid(self.g_proj(x_BTD)) * o)
