"""A scripted driver: what pynvml would answer, and the errors it would raise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

GIB = 2**30


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, LOST = 3, 4, 6, 15


def card(name: str, uuid: str, total: int, **more: Any) -> dict[str, Any]:
    """A card of so many bytes; ``more`` replaces an answer, an int in place of one raises that error."""
    base: dict[str, Any] = {
        "Name": name, "UUID": uuid, "MemoryInfo": SimpleNamespace(total=total, used=GIB, free=total - GIB),
        "CudaComputeCapability": (9, 0), "PowerUsage": 123_456, "EnforcedPowerLimit": 700_000, "MigMode": (0, 0),
        "ClockInfo": {1: 345, 2: 3201}, "MaxClockInfo": {1: 1980}, "slices": [],
    }  # fmt: skip
    return {**base, **more}


class Driver:
    """The functions of pynvml that are used, by name."""

    NVMLError = NVMLError

    def __init__(self, cards: list[dict[str, Any]], *, init: int = 0, hidden: tuple[int, ...] = ()) -> None:
        self.cards, self.init, self.hidden, self.closed = cards, init, hidden, False

    def nvmlInit(self) -> None:  # noqa: N802
        if self.init:
            raise NVMLError(self.init)

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.closed = True

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"580.95.05"

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:  # noqa: N802
        if index in self.hidden:
            raise NVMLError(NO_PERMISSION)
        return self.cards[index]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: dict[str, Any]) -> int:  # noqa: N802
        return 7 if handle["slices"] else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: dict[str, Any], index: int) -> dict[str, Any]:  # noqa: N802
        if index >= len(handle["slices"]):
            raise NVMLError(NOT_FOUND)
        part: dict[str, Any] = handle["slices"][index]
        return part

    def __getattr__(self, name: str) -> Any:
        key = name.removeprefix("nvmlDeviceGet")
        if key == name:
            raise AttributeError(name)

        def answer(handle: dict[str, Any], *words: int) -> Any:
            value = handle[key]
            if isinstance(value, int) and key not in ("PowerUsage", "EnforcedPowerLimit"):
                raise NVMLError(value)
            return value[words[0]] if words else value

        return answer
