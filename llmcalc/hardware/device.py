"""One accelerator: what it holds and what it can do at best, each figure a fact with its source.

Rates are whole numbers a second, decimal; peaks are dense, never sparse, and accumulate in fp32 (int32). A format
without a rate is an error or a fallback that says so: nothing is scaled from another.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from llmcalc.errors import InvalidInputError

NOTHING: Mapping[str, int] = MappingProxyType({})
UNSAID: Mapping[str, str] = MappingProxyType({})

# Where the products of a format run on a device without tensor units for it: weights are widened on the way in.
FALLBACKS: dict[str, tuple[str, ...]] = {
    "fp4": ("fp8", "bf16", "fp16", "fp32"),
    "fp6": ("fp8", "bf16", "fp16", "fp32"),
    "fp8": ("bf16", "fp16", "fp32"),
    "int4": ("int8", "fp16", "fp32"),
    "int8": ("fp16", "bf16", "fp32"),
    "bf16": ("fp16", "fp32"),
    "fp16": ("bf16", "fp32"),
    "tf32": ("fp32",),
}


class Peak(NamedTuple):
    """A rate, the format it belongs to, and what has to be said where that is not the one asked for."""

    per_second: int
    dtype: str
    note: str = ""


class Device(NamedTuple):
    """One accelerator; None is not known, not published or not there.

    memory_bytes: what the driver shows where it is known. link_bytes_per_second: one way, all links of the device.
    given: fields that a person described (``--memory`` and so on) over the catalogue.
    confidence: of each value, ``seen`` in its source, ``derived`` from seen ones, or from ``memory``.
    """

    id: str
    name: str
    memory_bytes: int | None = None
    bandwidth_bytes_per_second: int | None = None
    peak_dense_per_second: Mapping[str, int] = NOTHING
    source: tuple[str, ...] = ()
    date: str = ""
    confidence: Mapping[str, str] = UNSAID
    peak_fp16_accumulate_per_second: Mapping[str, int] = NOTHING
    vendor: str = ""
    kind: str = ""
    architecture: str = ""
    compute_capability: str = ""
    status: str = ""
    device_names: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    devices_per_package: int = 1
    memory_type: str = ""
    label_gb: int | float | None = None
    nvml_total_mib: int | None = None
    unified_memory: bool = False
    units: int | None = None
    boost_mhz: int | None = None
    l2_bytes: int | None = None
    last_level_cache_bytes: int | None = None
    link: str = ""
    link_bytes_per_second: int | None = None
    pcie_gen: int | None = None
    pcie_lanes: int | None = None
    pcie_bytes_per_second: int | None = None
    power_watts: int | float | None = None
    measured: Mapping[str, object] = MappingProxyType({})
    notes: str = ""
    given: tuple[str, ...] = ()

    def peak(self, dtype: str) -> int:
        """Dense operations per second in a number format; nothing is scaled from another.

        Raises: InvalidInputError where the catalogue has none.
        """
        rates = self.peak_dense_per_second
        if "given" in rates:
            return rates["given"]
        if dtype not in rates:
            known = ", ".join(rates) or "none"
            raise InvalidInputError(
                f"{self.name}: no dense peak is known for {dtype} (known: {known})",
                "choose one with --peak-dtype, or say --peak",
            )
        return rates[dtype]

    def peak_or_fallback(self, dtype: str) -> Peak:
        """The rate of a format, or of the one its products run in here, said in ``note``.

        Raises: InvalidInputError where the device has neither.
        """
        rates = self.peak_dense_per_second
        if dtype in rates or "given" in rates:
            return Peak(self.peak(dtype), dtype)
        for other in FALLBACKS.get(dtype, ()):
            if other in rates:
                return Peak(rates[other], other, f"{self.name} has no {dtype} units: its products run in {other}")
        return Peak(self.peak(dtype), dtype)

    def memory(self) -> int:
        """Its memory in bytes.

        Raises: InvalidInputError where it is not known.
        """
        return _known(self, self.memory_bytes, "memory")

    def bandwidth(self) -> int:
        """Its memory bandwidth in bytes per second, a ceiling.

        Raises: InvalidInputError where it is not known.
        """
        return _known(self, self.bandwidth_bytes_per_second, "bandwidth")

    def cache_bytes(self) -> int:
        """What its largest on-chip cache holds, 0 where none is known."""
        return max(self.l2_bytes or 0, self.last_level_cache_bytes or 0)


def _known(device: Device, value: int | None, name: str) -> int:
    if value is None:
        raise InvalidInputError(f"{device.name}: its {name} is not known", f"say --{name}")
    return value
