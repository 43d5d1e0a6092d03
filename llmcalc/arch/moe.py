"""Mixtures of experts: a router, E experts of which a token passes k, shared experts beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from llmcalc.arch.base import FULL, Norm, Scope, Spec, State, Step, Weight, linear, prefixed
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.mixing import Counting, Term, softmax_attention
from llmcalc.arch.positions import Positions


@dataclass(frozen=True, slots=True)
class MixtureOfExperts(Spec):
    """Experts are gated or plain feed-forwards of ``moe_intermediate_size``; ``shared`` runs on every token.

    correction: the router's balancing term, a stored ``buffer`` or a ``parameter`` of E numbers.
    latent_size: experts work at this width, with projections down and up around them (Nemotron-3 Super).
    zero_experts: router rows without weights (LongCat). hash_vocab: routed by a stored table of vocab x k.
    router_extra: further tensors of a family's router.
    For the forward pass alone: how the router scores, picks groups by their two best or their best (``group_score``),
    normalises and scales; ``scale_input``: the score multiplies what goes in (Llama-4); swiglu_*: GPT-OSS;
    jitter: how near the best score a rival must come to weigh against it (sparsemixer).
    Source: arXiv:1701.06538, 2401.06066.
    """

    hidden_size: int
    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    gated: bool = True
    activation: str = "silu"
    expert_bias: bool = False
    router_bias: bool = False
    router: bool = True
    correction: Literal["none", "buffer", "parameter"] = "none"
    shared: FeedForward | None = None
    shared_gate: bool = False
    latent_size: int = 0
    latent_norm: bool = False
    zero_experts: int = 0
    hash_vocab: int = 0
    router_dtype: Literal["model", "fp32"] = "model"
    router_extra: tuple[Weight, ...] = ()
    extra: tuple[Weight, ...] = ()
    scoring: Literal["softmax", "sigmoid", "sparsemixer"] = "softmax"
    norm_topk_prob: bool = True
    routed_scaling_factor: float = 1.0
    n_group: int = 1
    topk_group: int = 1
    group_score: Literal["top2", "max"] = "top2"
    scale_input: bool = False
    swiglu_limit: float | None = None
    swiglu_alpha: float = 1.702
    jitter: float = 0.0
    part = "experts"

    @property
    def kind(self) -> str:
        return "moe"

    def weights(self) -> Iterator[Weight]:
        d, e = self.hidden_size, self.num_experts
        rows = e + self.zero_experts
        if self.router:
            yield Weight("gate.weight", (rows, d), "router", dtype=self.router_dtype)
            if self.router_bias:
                yield Weight("gate.bias", (rows,), "router", dtype=self.router_dtype)
        yield from self.router_extra
        if self.correction != "none":
            role: Literal["buffer", "router"] = "buffer" if self.correction == "buffer" else "router"
            yield Weight("gate.e_score_correction_bias", (rows,), role, dtype="fp32")
        if self.hash_vocab:
            yield Weight("gate.tid2eid", (self.hash_vocab, self.num_experts_per_tok), "buffer", dtype="int64")
        yield from self._expert_weights()
        if self.shared is not None:
            yield from prefixed("shared_experts", self.shared.weights())
            if self.shared_gate:
                yield from linear("shared_expert_gate", 1, d, split="none")
        yield from self.extra

    def _expert_weights(self) -> Iterator[Weight]:
        d, f = self.latent_size or self.hidden_size, self.moe_intermediate_size
        e, k = self.num_experts, self.num_experts_per_tok
        shapes = [("gate_proj", f, d)] if self.gated else []
        for name, outputs, inputs in (*shapes, ("up_proj", f, d), ("down_proj", d, f)):
            for weight in linear(f"experts.{{}}.{name}", outputs, inputs, bias=self.expert_bias, split="expert"):
                yield weight._replace(copies=e, active=k)
        if self.latent_size:
            yield from linear("fc1_latent_proj", d, self.hidden_size, split="none")
            yield from linear("fc2_latent_proj", self.hidden_size, d, split="none")
            if self.latent_norm:
                yield from prefixed("latent_norm", Norm(d).weights())

    def describe(self) -> str:
        text = f"{self.num_experts} experts of width {self.moe_intermediate_size:,}, {self.num_experts_per_tok} a token"
        if self.shared is not None:
            text += f", beside a shared one of {self.shared.intermediate_size:,}"
        if self.latent_size:
            text += f", at a latent width of {self.latent_size:,}"
        return text


@dataclass(frozen=True, slots=True)
class MixtureOfAttentionHeads(Spec):
    """JetMoE's attention: query and output matrices are experts, keys and values are shared by all of them.

    A token's k experts give it k x kv query heads. Source: arXiv:2404.07413.
    """

    hidden_size: int
    num_experts: int
    num_experts_per_tok: int
    num_key_value_heads: int
    head_dim: int
    positions: Positions | None = None
    part = "attention"
    source = "arXiv:2404.07413"

    @property
    def kind(self) -> str:
        return "full_attention"

    @property
    def scope(self) -> Scope:
        """Every position."""
        return FULL

    def weights(self) -> Iterator[Weight]:
        d, width = self.hidden_size, self.num_key_value_heads * self.head_dim
        yield Weight("experts.router.weight", (self.num_experts, d), "router")
        for name, shape in (("input", (width, d)), ("output", (d, width))):
            yield Weight(
                f"experts.{{}}.{name}.weight",
                shape,
                "matmul",
                self.num_experts,
                self.num_experts_per_tok,
                split="expert",
            )
        yield Weight("experts.bias", (d,), "bias")
        yield from linear("kv_proj", 2 * width, d)

    def state(self) -> Iterator[State]:
        row = (self.num_key_value_heads, self.head_dim)
        yield State("keys", row, FULL, "key")
        yield State("values", row, FULL, "value")

    def mixing_flops(self, step: Step, counting: Counting) -> Iterator[Term]:
        heads = self.num_experts_per_tok * self.num_key_value_heads
        yield softmax_attention(counting.pairs(step, FULL), heads, self.head_dim, self.head_dim)

    def describe(self) -> str:
        kv = self.num_key_value_heads
        return (
            f"{self.num_experts_per_tok} of {self.num_experts} attention experts, {kv * self.num_experts_per_tok} "
            f"query heads of {self.head_dim} over {kv} key/value heads"
        )
