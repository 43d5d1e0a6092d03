"""How many users devices serve under a latency target, and what limits them: by the bound, and by what is expected.

The two are never mixed. By the bound no more can be served, whatever the engine does. By a calibration so many are
expected to be, as far as it speaks: of steps bound by memory, and not of first tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from llmcalc.calc.capacity import Capacity
from llmcalc.calc.expected import Expected, silence, step_expected
from llmcalc.calc.latency import Latency, latency
from llmcalc.calc.room import most
from llmcalc.calc.sizing import Sequences
from llmcalc.calc.timing import Timing
from llmcalc.errors import InvalidInputError, UnsupportedLayerError
from llmcalc.hardware.device import Device

LimitedBy = Literal["memory", "itl", "ttft", "nothing"]
Basis = Literal["at_least", "expected"]
Target = Literal["itl", "ttft"]
MOST_USERS = 2**24


class Served(NamedTuple):
    """The most sequences at once on one basis, what limits them, and a decode step of so many.

    most: None where nothing limits them. tokens_per_second_per_device: each a token a step; None for none.
    step: what is expected of that step, where that is the basis.
    """

    basis: Basis
    most: int | None
    limited_by: LimitedBy
    itl_seconds: float | None
    tokens_per_second_per_device: float | None
    step: Expected | None = None


class Met(NamedTuple):
    """A target, and whether the sequences asked for meet it: surely not, as expected (or not), or None: not known."""

    target: Target
    seconds: float
    at_least: float
    expected: float | None
    met: bool | None
    basis: Basis | None
    expected_low: float | None = None
    expected_high: float | None = None


@dataclass(frozen=True)
class Users:
    """Sequences at once under targets of latency.

    The first token is that of the last of as many prompts that arrive together.
    """

    room: Capacity
    found: Latency
    max_itl: float | None = None
    max_ttft: float | None = None

    def _of(self, number: int) -> Sequences:
        return Sequences(((self.found.sizes.groups[0][0], number),))

    def _step(self, number: int) -> Timing:
        return self.found.at(self._of(number))

    def itl(self, number: int) -> float:
        """Seconds between tokens of so many sequences, at least.

        Stages of a pipeline may work on different sequences: a token passes all of them, as if alone, and the busiest
        has the work of all sequences to do between two tokens of one.
        """
        if self.found.reader.ranks.pp == 1:
            return self._step(number).seconds_at_least
        step, stages = self._step(number), self.found.reader.ranks.pp
        moving = step.moved_bytes / self.found.device.bandwidth()
        return max(self._step(1).seconds_at_least, moving, (step.compute_seconds or 0.0) / stages)

    def ttft(self, number: int) -> float:
        """Seconds to the last first token of so many prompts, at least; of stages, the busiest has an equal share."""
        together, stages = replace(self.found, sizes=self._of(number)), self.found.reader.ranks.pp
        if stages == 1:
            return together.prefill_seconds_at_least
        memory, compute, _ = together.prefill_seconds
        one = replace(self.found, sizes=self._of(1))
        return max(one.prefill_seconds_at_least, memory / stages, (compute or 0.0) / stages)

    def likely(self, number: int) -> Expected | None:
        """What to expect of a decode step of so many sequences, one step of all of them after another."""
        return step_expected(self.found, self._step(number))

    @cached_property
    def limits(self) -> dict[LimitedBy, int | None]:
        """The most sequences by each limit, by the bound; None where it is none up to 2^24."""
        out: dict[LimitedBy, int | None] = {"memory": self.room.max_sequences}
        if self.max_itl is not None:
            out["itl"] = most(lambda number: self.itl(number) <= (self.max_itl or 0), MOST_USERS)
        if self.max_ttft is not None:
            out["ttft"] = most(lambda number: self.ttft(number) <= (self.max_ttft or 0), MOST_USERS)
        return out

    @cached_property
    def bound(self) -> Served:
        """No more than so many can be served."""
        number, name = _least(self.limits)
        seconds = self.itl(number) if number else None
        return Served("at_least", number, name, seconds, self._rate(number, seconds))

    def _rate(self, number: int | None, seconds: float | None) -> float | None:
        ranks = self.room.asked.ranks
        return number / seconds / (ranks.tp * ranks.pp) if number and seconds else None

    @cached_property
    def spoken(self) -> int | None:
        """Up to how many sequences a calibration speaks, from one up; 0 where there is none, None for any number."""
        return most(lambda number: self.likely(number) is not None, MOST_USERS)

    @cached_property
    def expected(self) -> Served | None:
        """So many are expected to be served; None where no calibration says so, for the reason in :attr:`silent`."""
        if self.silent:
            return None
        number, name = _least(self._expected_limits)
        seen = self.likely(number) if number else None
        seconds = None if seen is None else seen.likely
        return Served("expected", number, name, seconds, self._rate(number, seconds), seen)

    @property
    def told(self) -> Expected | None:
        """The expectation that is told of: of the users expected, else of those asked for, held against a target."""
        if self.expected is not None and self.expected.step is not None:
            return self.expected.step
        return None if self.max_itl is None else self.likely(self.room.asked.batch)

    @cached_property
    def _expected_limits(self) -> dict[LimitedBy, int | None]:
        out: dict[LimitedBy, int | None] = {"memory": self.room.max_sequences}
        if self.max_itl is not None:
            out["itl"] = most(self._expected_within, MOST_USERS)
        return out

    def _expected_within(self, number: int) -> bool:
        seen = self.likely(number)
        return seen is not None and seen.likely <= (self.max_itl or 0)

    @cached_property
    def silent(self) -> str:
        """Why no number of users is expected; empty where one is."""
        if self.spoken == 0:
            return silence(self.found, self._step(1))
        if self.max_ttft is not None:
            return "no calibration speaks of first tokens, which --max-ttft limits"
        number, name = _least(self._expected_limits)
        if self.spoken is None or (number is not None and number < self.spoken):
            return ""
        if number == self.spoken and name == "memory":
            return ""
        return (
            f"the calibration speaks of steps of up to {self.spoken:,} sequences, and those are within the limits; a "
            "step of more is bound by computing"
        )

    def met(self) -> tuple[Met, ...]:
        """The targets, each with whether the sequences asked for meet it."""
        number = self.room.asked.batch
        seen, out = self.likely(number), []
        if self.max_itl is not None:
            out.append(_met("itl", self.max_itl, self.itl(number), seen))
        if self.max_ttft is not None:
            out.append(_met("ttft", self.max_ttft, self.ttft(number), None))
        return tuple(out)


def _met(target: Target, seconds: float, least: float, seen: Expected | None) -> Met:
    low, likely, high = (None, None, None) if seen is None else seen[:3]
    if least > seconds:
        return Met(target, seconds, least, likely, False, "at_least", low, high)
    if likely is None:
        return Met(target, seconds, least, None, None, None)
    return Met(target, seconds, least, likely, likely <= seconds, "expected", low, high)


def _least(limits: dict[LimitedBy, int | None]) -> tuple[int | None, LimitedBy]:
    """The smallest limit, and which it is."""
    named: list[tuple[int, LimitedBy]] = [(number, name) for name, number in limits.items() if number is not None]
    return min(named, key=lambda pair: pair[0]) if named else (None, "nothing")


def users(room: Capacity, device: Device, max_itl: float | None = None, max_ttft: float | None = None) -> Users:
    """The users of a capacity under targets of the time between tokens and of that to the first.

    Raises: InvalidInputError where a target is not above zero, or the device's bandwidth is not known.
    Checked: tests/capacity
    """
    for name, value in (("max-itl", max_itl), ("max-ttft", max_ttft)):
        if value is not None and not 0 < value < float("inf"):
            raise InvalidInputError(f"--{name} {value}: expected seconds, above zero")
    asked = room.asked
    found = latency(
        room.architecture, device, asked.tokens, 1, weights=room.weights, group_size=room.group_size, cache=asked.cache,
        ranks=asked.ranks, encoder_tokens=asked.encoder_tokens, image_tokens=asked.image_tokens,
        batched_tokens=asked.batched_tokens, engine=asked.engine, shared_prefix=asked.shared_prefix,
    )  # fmt: skip
    return Users(room, found, max_itl, max_ttft)


def known_users(room: Capacity, device: Device | None, max_itl: float | None, max_ttft: float | None) -> Users | None:
    """The same, or None where there is no time to tell of: no device, no bandwidth, no steps, or no count of them.

    Raises: InvalidInputError, UnsupportedLayerError where a target was named.
    """
    target = max_itl is not None or max_ttft is not None
    if device is None:
        if target:
            raise InvalidInputError("a target of latency needs a device", "--gpu NAME, not --cache-memory")
        return None
    if not target and (device.bandwidth_bytes_per_second is None or not room.architecture.decoder.layers):
        return None
    found = users(room, device, max_itl, max_ttft)
    try:
        found.itl(1)
    except UnsupportedLayerError:
        if target:
            raise
        return None
    return found
