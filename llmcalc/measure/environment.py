"""What a measurement was made with: versions, the machine, and the variables that change times."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime

import torch

from llmcalc.measure.cuda import WATCHED
from llmcalc.measure.machine import Machine

VARIABLES = (*WATCHED, "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def environment(machine: Machine) -> dict[str, object]:
    """For the document."""
    from llmcalc import __version__

    return {
        "llmcalc": __version__, "torch": torch.__version__, "cuda": getattr(torch.version, "cuda", None),
        "driver": machine.driver, "python": platform.python_version(), "os": platform.platform(),
        "threads": torch.get_num_threads(), "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": machine.torch_device,
    }  # fmt: skip


def slowing() -> list[str]:
    """Warnings about what makes every time another one."""
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        return ["CUDA_LAUNCH_BLOCKING=1: every launch waits, so times are not those of a usual run"]
    return []


def facts(machine: Machine) -> dict[str, object]:
    """The device, for the document; bytes."""
    row = machine.catalogue
    return {
        "name": machine.name, "kind": machine.kind, "uuid": machine.uuid, "pci": machine.pci,
        "torch_device": machine.torch_device, "catalogue": row.id if row else None,
        "total_bytes": machine.total_bytes(), "free_bytes": machine.free_bytes(),
        "cache_bytes": machine.cache_bytes(), "shared": machine.shared, "flags": list(machine.flags),
    }  # fmt: skip
