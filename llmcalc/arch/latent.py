"""Multi-head latent attention and the sparse indexer that rides on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from llmcalc.arch.base import FULL, Norm, Scope, Spec, State, StateDtype, Step, Weight, linear, prefixed
from llmcalc.arch.mixing import Counting, Term, no_dense_count, softmax_attention
from llmcalc.arch.positions import Positions

LATENT = "arXiv:2405.04434, section 2.1 and appendix C"
SPARSE = "DeepSeek-V3.2-Exp report, section 2.1"


@dataclass(frozen=True, slots=True)
class Indexer(Spec):
    """Scores every cached position with small keys; attention then reads the ``index_topk`` best.

    ``query_size``: width of what its queries are made from (the query latent, or the stream).
    ``pool``: positions a stored entry stands for (GLM-5.3-Flash ``index_kpool``).
    ``query_norm``: Mistral-Large-4's indexer norms its input and scales its heads.
    Source: DeepSeek-V3.2-Exp report, section 2.1.
    """

    hidden_size: int
    query_size: int
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    pool: int = 0
    dtype: StateDtype = "cache"
    query_norm: bool = False
    part = "attention"

    def weights(self) -> Iterator[Weight]:
        width = self.index_head_dim
        yield from linear("wq_b", self.index_n_heads * width, self.query_size, split="none")
        yield from linear("wk", width, self.hidden_size, split="none")
        yield from prefixed("k_norm", Norm(width, "layer", bias=True).weights())
        yield from linear("weights_proj", self.index_n_heads, self.hidden_size, split="none")
        if self.query_norm:
            yield from prefixed("q_norm", Norm(self.query_size, "layer", bias=True).weights())
            yield Weight("head_scale", (2, self.index_n_heads), "scalar")
        if self.pool:
            yield Weight("ape", (self.pool, width), "scalar")
            yield from linear("wgate", width, self.hidden_size, split="none")

    def state(self) -> Iterator[State]:
        scope = Scope("compressed", self.pool) if self.pool else FULL
        yield State("index_keys", (self.index_head_dim,), scope, "index", self.dtype, replicated=True)
        if self.pool:
            ring = Scope("open", self.pool)
            yield State("index_open", (2, self.index_head_dim), ring, "buffer", self.dtype, replicated=True)

    def mixing_flops(self, step: Step, counting: Counting) -> Iterator[Term]:
        scope = Scope("compressed", self.pool) if self.pool else FULL
        if counting.dense and self.pool:
            raise no_dense_count("an indexer over pooled keys")
        pairs, heads = counting.pairs(step, scope), self.index_n_heads
        yield Term(
            "index scores",
            "attention",
            "query-key pairs",
            pairs,
            (("", 2), ("heads", heads), ("wide", self.index_head_dim)),
            SPARSE,
        )
        yield Term(
            "sum over the index heads", "attention", "query-key pairs", pairs, (("", 2), ("heads", heads)), SPARSE
        )

    def describe(self) -> str:
        return f"an indexer of {self.index_n_heads} heads of {self.index_head_dim} picks {self.index_topk:,} positions"


@dataclass(frozen=True, slots=True)
class LatentAttention(Spec):
    """MLA: one latent of ``kv_lora_rank`` numbers and one rotary key of ``qk_rope_head_dim`` serve every head.

    cache: ``borrowed`` layers reuse another layer's latent and have no kv_a projection.
    gate: ``elementwise`` lin(d, h x v), ``per_head`` lin(d, h), ``fused`` rows of the query's second matrix, which
    then reads the latent twice over, raw and normed (AXK2). Source: arXiv:2405.04434, section 2.1.
    """

    hidden_size: int
    num_attention_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    scope: Scope = FULL
    bias: bool = False
    gate: Literal["none", "elementwise", "per_head", "fused"] = "none"
    sinks: bool = False
    rope_norm: bool = False
    cache: Literal["own", "borrowed"] = "own"
    indexer: Indexer | None = None
    index_topk: int | None = None
    positions: Positions | None = None
    scale: float | None = None
    extra: tuple[Weight, ...] = ()
    norm_eps: float = 1e-6
    temperature: tuple[float, float, int] | None = None
    part = "attention"
    source = "arXiv:2405.04434, section 2.1"

    @property
    def kind(self) -> str:
        if self.scope.kind == "sliding":
            return "sliding_latent_attention"
        return "sparse_latent_attention" if self.index_topk else "latent_attention"

    def weights(self) -> Iterator[Weight]:
        d, h, qr, r = self.hidden_size, self.num_attention_heads, self.q_lora_rank, self.kv_lora_rank
        q_width = h * (self.qk_nope_head_dim + self.qk_rope_head_dim)
        if qr:
            yield from linear("q_a_proj", qr, d, bias=self.bias, split="none")
            yield Weight("q_a_layernorm.weight", (qr,), "norm")
            if self.gate == "fused":
                yield from linear("q_gate_proj", q_width + h * self.v_head_dim, 2 * qr)
            else:
                yield from linear("q_b_proj", q_width, qr)
        else:
            yield from linear("q_proj", q_width, d)
        if self.cache == "own":
            yield from linear("kv_a_proj_with_mqa", r + self.qk_rope_head_dim, d, bias=self.bias, split="none")
            yield Weight("kv_a_layernorm.weight", (r,), "norm")
            if self.rope_norm:
                yield Weight("k_rope_norm.weight", (self.qk_rope_head_dim,), "norm")
        yield from linear("kv_b_proj", h * (self.qk_nope_head_dim + self.v_head_dim), r)
        yield from linear("o_proj", d, h * self.v_head_dim, bias=self.bias, split="row")
        if self.gate in ("elementwise", "per_head"):
            yield from linear("g_proj", h * self.v_head_dim if self.gate == "elementwise" else h, d)
        if self.sinks:
            yield Weight("sinks", (h,), "scalar", split="column")
        if self.indexer is not None:
            yield from prefixed("indexer", self.indexer.weights())
        yield from self.extra

    def state(self) -> Iterator[State]:
        borrowed = self.cache == "borrowed"
        yield State("latents", (self.kv_lora_rank,), self.scope, "latent", replicated=True, borrowed=borrowed)
        if self.qk_rope_head_dim:
            row = (self.qk_rope_head_dim,)
            yield State("rotary_keys", row, self.scope, "latent", replicated=True, borrowed=borrowed)
        if self.indexer is not None:
            yield from self.indexer.state()

    def mixing_flops(self, step: Step, counting: Counting) -> Iterator[Term]:
        h, rank, rotary = self.num_attention_heads, self.kv_lora_rank, self.qk_rope_head_dim
        nope, values = self.qk_nope_head_dim, self.v_head_dim
        pairs = self.pairs(step, counting)
        if counting.latent == "absorbed":
            yield softmax_attention(pairs, h, rank + rotary, rank)._replace(source=LATENT)
        else:
            yield softmax_attention(pairs, h, nope + rotary, values)._replace(source=LATENT)
        if counting.latent == "reexpand" and step.past:
            rows = counting.keys(step, self.scope) - step.new
            each = (("", 2), ("wide latent", rank), ("heads", h), ("wide (key and value)", nope + values))
            yield Term("expansion of the cached latents", "attention", "cached positions", rows, each, LATENT)
        if self.indexer is not None:
            yield from self.indexer.mixing_flops(step, counting)

    def pairs(self, step: Step, counting: Counting) -> int:
        """Pairs that are read: at most ``index_topk`` a query; whole pools and the open one where keys are pooled."""
        if counting.dense or not self.index_topk:
            return counting.pairs(step, self.scope)
        pool = self.indexer.pool if self.indexer is not None else 0
        if not pool:
            return step.pairs(Scope("sliding", min(self.index_topk, self.scope.size or self.index_topk)))
        picked = step.picked(pool, self.index_topk // pool)
        return pool * picked + step.pairs(FULL) - pool * step.pairs(Scope("compressed", pool))

    def expanded(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        heads = self.num_attention_heads
        return (heads, self.qk_nope_head_dim + self.qk_rope_head_dim), (heads, self.v_head_dim)

    def describe(self) -> str:
        text = (
            f"{self.num_attention_heads} heads ({self.qk_nope_head_dim} + {self.qk_rope_head_dim} rotary, values "
            f"{self.v_head_dim}) read one latent of {self.kv_lora_rank} and a rotary key of {self.qk_rope_head_dim}"
        )
        if self.scope.kind == "sliding":
            text += f" in a window of {self.scope.size:,}"
        if self.indexer is not None:
            text += f"; {self.indexer.describe()}"
        elif self.index_topk:
            text += f"; another layer's indexer picks {self.index_topk:,} positions"
        return text
