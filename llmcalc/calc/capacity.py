"""How many sequences fit on devices, how long they may be, how many devices it takes, and what would make it fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from llmcalc.arch.model import Architecture
from llmcalc.calc.degrees import Choice, Spreading
from llmcalc.calc.fewest import called, degrees, fewest
from llmcalc.calc.room import Asked, Holding, Reserves, pool_left, reserves
from llmcalc.calc.weight_shards import Ranks
from llmcalc.engines.base import Budget
from llmcalc.engines.budget import budget
from llmcalc.errors import InvalidInputError, LlmcalcError
from llmcalc.figure import Figure, total
from llmcalc.hardware.device import Device

NARROWER = ("fp8", "int4")
DEVICE_SOURCE = "per device; weights and cache of the fullest one"


class Limits(NamedTuple):
    """What the options say of a device's memory; bytes of one device."""

    utilization: float | None = None
    cache_memory: int | None = None
    weight_memory: int | None = None
    activation: int | None = None
    overhead: int | None = None

    def check(self) -> None:
        """Raises: InvalidInputError for a size below zero; the fraction is the engine's rule's to judge."""
        for name, size in zip(self._fields[1:], self[1:], strict=True):
            if (size or 0) < 0:
                raise InvalidInputError(f"{name} is {size}, expected at least 0")


class Memory(NamedTuple):
    """The bar of one device, in bytes; ``free`` is below zero where it does not fit."""

    weights: int
    cache: int
    activations: int
    runtime: int
    free: int


class Change(NamedTuple):
    """A single change after which everything asked for fits."""

    option: str
    text: str


@dataclass(frozen=True)
class Capacity:
    """What fits, in bytes, tokens and sequences of one replica; the cache's pool is that of the fullest device."""

    architecture: Architecture
    asked: Asked
    limits: Limits
    device: Device | None
    weights: str = "config"
    group_size: int | None = None

    @cached_property
    def spreading(self) -> Spreading:
        """The weights, to be cut."""
        return Spreading(self.architecture, self.weights, self.group_size, self.asked)

    @cached_property
    def holding(self) -> Holding:
        """The cache, to be grown."""
        return Holding(self.architecture, self.asked)

    @cached_property
    def stage_weights(self) -> tuple[int, ...]:
        """Weights on a device of each pipeline stage.

        Raises: InvalidInputError where the degrees divide nothing.
        """
        if self.device is None or self.limits.weight_memory is not None:
            return (self.limits.weight_memory or 0,) * self.asked.ranks.pp
        return self.spreading.stages(self.asked.ranks)

    @cached_property
    def rule(self) -> Budget | None:
        """What the engine does with the device's memory; None where the pool is given."""
        if self.device is None:
            return None
        a = self.asked
        return budget(
            a.engine, self.device.memory(), utilization=self.limits.utilization, tp=a.ranks.tp, pp=a.ranks.pp,
            batched_tokens=a.batched_tokens, vocab=self.architecture.vocab_size,
        )  # fmt: skip

    @cached_property
    def reserves(self) -> Reserves:
        """What is neither weights nor cache."""
        return reserves(self.asked.engine, self.rule, self.limits.activation, self.limits.overhead)

    def _left(self, weights: int, reserved: int) -> int:
        return (self.limits.cache_memory or 0) if self.rule is None else pool_left(self.rule, weights, reserved)

    @cached_property
    def lefts(self) -> tuple[int, ...]:
        """What the largest reserves leave for the cache on a device of each stage, below zero where it is nothing."""
        reserved = self.reserves.activations[1] + self.reserves.runtime[1]
        return tuple(self._left(weights, reserved) for weights in self.stage_weights)

    @cached_property
    def stage_caches(self) -> tuple[int, ...]:
        """What the sequences asked for take on a device of each stage."""
        return self.holding.stages(self.asked.tokens, self.asked.batch)

    @cached_property
    def fullest(self) -> int:
        """The stage whose devices have least room beside weights, reserves and the cache asked for."""
        rooms = [left - taken for left, taken in zip(self.lefts, self.stage_caches, strict=True)]
        return rooms.index(min(rooms))

    @property
    def weight_bytes(self) -> int:
        """Weights on the fullest device."""
        return self.stage_weights[self.fullest]

    @property
    def cache_bytes(self) -> int:
        """What the sequences asked for take on the fullest device."""
        return self.stage_caches[self.fullest]

    @property
    def left(self) -> int:
        """What the largest reserves leave for the cache on the fullest device, below zero where it is nothing."""
        return self.lefts[self.fullest]

    @property
    def cache_pool_bytes(self) -> int:
        """The pool of the fullest device, with the largest reserves that were seen."""
        return max(0, self.left)

    @property
    def largest_pool_bytes(self) -> int:
        """The same with the smallest reserves that were seen."""
        return max(0, self._left(self.weight_bytes, self.reserves.activations[0] + self.reserves.runtime[0]))

    @property
    def short_by_bytes(self) -> int:
        """Weights, reserves and cache asked for, less what there is; 0 where it fits."""
        return max(0, self.cache_bytes - self.left)

    @property
    def fits(self) -> bool:
        """Whether everything asked for fits on every device."""
        return self.short_by_bytes == 0

    @cached_property
    def concurrency(self) -> Fraction | None:
        """Sequences at the length asked for, with their fraction; None where they keep nothing."""
        if not self.holding.keeps:
            return None
        return self.holding.concurrency(self.lefts, self.asked.tokens) if min(self.lefts) > 0 else Fraction(0)

    @property
    def max_sequences(self) -> int | None:
        """Whole sequences."""
        return None if self.concurrency is None else self.concurrency.numerator // self.concurrency.denominator

    @property
    def pool_tokens(self) -> int | None:
        """Tokens of sequences at the length asked for, in whole blocks."""
        if self.concurrency is None:
            return None
        tokens, block = self.concurrency * self.asked.tokens, self.holding.block_tokens
        return tokens.numerator // tokens.denominator // block * block

    @cached_property
    def max_tokens_per_sequence(self) -> int | None:
        """The longest context of the sequences asked for; None where nothing grows."""
        if not self.holding.keeps:
            return None
        return self.holding.longest(self.lefts, self.asked.batch) if min(self.lefts) > 0 else 0

    @property
    def memory(self) -> Memory | None:
        """The bar of the fullest device; None where its memory is not given."""
        if self.device is None:
            return None
        work, rest = self.reserves.activations[1], self.reserves.runtime[1]
        used = self.weight_bytes + self.cache_bytes + work + rest
        return Memory(self.weight_bytes, self.cache_bytes, work, rest, self.device.memory() - used)

    def spread(self, ranks: Ranks) -> Capacity:
        """The same on other ranks."""
        other = replace(self, asked=self.asked._replace(ranks=ranks))
        vars(other)["spreading"] = self.spreading  # the same weights: cut anew, not laid out anew
        return other

    def holds(self, ranks: Ranks) -> bool:
        """Whether it fits on other ranks; not where they divide nothing."""
        try:
            return self.spread(ranks).fits
        except LlmcalcError:
            return False

    @cached_property
    def choices(self) -> tuple[tuple[Choice, bool], ...]:
        """The ways to use as many devices, each with whether it then fits."""
        ranks = self.asked.ranks
        if self.limits.weight_memory is not None:
            return ()
        found = self.spreading.choices(ranks.tp * ranks.pp * ranks.dp, ranks.dp)
        return tuple((one, one.weight_bytes is not None and self.holds(one.ranks)) for one in found)

    @cached_property
    def fewest(self) -> Ranks | None:
        """How to cut one replica over the fewest devices on which it fits; None where no cut up to 1,024 does.

        Weights given with --weight-memory cannot be spread, so that nothing is known then.
        """
        return None if self.rule is None or self.limits.weight_memory is not None else fewest(self)

    @property
    def min_gpus(self) -> int | None:
        """The fewest devices of one replica on which it fits, cut in any valid way; None up to 1,024."""
        return None if self.fewest is None else self.fewest.tp * self.fewest.pp

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Single changes, each of which would make it fit: formats, context, number, devices."""
        return () if self.fits else tuple(self._changes())

    def _changes(self) -> Iterator[Change]:
        if self.limits.weight_memory is None and self.device is not None:
            for name in NARROWER:
                if _fits(replace(self, weights=name)):
                    yield Change(f"--weights {name}", f"weights in {name}")
                    break
        if self.asked.cache != "fp8" and _fits(replace(self, asked=self.asked._replace(cache="fp8"))):
            yield Change("--cache fp8", "keys and values in fp8")
        longest, most = self.max_tokens_per_sequence, self.max_sequences
        if longest:
            yield Change(f"--tokens {longest}", f"contexts of at most {longest:,} tokens")
        if most and most < self.asked.batch:
            yield Change(f"--batch {most}", f"at most {most:,} sequences")
        if (ranks := self.fewest) is not None:
            yield Change(degrees(ranks, self.asked.ranks), called(ranks))

    @property
    def figure(self) -> Figure:
        """The fullest device, piece by piece."""
        held = self.holding.estimate(self.asked.tokens, self.asked.batch)
        taken = held.allocation.figure if held.allocation is not None else held.figure
        parts = [Figure("weights", self.weight_bytes, "B"), Figure("cache", self.cache_bytes, "B", (), (), "", (
            f"on the fullest device; all of it: {taken.name} = {taken.value:,} B",))]  # fmt: skip
        parts += [Figure("activations", self.reserves.activations[1], "B"),
                  Figure("runtime", self.reserves.runtime[1], "B")]  # fmt: skip
        notes = tuple(f"{part.name}: {part.low_bytes:,} to {part.high_bytes:,} B: {part.source}"
                      for part in self.reserves.parts)  # fmt: skip
        return total("asked for on the fullest device", "B", tuple(parts), DEVICE_SOURCE, notes)


def _fits(other: Capacity) -> bool:
    try:
        return other.fits
    except LlmcalcError:
        return False


def capacity(
    architecture: Architecture,
    device: Device | None = None,
    asked: Asked | None = None,
    limits: Limits | None = None,
    *,
    weights: str = "config",
    group_size: int | None = None,
) -> Capacity:
    """What fits on devices (``device`` is one of them), or in a cache pool that is given.

    With engine ``none`` only what the options name is reserved; other engines by their own rules, with the largest
    reserves that people saw. Sequences and devices of one replica. Args: asked: sequences and how they are kept.
    limits: of the memory. Raises: InvalidInputError, UnsupportedError. Source: the engines' files, named by each.
    Checked: tests/capacity
    """
    asked, limits = asked or Asked(), limits or Limits()
    asked.check()
    limits.check()
    if limits.cache_memory is not None:
        device = None
    elif device is None:
        raise InvalidInputError("no device is described", "give --gpu NAME or --memory SIZE, or --cache-memory SIZE")
    else:
        device.memory()
    return Capacity(architecture, asked, limits, device, weights, group_size)
