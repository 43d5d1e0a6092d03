"""DeepSeek-V4's attention: one shared key/value head in a window, and compressed entries of everything before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from llmcalc.arch.base import Norm, Scope, Spec, State, Step, Weight, linear, prefixed
from llmcalc.arch.mixing import Counting, Term, per_pair, softmax_attention
from llmcalc.arch.positions import Positions

V4 = "DeepSeek-V4 report, section on compressed attention; transformers 5.24, modeling_deepseek_v4.py"


@dataclass(frozen=True, slots=True)
class Compressor(Spec):
    """Folds ``rate`` positions into one entry of ``head_dim``; overlapping windows (CSA) project twice that.

    Keeps the compressed entries, the open window (values and gates) and, if overlapping, the window before it.
    """

    hidden_size: int
    head_dim: int
    rate: int
    overlapping: bool
    stored: Literal["latent", "index"] = "latent"
    part = "attention"

    @property
    def width(self) -> int:
        """Channels it projects to."""
        return 2 * self.head_dim if self.overlapping else self.head_dim

    def weights(self) -> Iterator[Weight]:
        yield from linear("kv_proj", self.width, self.hidden_size, split="none")
        yield from linear("gate_proj", self.width, self.hidden_size, split="none")
        yield Weight("position_bias", (self.rate, self.width), "scalar", dtype="fp32")
        yield from prefixed("kv_norm", Norm(self.head_dim).weights())

    def state(self) -> Iterator[State]:
        prefix = "index_" if self.stored == "index" else ""
        entries, ring = Scope("compressed", self.rate), Scope("open", self.rate)
        yield State(f"{prefix}compressed", (self.head_dim,), entries, self.stored, replicated=True)
        yield State(f"{prefix}open_window", (2, self.width), ring, "buffer", replicated=True)
        if self.overlapping:
            before = Scope("overlap", self.rate)
            yield State(f"{prefix}overlap", (self.head_dim,), before, "buffer", replicated=True)
            yield State(f"{prefix}overlap_gates", (self.head_dim,), before, "buffer", "fp32", replicated=True)


@dataclass(frozen=True, slots=True)
class CompressedIndexer(Spec):
    """Scores the compressed entries with entries of its own, to pick ``index_topk`` of them."""

    query_size: int
    hidden_size: int
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    compressor: Compressor
    part = "attention"

    def weights(self) -> Iterator[Weight]:
        yield from self.compressor.weights()
        yield from linear("q_b_proj", self.index_n_heads * self.index_head_dim, self.query_size, split="none")
        yield from linear("weights_proj", self.index_n_heads, self.hidden_size, split="none")

    def state(self) -> Iterator[State]:
        return self.compressor.state()

    def mixing_flops(self, step: Step, counting: Counting) -> Iterator[Term]:
        pairs, heads = counting.pairs(step, Scope("compressed", self.compressor.rate)), self.index_n_heads
        each = (("", 2), ("heads", heads), ("wide", self.index_head_dim))
        yield Term("index scores", "attention", "query-entry pairs", pairs, each, V4)
        if not counting.dense:  # the library sums over the heads element-wise
            yield Term(
                "sum over the index heads", "attention", "query-entry pairs", pairs, (("", 2), ("heads", heads)), V4
            )


@dataclass(frozen=True, slots=True)
class CompressedAttention(Spec):
    """A window over one K=V head, beside compressed entries: heavily (HCA) or sparsely picked by an indexer (CSA).

    The output projection is grouped: block-diagonal ``o_groups`` x ``o_lora_rank``, then a matrix.
    Source: DeepSeek-V4 report; vLLM models/deepseek_v4.
    """

    hidden_size: int
    num_attention_heads: int
    head_dim: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    sliding_window: int
    compressor: Compressor | None = None
    indexer: CompressedIndexer | None = None
    positions: Positions | None = None
    part = "attention"
    source = "DeepSeek-V4 report; vLLM models/deepseek_v4/compressor.py"

    @property
    def kind(self) -> str:
        if self.compressor is None:
            return "sliding_attention"
        return "compressed_sparse_attention" if self.indexer else "heavily_compressed_attention"

    @property
    def scope(self) -> Scope:
        """The window of uncompressed positions."""
        return Scope("sliding", self.sliding_window)

    def weights(self) -> Iterator[Weight]:
        width = self.num_attention_heads * self.head_dim
        yield from linear("q_a_proj", self.q_lora_rank, self.hidden_size, split="none")
        yield Weight("q_a_norm.weight", (self.q_lora_rank,), "norm")
        yield from linear("q_b_proj", width, self.q_lora_rank)
        yield from linear("kv_proj", self.head_dim, self.hidden_size, split="none")
        yield Weight("kv_norm.weight", (self.head_dim,), "norm")
        yield from linear("o_a_proj", self.o_groups * self.o_lora_rank, width // self.o_groups)
        yield from linear("o_b_proj", self.hidden_size, self.o_groups * self.o_lora_rank, split="row")
        yield Weight("sinks", (self.num_attention_heads,), "scalar", split="column", dtype="fp32")
        if self.compressor is not None:
            yield from prefixed("compressor", self.compressor.weights())
        if self.indexer is not None:
            yield from prefixed("compressor.indexer", self.indexer.weights())

    def state(self) -> Iterator[State]:
        yield State("keys_values", (1, self.head_dim), self.scope, "key", replicated=True)
        if self.compressor is not None:
            yield from self.compressor.state()
        if self.indexer is not None:
            yield from self.indexer.state()

    def mixing_flops(self, step: Step, counting: Counting) -> Iterator[Term]:
        h, width = self.num_attention_heads, self.head_dim
        yield softmax_attention(counting.pairs(step, self.scope), h, width, width)
        if self.compressor is not None:
            entries = Scope("compressed", self.compressor.rate)
            pairs = counting.pairs(step, entries)
            if self.indexer is not None:
                rate, topk = self.compressor.rate, self.indexer.index_topk
                pairs = (
                    step.new * min(counting.keys(step, entries), topk) if counting.dense else step.picked(rate, topk)
                )
            yield Term("compressed entries", "attention", "query-entry pairs", pairs, per_pair(h, 2 * width), V4)
        if self.indexer is not None:
            yield from self.indexer.mixing_flops(step, counting)

    def describe(self) -> str:
        text = f"{self.num_attention_heads} query heads of {self.head_dim} share one array that is key and value"
        text += f" in a window of {self.sliding_window}"
        if self.compressor is not None:
            text += f", and one entry for every {self.compressor.rate} positions before"
        if self.indexer is not None:
            text += f", of which an indexer picks {self.indexer.index_topk:,}"
        return text
