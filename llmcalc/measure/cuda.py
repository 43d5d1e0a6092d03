"""A GPU through torch.cuda, with what NVML says beside it. Found by UUID: CUDA's order of cards is not NVML's."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch.nn import functional

from llmcalc.errors import MeasureError
from llmcalc.hardware.device import Device
from llmcalc.hardware.matching import match
from llmcalc.hardware.nvml import Nvml
from llmcalc.hardware.reading import SLOWED, Reading
from llmcalc.measure.machine import Ability, Kind, MemoryUse, first_line

CONTEXT = 600 * 2**20  # before there is one: 225 to 612 MiB were seen
GROUPED = (9, 10)  # compute capabilities whose grouped product needs no word from the device (aten/.../GroupedBlas.cpp)
USED_BY_OTHERS = 0.05
WATCHED = ("CUDA_LAUNCH_BLOCKING", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "CUDA_MODULE_LOADING")
VIRTUAL = re.compile(r"GRID |.*vGPU|.*-\d+[ABCQ]$")  # GRID V100D-8Q, NVIDIA A40-48Q: profiles of NVIDIA's vGPU


class CudaMachine:
    """One card (or a slice of one) that CUDA shows.

    Args: index: by CUDA's own count. nvml: an open session, None where there is none. cuda: torch.cuda, or what stands
    in its place. Raises: MeasureError where it cannot be asked.

    busy: somebody was on it before this run. shared: that, or a kind of device on which nobody can tell.
    """

    kind: Kind = "cuda"

    def __init__(self, index: int = 0, nvml: Nvml | None = None, cuda: Any = None) -> None:
        self._cuda: Any = cuda if cuda is not None else torch.cuda
        self._nvml, self.index = nvml, index
        self.torch_device = f"cuda:{index}"
        self.warnings: list[str] = []
        made = self._made(index)
        self.name = str(made.name)
        self.uuid = _uuid(str(getattr(made, "uuid", "") or ""), self.name)
        self.pci = _pci(made)
        self.driver = None if nvml is None else nvml.driver_version
        self._total, self._l2 = int(made.total_memory), int(getattr(made, "L2_cache_size", 0) or 0)
        virtual = self._virtual()
        self.flags = (*self._slice(), *virtual)
        self.catalogue: Device | None = None if self.flags else self._row()
        self._before = self._reading()
        if nvml is not None and self._before is None:
            self.warnings.append(f"NVML has no card {self.uuid}: its clocks, power and memory are left out")
        self._context: int | None = None
        self._side: Any = None
        self.major = int(getattr(made, "major", 0))
        self.busy = self._others()
        self.shared = self.busy or bool(virtual)

    def _made(self, index: int) -> Any:
        try:
            return self._cuda.get_device_properties(index)
        except (RuntimeError, AssertionError) as error:
            raise MeasureError(f"cuda:{index} cannot be asked: {first_line(error)}", "look with nvidia-smi") from None

    def _slice(self) -> tuple[str, ...]:
        if (self.uuid or "").startswith("MIG-"):
            return ("a MIG slice: its memory and processors are the slice's, and energy is nobody's own",)
        return ()

    def _virtual(self) -> tuple[str, ...]:
        found = []
        if VIRTUAL.match(self.name):
            found.append("a virtual GPU: others may work on the card")
        if any(name.startswith("CUDA_MPS_") for name in os.environ):
            found.append("MPS is on: others may work on the card")
        return tuple(found)

    def _row(self) -> Device | None:
        from llmcalc.hardware.catalogue import device

        found = match(self.name, self._total)
        return None if found is None or found.profile else device(found.id)

    def _reading(self) -> Reading | None:
        return None if self._nvml is None or self.uuid is None else self._nvml.reading(self.uuid)

    def _others(self) -> bool:
        """Whether somebody computes on it, or holds more than a twentieth of it, before this run has a context."""
        before = self._before
        if before is None:
            return False
        others = [(pid, size) for pid, size in before.processes if pid != os.getpid()]
        used = before.memory_used_bytes or 0
        if not others and used <= USED_BY_OTHERS * self._total:
            return False
        told = ", ".join(f"pid {pid} ({'unknown' if size is None else f'{size:,} B'})" for pid, size in others)
        self.warnings.append(f"others use this card: {used:,} B in use{': ' + told if told else ''}")
        return True

    def total_bytes(self) -> int:
        """What torch may have of it."""
        return self._total

    def free_bytes(self) -> int:
        """By the driver, all processes counted."""
        free, _ = self._cuda.mem_get_info(self.index)
        return int(free)

    def cache_bytes(self) -> int:
        """The L2, as torch or the catalogue knows it."""
        return self._l2 or (self.catalogue.cache_bytes() if self.catalogue else 0)

    def context_bytes(self) -> int:
        """The driver's own, until it is there."""
        return 0 if self._cuda.is_initialized() else CONTEXT

    def open(self) -> None:
        """Create the context and what products want (their library's handle and kernels), and see what that takes.

        The card becomes the current one: marks and streams that name none are those of the current card.
        """
        try:
            self._cuda.set_device(self.index)
            small = torch.ones(8, 8, device=self.torch_device)
            small @ small
            self.sync()
        except RuntimeError as error:
            raise MeasureError(
                f"{self.name} (cuda:{self.index}) takes no work: {first_line(error)}",
                "another process may hold it alone (exclusive compute mode): look with nvidia-smi",
            ) from None
        after = self._reading()
        if self._before is not None and after is not None and after.memory_used_bytes is not None:
            taken = after.memory_used_bytes - (self._before.memory_used_bytes or 0)
            self._context = max(0, taken - int(self._cuda.memory_reserved(self.index)))
        if after is not None and _own(after) is None:
            self.warnings.append("NVML does not tell this process's memory: the growth of the card's use stands for it")

    def sync(self) -> None:
        """Wait for the device."""
        self._cuda.synchronize(self.index)

    def mark(self) -> object:
        """An event on the stream."""
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: object, end: object) -> float:
        """Between two events."""
        return float(start.elapsed_time(end)) / 1000  # type: ignore[attr-defined]

    def reset_peak(self) -> None:
        """Of the allocator."""
        self._cuda.reset_peak_memory_stats(self.index)

    def memory(self) -> MemoryUse:
        """The allocator's, and NVML's of this process, or what the card's use has grown by."""
        cuda, i = self._cuda, self.index
        reading, process = self._reading(), None
        if reading is not None:
            process = _own(reading)
            if process is None and reading.memory_used_bytes is not None and self._before is not None:
                process = max(0, reading.memory_used_bytes - (self._before.memory_used_bytes or 0))
        return MemoryUse(
            int(cuda.memory_allocated(i)), int(cuda.memory_reserved(i)), process, self._context,
            int(cuda.max_memory_allocated(i)), int(cuda.max_memory_reserved(i)), process,
        )  # fmt: skip

    def energy_joules(self) -> float | None:
        """Of the board; of a slice or beside others it would be somebody else's."""
        reading = None if self.flags or self.shared else self._reading()
        return None if reading is None else reading.energy_joules

    def state(self) -> Mapping[str, object]:
        """Clocks, power, heat and what holds clocks; ``throttled`` where it is something other than a power cap."""
        reading = self._reading()
        if reading is None:
            return {}
        told = reading._asdict() | {"reasons": None if reading.reasons is None else list(reading.reasons)}
        del told["processes"]
        return told | {"throttled": any(name in SLOWED for name in reading.reasons or ())}

    def supports(self, ability: Ability) -> bool:
        """Graphs; bf16 by the card's own word; grouped products where they wait for nothing."""
        if ability == "grouped":
            return self.major in GROUPED and hasattr(functional, "grouped_mm")
        return bool(self._cuda.is_bf16_supported(including_emulation=False)) if ability == "bf16" else True

    def capture(self, step: Callable[[], object]) -> Callable[[], object]:
        """One CUDA graph, after three runs on a side stream, as torch asks for.

        Raises: RuntimeError where the step waits for the host; the device is idle again by then.
        """
        cuda, main = self._cuda, self._cuda.current_stream()
        self._side = side = self._side or cuda.Stream()  # one: product libraries keep a workspace for every stream
        side.wait_stream(main)
        with cuda.stream(side):
            for _ in range(3):
                step()
        cuda.current_stream().wait_stream(side)
        graph = cuda.CUDAGraph()
        try:
            with cuda.graph(graph):
                step()
        except RuntimeError:
            del graph
            self._recover(main)
            raise
        return graph.replay  # type: ignore[no-any-return]

    def _recover(self, main: Any) -> None:
        """After a capture that failed: the usual stream again, and random numbers that know of no capture."""
        cuda = self._cuda
        with suppress(RuntimeError, AttributeError):
            cuda.set_stream(main)
            fresh = torch.Generator(self.torch_device)
            cuda.default_generators[self.index].graphsafe_set_state(fresh.graphsafe_get_state())
        with suppress(RuntimeError):
            self.sync()

    def release(self) -> None:
        """Let torch give back what it holds and does not use."""
        self._cuda.empty_cache()


def _own(reading: Reading) -> int | None:
    """Bytes of this process; None where the driver lists it not, or without its memory (containers, WSL, WDDM)."""
    mine = [size for pid, size in reading.processes if pid == os.getpid() and size is not None]
    return sum(mine) if mine else None


def _uuid(raw: str, name: str) -> str | None:
    """As NVML writes it: torch gives the number alone, of cards and of slices."""
    if not raw or raw.startswith(("GPU-", "MIG-")):
        return raw or None
    return f"{'MIG' if ' MIG ' in f' {name} ' else 'GPU'}-{raw}"


def _pci(made: Any) -> str | None:
    parts = [getattr(made, f"pci_{name}_id", None) for name in ("domain", "bus", "device")]
    if any(part is None for part in parts):
        return None
    domain, bus, device = (int(part or 0) for part in parts)
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"
