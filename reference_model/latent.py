"""Multi-head latent attention, with the latent in the cache, and the indexer that picks positions for it.

A position is kept as one latent c of R numbers and one rotary key of t numbers, whatever the number of heads. A pass
over many tokens expands latents to keys and values; a decode step leaves them as they are and moves the expansion to
the query and the output (absorption): q (W c) = (W^T q) c.
Axes: B sequences, T new tokens, S positions in sight, D stream, H heads, R latent, p plain and t rotary channels of a
query, e channels of a value, I index heads of w channels. Sources: arXiv:2405.04434 section 2.1, DeepSeek-V3.2-Exp.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from llmcalc.arch import base
from llmcalc.arch.latent import Indexer as IndexSpec
from llmcalc.arch.latent import LatentAttention as Spec
from llmcalc.arch.positions import Rope
from llmcalc.errors import UnsupportedLayerError
from reference_model.attention import attend, warmth
from reference_model.cache import Flow, Formats, Rows, Slot, seen
from reference_model.norms import Norm
from reference_model.positions import rotate
from reference_model.sight import Sight, hidden, shares, sight, visible


class Indexer(nn.Module):
    """score = sum over index heads of weight * relu(q k); the best ``index_topk`` visible positions stay."""

    def __init__(self, spec: IndexSpec, rotary: int, positions: Rope | None) -> None:
        super().__init__()
        if spec.pool or spec.query_norm:
            raise UnsupportedLayerError("an indexer with pooled keys or normed queries")
        self.spec, self.rotary = spec, rotary
        self.positions = replace(positions, interleaved=False) if positions is not None else None
        I, w = spec.index_n_heads, spec.index_head_dim
        self.wq_b = nn.Linear(spec.query_size, I * w, bias=False)
        self.wk = nn.Linear(spec.hidden_size, w, bias=False)
        self.k_norm = Norm(base.Norm(w, "layer", bias=True, eps=1e-6))
        self.weights_proj = nn.Linear(spec.hidden_size, I, bias=False)

    def turn(self, x_BTIw: Tensor, flow: Flow) -> Tensor:
        """The first t channels rotated, in halves: [B, T, I, w] -> [B, T, I, w]."""
        if self.positions is None:
            return x_BTIw
        return rotate(x_BTIw.transpose(1, 2), self.positions, flow).transpose(1, 2)

    def forward(self, x_BTD: Tensor, query_BTQ: Tensor, rows: Rows | None, flow: Flow) -> Tensor:
        """Which positions in sight are picked, of those a causal query sees: [B, T, S]."""
        s = self.spec
        q_BTIw = self.turn(self.wq_b(query_BTQ).unflatten(-1, (s.index_n_heads, s.index_head_dim)), flow)
        k_BTw = self.turn(self.k_norm(self.wk(x_BTD))[:, :, None], flow)[:, :, 0]
        (k_BSw,), keys_BS = seen((rows,) if rows is not None else None, (k_BTw,), flow)
        scores_BTIS = (q_BTIw.flatten(1, 2) @ k_BSw.mT).unflatten(1, q_BTIw.shape[1:3]).relu() * s.index_head_dim**-0.5
        weights_BTI = self.weights_proj(x_BTD) * s.index_n_heads**-0.5
        score_BTS = (weights_BTI[:, :, None] @ scores_BTIS)[:, :, 0]
        sight_BTS = visible(base.FULL, flow.positions_BT, keys_BS)
        score_BTS = score_BTS.masked_fill(~sight_BTS, float("-inf"))
        best_BTk = score_BTS.topk(min(s.index_topk, score_BTS.shape[-1]), -1).indices
        return torch.zeros_like(sight_BTS).scatter(-1, best_BTk, True) & sight_BTS


class LatentAttention(nn.Module):
    """x -> q (through a latent of its own or not); x -> c, rotary key -> cache; attention over them -> o_proj."""

    mixes = True

    def __init__(self, spec: Spec, depth: int = 0) -> None:
        super().__init__()
        if spec.extra or spec.sinks or spec.rope_norm or spec.cache != "own":
            raise UnsupportedLayerError("latent attention with sinks, a rotary norm, a borrowed cache or extra tensors")
        self.spec, D, H = spec, spec.hidden_size, spec.num_attention_heads
        R, p, t, e = spec.kv_lora_rank, spec.qk_nope_head_dim, spec.qk_rope_head_dim, spec.v_head_dim
        if spec.q_lora_rank:
            self.q_a_proj = nn.Linear(D, spec.q_lora_rank, spec.bias)
            self.q_a_layernorm = Norm(base.Norm(spec.q_lora_rank, eps=spec.norm_eps))
            self.q_b_proj = nn.Linear(spec.q_lora_rank, H * (p + t), bias=False)
        else:
            self.q_proj = nn.Linear(D, H * (p + t), bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(D, R + t, spec.bias)
        self.kv_a_layernorm = Norm(base.Norm(R, eps=spec.norm_eps))
        self.kv_b_proj = nn.Linear(R, H * (p + e), bias=False)
        self.o_proj = nn.Linear(H * e, D, spec.bias)
        if spec.gate != "none":
            self.g_proj = nn.Linear(D, H * e if spec.gate == "elementwise" else H, bias=False)
        rope = spec.positions if isinstance(spec.positions, Rope) else None
        self.indexer = Indexer(spec.indexer, t, rope) if spec.indexer is not None else None

    def allocate(self, batch: int, capacity: int, formats: Formats, device: torch.device, source: int) -> Slot:
        """Latents [R], rotary keys [t], index keys [w] where it has an indexer."""
        s = self.spec
        made = [Rows(batch, (width,), s.scope, capacity, formats.cache, device)
                for width in (s.kv_lora_rank, s.qk_rope_head_dim)]  # fmt: skip
        if s.indexer is not None:
            dtype = formats.of(s.indexer.dtype)
            made.append(Rows(batch, (s.indexer.index_head_dim,), base.FULL, capacity, dtype, device))
        return tuple(made)

    def queries(self, x_BTD: Tensor, flow: Flow) -> tuple[Tensor, Tensor, Tensor]:
        """Plain part [B, H, T, p], rotated part [B, H, T, t], and what the indexer's queries are made from."""
        s = self.spec
        latent = self.q_a_layernorm(self.q_a_proj(x_BTD)) if s.q_lora_rank else x_BTD
        q = self.q_b_proj(latent) if s.q_lora_rank else self.q_proj(x_BTD)
        q = q.unflatten(-1, (s.num_attention_heads, -1)).transpose(1, 2)
        if s.temperature is not None:
            q = q * warmth(s.temperature, flow.positions_BT).to(q.dtype)
        plain, turning = q.split([s.qk_nope_head_dim, s.qk_rope_head_dim], -1)
        return plain, self.turn(turning, flow), latent

    def turn(self, x_BHTt: Tensor, flow: Flow) -> Tensor:
        """Rotation, where the layer has positions at all."""
        rope = self.spec.positions
        return rotate(x_BHTt, rope, flow) if isinstance(rope, Rope) else x_BHTt

    def picked(self, x_BTD: Tensor, latent: Tensor, slot: Slot | None, flow: Flow) -> Tensor | None:
        """The indexer's choice [B, T, S], or that of the last layer with one."""
        if self.indexer is not None:
            rows = slot[2] if isinstance(slot, tuple) else None
            flow.picked_BTS = self.indexer(x_BTD, latent, rows if isinstance(rows, Rows) else None, flow)
        return flow.picked_BTS if self.spec.index_topk else None

    def forward(self, x_BTD: Tensor, flow: Flow, slot: Slot | None) -> Tensor:
        """[B, T, D] -> [B, T, D]; absorbed for a decode step, expanded otherwise."""
        s = self.spec
        plain, turned, latent = self.queries(x_BTD, flow)
        c_BTR, r_BTt = self.kv_a_proj_with_mqa(x_BTD).split([s.kv_lora_rank, s.qk_rope_head_dim], -1)
        c_BTR, r_BTt = self.kv_a_layernorm(c_BTR), self.turn(r_BTt[:, None], flow)[:, 0]
        rows = slot[:2] if isinstance(slot, tuple) else None
        (c_BSR, r_BSt), keys_BS = seen(rows, (c_BTR, r_BTt), flow)  # type: ignore[arg-type]
        sight_BTS = sight(s.scope, flow, keys_BS)
        chosen_BTS = self.picked(x_BTD, latent, slot, flow)
        if chosen_BTS is not None:
            sight_BTS = visible(s.scope, flow.positions_BT, keys_BS) & chosen_BTS
        scale = s.scale if s.scale is not None else (s.qk_nope_head_dim + s.qk_rope_head_dim) ** -0.5
        form = self.absorbed if flow.single else self.expanded
        o_BTHe = form(plain, turned, c_BSR, r_BSt, sight_BTS, scale).transpose(1, 2)
        if s.gate != "none":
            o_BTHe = o_BTHe * torch.sigmoid(self.g_proj(x_BTD).unflatten(-1, (s.num_attention_heads, -1)))
        return self.o_proj(o_BTHe.flatten(-2))

    def expanded(
        self, plain: Tensor, turned: Tensor, c_BSR: Tensor, r_BSt: Tensor, sight_BTS: Sight, scale: float
    ) -> Tensor:
        """Keys and values of every head from the latents: [B, H, T, e]."""
        s = self.spec
        kv = self.kv_b_proj(c_BSR).unflatten(-1, (s.num_attention_heads, -1)).transpose(1, 2)
        k, v = kv.split([s.qk_nope_head_dim, s.v_head_dim], -1)
        k = torch.cat([k, r_BSt[:, None].expand(-1, s.num_attention_heads, -1, -1)], -1)
        return attend(torch.cat([plain, turned], -1), k, v, sight_BTS, scale=scale)

    def absorbed(
        self, plain: Tensor, turned: Tensor, c_BSR: Tensor, r_BSt: Tensor, sight_BTS: Sight, scale: float
    ) -> Tensor:
        """All heads read the one latent, as in MQA; the matrices act on query and output instead: [B, H, T, e]."""
        s = self.spec
        weight_HxR = self.kv_b_proj.weight.unflatten(0, (s.num_attention_heads, -1))
        up_HpR, out_HeR = weight_HxR.split([s.qk_nope_head_dim, s.v_head_dim], 1)
        B, H, T, _ = plain.shape
        latent_BRS, turned_BtS = c_BSR.mT, r_BSt.mT
        scores_BRS = (plain @ up_HpR).flatten(1, 2) @ latent_BRS + turned.flatten(1, 2) @ turned_BtS
        weights_BHTS = shares(hidden(scores_BRS.view(B, H, T, -1) * scale, sight_BTS))
        return (weights_BHTS.flatten(1, 2) @ c_BSR).view(B, H, T, -1) @ out_HeR.mT
