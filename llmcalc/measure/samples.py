"""Repeated times of one thing: the median is the figure, its spread says how far to trust it."""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

# torch.utils.benchmark's own thresholds (common.py): a tenth is worth a word, a quarter makes the figure unstable.
WIDE, UNSTABLE = 0.10, 0.25
DRIFT = 0.03


class Samples(NamedTuple):
    """Seconds of one step, in the order seen.

    warmup: steps before them that are not among them. first: of those the very first, which pays loading and tuning.
    wall: seconds a step by the host's clock, synchronised at both ends.
    """

    seconds: tuple[float, ...]
    warmup: int = 0
    first: float | None = None
    wall: float | None = None

    @property
    def median(self) -> float:
        """The middle one."""
        return median(self.seconds)

    def quantile(self, share: float) -> float:
        """The value below which a share of them lies, between neighbours in proportion."""
        ordered = sorted(self.seconds)
        place = share * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (place - low) * (ordered[high] - ordered[low])

    @property
    def spread(self) -> float:
        """The middle half's width over the median."""
        return (self.quantile(0.75) - self.quantile(0.25)) / self.median if self.median else 0.0

    @property
    def trust(self) -> str:
        """``steady``, ``wide`` or ``unstable``."""
        return "unstable" if self.spread > UNSTABLE else "wide" if self.spread > WIDE else "steady"

    def summary(self) -> dict[str, object]:
        """For the document; times in seconds."""
        return {
            "median_seconds": self.median, "p10_seconds": self.quantile(0.1), "p90_seconds": self.quantile(0.9),
            "min_seconds": min(self.seconds), "iterations": len(self.seconds), "warmup": self.warmup,
            "first_call_seconds": self.first, "wall_seconds": self.wall, "iqr_rel": self.spread, "trust": self.trust,
        }  # fmt: skip


def drift(first: Samples, last: Samples) -> float:
    """How much slower the same thing ran at the end: heat, clocks or a neighbour."""
    return last.median / first.median - 1
