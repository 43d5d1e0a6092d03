"""Grouped attention that reads only the blocks of keys which a small indexer picks: MiniMax-M3, Qwen4-Exp."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import FULL, Norm, Scope, Spec, State, Step, Weight, linear, prefixed
from llmcalc.arch.mixing import Counting, Term, no_dense_count, softmax_attention


@dataclass(frozen=True, slots=True)
class BlockIndexer(Spec):
    """Scores keys of ``index_head_dim`` and picks ``topk`` blocks of ``block`` positions.

    pooled: it keeps one key a whole block, their mean, and the keys of the open block, which is always read beside the
    picked ones (Qwen4-Exp); else a key a position, and the open block is one of those picked (MiniMax-M3).
    Source: modeling_minimax_m3_vl.py, modeling_qwen4_exp.py of transformers 5.24.
    """

    hidden_size: int
    index_n_heads: int
    index_head_dim: int
    topk: int
    block: int
    pooled: bool = False
    part = "attention"

    def weights(self) -> Iterator[Weight]:
        width = self.index_head_dim
        if self.pooled:
            yield from linear("index_qk_proj", (self.index_n_heads + 1) * width, self.hidden_size, split="none")
        else:
            yield from linear("q_proj", self.index_n_heads * width, self.hidden_size, split="none")
            yield from linear("k_proj", width, self.hidden_size, split="none")
        for name in ("q_norm", "k_norm"):
            yield from prefixed(name, Norm(width).weights())

    def state(self) -> Iterator[State]:
        row = (self.index_head_dim,)
        yield State("index_keys", row, self.scope, "index", replicated=True)
        if self.pooled:
            yield State("index_open", row, Scope("open", self.block), "buffer", replicated=True)

    @property
    def scope(self) -> Scope:
        """The keys it scores."""
        return Scope("compressed", self.block) if self.pooled else FULL

    def pairs(self, step: Step) -> int:
        """Pairs that attention then reads."""
        if self.pooled:
            whole = step.pairs(Scope("compressed", self.block))
            return self.block * (step.picked(self.block, self.topk) - whole) + step.pairs(FULL)
        return self._read(step.past + step.new) - self._read(step.past)

    def _read(self, n: int) -> int:
        """Positions that n queries read, the open block among the ``topk`` blocks of each."""
        size, free = self.block, min(n, self.topk * self.block)
        whole, rest = divmod(n - free, size)
        before = (self.topk - 1) * size
        return free * (free + 1) // 2 + (n - free) * before + whole * size * (size + 1) // 2 + rest * (rest + 1) // 2

    def mixing_flops(self, step: Step, counting: Counting) -> Iterator[Term]:
        each = (("", 2), ("heads", self.index_n_heads), ("wide", self.index_head_dim))
        pairs = counting.pairs(step, self.scope)
        yield Term("index scores", "attention", "query-key pairs", pairs, each)

    def describe(self) -> str:
        return f"an indexer of {self.index_n_heads} heads picks {self.topk} blocks of {self.block} positions"


@dataclass(frozen=True, slots=True)
class IndexedAttention(Attention):
    """Grouped attention over the blocks that its indexer picks; keys and values are kept whole."""

    indexer: BlockIndexer | None = None
    source = "modeling_minimax_m3_vl.py, modeling_qwen4_exp.py of transformers 5.24"

    @property
    def kind(self) -> str:
        return "block_sparse_attention"

    def weights(self) -> Iterator[Weight]:
        yield from Attention.weights(self)
        if self.indexer is not None:
            yield from prefixed("indexer", self.indexer.weights())

    def state(self) -> Iterator[State]:
        yield from Attention.state(self)
        if self.indexer is not None:
            yield from self.indexer.state()

    def mixing_flops(self, step: Step, counting: Counting) -> Iterator[Term]:
        if counting.dense or self.indexer is None:
            raise no_dense_count("attention to picked blocks")
        yield softmax_attention(self.indexer.pairs(step), self.num_attention_heads, self.head_dim, self.v_head_dim)
        yield from self.indexer.mixing_flops(step, counting)

    def describe(self) -> str:
        return Attention.describe(self) + (f"; {self.indexer.describe()}" if self.indexer is not None else "")
