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
from llmcalc.calc.sharding import check_cut, rank_row, stages
from llmcalc.calc.sizing import Sequences, Sizer, sequences
from llmcalc.calc.weight_shards import Ranks
from llmcalc.engines.base import Budget, Part, StageBytes
from llmcalc.errors import InvalidInputError
from llmcalc.formats import find_cache

MOST_TOKENS = 2**40
MOST_SEQUENCES = 2**40
LONGEST_PERIOD = 2**16
Pool = int | tuple[int, ...]  # room of a device: of any, or of one of each pipeline stage


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

    def check(self) -> None:
        """Raises: InvalidInputError for numbers that are too small, and degrees that do not fit together."""
        self.ranks.check()
        if self.tokens < 1 or self.batch < 1:
            raise InvalidInputError("there must be at least one sequence, of at least one token")
        least = {"block_size": 1, "batched_tokens": 1, "encoder_tokens": 0, "image_tokens": 0, "shared_prefix": 0}
        for name, value in self._asdict().items():
            if name in least and value is not None and value < least[name]:
                raise InvalidInputError(f"{name} is {value}, expected at least {least[name]}")


@dataclass(frozen=True)
class Holding:
    """The cache of a model on the fullest device, as a function of length and number."""

    architecture: Architecture
    asked: Asked

    @property
    def keeps(self) -> bool:
        """Whether sequences keep anything from one step to the next: those of an encoder alone do not."""
        return bool(self.architecture.states)

    def estimate(self, tokens: int, batch: int) -> CacheEstimate:
        """The exact arrays, and what the engine takes."""
        a = self.asked
        plain = a.engine == "none"
        cut = a.ranks if self.architecture.decoder.layers else Ranks()
        return kv_cache(
            self.architecture, self.rounded(tokens), batch, encoder_tokens=a.encoder_tokens,
            image_tokens=a.image_tokens, cache=a.cache, engine=a.engine, tp=cut.tp, pp=cut.pp,
            block_size=None if plain else a.block_size, batched_tokens=None if plain else a.batched_tokens,
        )  # fmt: skip

    def rounded(self, tokens: int) -> int:
        """Tokens in whole blocks, where the exact arrays are paged by an option."""
        return -(-tokens // self._block) * self._block

    def bytes(self, tokens: int, batch: int) -> int:
        """Bytes on the fullest device, with what an engine's pool holds back."""
        return max(self.stages(tokens, batch))

    def stages(self, tokens: int, batch: int) -> tuple[int, ...]:
        """The same on a device of each pipeline stage."""
        a = self.asked
        if batch == 0 or not self.keeps:
            return (0,) * a.ranks.pp
        if a.engine == "none":
            sizes = sequences(self.rounded(tokens), batch, None, a.encoder_tokens, a.image_tokens)
            return array_stages(self.architecture, a, sizes)
        if a.shared_prefix:
            raise InvalidInputError(f"how {a.engine} shares a prefix is not described", "--engine none")
        return tuple(one.taken + one.reserve for one in self._taken(tokens, batch))

    def _taken(self, tokens: int, batch: int) -> tuple[StageBytes, ...]:
        taken = self.estimate(tokens, batch).allocation
        return taken.stages if taken else (StageBytes(0),) * self.asked.ranks.pp

    @cached_property
    def block_tokens(self) -> int:
        """Tokens of a block, 1 where nothing is paged."""
        taken = self.estimate(self.asked.tokens, 1).allocation
        return (taken.block_tokens if taken else self.asked.block_size) or 1

    def holds(self, pool: Pool, tokens: int, batch: int) -> bool:
        """Whether every device has room."""
        held = self.stages(tokens, batch)
        return all(size <= room for size, room in zip(held, _each(pool, len(held)), strict=True))

    def sequences(self, pool: Pool, tokens: int) -> int | None:
        """The most sequences of a length that a pool holds; None for sequences that keep nothing."""
        if self.stages(tokens, 2) == self.stages(tokens, 1) and self.holds(pool, tokens, 1):
            return None
        return most(lambda batch: self.holds(pool, tokens, batch), MOST_SEQUENCES)

    def concurrency(self, pool: Pool, tokens: int) -> Fraction | None:
        """Sequences of a length with their fraction: what is left over what one more would take, in whole blocks."""
        number = self.sequences(pool, tokens)
        if number is None:
            return None
        units = self._taken(tokens, 1) if self.asked.engine != "none" else (StageBytes(0),) * self.asked.ranks.pp
        held = self.stages(tokens, number) if number else tuple(unit.reserve for unit in units)
        shares = []
        more = self.stages(tokens, number + 1)
        for room, unit, size, longer in zip(_each(pool, len(held)), units, held, more, strict=True):
            left = max(0, room - size) // (unit.block or 1) * (unit.block or 1)
            if longer > size:
                shares.append(Fraction(left, longer - size))
        return Fraction(number) + min(shares, default=Fraction(0))

    def longest(self, pool: Pool, batch: int) -> int | None:
        """The longest context that ``batch`` sequences can grow to, token by token; None where nothing grows.

        Open windows of compressed attention fill and empty: lengths where all of them are full are bisected, then the
        lengths up to the next such are tried one by one.
        """

        def holds(tokens: int) -> bool:
            return self.holds(pool, tokens, batch)

        period = self.period
        full = most(lambda turn: all(map(holds, self._peaks(turn))), MOST_TOKENS // period)
        if full is None:
            return None
        tokens = full and self._peaks(full)[-1]
        while period > 1 and holds(tokens + 1):
            tokens += 1
        return tokens

    def _peaks(self, turn: int) -> range:
        """Lengths of a turn of the open windows that no other of its lengths takes more than."""
        period, block = self.period, self._block
        if block > 1 and period > 1:
            return range((turn - 1) * period + block, turn * period + 1, block)
        last = turn * period - 1 if period > 1 else turn
        return range(last, last + 1)

    @property
    def _block(self) -> int:
        return (self.asked.block_size or 1) if self.asked.engine == "none" else 1

    @cached_property
    def period(self) -> int:
        """After how many tokens every open window is where it was, in whole blocks."""
        sizes = [h.state.scope.size for h in self.architecture.states if h.state.scope.kind == "open"]
        found = lcm(*sizes, self._block) if sizes else 1
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


def array_stages(architecture: Architecture, asked: Asked, sizes: Sequences) -> tuple[int, ...]:
    """Bytes of the exact arrays on a device of each pipeline stage.

    First tokens that the sequences have in common are kept once, in whole blocks.
    """
    if not architecture.decoder.layers:
        return (0,) * asked.ranks.pp
    check_cut(architecture, asked.ranks.tp)
    sizer = Sizer(architecture, find_cache(asked.cache, architecture.cache_format or architecture.dtype))
    block = asked.block_size or 1
    prefix = min(asked.shared_prefix // block * block, *(size.tokens for size, _ in sizes.groups))
    arrays = []
    for held in architecture.states:
        once = held.state.scope.rows(prefix) if shared(held.state) and not held.state.borrowed else 0
        rows = sizes.rows(held.state) - (sizes.number - 1) * once
        arrays.append((held.depths, rows * sizer.entry(held.state, rank_row(held.state, asked.ranks.tp))))
    return tuple(
        sum(bytes_each * sum(depth in span for depth in depths) for depths, bytes_each in arrays)
        for span in stages(architecture.decoder.depth, asked.ranks.pp)
    )


def _each(pool: Pool, count: int) -> tuple[int, ...]:
    return pool if isinstance(pool, tuple) else (pool,) * count


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
