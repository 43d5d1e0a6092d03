"""Step-3's attention: queries from a narrow latent, one key/value head (multi-matrix factorisation)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import Weight, linear


@dataclass(frozen=True, slots=True)
class FactoredAttention(Attention):
    """Attention whose query matrix is a product of two, with a norm of ``query_rank`` between them."""

    query_rank: int = 0
    source = "arXiv:2412.19255"

    def weights(self) -> Iterator[Weight]:
        d, width = self.hidden_size, self.num_attention_heads * self.head_dim
        yield from linear("q_proj", self.query_rank, d, split="none")
        yield Weight("inter_norm.weight", (self.query_rank,), "norm")
        yield from linear("wq", width, self.query_rank)
        yield from linear("k_proj", self.num_key_value_heads * self.head_dim, d)
        yield from linear("v_proj", self.num_key_value_heads * self.v_head_dim, d)
        yield from linear("o_proj", d, self.num_attention_heads * self.v_head_dim, split="row")

    def describe(self) -> str:
        return f"{Attention.describe(self)}; queries from a latent of {self.query_rank:,}"
