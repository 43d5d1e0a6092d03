"""A rank's share of a layer: the spec that it builds, and where its part of every tensor lies.

What makes heads or inner channels is cut by outputs, what reads them by inputs (arXiv:1909.08053, section 3); tables
and heads by rows of the vocabulary, the last rank with fewer. Norms of the stream, routers, latents and index keys are
on every rank; a head of keys and values, or a group of a scan, is on several where ranks are more. Everything follows
from the fields of the specs, as in the rest of this package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from llmcalc.arch import attention, base, conv, embedding, ffn, latent, linear, model, moe, recurrent, ssm
from llmcalc.errors import InvalidInputError, UnsupportedLayerError


class Share(NamedTuple):
    """The units (heads, groups, channels, rows) from ``start`` to ``stop`` of a ``whole`` number."""

    start: int
    stop: int
    whole: int

    @property
    def count(self) -> int:
        """How many."""
        return self.stop - self.start

    def times(self, width: int) -> slice:
        """Their channels, of so many each."""
        return slice(self.start * width, self.stop * width)


@dataclass(frozen=True)
class Place:
    """One of ``size`` ranks. spread: an expert is whole and on one rank, where otherwise each is cut."""

    size: int = 1
    rank: int = 0
    spread: bool = False

    def units(self, whole: int, what: str, *, repeated: bool = False) -> Share:
        """Which heads, groups or channels are here; ``repeated``: one of them on several ranks where there are fewer.

        Raises: InvalidInputError: where they cannot be shared out evenly.
        """
        if whole % self.size == 0:
            each = whole // self.size
            return Share(self.rank * each, (self.rank + 1) * each, whole)
        if repeated and self.size % whole == 0:
            one = self.rank * whole // self.size
            return Share(one, one + 1, whole)
        raise InvalidInputError(
            f"{self.size} ranks cannot share {whole:,} {what}", "choose a degree that divides the heads and widths"
        )

    def rows(self, whole: int, what: str) -> Share:
        """Which rows or experts are here: as many on every rank but the last.

        Raises: InvalidInputError: where none is left for the last.
        """
        each = -(-whole // self.size)
        if (self.size - 1) * each >= whole:
            raise InvalidInputError(f"{self.size} ranks are too many for {whole:,} {what}")
        return Share(self.rank * each, min((self.rank + 1) * each, whole), whole)


class Cut(NamedTuple):
    """The part of a tensor that a rank holds: of each of the matrices fused along an axis, units of some width."""

    axis: int
    parts: tuple[tuple[Share, int], ...]

    def of(self, tensor: Tensor) -> Tensor:
        """The part; a vector is whole where a matrix is cut by inputs (its bias)."""
        if tensor.dim() <= self.axis:
            return tensor
        whole = tensor.split([share.whole * width for share, width in self.parts], self.axis)
        mine = [
            part.narrow(self.axis, share.start * width, share.count * width)
            for part, (share, width) in zip(whole, self.parts, strict=True)
        ]
        return mine[0] if len(mine) == 1 else torch.cat(mine, self.axis)


Cuts = dict[str, Cut]
Cutter = Callable[[Any, Place], tuple[Any, Cuts]]


def outputs(*parts: tuple[Share, int]) -> Cut:
    """Rows of units, of so many rows each; where matrices are fused, of each of them."""
    return Cut(0, parts)


def inputs(share: Share, width: int = 1) -> Cut:
    """Columns of units, of so many columns each."""
    return Cut(1, ((share, width),))


# -- kinds of layers ---------------------------------------------------------------------------------------------


def _attention(s: attention.Attention, place: Place) -> tuple[attention.Attention, Cuts]:
    if s.differential or any(weight.name == "A" for weight in s.extra):
        raise UnsupportedLayerError(
            f"{'differential' if s.differential else 'dynamic mask'} attention on several ranks"
        )
    heads = place.units(s.num_attention_heads, "heads")
    shared = place.units(s.num_key_value_heads, "heads of keys and values", repeated=True)
    wide = s.head_dim if s.qk_norm == "full" else 1
    cuts = {
        "q_proj": outputs((heads, s.head_dim * (2 if s.gate == "fused" else 1))),
        "k_proj": outputs((shared, s.head_dim)),
        "v_proj": outputs((shared, s.v_head_dim)),
        "gate_proj": outputs((heads, 1 if s.gate == "per_head" else s.v_head_dim)),
        "sinks": outputs((heads, 1)),
        "attn_sub_norm": outputs((heads, s.head_dim)),
        "o_proj": inputs(heads, s.v_head_dim),
    }
    if s.qk_norm in ("full", "per_head"):
        cuts |= {"q_norm": outputs((heads, wide)), "k_norm": outputs((shared, wide))}
    return replace(s, num_attention_heads=heads.count, num_key_value_heads=shared.count), cuts


def _latent(s: latent.LatentAttention, place: Place) -> tuple[latent.LatentAttention, Cuts]:
    heads = place.units(s.num_attention_heads, "heads")
    query = outputs((heads, s.qk_nope_head_dim + s.qk_rope_head_dim))
    return replace(s, num_attention_heads=heads.count), {
        "q_proj": query,
        "q_b_proj": query,
        "kv_b_proj": outputs((heads, s.qk_nope_head_dim + s.v_head_dim)),
        "g_proj": outputs((heads, 1 if s.gate == "per_head" else s.v_head_dim)),
        "o_proj": inputs(heads, s.v_head_dim),
    }


def _feed_forward(s: ffn.FeedForward, place: Place) -> tuple[ffn.FeedForward, Cuts]:
    inner = place.units(s.intermediate_size, "inner channels")
    rows = outputs((inner, 1))
    return replace(s, intermediate_size=inner.count), {"gate_proj": rows, "up_proj": rows, "down_proj": inputs(inner)}


def _experts(s: moe.MixtureOfExperts, place: Place) -> tuple[moe.MixtureOfExperts, Cuts]:
    """Spread experts keep their numbers: those of other ranks are missing, and no tensor of theirs is asked for."""
    cuts: Cuts = {}
    if place.spread:
        small = replace(s, num_experts=place.rows(s.num_experts, "experts").count)
    else:
        inner = place.units(s.moe_intermediate_size, "inner channels of an expert")
        small = replace(s, moe_intermediate_size=inner.count)
        rows = outputs((inner, 1))
        cuts = {"experts.{}.gate_proj": rows, "experts.{}.up_proj": rows, "experts.{}.down_proj": inputs(inner)}
    if s.shared is not None:
        shared, more = _feed_forward(s.shared, place)
        small = replace(small, shared=shared)
        cuts |= {f"shared_experts.{name}": cut for name, cut in more.items()}
    return small, cuts


def _mamba1(s: ssm.Mamba1, place: Place) -> tuple[ssm.Mamba1, Cuts]:
    """Where heads have matrices of their own for dt, b and c (Zamba), those go with the heads."""
    inner, heads = place.units(s.inner, "channels"), s.heads
    rows, x_proj = outputs((inner, 1)), inputs(inner)
    if s.heads > 1:
        mine = place.units(s.heads, "heads of a scan")
        heads, x_proj = mine.count, outputs((mine, s.time_step_rank + 2 * s.state_size))
    return replace(s, inner=inner.count, heads=heads), {
        "in_proj": outputs((inner, 1), (inner, 1)), "conv1d": rows, "x_proj": x_proj, "dt_proj": rows, "A_log": rows,
        "D": rows, "out_proj": inputs(inner),
    }  # fmt: skip


def _mamba2(s: ssm.Mamba2, place: Place) -> tuple[ssm.Mamba2, Cuts]:
    """Fused rows: gate, x, b, c and dt; the convolution has x, b and c."""
    heads = place.units(s.num_heads, "heads of a scan")
    groups = place.units(s.n_groups, "groups of a scan", repeated=True)
    normed = place.units(s.norm_groups, "groups of a norm", repeated=True).count if s.gated_norm else s.norm_groups
    x, bc, one = (heads, s.head_dim), (groups, s.state_size), outputs((heads, 1))
    return replace(s, num_heads=heads.count, n_groups=groups.count, norm_groups=normed), {
        "in_proj": outputs(x, x, bc, bc, (heads, 1)), "conv1d": outputs(x, bc, bc), "A_log": one, "D": one,
        "dt_bias": one, "norm": outputs(x), "out_proj": inputs(*x),
    }  # fmt: skip


def _gated_delta(s: linear.GatedDelta, place: Place) -> tuple[linear.GatedDelta, Cuts]:
    """Fused rows (Qwen3-Next) stand key head by key head, others q, k and v one after the other."""
    keys, heads = place.units(s.num_key_heads, "key heads"), place.units(s.num_value_heads, "value heads")
    each, k, v = s.num_value_heads // s.num_key_heads, (keys, s.key_head_dim), (heads, s.value_head_dim)
    one, qkv, values = outputs((heads, 1)), outputs(k, k, v), outputs(v)
    cuts = {
        "in_proj_qkvz": outputs((keys, 2 * (s.key_head_dim + each * s.value_head_dim))),
        "in_proj_ba": outputs((keys, 2 * each)), "in_proj_qkv": qkv, "in_proj_z": values, "in_proj_b": one,
        "in_proj_a": one, "conv1d": qkv, "v_proj": values, "g_proj": values, "v_conv1d": values, "b_proj": one,
        "a_proj": one, "A_log": one, "dt_bias": one, "out_proj": inputs(*v), "o_proj": inputs(*v),
    } | dict.fromkeys(("q_proj", "k_proj", "q_conv1d", "k_conv1d"), outputs(k))  # fmt: skip
    return replace(s, num_key_heads=keys.count, num_value_heads=heads.count), cuts


def _kimi_delta(s: linear.KimiDelta, place: Place) -> tuple[linear.KimiDelta, Cuts]:
    heads = place.units(s.num_heads, "heads")
    wide, one = outputs((heads, s.head_dim)), outputs((heads, 1))
    names = ("q_proj", "k_proj", "v_proj", "q_conv1d", "k_conv1d", "v_conv1d", "f_proj", "f_b_proj", "g_proj",
             "g_b_proj", "dt_bias")  # fmt: skip
    cuts = dict.fromkeys(names, wide) | {"A_log": one, "b_proj": one, "o_proj": inputs(heads, s.head_dim)}
    return replace(s, num_heads=heads.count), cuts


def _decay(s: linear.DecayAttention, place: Place) -> tuple[linear.DecayAttention, Cuts]:
    heads = place.units(s.num_heads, "heads")
    keys, values = outputs((heads, s.key_head_dim)), outputs((heads, s.value_head_dim))
    cuts = {"q_proj": keys, "k_proj": keys, "v_proj": values, "g_proj": values}
    return replace(s, num_heads=heads.count), cuts | {"o_proj": inputs(heads, s.value_head_dim)}


def _short_conv(s: conv.ShortConv, place: Place) -> tuple[conv.ShortConv, Cuts]:
    inner = place.units(s.hidden_size, "channels")
    one = (inner, 1)
    cuts = {"in_proj": outputs(one, one, one), "conv": outputs(one), "out_proj": inputs(inner)}
    return replace(s, hidden_size=inner.count), cuts


def _rg_lru(s: recurrent.RgLru, place: Place) -> tuple[recurrent.RgLru, Cuts]:
    heads = place.units(s.num_heads, "blocks of channels")
    width = s.lru_width // s.num_heads
    names = ("linear_x", "linear_y", "conv_1d", "rg_lru.recurrent_param")
    gates = [f"rg_lru.{gate}_{kind}" for gate in ("input_gate", "recurrent_gate") for kind in ("weight", "bias")]
    cuts = dict.fromkeys(names, outputs((heads, width))) | dict.fromkeys(gates, outputs((heads, 1)))
    small = replace(s, lru_width=heads.count * width, num_heads=heads.count)
    return small, cuts | {"linear_out": inputs(heads, width)}


def _vocabulary(s: Any, place: Place) -> tuple[Any, Cuts]:
    """A token table or a head; tables of positions are whole."""
    if isinstance(s, embedding.Embedding) and not s.tokens:
        return s, {}
    mine = place.rows(s.rows, "rows of a vocabulary")
    return replace(s, rows=mine.count), {"": outputs((mine, 1))}


def _whole(s: Any, _: Place) -> tuple[Any, Cuts]:
    return s, {}


CUTTERS: dict[type[base.Spec], Cutter] = {
    attention.Attention: _attention, latent.LatentAttention: _latent, ffn.FeedForward: _feed_forward,
    moe.MixtureOfExperts: _experts, ssm.Mamba1: _mamba1, ssm.Mamba2: _mamba2, linear.GatedDelta: _gated_delta,
    linear.KimiDelta: _kimi_delta, linear.DecayAttention: _decay, conv.ShortConv: _short_conv,
    recurrent.RgLru: _rg_lru, embedding.Embedding: _vocabulary, embedding.Head: _vocabulary,
}  # fmt: skip


def cut_spec(spec: base.Spec, place: Place) -> tuple[base.Spec, Cuts]:
    """A mixer's, a feed-forward's, a table's or a head's share.

    Raises: UnsupportedLayerError: where the kind cannot be shared out.
    """
    if type(spec) not in CUTTERS:
        if spec.part in ("attention", "mixer", *model.FFN_PARTS):
            raise UnsupportedLayerError(f"{type(spec).__name__} ({spec.kind}) on several ranks")
        return _whole(spec, place)
    return CUTTERS[type(spec)](spec, place)
