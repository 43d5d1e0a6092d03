"""A GPU through torch.cuda, with what NVML says beside it. Found by UUID: CUDA's order of cards is not NVML's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from llmcalc.errors import MeasureError
from llmcalc.hardware.device import Device
from llmcalc.hardware.matching import match
from llmcalc.hardware.nvml import Nvml
from llmcalc.hardware.reading import SLOWED, Reading
from llmcalc.measure.machine import Ability, Kind, MemoryUse

CONTEXT = 600 * 2**20  # before there is one: 225 to 612 MiB were seen
USED_BY_OTHERS = 0.05
WATCHED = ("CUDA_LAUNCH_BLOCKING", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "CUDA_MODULE_LOADING")


class CudaMachine:
    """One card (or a slice of one) that CUDA shows.

    Args: index: by CUDA's own count. nvml: an open session, None where there is none. cuda: torch.cuda, or what stands
    in its place. Raises: MeasureError where no context can be had.
    """

    kind: Kind = "cuda"

    def __init__(self, index: int = 0, nvml: Nvml | None = None, cuda: Any = None) -> None:
        self._cuda: Any = cuda if cuda is not None else torch.cuda
        self._nvml, self._index = nvml, index
        self.torch_device = f"cuda:{index}"
        self.warnings: list[str] = []
        self.shared = False
        made = self._made(index)
        self.name = str(made.name)
        raw = str(getattr(made, "uuid", "") or "")
        self.uuid: str | None = (raw if raw.startswith(("GPU-", "MIG-")) else f"GPU-{raw}") if raw else None
        self._total, self._l2 = int(made.total_memory), int(getattr(made, "L2_cache_size", 0) or 0)
        self.flags = self._flags()
        self.catalogue: Device | None = None if self.flags else self._row()
        self._before = self._reading()
        self._context: int | None = None
        self._look_for_others()

    def _made(self, index: int) -> Any:
        try:
            return self._cuda.get_device_properties(index)
        except (RuntimeError, AssertionError) as error:
            raise MeasureError(f"cuda:{index} gives no context: {_first(error)}", "look with nvidia-smi") from None

    def _flags(self) -> tuple[str, ...]:
        found = []
        if (self.uuid or "").startswith("MIG-") or " MIG " in f" {self.name} ":
            found.append("a MIG slice: its memory and processors are the slice's, and energy is nobody's own")
        if self.name.startswith("GRID ") or "vGPU" in self.name:
            found.append("a virtual GPU: others may work on the card")
        if any(name.startswith("CUDA_MPS_") for name in os.environ):
            found.append("MPS is on: others may work on the card")
        return tuple(found)

    def _row(self) -> Device | None:
        from llmcalc.hardware.catalogue import device

        found = match(self.name, self._total)
        return None if found is None or found.profile else device(found.id)

    def _reading(self) -> Reading | None:
        if self._nvml is None or self.uuid is None:
            return None
        found = self._nvml.reading(self.uuid)
        if found is None and not self.flags:
            self.warnings.append(f"NVML has no card {self.uuid}: its figures are left out")
        return found

    def _look_for_others(self) -> None:
        before = self._before
        if before is None:
            return
        others = [(pid, size) for pid, size in before.processes if pid != os.getpid()]
        used = before.memory_used_bytes or 0
        if others or used > USED_BY_OTHERS * self._total:
            self.shared = True
            told = ", ".join(f"pid {pid} ({size if size is not None else '?'} B)" for pid, size in others)
            self.warnings.append(f"others use this card: {used:,} B in use{': ' + told if told else ''}")

    def total_bytes(self) -> int:
        """What torch may have of it."""
        return self._total

    def free_bytes(self) -> int:
        """By the driver, all processes counted."""
        free, _ = self._cuda.mem_get_info(self._index)
        return int(free)

    def cache_bytes(self) -> int:
        """The L2, as torch or the catalogue knows it."""
        return self._l2 or (self.catalogue.cache_bytes() if self.catalogue else 0)

    def context_bytes(self) -> int:
        """The driver's own, until it is there."""
        return 0 if self._cuda.is_initialized() else CONTEXT

    def open(self) -> None:
        """Create the context, and see what it takes."""
        try:
            torch.zeros(1, device=self.torch_device)
        except RuntimeError as error:
            raise MeasureError(f"{self.name} takes no work: {_first(error)}", "another may hold it alone") from None
        self.sync()
        after = self._reading()
        if self._before is not None and after is not None and after.memory_used_bytes is not None:
            taken = after.memory_used_bytes - (self._before.memory_used_bytes or 0)
            self._context = max(0, taken - int(self._cuda.memory_reserved(self._index)))

    def sync(self) -> None:
        """Wait for the device."""
        self._cuda.synchronize(self._index)

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
        self._cuda.reset_peak_memory_stats(self._index)

    def memory(self) -> MemoryUse:
        """The allocator's, and NVML's of this process, or what the card's use has grown by."""
        cuda, i = self._cuda, self._index
        reading, process = self._reading(), None
        if reading is not None:
            mine = [size for pid, size in reading.processes if pid == os.getpid() and size is not None]
            process = sum(mine) if mine else None
            if process is None and reading.memory_used_bytes is not None and self._before is not None:
                process = reading.memory_used_bytes - (self._before.memory_used_bytes or 0)
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
        """Graphs and compiling; bf16 by the card's own word."""
        return bool(self._cuda.is_bf16_supported()) if ability == "bf16" else True


def _first(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
