"""A machine with cards that are not there: their clock, memory, sensors and failures are scripted, their tensors lie
in the processor's memory.

Every operator is charged to a clock: the host's time to launch it, the device's to move its bytes or multiply. A graph
is the operators of one call, done again. So a whole measurement runs as on a GPU, and its times are known beforehand.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from llmcalc.measure.cuda import CudaMachine
from tests.hardware.fake import GIB, NOT_FOUND, NOT_SUPPORTED, NVMLError
from tests.hardware.fake import Driver as Plain
from tests.measure.clock import Clock

MIB = 2**20


@dataclass
class Card:
    """One card, as NVML and CUDA tell it; an NVMLError in place of a figure is raised.

    others: (pid, bytes or None) of who computes on it already. told: what NVML says of this process, ``None`` that it
    is not listed. context: bytes that the driver takes for one.
    """

    name: str = "NVIDIA H200"
    uuid: str = "GPU-aaaa1111-0000-0000-0000-000000000001"
    total: int = 4 * GIB
    free: int = 2 * GIB
    l2: int = 0
    others: tuple[tuple[int, int | None], ...] = ()
    used: int = 0
    told: Any = "bytes"
    context: int = 500 * MIB
    watts: float | NVMLError = 400.0
    reasons: int | NVMLError = 0x4
    clock: int | NVMLError = 1980
    mig: tuple[int, int] = (0, 0)
    slices: list[Any] = field(default_factory=list)
    unified: bool = False


class Cuda:
    """What torch.cuda says of those cards; the order may be another than NVML's."""

    def __init__(self, cards: list[Card], clock: Clock, order: list[int] | None = None) -> None:
        self.cards = [cards[i] for i in (order if order is not None else range(len(cards)))]
        self.clock = clock
        self.opened: set[int] = set()
        self.available, self.says = bool(self.cards), ""
        self.refuses: str | None = None  # what creating a context says
        self.cannot: str | None = None  # what capturing says
        self.touched = False
        self.current = 0

    def is_available(self) -> bool:
        if self.says:
            import warnings

            warnings.warn(self.says, UserWarning, stacklevel=2)
        return self.available

    def device_count(self) -> int:
        return len(self.cards) if self.available else 0

    def is_initialized(self) -> bool:
        return self.touched

    def is_bf16_supported(self) -> bool:
        return True

    def get_device_properties(self, index: int) -> Any:
        self.touched = True
        card = self.cards[index]
        return SimpleNamespace(
            name=card.name, uuid=card.uuid.removeprefix("GPU-").removeprefix("MIG-"), total_memory=card.total,
            L2_cache_size=card.l2, pci_domain_id=0, pci_bus_id=0x18 + index, pci_device_id=0,
        )  # fmt: skip

    def set_device(self, index: int) -> None:
        self.current = index

    def synchronize(self, index: int) -> None:
        if self.refuses is not None:
            raise RuntimeError(self.refuses)
        self.opened.add(index)
        self.clock.host = max(self.clock.host, self.clock.device)

    def mem_get_info(self, index: int) -> tuple[int, int]:
        return max(0, self.cards[index].free - self.clock.held), self.cards[index].total

    def memory_allocated(self, index: int) -> int:
        return self.clock.held

    def memory_reserved(self, index: int) -> int:
        return -(-self.clock.held // (2 * MIB)) * 2 * MIB

    def max_memory_allocated(self, index: int) -> int:
        return self.clock.most

    def max_memory_reserved(self, index: int) -> int:
        return -(-self.clock.most // (2 * MIB)) * 2 * MIB

    def empty_cache(self) -> None:
        self.emptied = True

    def reset_peak_memory_stats(self, index: int) -> None:
        self.clock.most = self.clock.held

    def Event(self, enable_timing: bool) -> Mark:
        return Mark(self.clock)

    def Stream(self) -> Any:
        return SimpleNamespace(wait_stream=lambda other: None)

    current_stream = Stream

    @contextmanager
    def stream(self, side: Any) -> Iterator[None]:
        yield

    def CUDAGraph(self) -> Any:
        graph = SimpleNamespace(recorded=[], replays=0)
        graph.replay = lambda: self.clock.replay(graph)
        return graph

    @contextmanager
    def graph(self, graph: Any) -> Iterator[None]:
        if self.cannot is not None:
            raise RuntimeError(self.cannot)
        with self.clock.recording(graph.recorded):
            yield


class Mark:
    """A mark on the device's time line."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.time = clock, 0.0

    def record(self) -> None:
        self.time = max(self.clock.device, self.clock.host)

    def elapsed_time(self, other: Mark) -> float:
        return 1000 * (other.time - self.time)


class Driver(Plain):
    """NVML of those cards; figures are what the clock says."""

    nvmlMemory_v2 = 33554472

    def __init__(self, cards: list[Card], clock: Clock, cuda: Cuda, init: int = 0) -> None:
        super().__init__([self._told(card, clock, cuda) for card in cards], init=init)

    @staticmethod
    def _told(card: Card, clock: Clock, cuda: Cuda) -> dict[str, Any]:
        def mine() -> int:
            here = any(cuda.cards[index] is card for index in cuda.opened)
            return card.context + cuda.memory_reserved(0) if here else 0

        def memory() -> Any:
            if card.unified:
                raise NVMLError(NOT_SUPPORTED)
            used = card.used + sum(size or 0 for _, size in card.others) + mine()
            return SimpleNamespace(total=card.total, used=used, free=card.total - used)

        def processes() -> list[Any]:
            found = [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in card.others]
            if mine() and card.told is not None:
                size = mine() if card.told == "bytes" else card.told
                pid = os.getpid() if card.told != "foreign" else 4_000_000
                found.append(SimpleNamespace(pid=pid, usedGpuMemory=mine() if card.told == "foreign" else size))
            return found

        def energy() -> int:
            if isinstance(card.watts, NVMLError):
                raise card.watts
            return round(1000 * card.watts * clock.device)

        watts = card.watts if isinstance(card.watts, NVMLError) else round(1000 * card.watts)
        return {
            "Name": card.name, "UUID": card.uuid, "MemoryInfo": memory, "ComputeRunningProcesses": processes,
            "TotalEnergyConsumption": energy, "PowerUsage": watts, "EnforcedPowerLimit": 700_000, "MigMode": card.mig,
            "CudaComputeCapability": (9, 0), "ClockInfo": {1: card.clock, 2: 3201}, "MaxClockInfo": {1: 1980},
            "Temperature": 45, "CurrentClocksEventReasons": card.reasons, "slices": card.slices,
        }  # fmt: skip

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> dict[str, Any]:
        for card in self.cards:
            for one in (card, *card["slices"]):
                if one["UUID"] == uuid:
                    return one
        raise NVMLError(NOT_FOUND)

    def __getattr__(self, name: str) -> Any:
        key = name.removeprefix("nvmlDeviceGet")
        if key == name:
            raise AttributeError(name)

        def answer(handle: dict[str, Any], *words: int) -> Any:
            value = handle.get(key, NVMLError(NOT_SUPPORTED))
            value = value() if callable(value) else value
            value = value[words[0]] if isinstance(value, dict) else value
            if isinstance(value, NVMLError):
                raise value
            return value

        return answer


class OnProcessor(CudaMachine):
    """A card whose tensors lie in the processor's memory."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.torch_device = "cpu"


class World:
    """Cards, torch.cuda, NVML and one clock; ``install`` puts them in place of the true ones."""

    def __init__(self, *cards: Card, order: list[int] | None = None, init: int = 0, **rates: float) -> None:
        self.cards = list(cards) or [Card()]
        self.clock = Clock(**rates)
        self.cuda = Cuda(self.cards, self.clock, order)
        self.driver = Driver(self.cards, self.clock, self.cuda, init)

    def install(self, patch: Any) -> World:
        from llmcalc.measure import calibrate, choose, run

        patch.setattr(calibrate, "LEAST", 8 * MIB)  # what is large enough for a clock that is true
        patch.setattr(calibrate, "OPERATIONS", 50)
        for name in [name for name in os.environ if name.startswith("CUDA_")]:
            patch.delenv(name)
        real = choose.choose
        patch.setattr(choose, "CudaMachine", OnProcessor)
        patch.setattr(run, "choose", lambda *a, **k: real(*a, cuda=self.cuda, library=self.driver, **k))
        patch.setattr("time.perf_counter", self.clock.now)
        return self
