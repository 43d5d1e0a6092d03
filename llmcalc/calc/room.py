"""What a device has room for: the pool that weights and reserves leave, and how many tokens and sequences it holds.

Nothing is divided: a pool is inverted by bisection on the exact count (or the engine's own), which need not be linear.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import NamedTuple

from llmcalc.arch.model import Architecture
from llmcalc.calc.cache import CacheEstimate, kv_cache
from llmcalc.calc.rows import shared
from llmcalc.calc.sharding import rank_row, stages
from llmcalc.calc.sizing import Sequences, Sizer, sequences
from llmcalc.calc.weight_shards import Ranks
from llmcalc.engines.base import Budget, Part
from llmcalc.errors import InvalidInputError
from llmcalc.formats import find_cache

MOST_TOKENS = 2**40
MOST_SEQUENCES = 2**40
LONGEST_PERIOD = 2**16


class Asked(NamedTuple):
    """What sequences keep: how many, how long, in what format, by whose rules, on how many ranks."""

    tokens: int = 4096
    batch: int = 1
    cache: str = "auto"
    engine: str = "none"
    ranks: Ranks = Ranks()
    block_size: int | None = None
    batched_tokens: int | None = None
    encoder_tokens: int | None = None
    image_tokens: int = 0
    shared_prefix: int = 0


@dataclass(frozen=True)
class Holding:
    """The cache of a model on the fullest device, as a function of length and number."""

    architecture: Architecture
    asked: Asked

    def estimate(self, tokens: int, batch: int) -> CacheEstimate:
        """The exact arrays, and what the engine takes."""
        a = self.asked
        plain = a.engine == "none"
        return kv_cache(
            self.architecture, self.rounded(tokens), batch, encoder_tokens=a.encoder_tokens,
            image_tokens=a.image_tokens, cache=a.cache, engine=a.engine, tp=a.ranks.tp, pp=a.ranks.pp,
            block_size=None if plain else a.block_size, batched_tokens=None if plain else a.batched_tokens,
        )  # fmt: skip

    def rounded(self, tokens: int) -> int:
        """Tokens in whole blocks, where the exact arrays are paged by an option."""
        block = self.asked.block_size if self.asked.engine == "none" else None
        return -(-tokens // block) * block if block else tokens

    def bytes(self, tokens: int, batch: int) -> int:
        """Bytes on the fullest device, with what an engine's pool holds back."""
        if batch == 0:
            return 0
        if self.asked.shared_prefix and batch > 1:
            return self._sharing(self.rounded(tokens), batch)
        found = self.estimate(tokens, batch)
        if found.allocation is not None:
            return found.allocation.per_device_bytes + found.allocation.reserve_bytes
        return found.total_bytes if found.per_device_bytes is None else found.per_device_bytes

    def _sharing(self, tokens: int, batch: int) -> int:
        a = self.asked
        return shared_bytes(self.architecture, a, sequences(tokens, batch, None, a.encoder_tokens, a.image_tokens))

    @cached_property
    def block_tokens(self) -> int:
        """Tokens of a block, 1 where nothing is paged."""
        taken = self.estimate(self.asked.tokens, 1).allocation
        return (taken.block_tokens if taken else self.asked.block_size) or 1

    def whole(self, pool: int) -> int:
        """A pool in whole blocks of the engine."""
        taken = self.estimate(self.asked.tokens, 1).allocation
        size = taken.block_bytes if taken and taken.blocks else None
        return pool // size * size if size else pool

    def sequences(self, pool: int, tokens: int) -> int | None:
        """The most sequences of a length that a pool holds; None for sequences that keep nothing."""
        if self.bytes(tokens, 2) <= self.bytes(tokens, 1) and self.bytes(tokens, 1) <= pool:
            return None
        return most(lambda batch: self.bytes(tokens, batch) <= pool, MOST_SEQUENCES)

    def concurrency(self, pool: int, tokens: int) -> Fraction | None:
        """Sequences of a length with their fraction: what is left over what one more would take."""
        pool = self.whole(pool)
        number = self.sequences(pool, tokens)
        if number is None:
            return None
        held = self.bytes(tokens, number) if number else self._reserve(tokens)
        more = self.bytes(tokens, number + 1) - held
        return Fraction(number) + (Fraction(max(0, pool - held), more) if more > 0 else 0)

    def _reserve(self, tokens: int) -> int:
        taken = self.estimate(tokens, 1).allocation
        return taken.reserve_bytes if taken else 0

    def longest(self, pool: int, batch: int) -> int | None:
        """The longest context that ``batch`` sequences can grow to, token by token; None where nothing grows.

        Open windows of compressed attention fill and empty: lengths where all of them are full are bisected, then the
        lengths up to the next such are tried one by one.
        """

        def holds(tokens: int) -> bool:
            return self.bytes(tokens, batch) <= pool

        period = self.period
        full = most(lambda turn: holds(turn * period - 1 if period > 1 else turn), MOST_TOKENS // period)
        if full is None:
            return None
        tokens = max(0, full * period - 1) if period > 1 else full
        while period > 1 and holds(tokens + 1):
            tokens += 1
        return tokens

    @cached_property
    def period(self) -> int:
        """After how many tokens every open window is where it was."""
        sizes = [h.state.scope.size for h in self.architecture.states if h.state.scope.kind == "open"]
        found = lcm(*sizes) if sizes else 1
        if found > LONGEST_PERIOD:
            raise InvalidInputError(
                f"compressed windows repeat after {found:,} tokens only: no longest context is sought"
            )
        return found


def most(holds: Callable[[int], bool], limit: int) -> int | None:
    """The largest whole number, from 1, that holds, for what holds up to some number only; 0 for none, None beyond
    ``limit``."""
    if not holds(1):
        return 0
    high = 2
    while holds(high):
        high *= 2
        if high > limit:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def shared_bytes(architecture: Architecture, asked: Asked, sizes: Sequences) -> int:
    """Bytes on the fullest device of sequences that keep their first tokens once, in whole blocks.

    Raises: InvalidInputError for an engine, whose own way to share is not described.
    """
    if asked.engine != "none":
        raise InvalidInputError(f"how {asked.engine} shares a prefix is not described", "--engine none")
    chosen = (architecture.cache_format or architecture.dtype) if asked.cache == "auto" else asked.cache
    sizer, block = Sizer(architecture, find_cache(chosen)), asked.block_size or 1
    prefix = min(asked.shared_prefix // block * block, *(size.tokens for size, _ in sizes.groups))
    arrays = []
    for held in architecture.states:
        once = held.state.scope.rows(prefix) if shared(held.state) and not held.state.borrowed else 0
        rows = sizes.rows(held.state) - (sizes.number - 1) * once
        arrays.append((held.depths, rows * sizer.entry(held.state, rank_row(held.state, asked.ranks.tp))))
    return max(
        sum(bytes_each * sum(depth in span for depth in depths) for depths, bytes_each in arrays)
        for span in stages(architecture.decoder.depth, asked.ranks.pp)
    )


class Reserves(NamedTuple):
    """What is neither weights nor cache, at the least and at the most that was seen, with what says so."""

    activations: tuple[int, int]
    runtime: tuple[int, int]
    parts: tuple[Part, ...]


def reserves(engine: str, rule: Budget | None, activation: int | None, overhead: int | None) -> Reserves:
    """The options' own words, else the ranges of the engine; the exact arrays reserve nothing by themselves.

    SGLang's share of the memory is what is left beside its reserve, so that nothing is taken off it again.
    """
    parts = rule.parts if rule is not None and engine not in ("none", "sglang") else ()
    work = [part for part in parts if part.name.startswith(("activations", "compute"))]
    rest = [part for part in parts if part not in work]
    return Reserves(
        _range(work) if activation is None else (activation, activation),
        _range(rest) if overhead is None else (overhead, overhead),
        tuple((work if activation is None else []) + (rest if overhead is None else [])),
    )


def _range(parts: list[Part]) -> tuple[int, int]:
    return sum(part.low_bytes for part in parts), sum(part.high_bytes for part in parts)


def pool_left(rule: Budget, weights: int, reserved: int) -> int:
    """What the rule leaves for the cache; below zero where weights and reserves are more than there is.

    Of a share of what is free after loading, only that share of it is cache.
    """
    if rule.rule == "of_free":
        free = rule.available_bytes - weights - reserved
        return int(free * rule.fraction) if free > 0 else free
    return rule.available_bytes - weights - reserved
