"""How many users devices serve under a latency target, and what limits them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from llmcalc.calc.capacity import Capacity
from llmcalc.calc.expected import step_expected
from llmcalc.calc.latency import Latency, latency
from llmcalc.calc.room import most
from llmcalc.calc.sizing import Sequences
from llmcalc.calc.timing import Timing
from llmcalc.errors import InvalidInputError, UnsupportedLayerError
from llmcalc.hardware.device import Device

LimitedBy = Literal["memory", "itl", "ttft", "nothing"]
MOST_USERS = 2**24


class Pace(NamedTuple):
    """A decode step and a first token of so many sequences; basis: the true bound, or what a calibration expects."""

    itl_seconds: float
    ttft_seconds: float
    basis: Literal["at_least", "expected"]


@dataclass(frozen=True)
class Users:
    """Sequences at once under targets of latency; with the bound as basis, no more than ``most`` can be served.

    The first token is that of the last of as many prompts that arrive together.
    """

    room: Capacity
    found: Latency
    max_itl: float | None = None
    max_ttft: float | None = None

    def pace(self, number: int) -> Pace:
        """How fast so many sequences go."""
        sizes = Sequences(((self.found.sizes.groups[0][0], number),))
        found = replace(self.found, sizes=sizes)
        likely = step_expected(found, found.decode)
        itl = likely.likely if likely else found.decode.seconds_at_least
        return Pace(itl, found.prefill_seconds_at_least, "expected" if likely else "at_least")

    def _step(self, number: int) -> Timing:
        return self.found.at(Sequences(((self.found.sizes.groups[0][0], number),)))

    def _itl(self, number: int) -> float:
        timing = self._step(number)
        likely = step_expected(self.found, timing)
        return likely.likely if likely else timing.seconds_at_least

    @cached_property
    def limits(self) -> dict[LimitedBy, int | None]:
        """The most sequences by each limit; None where it is none up to 2^24."""
        out: dict[LimitedBy, int | None] = {"memory": self.room.max_sequences}
        if self.max_itl is not None:
            out["itl"] = most(lambda number: self._itl(number) <= (self.max_itl or 0), MOST_USERS)
        if self.max_ttft is not None:
            out["ttft"] = most(lambda number: self._ttft(number) <= (self.max_ttft or 0), MOST_USERS)
        return out

    def _ttft(self, number: int) -> float:
        sizes = Sequences(((self.found.sizes.groups[0][0], number),))
        return replace(self.found, sizes=sizes).prefill_seconds_at_least

    @property
    def most(self) -> int | None:
        """The most sequences under all limits."""
        return min((number for number in self.limits.values() if number is not None), default=None)

    @property
    def limited_by(self) -> LimitedBy:
        """The limit that says so."""
        named = {name: number for name, number in self.limits.items() if number is not None}
        return min(named, key=lambda name: named[name]) if named else "nothing"

    @property
    def tokens_per_second_per_device(self) -> float | None:
        """Output of the most sequences, each a token a step, over the devices of a replica."""
        if not self.most:
            return None
        ranks = self.room.asked.ranks
        return self.most / self.pace(self.most).itl_seconds / (ranks.tp * ranks.pp)


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
        found.pace(1)
    except UnsupportedLayerError:
        if target:
            raise
        return None
    return found
