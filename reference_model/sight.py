"""Who sees whom: the mask of a pass, in a word where it takes none, and softmaxes over what is visible.

Axes: B sequences, T new tokens, S keys in sight, H query heads.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from llmcalc.arch import base
from llmcalc.errors import UnsupportedLayerError
from reference_model.cache import Flow

Sight = Tensor | Literal["all", "causal"]


def visible(scope: base.Scope, positions_BT: Tensor, keys_BS: Tensor) -> Tensor:
    """Which keys a query sees: no empty row (position -1), none ahead, none outside window or chunk: [B, T, S]."""
    q, k = positions_BT[:, :, None], keys_BS[:, None, :]
    if scope.kind in ("source", "image"):
        return (k >= 0).expand(q.shape[0], q.shape[1], -1)
    if scope.kind == "bidirectional":
        near = (k - q).abs() <= scope.size if scope.size else torch.ones_like(k == q)
        return (k >= 0) & near
    causal = (k >= 0) & (k <= q)
    match scope.kind:
        case "full":
            return causal
        case "sliding":
            return causal & (k > q - scope.size)
        case "chunked":
            return causal & (k // scope.size == q // scope.size)
        case other:
            raise UnsupportedLayerError(f"attention over {other} positions")


def sight(scope: base.Scope, flow: Flow, keys_BS: Tensor) -> Sight:
    """The same as a mask [B, T, S], or in a word where it takes none: every key, or every one up to the query's own."""
    T, S = flow.new, keys_BS.shape[1]
    if scope.kind in ("source", "image"):
        return "all"
    if flow.level and scope.kind in ("full", "sliding") and (scope.kind == "full" or scope.size >= S):
        if T == 1:
            return "all"
        if T == S:
            return "causal"
    key = ("sight", scope, keys_BS.data_ptr(), S)
    return flow.once(key, lambda: visible(scope, flow.positions_BT, keys_BS))


def hidden(scores_BHTS: Tensor, seen_BTS: Sight) -> Tensor:
    """Scores with those of keys out of sight at the bottom of the format: [B, H, T, S]."""
    if isinstance(seen_BTS, str):
        if seen_BTS == "all":
            return scores_BHTS
        T = scores_BHTS.shape[-1]
        seen_BTS = torch.ones(1, T, T, dtype=torch.bool, device=scores_BHTS.device).tril()
    return scores_BHTS.masked_fill(~seen_BTS[:, None], torch.finfo(scores_BHTS.dtype).min)


def shares(scores_BHTS: Tensor, sinks_H: Tensor | None = None) -> Tensor:
    """A softmax, with a sink over one slot more that takes its share away: [B, H, T, S]."""
    if sinks_H is None:
        return scores_BHTS.softmax(-1)
    B, H, T, _ = scores_BHTS.shape
    sink_BHT1 = sinks_H[None, :, None, None].expand(B, H, T, 1).to(scores_BHTS.dtype)
    return torch.cat([scores_BHTS, sink_BHT1], -1).softmax(-1)[..., :-1]
