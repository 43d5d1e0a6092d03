"""Modules of which every rank has a share: what they sum over the ranks, and which heads or rows are theirs.

Axes: B sequences, T tokens, D stream, F inner width, V vocabulary; c of C channels, h of H heads are a rank's.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from llmcalc.arch import attention, base, conv, ffn, linear, moe, ssm
from llmcalc.arch.positions import Alibi, RelativeBias
from reference_model.attention import Attention
from reference_model.cache import Flow
from reference_model.cuts import Share
from reference_model.ffn import FeedForward, MixtureOfExperts, Router
from reference_model.linear import DecayAttention, decays
from reference_model.norms import GatedNorm, Norm, wide
from reference_model.positions import alibi_bias, distances
from reference_model.ranks import Group


class Row(nn.Module):
    """A matrix that reads a rank's channels; the bias, which every rank holds, is added by the first: [..., c] -> sum.

    sums: whether the products are summed here, not later with others (experts).
    """

    def __init__(self, matrix: nn.Linear, group: Group, *, sums: bool = True) -> None:
        super().__init__()
        self.weight, self.group, self.sums = matrix.weight, group, sums
        self.register_parameter("bias", matrix.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., c] -> [..., D]."""
        y = functional.linear(x, self.weight, self.bias if self.group.rank == 0 else None)
        return self.group.sum(y) if self.sums else y


class Table(nn.Module):
    """A rank's rows of a token table; other tokens are zero here: [B, T] -> [B, T, D]."""

    def __init__(self, table: nn.Embedding, rows: Share, group: Group) -> None:
        super().__init__()
        self.weight, self.first, self.num_embeddings, self.group = table.weight, rows.start, rows.whole, group

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """[B, T] -> [B, T, D]."""
        here_BT = tokens_BT - self.first
        elsewhere_BT = (here_BT < 0) | (here_BT >= self.weight.shape[0])
        x_BTD = functional.embedding(here_BT.masked_fill(elsewhere_BT, 0), self.weight)
        return self.group.sum(x_BTD.masked_fill(elsewhere_BT[..., None], 0.0))


class SpreadNorm(nn.Module):
    """A norm over the channels of all ranks: [..., c] -> [..., c]; ``mine``: of a weight that every rank holds whole.

    Heads that several ranks hold are counted as often as each other, and the mean is what it was.
    """

    def __init__(self, norm: Norm, group: Group, mine: slice | None = None) -> None:
        super().__init__()
        self.layer_form, self.offset, self.eps, self.group = norm.layer_form, norm.offset, norm.eps, group
        self.mine = mine or slice(None)
        self.register_parameter("weight", norm.weight)
        self.register_parameter("bias", norm.bias)

    def mean(self, x: Tensor) -> Tensor:
        """Over the last axis of all ranks: [..., 1]."""
        return self.group.sum(x.mean(-1, keepdim=True)) / self.group.size

    def forward(self, x: Tensor) -> Tensor:
        """[..., c] -> [..., c]."""
        y = wide(x)
        y = y - self.mean(y) if self.layer_form else y
        y = y * torch.rsqrt(self.mean(y.pow(2)) + self.eps)
        if self.weight is not None:
            weight = wide(self.weight[self.mine])
            y = y * (weight + 1.0 if self.offset else weight)
        return (y if self.bias is None else y + wide(self.bias[self.mine])).to(x.dtype)


class SpreadGatedNorm(nn.Module):
    """Mamba-2's gated norm where several ranks share one of its ``groups``: [..., c] -> [..., c]."""

    def __init__(self, norm: GatedNorm, groups: int, group: Group) -> None:
        super().__init__()
        self.weight, self.eps, self.group, self.groups = norm.weight, norm.eps, group, groups
        self.number = group.rank * groups // group.size

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        """Gated, then normed; every rank adds its squares to its own group's."""
        y = wide(x) * functional.silu(wide(gate))
        squares = y.new_zeros(*y.shape[:-1], self.groups)
        squares[..., self.number] = y.pow(2).mean(-1)
        mean = self.group.sum(squares)[..., self.number, None] * (self.groups / self.group.size)
        return (y * torch.rsqrt(mean + self.eps) * wide(self.weight)).to(x.dtype)


class Elsewhere(nn.Module):
    """An expert of another rank: nothing is added here."""

    def forward(self, x_ND: Tensor) -> Tensor:
        """[N, D] -> [N, D]."""
        return torch.zeros_like(x_ND)


class PlacedAttention(Attention):
    """Attention whose bias on the scores depends on a head's number in the whole model."""

    def __init__(self, spec: attention.Attention, depth: int, heads: Share) -> None:
        super().__init__(spec, depth)
        self.heads = heads

    def bias(self, flow: Flow, keys_BS: Tensor, v_BSGe: Tensor) -> Tensor | None:
        """The rank's heads of what positions add to the scores: [B, h, T, S]."""
        if isinstance(self.spec.positions, Alibi):
            bias_BHTS = alibi_bias(self.spec.positions, self.heads.whole, distances(flow.positions_BT, keys_BS))
        else:
            bias_BHTS = cast(Tensor, super().bias(flow, keys_BS, v_BSGe))  # T5's tables are whole on every rank
        return bias_BHTS[:, self.heads.times(1)]


class PlacedDecay(DecayAttention):
    """Lightning attention, whose decay depends on a head's number in the whole model."""

    def __init__(self, spec: linear.DecayAttention, depth: int, heads: Share, whole: linear.DecayAttention) -> None:
        super().__init__(spec, depth)
        self.mine, self.whole = heads.times(1), whole

    def decay(self) -> Tensor:
        """[h]."""
        return decays(self.whole, self.depth)[self.mine]


class ThinnedFeedForward(FeedForward):
    """Gemma-3n's, whose threshold is a quantile over the channels of all ranks."""

    def __init__(self, spec: ffn.FeedForward, group: Group) -> None:
        super().__init__(spec)
        self.group = group

    def thinned(self, x: Tensor) -> Tensor:
        """[..., f] -> [..., f]."""
        mean = self.group.sum(x.mean(-1, keepdim=True)) / self.group.size
        spread = (self.group.sum((x - mean).pow(2).mean(-1, keepdim=True)) / self.group.size).sqrt()
        cut = NormalDist().inv_cdf(self.sparsity)
        return functional.relu(x - mean - cut * spread)


# -- what each kind of layer takes -------------------------------------------------------------------------------


def _attention(made: Any, spec: attention.Attention, group: Group) -> nn.Module:
    if isinstance(spec.positions, (Alibi, RelativeBias)):
        made = PlacedAttention(made.spec, made.depth, group.units(spec.num_attention_heads, "heads"))
    for name in ("attn_sub_norm", *(("q_norm", "k_norm") if spec.qk_norm == "full" else ())):
        if getattr(made, name, None) is not None:
            setattr(made, name, SpreadNorm(getattr(made, name), group))
    made.o_proj = Row(made.o_proj, group)
    return made


def _feed_forward(made: Any, spec: ffn.FeedForward, group: Group, *, sums: bool = True) -> nn.Module:
    inner = group.units(spec.intermediate_size, "inner channels")
    if spec.sparsity:
        made = ThinnedFeedForward(replace(spec, intermediate_size=inner.count), group)
    if made.ffn_sub_norm is not None:
        whole = Norm(base.Norm(spec.intermediate_size, eps=spec.inner_norm_eps))
        made.ffn_sub_norm = SpreadNorm(whole, group, inner.times(1))
    made.down_proj = Row(made.down_proj, group, sums=sums)
    return made


def _experts(made: MixtureOfExperts, spec: moe.MixtureOfExperts, group: Group) -> nn.Module:
    """One sum for all experts and the shared one; before the norm and the matrix after them where they are narrower."""
    if group.spread:
        here = group.rows(spec.num_experts, "experts")
        made.experts = nn.ModuleList(
            made.experts[index - here.start] if here.start <= index < here.stop else Elsewhere()
            for index in range(here.whole)
        )
        made.gate = Router(spec)
    elif spec.expert_bias:
        for expert in made.experts:
            expert.down_proj = Row(cast(nn.Linear, expert.down_proj), group, sums=False)
    if made.shared_experts is not None and spec.shared is not None:
        sums = bool(spec.latent_size)
        made.shared_experts = cast(FeedForward, _feed_forward(made.shared_experts, spec.shared, group, sums=sums))
    if spec.latent_size:
        after = made.fc2_latent_proj if made.latent_norm is None else made.latent_norm
        after.register_forward_pre_hook(lambda _, given: (group.sum(given[0]),))
    else:
        made.register_forward_hook(lambda _module, _given, y: group.sum(y))
    return made


def _mamba1(made: Any, spec: ssm.Mamba1, group: Group) -> nn.Module:
    if spec.heads == 1:
        made.x_proj = Row(made.x_proj, group)
    made.out_proj = Row(made.out_proj, group)
    return made


def _mamba2(made: Any, spec: ssm.Mamba2, group: Group) -> nn.Module:
    if spec.gated_norm and spec.norm_groups % group.size:
        made.norm = SpreadGatedNorm(made.norm, spec.norm_groups, group)
    made.out_proj = Row(made.out_proj, group)
    return made


def _decay(made: Any, spec: linear.DecayAttention, group: Group) -> nn.Module:
    heads = group.units(spec.num_heads, "heads")
    made = PlacedDecay(made.spec, made.depth, heads, spec)
    made.norm = SpreadNorm(made.norm, group, heads.times(spec.value_head_dim))
    made.o_proj = Row(made.o_proj, group)
    return made


def _short_conv(made: Any, spec: conv.ShortConv, group: Group) -> nn.Module:
    """Its width is the stream's, of which a rank reads all and makes a share."""
    inner = group.units(spec.hidden_size, "channels").count
    made.in_proj = nn.Linear(spec.hidden_size, 3 * inner, spec.bias)
    made.out_proj = Row(nn.Linear(inner, spec.hidden_size, spec.bias), group)
    return made


def fitted(made: nn.Module, spec: base.Spec, group: Group) -> nn.Module:
    """The module of a smaller spec as a share of the whole one's."""
    match spec:
        case attention.Attention():
            return _attention(made, spec, group)
        case ffn.FeedForward():
            return _feed_forward(made, spec, group)
        case moe.MixtureOfExperts():
            return _experts(cast(MixtureOfExperts, made), spec, group)
        case ssm.Mamba1():
            return _mamba1(made, spec, group)
        case ssm.Mamba2():
            return _mamba2(made, spec, group)
        case linear.DecayAttention():
            return _decay(made, spec, group)
        case conv.ShortConv():
            return _short_conv(made, spec, group)
    # What else there is sums only where it ends: latent attention, the delta rules, RG-LRU.
    name = next(name for name in ("o_proj", "out_proj", "linear_out") if hasattr(made, name))
    setattr(made, name, Row(getattr(made, name), group))
    return made
