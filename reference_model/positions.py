"""How positions enter: rotations of queries and keys (with every scaling of them), and biases on the scores.

Axes: B sequences, T new tokens, S keys in sight, H heads, d channels of a head, r rotated channels.
Sources: arXiv:2104.09864 (rotary), 2306.15595 (interpolation), 2309.00071 (YaRN), 2402.13753 (LongRoPE),
2108.12409 (ALiBi), 1910.10683 (relative buckets).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import Tensor

from llmcalc.arch.positions import Alibi, RelativeBias, Rope
from llmcalc.errors import UnsupportedLayerError

if TYPE_CHECKING:
    from reference_model.cache import Flow

T = TypeVar("T")


def _number(scaling: dict[str, object], name: str, default: float) -> float:
    value = scaling.get(name)
    return float(value) if isinstance(value, (int, float)) else default


def _plain(theta: float, r: int) -> Tensor:
    """Angles per position of the r/2 pairs, fastest first: [r/2]."""
    return theta ** (-torch.arange(0, r, 2, dtype=torch.float64) / r)


def _yarn(rope: Rope, scaling: dict[str, object]) -> tuple[Tensor, float]:
    """Slow pairs interpolated, fast ones kept, a ramp between; and the factor on cosine and sine."""
    factor, r = _number(scaling, "factor", 1.0), rope.width
    original = _number(scaling, "original_max_position_embeddings", rope.context or 0)

    def pair(turns: float) -> float:
        return r * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = pair(_number(scaling, "beta_fast", 32.0)), pair(_number(scaling, "beta_slow", 1.0))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, r - 1)
    ramp = ((torch.arange(r // 2, dtype=torch.float64) - low) / (max(high - low, 0.001))).clamp(0, 1)
    plain = _plain(rope.theta, r)

    def mscale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    one, every = _number(scaling, "mscale", 0.0), _number(scaling, "mscale_all_dim", 0.0)
    grown = mscale(one) / mscale(every) if one and every else mscale(1.0)
    return plain / factor * ramp + plain * (1 - ramp), _number(scaling, "attention_factor", grown)


def _llama3(rope: Rope, scaling: dict[str, object]) -> Tensor:
    """Long waves interpolated, short ones kept, a smooth passage between."""
    plain, factor = _plain(rope.theta, rope.width), _number(scaling, "factor", 1.0)
    low, high = _number(scaling, "low_freq_factor", 1.0), _number(scaling, "high_freq_factor", 4.0)
    turns = _number(scaling, "original_max_position_embeddings", 8192) * plain / (2 * math.pi)
    smooth = ((turns - low) / (high - low)).clamp(0, 1)
    return plain / factor * (1 - smooth) + plain * smooth


def _longrope(rope: Rope, scaling: dict[str, object], length: int) -> tuple[Tensor, float]:
    """A factor for every pair, one list for contexts up to the original length, one for longer ones."""
    context = rope.context or 0
    original = _number(scaling, "original_max_position_embeddings", context)
    factors = scaling["long_factor" if length > original else "short_factor"]
    factor = _number(scaling, "factor", context / original)
    grown = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    grown = _number(scaling, "attention_factor", grown)
    grown = _number(scaling, "long_mscale" if length > original else "short_mscale", grown)  # Phi-3.5-MoE
    return _plain(rope.theta, rope.width) / torch.tensor(factors, dtype=torch.float64), grown


def frequencies(rope: Rope, length: int, d: int) -> tuple[Tensor, float]:
    """Angles per position [pairs] and the factor on cosine and sine, for a context of ``length`` in all."""
    scaling = dict(rope.scaling)
    match scaling.get("rope_type") or scaling.get("type") or "default":
        case "default" | "mrope":
            return _plain(rope.theta, rope.width), 1.0
        case "linear":
            return _plain(rope.theta, rope.width) / _number(scaling, "factor", 1.0), 1.0
        case "dynamic":
            factor, context = _number(scaling, "factor", 1.0), rope.context or length
            stretch = factor * max(length, context) / context - (factor - 1)
            return _plain(rope.theta * stretch ** (rope.width / (rope.width - 2)), rope.width), 1.0
        case "yarn":
            return _yarn(rope, scaling)
        case "llama3":
            return _llama3(rope, scaling), 1.0
        case "longrope" | "su":
            return _longrope(rope, scaling, length)
        case "proportional":
            turning = _plain(rope.theta, d)[: rope.width // 2] / _number(scaling, "factor", 1.0)
            return torch.cat([turning, torch.zeros(d // 2 - rope.width // 2, dtype=torch.float64)]), 1.0
        case other:
            raise UnsupportedLayerError(f"rotary positions of the type {other!r}")


_KEPT: dict[Hashable, Any] = {}


def kept(key: Hashable, make: Callable[[], T]) -> T:
    """A constant on a device, brought there once: a copy from the host would stop a decode step."""
    if key not in _KEPT:
        if len(_KEPT) >= 256:
            _KEPT.clear()
        _KEPT[key] = make()
    return cast(T, _KEPT[key])


def there(rope: Rope, length: int, d: int, device: torch.device) -> tuple[Tensor, float]:
    """Frequencies and their factor on a device."""

    def make() -> tuple[Rope, Tensor, float]:
        turn, factor = frequencies(rope, length, d)
        return rope, turn.to(device), factor  # with the rope, whose id may be the key

    return kept((_key(rope), length, d, device), make)[1:]


def turns(rope: Rope, flow: Flow, d: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every rotated channel at the new tokens' positions, the sine with its sign: [B, 1, T, r]."""
    turn, factor = there(rope, flow.horizon, d, flow.positions_BT.device)
    angle_BTp = flow.positions_BT[..., None].double() * turn
    cos, sin = ((f(angle_BTp) * factor).to(dtype)[:, None] for f in (torch.cos, torch.sin))
    sin = -sin if rope.backwards else sin
    if rope.interleaved:
        return cos.repeat_interleave(2, -1), torch.stack([-sin, sin], -1).flatten(-2)
    return torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)


def rotate(x_BHTd: Tensor, rope: Rope, flow: Flow) -> Tensor:
    """The first r channels of every head turned by position times frequency; [B, H, T, d] -> [B, H, T, d].

    A pair (a, b) becomes (a cos - b sin, b cos + a sin): channels times the cosine, their partners times a sine.
    """
    d = x_BHTd.shape[-1]
    cos, sin = flow.once(("turns", _key(rope), d, x_BHTd.dtype), lambda: turns(rope, flow, d, x_BHTd.dtype))
    r = cos.shape[-1]
    turned, rest = x_BHTd[..., :r], x_BHTd[..., r:]
    if rope.interleaved:
        partner = turned.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    else:
        partner = torch.cat([turned[..., r // 2 :], turned[..., : r // 2]], -1)
    turned = torch.addcmul(turned * cos, partner, sin)
    return turned if r == d else torch.cat([turned, rest], -1)


def _key(rope: Rope) -> Hashable:
    """What tells rotations apart: equal ones are made once a pass."""
    try:
        hash(rope)
    except TypeError:  # lists of factors
        return id(rope)
    return rope


def slopes(alibi: Alibi, heads: int) -> Tensor:
    """One slope per head, a geometric series; odd powers of a finer one where heads are no power of two: [H]."""
    near = 2 ** math.floor(math.log2(heads))
    first = [2 ** (-alibi.max_bias * i / near) for i in range(1, near + 1)]
    finer = [2 ** (-alibi.max_bias * i / (2 * near)) for i in range(1, 2 * (heads - near), 2)]
    return torch.tensor(first + finer, dtype=torch.float64)


def distances(positions_BT: Tensor, keys_BS: Tensor) -> Tensor:
    """Key position less query position: [B, T, S], at most 0 for what a causal query sees."""
    return keys_BS[:, None, :] - positions_BT[:, :, None]


def alibi_bias(alibi: Alibi, heads: int, distance_BTS: Tensor) -> Tensor:
    """Slope times distance: [B, H, T, S]."""
    device = distance_BTS.device
    slope_H = kept(("slopes", alibi, heads, device), lambda: slopes(alibi, heads).to(device))
    return slope_H[None, :, None, None] * distance_BTS[:, None].double()


def buckets(spec: RelativeBias, distance_BTS: Tensor, *, both_ways: bool) -> Tensor:
    """T5's buckets: exact for near positions, logarithmic for far ones: [B, T, S] of indices."""
    count, base = spec.buckets, torch.zeros_like(distance_BTS)
    if both_ways:
        count //= 2
        base, far = (distance_BTS > 0) * count, distance_BTS.abs()
    else:
        far = (-distance_BTS).clamp(min=0)
    exact = count // 2
    grown = torch.log(far.clamp(min=1).float() / exact) / math.log(spec.max_distance / exact) * (count - exact)
    return base + torch.where(far < exact, far, (exact + grown.long()).clamp(max=count - 1))


def sinusoids(positions_BT: Tensor, width: int, *, halves: bool = False, inclusive: bool = False) -> Tensor:
    """Sines and cosines of a position, pair by pair, or (``halves``) all sines and then all cosines: [B, T, width].

    inclusive: the slowest pair turns by exactly 1/10,000 a position (XGLM).
    """
    turn = _plain(10_000.0, width) ** (width / (width - 2) if inclusive else 1.0)
    device = positions_BT.device
    angle = positions_BT[..., None].double() * kept(("waves", width, inclusive, device), lambda: turn.to(device))
    if halves:
        return torch.cat([angle.sin(), angle.cos()], -1)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)
