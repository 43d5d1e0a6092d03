"""Feed-forward layers: dense ones, and mixtures of experts with their routers.

Axes: B sequences, T tokens, M = B x T tokens in one list, D stream, F inner width, E experts, K chosen a token.
Sources: arXiv:2002.05202 (gated), 1701.06538 and 2101.03961 (experts), 2412.19437 (groups and the balancing term).
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from llmcalc.arch import base
from llmcalc.arch.ffn import FeedForward as Spec
from llmcalc.arch.moe import MixtureOfExperts as MoeSpec
from llmcalc.errors import UnsupportedLayerError
from reference_model.joined import Joined, Stacked
from reference_model.norms import Norm, scaled, wide, wide_dtype


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by its tanh formula (GPT-2)."""
    return functional.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu, "swish": functional.silu, "relu": functional.relu, "gelu": functional.gelu,
    "gelu_new": gelu_tanh, "gelu_pytorch_tanh": gelu_tanh, "gelu_fast": gelu_tanh, "gelu_python": functional.gelu,
    "relu2": lambda x: functional.relu(x) ** 2, "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}  # fmt: skip


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """By the config's word."""
    if name not in ACTIVATIONS:
        raise UnsupportedLayerError(f"a feed-forward with the activation {name!r}")
    return ACTIVATIONS[name]


class XIelu(nn.Module):
    """Apertus' activation: a parabola above zero, an exponential below, learned slopes for both (arXiv:2411.13010)."""

    NAMES = ("alpha_p", "alpha_n", "beta", "eps")

    def __init__(self) -> None:
        super().__init__()
        self.alpha_p, self.alpha_n = nn.Parameter(torch.tensor([0.2])), nn.Parameter(torch.tensor([-1.05]))
        self.register_buffer("beta", torch.tensor([0.5]))
        self.register_buffer("eps", torch.tensor([-1e-6]))

    def forward(self, x: Tensor) -> Tensor:
        """[..., F] -> [..., F]."""
        above = functional.softplus(self.alpha_p) * x * x
        below = (torch.expm1(torch.minimum(x, self.eps)) - x) * (self.beta + functional.softplus(self.alpha_n))
        return torch.where(x > 0, above, below) + self.beta * x


class FeedForward(nn.Module):
    """down(act(gate(x)) * up(x)), or down(act(up(x))): [..., D] -> [..., D]."""

    def __init__(self, spec: Spec, depth: int = 0) -> None:
        super().__init__()
        names = {weight.name for weight in spec.extra}
        xielu = spec.activation == "xielu" and names == {f"act_fn.{name}" for name in XIelu.NAMES}
        if names and not xielu:
            raise UnsupportedLayerError("a feed-forward with " + ", ".join(sorted(names)))
        D, F = spec.hidden_size, spec.intermediate_size
        self.gated, self.factors = spec.gated, spec.multipliers
        if xielu:
            self.act_fn = XIelu()
        self.act = self.act_fn if xielu else activation(spec.activation)
        self.sparsity = spec.sparsity
        if spec.gated:
            self.gate_proj = nn.Linear(D, F, spec.bias)
        self.up_proj = nn.Linear(D, F, spec.bias)
        self.down_proj = nn.Linear(F, D, spec.bias if spec.down_bias is None else spec.down_bias)
        self.ffn_sub_norm = Norm(base.Norm(F, eps=spec.inner_norm_eps)) if spec.inner_norm else None
        self.joined: Joined | None = None

    def merge(self) -> None:
        """Make gate and up one product."""
        if self.gated:
            self.joined = Joined(self.gate_proj, self.up_proj)

    def thinned(self, x: Tensor) -> Tensor:
        """All but the largest share closed, by the quantile of a normal distribution (Gemma-3n): [..., F]."""
        if not self.sparsity:
            return x
        cut = NormalDist().inv_cdf(self.sparsity)
        return functional.relu(x - x.mean(-1, keepdim=True) - cut * x.std(-1, keepdim=True, unbiased=False))

    def forward(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """[..., D] -> [..., D]; ``added``: to gate and up, by an adapter: [..., 2 F]."""
        factor, down = self.factors
        if not self.gated:
            inner = self.act(self.up_proj(x))
        else:
            gate, inner = (self.gate_proj(x), self.up_proj(x)) if self.joined is None else self.joined(x)
            if added is not None:
                gate, inner = gate + added.chunk(2, -1)[0], inner + added.chunk(2, -1)[1]
            inner = self.act(self.thinned(scaled(gate, factor))) * inner
        return scaled(self.down_proj(inner if self.ffn_sub_norm is None else self.ffn_sub_norm(inner)), down)


class Router(nn.Module):
    """Scores of all experts and the choice of K: x_MD -> weights_MK, chosen_MK."""

    def __init__(self, spec: MoeSpec) -> None:
        super().__init__()
        if spec.scoring == "sparsemixer" and spec.num_experts_per_tok != 2:
            raise UnsupportedLayerError("a sparsemixer router of other than two experts a token")
        self.spec, rows = spec, spec.num_experts
        self.weight = nn.Parameter(torch.empty(rows, spec.hidden_size))  # in the model's format, as checkpoints hold it
        nn.init.normal_(self.weight, std=0.02)
        self.bias = nn.Parameter(torch.zeros(rows)) if spec.router_bias else None
        if spec.correction == "parameter":
            self.e_score_correction_bias = nn.Parameter(torch.zeros(rows, dtype=wide_dtype()))
        elif spec.correction == "buffer":
            self.register_buffer("e_score_correction_bias", torch.zeros(rows, dtype=wide_dtype()))

    def forward(self, x_MD: Tensor) -> tuple[Tensor, Tensor]:
        """The balancing term moves the choice and never the weights."""
        s, parts = self.spec, (x_MD, self.weight, self.bias)
        if s.router_dtype == "fp32":
            parts = (wide(x_MD), wide(self.weight), None if self.bias is None else wide(self.bias))
        logits_ME = functional.linear(*parts)
        if s.scoring == "sparsemixer":
            weights_M2, chosen_M2 = self.sparsemixed(logits_ME)
            return weights_M2.to(x_MD.dtype), chosen_M2
        scores_ME = logits_ME.sigmoid() if s.scoring == "sigmoid" else logits_ME.softmax(-1)
        ranked_ME = scores_ME if s.correction == "none" else scores_ME + self.e_score_correction_bias
        if s.n_group > 1:
            ranked_ME = self.grouped(ranked_ME)
        chosen_MK = ranked_ME.topk(s.num_experts_per_tok, -1).indices
        weights_MK = scores_ME.gather(-1, chosen_MK)
        if s.norm_topk_prob:
            weights_MK = weights_MK / weights_MK.sum(-1, keepdim=True)
        return scaled(weights_MK, s.routed_scaling_factor).to(x_MD.dtype), chosen_MK

    def sparsemixed(self, logits_ME: Tensor) -> tuple[Tensor, Tensor]:
        """The best and then the next, each weighed against the rivals near it: [M, 2], [M, 2] (arXiv:2409.12136).

        This is what is computed once trained: in training a rival is drawn at random.
        """
        weights, chosen, left_ME = [], [], logits_ME
        for _ in range(2):
            best_M1, index_M1 = left_ME.max(-1, keepdim=True)
            far_ME = (best_M1 - logits_ME) / logits_ME.abs().maximum(best_M1) > 2 * self.spec.jitter
            near_ME = left_ME.masked_fill(far_ME, float("-inf")).softmax(-1)
            weights.append(near_ME.gather(-1, index_M1))
            chosen.append(index_M1)
            left_ME = left_ME.scatter(-1, index_M1, float("-inf"))
        return torch.cat(weights, -1), torch.cat(chosen, -1)

    def grouped(self, scores_ME: Tensor) -> Tensor:
        """All but the best ``topk_group`` groups struck out; a group is as good as its two best, or its best."""
        s, groups_MGe = self.spec, scores_ME.unflatten(-1, (self.spec.n_group, -1))
        worth_MG = groups_MGe.topk(2, -1).values.sum(-1) if s.group_score == "top2" else groups_MGe.amax(-1)
        best_MG = torch.zeros_like(worth_MG, dtype=torch.bool).scatter(
            -1, worth_MG.topk(s.topk_group, -1).indices, True
        )
        return groups_MGe.masked_fill(~best_MG[..., None], float("-inf")).flatten(-2)


class Expert(nn.Module):
    """One expert, a feed-forward with the family's activation: x_ND -> [N, D]."""

    def __init__(self, spec: MoeSpec) -> None:
        super().__init__()
        D, F = spec.latent_size or spec.hidden_size, spec.moe_intermediate_size
        self.spec, self.act = spec, activation(spec.activation)
        if spec.gated:
            self.gate_proj = nn.Linear(D, F, spec.expert_bias)
        self.up_proj = nn.Linear(D, F, spec.expert_bias)
        self.down_proj = nn.Linear(F, D, spec.expert_bias)

    def inner(self, up_NF: Tensor, gate_NF: Tensor | None) -> Tensor:
        """GPT-OSS clamps both halves, gates with a steeper sigmoid and adds one to the linear half: [N, F]."""
        s = self.spec
        if gate_NF is None:
            return self.act(up_NF)
        if s.swiglu_limit is None:
            return self.act(gate_NF) * up_NF
        gate_NF, up_NF = gate_NF.clamp(max=s.swiglu_limit), up_NF.clamp(-s.swiglu_limit, s.swiglu_limit)
        return (up_NF + 1) * gate_NF * torch.sigmoid(s.swiglu_alpha * gate_NF)

    def forward(self, x_ND: Tensor) -> Tensor:
        """[N, D] -> [N, D]."""
        return self.down_proj(self.inner(self.up_proj(x_ND), self.gate_proj(x_ND) if self.spec.gated else None))


class MixtureOfExperts(nn.Module):
    """Every token through its K experts, weighted, plus the shared ones: [B, T, D] -> [B, T, D]."""

    def __init__(self, spec: MoeSpec, depth: int = 0) -> None:
        super().__init__()
        odd = [w.name for w in (*spec.extra, *spec.router_extra)]
        if odd or spec.zero_experts or spec.hash_vocab or not spec.router:
            raise UnsupportedLayerError("experts with " + (", ".join(odd) or "zero experts or stored routes"))
        self.spec, width = spec, spec.latent_size
        self.gate = Router(spec)
        self.experts = nn.ModuleList(Expert(spec) for _ in range(spec.num_experts))
        self.shared_experts = FeedForward(spec.shared) if spec.shared is not None else None
        self.shared_expert_gate = nn.Linear(spec.hidden_size, 1, bias=False) if spec.shared_gate else None
        if width:
            self.fc1_latent_proj = nn.Linear(spec.hidden_size, width, bias=False)
            self.fc2_latent_proj = nn.Linear(width, spec.hidden_size, bias=False)
            self.latent_norm = Norm(base.Norm(width)) if spec.latent_norm else None
        self.stacked: tuple[Stacked, Stacked] | None = None
        self.grouped = False

    def merge(self, *, grouped: bool) -> None:
        """Lay the experts' matrices together. grouped: all of them are one product, which waits for no choice of the
        router; not where rows are no multiple of 16 bytes, which torch's grouped product refuses."""
        matrices = [part for part in self.experts[0].parameters() if part.dim() > 1]
        self.grouped = grouped and not any(size * part.itemsize % 16 for part in matrices for size in part.shape)
        into = ("gate_proj", "up_proj") if self.spec.gated else ("up_proj",)
        first = Stacked(*([getattr(expert, name) for expert in self.experts] for name in into))
        self.stacked = first, Stacked([expert.down_proj for expert in self.experts])

    def expert(self, x_ND: Tensor, index: int) -> Tensor:
        """One expert: [N, D] -> [N, D]."""
        found = cast(Expert, self.experts[index])
        if self.stacked is None:
            return found(x_ND)
        *gate, up_NF = self.stacked[0].one(x_ND, index)
        return self.stacked[1].one(found.inner(up_NF, gate[0] if gate else None), index)[0]

    def routed(self, x_ML: Tensor, weights_MK: Tensor, chosen_MK: Tensor) -> Tensor:
        """Tokens gathered expert by expert, so exactly K experts a token are computed: [M, L]."""
        if len(x_ML) == 1 and not self.spec.scale_input:
            made_KL = torch.cat([self.expert(x_ML, index) for index in chosen_MK[0].tolist()])
            return (weights_MK[0, :, None] * made_KL).sum(0, keepdim=True)
        out_ML = torch.zeros_like(x_ML)
        for index in chosen_MK.unique().tolist():
            m, k = (chosen_MK == index).nonzero(as_tuple=True)
            weight_N1 = weights_MK[m, k, None]
            if self.spec.scale_input:
                out_ML.index_add_(0, m, self.expert(x_ML[m] * weight_N1, index))
            else:
                out_ML.index_add_(0, m, self.expert(x_ML[m], index) * weight_N1)
        return out_ML

    def sorted(self, x_ML: Tensor, weights_MK: Tensor, chosen_MK: Tensor) -> Tensor:
        """The same with the tokens sorted by expert and all experts in one product: [M, L]."""
        assert self.stacked is not None
        K, E = chosen_MK.shape[1], len(self.experts)
        expert_N, order_N = chosen_MK.flatten().sort()
        ends_E = torch.searchsorted(expert_N, torch.arange(E, device=expert_N.device), right=True).int()
        weight_N1, rows_NL = weights_MK.flatten()[order_N, None], x_ML[order_N // K]
        rows_NL = rows_NL * weight_N1 if self.spec.scale_input else rows_NL
        *gate, up_NF = self.stacked[0](rows_NL, expert_N, ends_E)
        inner_NF = cast(Expert, self.experts[0]).inner(up_NF, gate[0] if gate else None)
        (out_NL,) = self.stacked[1](inner_NF, expert_N, ends_E)
        out_NL = out_NL if self.spec.scale_input else out_NL * weight_N1
        back_NL = torch.empty_like(out_NL)
        back_NL[order_N] = out_NL  # then a sum in one order: adding by index would take another one each time
        return back_NL.unflatten(0, (-1, K)).sum(1)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        s, x_MD = self.spec, x_BTD.flatten(0, 1)
        weights_MK, chosen_MK = self.gate(x_MD)
        input_ML = self.fc1_latent_proj(x_MD) if s.latent_size else x_MD
        way = self.sorted if self.grouped else self.routed
        routed_ML = way(input_ML, weights_MK, chosen_MK)
        if s.latent_size:
            routed_ML = self.fc2_latent_proj(routed_ML if self.latent_norm is None else self.latent_norm(routed_ML))
        if self.shared_experts is not None:
            shared_MD = self.shared_experts(x_MD)
            if self.shared_expert_gate is not None:
                shared_MD = shared_MD * torch.sigmoid(self.shared_expert_gate(x_MD))
            routed_ML = routed_ML + shared_MD
        return routed_ML.view_as(x_BTD)
