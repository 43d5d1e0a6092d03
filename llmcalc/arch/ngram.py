"""Hashed n-grams: tables that a token reads by what stood before it (Qwen4-Exp)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from llmcalc.arch.base import ONCE, Norm, Spec, State, Weight, linear, prefixed


def _is_prime(value: int) -> bool:
    return value > 1 and all(value % divisor for divisor in range(2, math.isqrt(value) + 1))


@lru_cache(maxsize=8)
def primes_from(start: int, count: int) -> tuple[int, ...]:
    """The first ``count`` primes that are at least ``start``."""
    found: list[int] = []
    value = start
    while len(found) < count:
        if _is_prime(value):
            found.append(value)
        value += 1
    return tuple(found)


@dataclass(frozen=True, slots=True)
class NgramEmbedding(Spec):
    """Adds to each of ``streams`` copies what ``heads`` tables hold for the n-grams that end here, convolved.

    rows: of all tables together. dilation: the convolution's, the longest n-gram.
    Source: modeling_qwen4_exp.py of transformers 5.24.
    """

    hidden_size: int
    streams: int
    embed_size: int
    heads: int
    rows: int
    conv_kernel: int
    dilation: int
    part = "mixer"
    source = "modeling_qwen4_exp.py of transformers 5.24"

    @property
    def kind(self) -> str:
        return "ngram_embedding"

    def weights(self) -> Iterator[Weight]:
        width = self.streams * self.hidden_size
        shape = (self.rows, self.embed_size // self.heads)
        yield Weight("ple_embedding.ngram_embedding.weight", shape, "embedding")
        yield from linear("key_proj", width, self.embed_size, split="none")
        yield from linear("value_proj", self.hidden_size, self.embed_size, split="none")
        for name in ("norm_key", "norm_query", "norm_conv"):
            yield from prefixed(name, Norm(width).weights())
        yield Weight("conv1d.weight", (width, 1, self.conv_kernel), "conv")

    def state(self) -> Iterator[State]:
        row = (self.streams * self.hidden_size, (self.conv_kernel - 1) * self.dilation)
        yield State("conv_state_ngram", row, ONCE, "buffer", "model", replicated=True)

    def describe(self) -> str:
        return f"hashed n-grams: {self.heads} tables, {self.rows:,} rows of {self.embed_size // self.heads}"
