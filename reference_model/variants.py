"""Attention with something stored beside its four matrices: BitNet's norm, DiffLlama's difference, Doge's mask.

Axes: B sequences, T new tokens, S keys in sight, H query heads, G key/value heads, d channels of a head, e of a value.
Sources: arXiv:2504.12285 (BitNet), 2410.05258 (differential), 2412.11834 (dynamic mask).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from llmcalc.arch import base
from llmcalc.arch.attention import Attention as Spec
from reference_model.attention import Attention
from reference_model.cache import Flow
from reference_model.norms import Norm, rms
from reference_model.sight import visible


class NormedAttention(Attention):
    """BitNet norms what all heads have gathered before the output matrix."""

    OWN = frozenset({"attn_sub_norm.weight"})

    def __init__(self, spec: Spec, depth: int = 0) -> None:
        super().__init__(spec, depth)
        self.attn_sub_norm = Norm(base.Norm(spec.num_attention_heads * spec.head_dim, eps=spec.qk_norm_eps))

    def settled(self, o_BTF: Tensor) -> Tensor:
        """[B, T, H e] -> [B, T, H e]."""
        return self.attn_sub_norm(o_BTF)


class DifferentialAttention(Attention):
    """Heads in pairs: lambda times the second's map is taken from the first's; both gather the values of two heads."""

    OWN = frozenset(f"lambda_{name}" for name in ("q1", "k1", "q2", "k2"))

    def __init__(self, spec: Spec, depth: int = 0) -> None:
        super().__init__(spec, depth)
        self.first = 0.8 - 0.6 * math.exp(-0.3 * depth)
        for name in sorted(self.OWN):
            self.register_parameter(name, nn.Parameter(torch.randn(spec.head_dim) * 0.1))

    def mixed(self, q_BHTd: Tensor, k_BSGd: Tensor, v_BSGe: Tensor, keys_BS: Tensor, flow: Flow) -> Tensor:
        """Either half of the value heads for all maps, as the library does it: [B, H/2, T, 2 e]."""
        halves = (half.repeat(1, 1, 2, 1) for half in v_BSGe.chunk(2, 2))
        o_BHTe = torch.cat(
            [super(DifferentialAttention, self).mixed(q_BHTd, k_BSGd, v, keys_BS, flow) for v in halves], -1
        )
        plus, minus = o_BHTe.chunk(2, 1)
        one, two = (
            (q * k).sum().exp() for q, k in ((self.lambda_q1, self.lambda_k1), (self.lambda_q2, self.lambda_k2))
        )
        difference = rms(plus - (one - two + self.first) * minus, self.spec.qk_norm_eps or 1e-6)
        return (difference * (1 - self.first)).to(q_BHTd.dtype)


class MaskedAttention(Attention):
    """Doge weighs every key by its value, adds the weight to the scores and leaves the keys that weigh most."""

    OWN = frozenset({"A", "dt_proj.weight", "dt_proj.bias"})

    def __init__(self, spec: Spec, depth: int = 0) -> None:
        super().__init__(spec, depth)
        G = spec.num_key_value_heads
        biased = any(weight.name == "dt_proj.bias" for weight in spec.extra)
        self.A, self.dt_proj = nn.Parameter(torch.zeros(G)), nn.Linear(G * spec.head_dim, G, biased)

    def bias(self, flow: Flow, keys_BS: Tensor, v_BSGe: Tensor) -> Tensor:
        """Weights of the keys, minus infinity for those left out: [B, H, T, S].

        They are not kept, but computed again from the values in the cache, at every step.
        """
        s = self.spec
        weight_BGS = (self.A * functional.softplus(self.dt_proj(v_BSGe.flatten(-2)))).exp().mT
        seen_BTS = visible(s.scope, flow.positions_BT, keys_BS)
        weight_BGTS = weight_BGS[:, :, None].masked_fill(~seen_BTS[:, None], float("-inf"))
        if weight_BGTS.shape[-1] > s.dynamic_window:
            least_BGT1 = weight_BGTS.topk(s.dynamic_window, -1).values[..., -1:]
            weight_BGTS = weight_BGTS.masked_fill(weight_BGTS < least_BGT1, float("-inf"))
        return weight_BGTS.repeat_interleave(s.num_attention_heads // s.num_key_value_heads, 1)


def attention(spec: Spec, depth: int = 0) -> Attention:
    """The variant that a spec's further tensors ask for."""
    if spec.differential:
        return DifferentialAttention(spec, depth)
    names = {weight.name for weight in spec.extra}
    if "attn_sub_norm.weight" in names:
        return NormedAttention(spec, depth)
    return MaskedAttention(spec, depth) if "A" in names else Attention(spec, depth)
