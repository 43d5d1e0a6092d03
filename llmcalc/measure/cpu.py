"""The processor of this machine: its memory is the process's, its clock the host's."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import torch

from llmcalc.errors import InvalidInputError
from llmcalc.hardware.device import Device
from llmcalc.hardware.nvml import machine_memory
from llmcalc.measure.machine import Ability, Kind, MemoryUse
from llmcalc.units import parse_size

PROC, SYS = Path("/proc"), Path("/sys")
LOOK = 0.3  # seconds
BUSY = 0.5  # load a core above which threads wait for each other


class CpuMachine:
    """All cores that this process may use, at fp32 unless the processor multiplies 16 bits itself.

    Args: threads: by default one a core, one fewer where others work on the machine. proc, sys: where Linux says what
    the machine is.
    """

    kind: Kind = "cpu"
    torch_device = "cpu"
    uuid: str | None = None
    pci: str | None = None
    driver: str | None = None
    catalogue: Device | None = None
    flags: tuple[str, ...] = ()

    def __init__(self, threads: int | None = None, proc: Path = PROC, sys: Path = SYS) -> None:
        self._proc, self._sys = proc, sys
        self.warnings: list[str] = []
        self.name = self._name()
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        cores = min(cores, self._quota() or cores)
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        self.shared = load / cores > BUSY and self._busy(cores) > BUSY / 2
        if self.shared:
            self.warnings.append(
                f"others work on this machine (load {load:.1f} on {cores} cores): times are theirs too"
            )
        self.threads = threads or max(1, cores - (1 if self.shared else 0))
        torch.set_num_threads(self.threads)

    def _name(self) -> str:
        with suppress(OSError):
            for line in (self._proc / "cpuinfo").read_text("utf-8", "replace").splitlines():
                if line.lower().startswith(("model name", "hardware")):
                    return f"{line.partition(':')[2].strip()} ({torch.backends.cpu.get_cpu_capability()})"
        import platform

        return platform.processor() or platform.machine()

    def _busy(self, cores: int) -> float:
        """Cores' worth of work of others a core, now: the load is an average that still knows what went before.

        A load that /proc/stat says nothing of is taken as it is.
        """
        first = self._ticks()
        time.sleep(LOOK)
        second = self._ticks()
        if first is None or second is None or second[0] == first[0]:
            return 1.0
        share = 1 - (second[1] - first[1]) / (second[0] - first[0])
        return share * (os.cpu_count() or cores) / cores

    def _ticks(self) -> tuple[int, int] | None:
        """Of all cores: in all, and idle (or waiting for a disk)."""
        with suppress(OSError, ValueError, IndexError):
            words = (self._proc / "stat").read_text("ascii", "replace").split("\n", 1)[0].split()[1:9]
            numbers = [int(word) for word in words]
            return sum(numbers), numbers[3] + numbers[4]
        return None

    def _quota(self) -> int | None:
        """Cores that the control group grants."""
        with suppress(OSError, ValueError):
            quota, period = (self._sys / "fs/cgroup/cpu.max").read_text("ascii").split()
            return max(1, int(quota) // int(period)) if quota != "max" else None
        return None

    def _group(self, *names: str) -> int | None:
        """What the control group says by the first of these names: those of its second version, then of its first."""
        for name in names:
            with suppress(OSError, ValueError):
                return int((self._sys / "fs/cgroup" / name).read_text("ascii"))
        return None

    def _limit(self) -> int | None:
        """Bytes that the control group grants; its first version says "no limit" by a number near 2^63."""
        found = self._group("memory.max", "memory/memory.limit_in_bytes")
        return None if found is None or found >= 2**62 else found

    def _reclaimable(self) -> int:
        """Pages of files among what the group uses, which are given back when memory is short."""
        for name in ("memory.stat", "memory/memory.stat"):
            with suppress(OSError, ValueError):
                lines = (self._sys / "fs/cgroup" / name).read_text("ascii").splitlines()
                found = dict(line.split() for line in lines if line.count(" ") == 1)
                return int(found.get("inactive_file", found.get("total_inactive_file", 0)))
        return 0

    def total_bytes(self) -> int:
        """The machine's memory, or what the control group grants of it."""
        total, _ = machine_memory(self._proc / "meminfo")
        return min(value for value in (total or _pages(), self._limit()) if value is not None)

    def free_bytes(self) -> int:
        """What is available without swapping."""
        _, free = machine_memory(self._proc / "meminfo")
        most, used = self._limit(), self._group("memory.current", "memory/memory.usage_in_bytes")
        left = None if most is None or used is None else max(0, most - used + self._reclaimable())
        return min(value for value in (free or _pages(), left) if value is not None)

    def cache_bytes(self) -> int:
        """The largest cache that Linux names, 0 where it names none."""
        found = [0]
        for path in (self._sys / "devices/system/cpu/cpu0/cache").glob("index*/size"):
            with suppress(OSError, InvalidInputError):
                found.append(parse_size(path.read_text("ascii").strip().replace("K", "KiB").replace("M", "MiB")))
        return max(found)

    def context_bytes(self) -> int:
        """Nothing: there is no driver between."""
        return 0

    def sync(self) -> None:
        """Nothing is queued on a processor."""

    def mark(self) -> object:
        """The host's clock."""
        return time.perf_counter()

    def seconds(self, start: object, end: object) -> float:
        """Between two of its readings."""
        return float(end) - float(start)  # type: ignore[arg-type]

    def reset_peak(self) -> None:
        """Ask Linux to forget the largest resident size."""
        with suppress(OSError):
            (self._proc / "self/clear_refs").write_text("5")

    def memory(self) -> MemoryUse:
        """Resident sizes: pages that were touched, less those that the C library keeps though they are free."""
        _give_back()
        return MemoryUse(None, None, self._status("VmRSS"), None, None, None, self._status("VmHWM"))

    def _status(self, name: str) -> int | None:
        with suppress(OSError, ValueError):
            for line in (self._proc / "self/status").read_text("ascii", "replace").splitlines():
                if line.startswith(f"{name}:"):
                    return parse_size(line.split()[1] + "KiB")
        return None

    def energy_joules(self) -> float | None:
        """The packages' counters (RAPL), where this user may read them."""
        total = 0.0
        for path in self._sys.glob("class/powercap/intel-rapl:*/energy_uj"):
            if path.parent.name.count(":") == 1:
                try:
                    total += int(path.read_text("ascii")) / 1e6
                except (OSError, ValueError):
                    return None
        return total or None

    def state(self) -> Mapping[str, object]:
        """Load and threads."""
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        return {"load": load, "threads": self.threads}

    def release(self) -> None:
        """The C library's free pages."""
        _give_back()

    def supports(self, ability: Ability) -> bool:
        """16-bit products where the processor has units for them. Experts go one by one: nothing is waited for here,
        and torch's grouped product (2.13) reads slower."""
        if ability == "bf16":
            checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
            return any(bool(getattr(torch.cpu, name, bool)()) for name in checks)
        return False

    def capture(self, step: Callable[[], object]) -> Callable[[], object]:
        """There are no graphs here."""
        raise NotImplementedError("a processor has no graphs")


def _give_back() -> None:
    """Let the C library return freed memory: else what an earlier stage freed hides what the next one takes."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # glibc alone has it


def _pages() -> int:
    """The machine's memory where there is no /proc/meminfo."""
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 2**63
