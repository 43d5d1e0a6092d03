"""What a pass takes: the three bounds, the largest of which binds, and how passes make up a request."""

from __future__ import annotations

from typing import Literal, NamedTuple

from llmcalc.calc.links import Traffic
from llmcalc.calc.needed import Work
from llmcalc.errors import InvalidInputError

Bound = Literal["memory", "compute", "communication"]


class Timing(NamedTuple):
    """One pass on a device: bytes of the busiest device, seconds of the whole pass.

    The parts of ``read_bytes`` add up to it; ``likely_read_bytes``: with the experts that tokens find at random.
    The bound is that of ``moved_bytes``, without the ``spare_bytes`` that no step needs and what a cache can hold, and
    of ``work``, the fewest operations; ``flops`` are all of them.
    """

    seconds_at_least: float
    bound: Bound
    seconds_roofline: float
    memory_seconds: float
    compute_seconds: float | None
    link_seconds: float | None
    read_bytes: int
    weight_read_bytes: int
    embedding_read_bytes: int
    cache_read_bytes: int
    state_read_bytes: int
    written_bytes: int
    likely_read_bytes: int
    moved_bytes: int
    spare_bytes: int
    flops: int
    work: Work
    traffic: Traffic


def longest(memory: float, compute: float | None, sent: float | None) -> tuple[float, Bound]:
    """The largest of the three, and which it is."""
    known: list[tuple[float, Bound]] = [(memory, "memory")]
    known += [(compute, "compute")] if compute is not None else []
    known += [(sent, "communication")] if sent is not None else []
    return max(known, key=lambda pair: pair[0])


def request_seconds(ttft: float, decode: float) -> float:
    """A request: the time to its first token, and the decode steps of all further ones."""
    return ttft + decode


def per_request(ttft: float, itl: float, output: int) -> float:
    """A request of ``output`` tokens at a steady gap: TTFT + (T - 1) x ITL; 0.4 + 99 x 0.02 = 2.38 seconds.

    Raises: InvalidInputError.
    """
    if output < 1 or ttft < 0 or itl < 0:
        raise InvalidInputError("a request has at least one token, and no negative time")
    return request_seconds(ttft, (output - 1) * itl)
