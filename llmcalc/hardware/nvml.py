"""What this machine has: the one class that speaks to NVML (module ``pynvml`` of nvidia-ml-py).

Every figure but a name may be missing: MIG, unified memory, containers and missing rights each hide some. A figure
that cannot be had is None; a driver that does not answer is an error that says what to do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NamedTuple

from llmcalc.errors import MeasureError, NoGpuError
from llmcalc.hardware.reading import REASONS, TEMPERATURE_OF_GPU, Reading
from llmcalc.units import BINARY

# NVML's return codes (nvml.h) that end everything, and what a person can do about them.
FATAL: dict[int, tuple[str, str]] = {
    4: ("no permission to use the NVIDIA driver", "run as a user who may open /dev/nvidiactl; give a container --gpus"),
    9: ("the NVIDIA driver is not loaded", "load it (modprobe nvidia), or look with nvidia-smi"),
    12: ("there is no NVIDIA driver here (NVML's library is not found)",
         "llmcalc gpus lists the catalogue; llmcalc gpus NAME shows one; containers want the driver's libraries"),
    15: ("a GPU has fallen off the bus", "dmesg tells why; the machine wants a restart"),
    18: ("the NVIDIA driver and its library are of different versions", "restart, or reload the module"),
    28: ("the NVIDIA driver finds no GPU", "look with nvidia-smi; in a container, pass the devices in"),
}  # fmt: skip
SM_CLOCK, MEMORY_CLOCK = 1, 2
MEMINFO = Path("/proc/meminfo")
HIDE_ALL = ("-1", "nodevfiles", "none", "void")


class Slice(NamedTuple):
    """A MIG device of a card."""

    name: str
    uuid: str
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    memory_free_bytes: int | None
    visible: bool


class LocalGpu(NamedTuple):
    """A card of this machine; None is what it does not say. ``visible``: CUDA programs started here see it, or a slice.

    unified_memory: it shares the machine's memory, and the figures are the machine's.
    """

    ordinal: int
    name: str
    uuid: str
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    memory_free_bytes: int | None
    unified_memory: bool
    compute_capability: str | None
    sm_clock_mhz: int | None
    sm_clock_max_mhz: int | None
    memory_clock_mhz: int | None
    power_watts: float | None
    power_limit_watts: float | None
    mig: bool
    slices: tuple[Slice, ...]
    visible: bool


class Nvml:
    """A session with the driver; use it in a ``with``.

    Args: library: what answers, by default pynvml. environment: where CUDA_VISIBLE_DEVICES is read.
    Raises: NoGpuError where there is no driver; MeasureError where it does not answer.
    Checked: tests/hardware/test_nvml.py
    """

    def __init__(self, library: Any = None, environment: dict[str, str] | None = None, meminfo: Path = MEMINFO) -> None:
        self._library = library if library is not None else _pynvml()
        self._environment = dict(os.environ) if environment is None else environment
        self._meminfo = meminfo
        self.warnings: list[str] = []

    def __enter__(self) -> Nvml:
        self._must(self._library.nvmlInit)
        if isinstance(self._library, ModuleType) and not hasattr(self._library, "_nvmlGetFunctionPointer"):
            self.warnings.append("pynvml is not nvidia-ml-py's: pip uninstall pynvml; pip install nvidia-ml-py")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ask("nvmlShutdown")

    @property
    def driver_version(self) -> str | None:
        """The driver's version."""
        value = self._ask("nvmlSystemGetDriverVersion")
        return None if value is None else _text(value)

    def gpus(self) -> tuple[LocalGpu, ...]:
        """Every card, in the order of NVML (by PCI bus).

        Raises: MeasureError where the driver stops answering.
        """
        count = int(self._must(self._library.nvmlDeviceGetCount))
        found = [self._gpu(index) for index in range(count)]
        return self._seen([gpu for gpu in found if gpu is not None])

    def reading(self, uuid: str) -> Reading | None:
        """Memory, processes, energy and clocks of the card of that UUID now; None where NVML has no such card.

        Raises: MeasureError where it is gone.
        """
        handle = self._ask("nvmlDeviceGetHandleByUUID", uuid)
        if handle is None:
            return None
        energy = self._ask("nvmlDeviceGetTotalEnergyConsumption", handle)
        power = self._ask("nvmlDeviceGetPowerUsage", handle)
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:  # its name before driver 535
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        memory = self._held(handle)
        found = self._ask("nvmlDeviceGetComputeRunningProcesses", handle) or ()
        return Reading(
            None if memory is None else int(memory.used),
            tuple((int(one.pid), _known(one.usedGpuMemory)) for one in found),
            None if energy is None else energy / 1000,
            self._ask("nvmlDeviceGetClockInfo", handle, SM_CLOCK),
            self._ask("nvmlDeviceGetClockInfo", handle, MEMORY_CLOCK),
            None if power is None else power / 1000,
            self._ask("nvmlDeviceGetTemperature", handle, TEMPERATURE_OF_GPU),
            None if bits is None else tuple(name for bit, name in REASONS.items() if bits & bit),
        )

    def _gpu(self, index: int) -> LocalGpu | None:
        handle = self._ask("nvmlDeviceGetHandleByIndex", index)
        if handle is None:
            self.warnings.append(f"GPU {index} does not answer, or may not be opened: it is left out")
            return None
        memory, unified = self._memory(handle)
        major = self._ask("nvmlDeviceGetCudaComputeCapability", handle)
        power, limit = (
            self._ask("nvmlDeviceGetPowerUsage", handle),
            self._ask("nvmlDeviceGetEnforcedPowerLimit", handle),
        )
        mode = self._ask("nvmlDeviceGetMigMode", handle)
        mig = bool(mode and mode[0])
        return LocalGpu(
            index, _text(self._ask("nvmlDeviceGetName", handle) or "NVIDIA GPU of no name"),
            _text(self._ask("nvmlDeviceGetUUID", handle) or ""), *memory, unified,
            ".".join(str(part) for part in major) if major else None,
            self._ask("nvmlDeviceGetClockInfo", handle, SM_CLOCK),
            self._ask("nvmlDeviceGetMaxClockInfo", handle, SM_CLOCK),
            self._ask("nvmlDeviceGetClockInfo", handle, MEMORY_CLOCK),
            None if power is None else power / 1000, None if limit is None else limit / 1000,
            mig, tuple(self._slices(handle)) if mig else (), True,
        )  # fmt: skip

    def _held(self, handle: Any) -> Any:
        """Total, used and free; the answer's first form counts what the driver keeps back as used, the second not."""
        second = getattr(self._library, "nvmlMemory_v2", None)
        found = None if second is None else self._ask("nvmlDeviceGetMemoryInfo", handle, second)
        return self._ask("nvmlDeviceGetMemoryInfo", handle) if found is None else found

    def _memory(self, handle: Any) -> tuple[tuple[int | None, int | None, int | None], bool]:
        """Total, used and free bytes; the machine's own where the driver has none to give (unified memory)."""
        info = self._held(handle)
        if info is not None and info.total:
            return (int(info.total), int(info.used), int(info.free)), False
        total, free = machine_memory(self._meminfo)
        return (total, None if total is None or free is None else total - free, free), True

    def _slices(self, handle: Any) -> Iterator[Slice]:
        for index in range(int(self._ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0)):
            mig = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
            if mig is None:
                continue
            info = self._held(mig)
            total, used, free = (
                (None, None, None) if info is None else (int(info.total), int(info.used), int(info.free))
            )
            name, uuid = self._ask("nvmlDeviceGetName", mig), self._ask("nvmlDeviceGetUUID", mig)
            yield Slice(_text(name or "MIG device"), _text(uuid or ""), total, used, free, True)

    def _seen(self, gpus: list[LocalGpu]) -> tuple[LocalGpu, ...]:
        """The cards with what CUDA_VISIBLE_DEVICES leaves of them: indices, or starts of UUIDs of cards and slices."""
        asked = self._environment.get("CUDA_VISIBLE_DEVICES")
        if asked is None:
            return tuple(self._whole(gpu) for gpu in gpus)
        seen = self._visible_uuids(gpus, [word.strip() for word in asked.split(",") if word.strip()])
        if len({gpu.name for gpu in gpus}) > 1 and self._environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
            self.warnings.append(
                "cards of several kinds: CUDA counts the fastest first unless CUDA_DEVICE_ORDER=PCI_BUS_ID"
            )
        out = []
        for gpu in gpus:
            slices = tuple(part._replace(visible=part.uuid in seen) for part in gpu.slices)
            shown = any(part.visible for part in slices) or (gpu.uuid in seen)
            out.append(gpu._replace(slices=slices, visible=shown))
        if gpus and not any(gpu.visible for gpu in out):
            self.warnings.append(f"CUDA_VISIBLE_DEVICES={asked} leaves no device to CUDA programs")
        return tuple(out)

    def _whole(self, gpu: LocalGpu) -> LocalGpu:
        """A card that nothing hides; with MIG on, CUDA programs see its first slice alone."""
        return gpu._replace(slices=tuple(part._replace(visible=i == 0) for i, part in enumerate(gpu.slices)))

    def _visible_uuids(self, gpus: list[LocalGpu], words: list[str]) -> set[str]:
        """What the words name, up to the first that names nothing: CUDA stops reading there."""
        seen: set[str] = set()
        for word in words:
            if word.lower() in HIDE_ALL:
                break
            uuids = (
                [gpu.uuid for gpu in gpus if gpu.ordinal == int(word)] if word.isdecimal() else _starting(gpus, word)
            )
            if len(uuids) != 1:
                what = "no device here" if not uuids else "more than one device"
                self.warnings.append(
                    f"CUDA_VISIBLE_DEVICES names {word}, which is {what}: CUDA sees none from there on"
                )
                break
            seen.update(uuids)
        return seen

    def _ask(self, name: str, *words: Any) -> Any:
        """The driver's answer, or None where it has none to give.

        Raises: MeasureError where the device is gone.
        """
        try:
            return getattr(self._library, name)(*words)
        except AttributeError:
            return None
        except self._library.NVMLError as error:
            if getattr(error, "value", None) in (15, 18):
                raise _told(error) from None
            return None

    def _must(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except self._library.NVMLError as error:
            raise _told(error) from None


def _known(size: int | None) -> int | None:
    """Bytes of a process; all ones (or nothing) where the driver does not tell (WSL, WDDM, some containers)."""
    return None if size is None or size < 0 or size >= 2**63 else int(size)


def _pynvml() -> Any:
    try:
        import pynvml
    except ImportError:
        raise NoGpuError("the package nvidia-ml-py is not installed", "pip install nvidia-ml-py") from None
    return pynvml


def _told(error: Any) -> MeasureError:
    code = int(getattr(error, "value", 0))
    message, hint = FATAL.get(code, (f"the NVIDIA driver does not answer: {error}", "look with nvidia-smi"))
    return (NoGpuError if code in (9, 12, 28) else MeasureError)(message, hint)


def _text(value: str | bytes) -> str:
    """Names are bytes in older bindings."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _starting(gpus: list[LocalGpu], word: str) -> list[str]:
    everything = [uuid for gpu in gpus for uuid in (gpu.uuid, *(part.uuid for part in gpu.slices)) if uuid]
    return [uuid for uuid in everything if uuid.lower().startswith(word.lower())]


def machine_memory(path: Path) -> tuple[int | None, int | None]:
    """MemTotal and MemAvailable in bytes."""
    found: dict[str, int] = {}
    try:
        for line in path.read_text("ascii", "replace").splitlines():
            name, _, rest = line.partition(":")
            words = rest.split()
            if words and words[0].isdecimal():
                found[name] = int(words[0]) * BINARY["Ki"]
    except OSError:
        return None, None
    return found.get("MemTotal"), found.get("MemAvailable")
