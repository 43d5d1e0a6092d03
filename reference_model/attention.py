"""Attention with keys and values per head: MHA, GQA and MQA, windows, chunks, sinks, caps, gates, cross-attention.

Axes: B sequences, T new tokens, S keys in sight, D stream, H query heads, G key/value heads (H is a multiple of G),
R = H / G query heads a key head times T, d channels of a query or key, e of a value.
Sources: arXiv:1706.03762, 1911.02150 (MQA), 2305.13245 (GQA), 2309.17453 (sinks).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from llmcalc.arch import base
from llmcalc.arch.attention import Attention as Spec
from llmcalc.arch.positions import Alibi, RelativeBias, Rope
from llmcalc.errors import UnsupportedLayerError
from reference_model.cache import Flow, Formats, Rows, Slot, Source, seen
from reference_model.joined import Joined
from reference_model.norms import Norm, rms, scaled
from reference_model.positions import alibi_bias, buckets, distances, rotate
from reference_model.sight import Sight, hidden, shares, sight


def attend(
    q_BHTd: Tensor,
    k_BGSd: Tensor,
    v_BGSe: Tensor,
    seen_BTS: Sight,
    *,
    scale: float,
    softcap: float | None = None,
    bias_BHTS: Tensor | None = None,
    sinks_H: Tensor | None = None,
) -> Tensor:
    """softmax(q k^T scale + bias) v, a softmax over what is visible and, with a sink, one slot more: [B, H, T, e].

    Query heads of one key head become rows of one product, so keys and values are read once and never repeated. What a
    word says of the mask, and nothing stands beside, goes through torch's own kernels.
    """
    B, H, T, _ = q_BHTd.shape
    G, S = k_BGSd.shape[1:3]
    if isinstance(seen_BTS, str) and softcap is None and bias_BHTS is None and sinks_H is None:
        if seen_BTS == "causal":
            grouped = H != G
            if grouped and q_BHTd.is_cuda and q_BHTd.dtype == torch.float32:
                # The one fused kernel for 32 bits takes no groups, and without it all scores would be written.
                k_BGSd, v_BGSe = (part.repeat_interleave(H // G, 1) for part in (k_BGSd, v_BGSe))
                grouped = False
            return functional.scaled_dot_product_attention(
                q_BHTd, k_BGSd, v_BGSe, is_causal=True, scale=scale, enable_gqa=grouped
            )
        rows_BGRd = q_BHTd.reshape(B, G, H // G * T, -1)
        return functional.scaled_dot_product_attention(rows_BGRd, k_BGSd, v_BGSe, scale=scale).reshape(B, H, T, -1)
    q_BGRd = q_BHTd.reshape(B, G, H // G * T, -1)
    scores_BHTS = (q_BGRd @ k_BGSd.mT).view(B, H, T, S) * scale
    if softcap is not None:
        scores_BHTS = softcap * torch.tanh(scores_BHTS / softcap)
    if bias_BHTS is not None:
        scores_BHTS = scores_BHTS + bias_BHTS.to(scores_BHTS.dtype)
    weights_BHTS = shares(hidden(scores_BHTS, seen_BTS), sinks_H)
    return (weights_BHTS.reshape(B, G, H // G * T, S) @ v_BGSe).view(B, H, T, -1)


def warmth(temperature: tuple[float, float, int], positions_BT: Tensor) -> Tensor:
    """Llama-4's factor on queries, growing with the logarithm of the position: [B, 1, T, 1]."""
    scale, floor, first = temperature
    steps = torch.floor((positions_BT.double() + first) / floor)
    return (1.0 + scale * torch.log1p(steps))[:, None, :, None]


class Attention(nn.Module):
    """x_BTD -> q, k, v per head -> norms, positions, cache -> softmax -> gate -> o_proj -> [B, T, D]."""

    mixes = True
    OWN: frozenset[str] = frozenset()  # what a variant stores beside the four matrices

    def __init__(self, spec: Spec, depth: int = 0) -> None:
        super().__init__()
        odd = {weight.name for weight in spec.extra} - self.OWN
        if odd or type(spec) is not Spec or spec.cache == "single":
            raise UnsupportedLayerError(f"{type(spec).__name__} with {', '.join(sorted(odd)) or spec.cache}")
        if spec.scope.kind not in ("full", "sliding", "chunked", "bidirectional", "source", "image"):
            raise UnsupportedLayerError(f"attention over {spec.scope.kind} positions")
        self.spec, self.depth = spec, depth
        self.joined: Joined | None = None
        self.lends = True  # whether another layer reads what this one keeps
        D, H, G = spec.hidden_size, spec.num_attention_heads, spec.num_key_value_heads
        d, e, inputs = spec.head_dim, spec.v_head_dim, spec.source_size or spec.hidden_size
        self.q_proj = nn.Linear(D, H * d * (2 if spec.gate == "fused" else 1), spec.q_bias)
        if spec.cache != "borrowed":
            self.k_proj = nn.Linear(inputs, G * d, spec.k_bias)
            if spec.cache != "tied":
                self.v_proj = nn.Linear(inputs, G * e, spec.v_bias)
        self.o_proj = nn.Linear(H * e, spec.output_size or D, spec.o_bias)
        self.q_norm = self.norm(H) if spec.qk_norm not in ("none", "keys") else None
        self.k_norm = self.norm(G) if spec.qk_norm != "none" and spec.cache != "borrowed" else None
        if spec.gate in ("elementwise", "per_head"):
            self.gate_proj = nn.Linear(D, H * e if spec.gate == "elementwise" else H, bias=False)
        self.sinks = nn.Parameter(torch.zeros(H)) if spec.sinks else None

    def norm(self, heads: int) -> Norm:
        """The q or k norm: over a head with one vector, or one a head, or over all heads together."""
        s = self.spec
        size, shape = s.head_dim, (heads, s.head_dim) if s.qk_norm == "per_head" else ()
        if s.qk_norm == "full":
            size = heads * s.head_dim
        learned = s.qk_norm != "weightless"
        made = base.Norm(size, s.qk_norm_form, s.qk_norm_bias, learned, s.qk_norm_offset, s.qk_norm_eps)
        return Norm(made, shape)

    def allocate(self, batch: int, capacity: int, formats: Formats, device: torch.device, source: int) -> Slot | None:
        """Rows of keys [G, d] and of values [G, e]; nothing where another layer's are read."""
        s = self.spec
        if s.cache in ("borrowed", "none"):
            return None
        if s.cross:
            return Source(batch, source, (s.num_key_value_heads, s.head_dim), s.v_head_dim, formats, device)
        return tuple(
            Rows(batch, (s.num_key_value_heads, width), s.scope, capacity, formats.cache, device)
            for width in (s.head_dim, s.v_head_dim)
        )

    def turned(self, x_BTHd: Tensor, norm: Norm | None, flow: Flow) -> Tensor:
        """Norm and rotation of queries or keys, in the family's order: [B, T, H, d] -> [B, T, H, d]."""
        s = self.spec

        def normed(x: Tensor) -> Tensor:
            if norm is None:
                return x
            return norm(x.flatten(-2)).view_as(x) if s.qk_norm == "full" else norm(x)

        if not s.qk_norm_after_rope:
            x_BTHd = normed(x_BTHd)
        if isinstance(s.positions, Rope) and not s.cross:
            x_BTHd = rotate(x_BTHd.transpose(1, 2), s.positions, flow).transpose(1, 2)
        return normed(x_BTHd) if s.qk_norm_after_rope else x_BTHd

    def projected(self, part: str, x_BTD: Tensor, flow: Flow) -> Tensor:
        """The projection to q, k or v, with the adapter of this call: [B, T, D] -> [B, T, heads d]."""
        added = flow.adapters.of(part, x_BTD) if flow.adapters is not None else None
        y_BTF = getattr(self, f"{part}_proj")(x_BTD)
        return y_BTF if added is None else y_BTF + added

    def merge(self) -> None:
        """Make q, k and v one product, where they read the same."""
        s = self.spec
        if s.cache not in ("borrowed", "tied") and not s.cross:
            self.joined = Joined(self.q_proj, self.k_proj, self.v_proj)

    def queries(self, x_BTD: Tensor, flow: Flow) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Queries as projected [B, T, H d], and keys and values where the same product makes them."""
        if self.joined is None or flow.adapters is not None:
            return self.projected("q", x_BTD, flow), ()
        q, *made = self.joined(x_BTD)
        return q, tuple(made)

    def keys_values(self, x_BTD: Tensor, flow: Flow, made: tuple[Tensor, ...] = ()) -> tuple[Tensor, Tensor]:
        """Keys [B, T, G, d] and values [B, T, G, e] of the new tokens (or of the source)."""
        s = self.spec
        k = made[0] if made else self.projected("k", x_BTD, flow)
        raw_BTGd = self.clipped(k).unflatten(-1, (s.num_key_value_heads, s.head_dim))
        if s.cache == "tied":
            v_BTGe = raw_BTGd
        else:
            v = made[1] if made else self.projected("v", x_BTD, flow)
            v_BTGe = self.clipped(v).unflatten(-1, (s.num_key_value_heads, s.v_head_dim))
        if s.v_norm:
            v_BTGe = rms(v_BTGe, s.qk_norm_eps or 1e-6).to(v_BTGe.dtype)
        return scaled(self.turned(raw_BTGd, self.k_norm, flow), s.multipliers[1]), v_BTGe

    def clipped(self, x: Tensor) -> Tensor:
        """OLMo's clamp."""
        return x if self.spec.clip is None else x.clamp(-self.spec.clip, self.spec.clip)

    def context(
        self, x_BTD: Tensor, flow: Flow, slot: Slot | None, made: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values in sight and their positions: [B, S, G, d], [B, S, G, e], [B, S]."""
        s = self.spec
        if s.cache == "borrowed":
            return flow.kept[s.cache_source if s.cache_source is not None else -1]
        if s.cross:
            return self.source(flow, slot if isinstance(slot, Source) else None)
        rows = slot if isinstance(slot, tuple) else None
        (k, v), keys_BS = seen(rows, self.keys_values(x_BTD, flow, made), flow)  # type: ignore[arg-type]
        if self.lends:
            flow.kept[flow.depth] = (k, v, keys_BS)
        return k, v, keys_BS

    def source(self, flow: Flow, slot: Source | None) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values of the source, from the cache after the first pass."""
        if slot is None or not slot.filled:
            if flow.source_BSD is None:
                raise UnsupportedLayerError("cross-attention without encoder states")
            k, v = self.keys_values(flow.source_BSD, flow)
            if slot is not None:
                slot.keys.copy_(k)
                slot.values.copy_(v)
                slot.filled = True
        else:
            k, v = slot.keys, slot.values
        return k, v, torch.arange(k.shape[1], device=k.device).expand(k.shape[0], -1)

    def bias(self, flow: Flow, keys_BS: Tensor, v_BSGe: Tensor) -> Tensor | None:
        """What positions (in a variant: values) add to the scores: [B, H, T, S], or nothing."""
        s, distance_BTS = self.spec, distances(flow.positions_BT, keys_BS)
        if isinstance(s.positions, Alibi):
            return alibi_bias(s.positions, s.num_attention_heads, distance_BTS)
        if isinstance(s.positions, RelativeBias):
            table_NH = flow.tables.get(flow.depth, flow.tables[0])
            both_ways = s.scope.kind == "bidirectional"
            return table_NH[buckets(s.positions, distance_BTS, both_ways=both_ways)].permute(0, 3, 1, 2)
        return None

    def forward(self, x_BTD: Tensor, flow: Flow, slot: Slot | None) -> Tensor:
        """[B, T, D] -> [B, T, D]; fills the slot."""
        s = self.spec
        x_BTD = scaled(x_BTD, s.multipliers[0])
        projected, made = self.queries(x_BTD, flow)
        q_BTHd = self.clipped(projected).unflatten(-1, (s.num_attention_heads, -1))
        if s.gate == "fused":
            q_BTHd, gate_BTHe = q_BTHd.chunk(2, -1)
        q_BHTd = self.turned(q_BTHd, self.q_norm, flow).transpose(1, 2)
        if s.temperature is not None:
            q_BHTd = q_BHTd * warmth(s.temperature, flow.positions_BT).to(q_BHTd.dtype)
        o_BTHe = self.mixed(q_BHTd, *self.context(x_BTD, flow, slot, made), flow).transpose(1, 2)
        if s.gate == "fused":
            o_BTHe = o_BTHe * torch.sigmoid(gate_BTHe)
        elif s.gate != "none":
            o_BTHe = o_BTHe * torch.sigmoid(self.gate_proj(x_BTD).unflatten(-1, (s.num_attention_heads, -1)))
        return scaled(self.o_proj(self.settled(o_BTHe.flatten(-2))), s.multipliers[2])

    def mixed(self, q_BHTd: Tensor, k_BSGd: Tensor, v_BSGe: Tensor, keys_BS: Tensor, flow: Flow) -> Tensor:
        """Values by the scores of the keys: [B, H, T, e]."""
        s = self.spec
        scale = s.scale if s.scale is not None else s.head_dim**-0.5
        bias_BHTS = self.bias(flow, keys_BS, v_BSGe)
        if bias_BHTS is not None and isinstance(s.positions, Alibi) and s.positions.scaled:
            bias_BHTS = bias_BHTS * scale
        return attend(
            q_BHTd, k_BSGd.transpose(1, 2), v_BSGe.transpose(1, 2), sight(s.scope, flow, keys_BS),
            scale=scale, softcap=s.softcap, bias_BHTS=bias_BHTS, sinks_H=self.sinks,
        )  # fmt: skip

    def settled(self, o_BTF: Tensor) -> Tensor:
        """What a variant does before the output matrix: [B, T, H e] -> [B, T, H e]."""
        return o_BTF
