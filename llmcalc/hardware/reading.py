"""What a card says of itself at work."""

from __future__ import annotations

from typing import NamedTuple

TEMPERATURE_OF_GPU = 0
# nvml.h: nvmlClocksEventReason*; those of SLOWED hold the clocks below what the work asks for.
REASONS = {
    0x1: "idle", 0x2: "clocks set", 0x4: "software power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake", 0x100: "display clock",
}  # fmt: skip
SLOWED = ("hardware slowdown", "software thermal", "hardware thermal", "power brake")


class Reading(NamedTuple):
    """A card at work; None is what it does not say. processes: (pid, bytes or None) of every one that computes on it.

    energy_joules: since the driver was loaded, of the whole board. reasons: what holds its clocks.
    """

    memory_used_bytes: int | None
    processes: tuple[tuple[int, int | None], ...]
    energy_joules: float | None
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    power_watts: float | None
    temperature_celsius: int | None
    reasons: tuple[str, ...] | None
