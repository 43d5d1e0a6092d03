"""The one interface to whatever the decoder runs on. A scripted fake of it lets everything else be tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol

from llmcalc.hardware.device import Device

Kind = Literal["cpu", "cuda"]
Ability = Literal["graph", "bf16", "grouped"]


class MemoryUse(NamedTuple):
    """Bytes; None where nobody says.

    allocated, reserved: torch's allocator. process: of this process as the driver (or the system) counts it. context:
    what the driver took before the first tensor. peak_*: since the last reset.
    """

    allocated: int | None
    reserved: int | None
    process: int | None
    context: int | None
    peak_allocated: int | None
    peak_reserved: int | None
    peak_process: int | None


def first_line(error: BaseException) -> str:
    """What an error says, without the advice that torch puts after it."""
    return (str(error).splitlines() or [type(error).__name__])[0]


class Machine(Protocol):
    """A device, its clock, its memory and its sensors.

    pci: where it sits. driver: its version. catalogue: its row, where it has one and is no slice of a card. shared:
    somebody else works on it, or may. flags: what makes its figures those of less than a card (a slice, a virtual one).
    """

    kind: Kind
    name: str
    torch_device: str
    uuid: str | None
    pci: str | None
    driver: str | None
    catalogue: Device | None
    shared: bool
    flags: tuple[str, ...]
    warnings: list[str]

    def total_bytes(self) -> int:
        """Its memory."""

    def free_bytes(self) -> int:
        """What of it is free, everybody counted."""

    def cache_bytes(self) -> int:
        """Its last-level cache."""

    def context_bytes(self) -> int:
        """What a context will take that is not there yet."""

    def sync(self) -> None:
        """Wait until all work is done."""

    def mark(self) -> object:
        """A point in time, between two pieces of work."""

    def seconds(self, start: object, end: object) -> float:
        """Between two marks; after ``sync``."""

    def reset_peak(self) -> None:
        """Begin to look for the largest memory anew."""

    def memory(self) -> MemoryUse:
        """What is in use now."""

    def energy_joules(self) -> float | None:
        """A counter of energy of the whole device; None where there is none that means something."""

    def state(self) -> Mapping[str, object]:
        """Clocks, power, temperature, and why clocks are held back."""

    def supports(self, ability: Ability) -> bool:
        """Whether it can do that, and does it well; ``grouped``: all experts in one product without a wait."""

    def release(self) -> None:
        """Give back memory that is held and not used."""

    def capture(self, step: Callable[[], object]) -> Callable[[], object]:
        """The step as one graph, to be run again and again; a RuntimeError where the step waits for the host."""
