"""The class that speaks to NVML, against a scripted driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmcalc.errors import MeasureError, NoGpuError
from llmcalc.hardware.nvml import LocalGpu, Nvml
from tests.hardware.fake import GIB, LOST, NO_PERMISSION, NOT_SUPPORTED, Driver, card

H200 = card("NVIDIA H200", "GPU-aaaa-1", 143_771 * 2**20)
A100 = card("NVIDIA A100-SXM4-80GB", "GPU-bbbb-2", 80 * GIB, CudaComputeCapability=(8, 0))
SPLIT = card(
    b"NVIDIA A100-SXM4-80GB", b"GPU-cccc-3", 80 * GIB, MigMode=(1, 1),
    slices=[
        card("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "MIG-1111", 40 * GIB),
        card("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "MIG-2222", 10 * GIB),
    ],
)  # fmt: skip


def look(driver: Driver, visible: str | None = None, **more: Any) -> tuple[tuple[LocalGpu, ...], list[str]]:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    with Nvml(driver, {**environment, **more.pop("environment", {})}, **more) as nvml:
        gpus = nvml.gpus()
    assert driver.closed
    return gpus, nvml.warnings


def test_a_card_says_what_it_is() -> None:
    (gpu,), warnings = look(Driver([H200]))

    assert (gpu.ordinal, gpu.name, gpu.uuid) == (0, "NVIDIA H200", "GPU-aaaa-1")
    assert (gpu.memory_total_bytes, gpu.memory_used_bytes) == (143_771 * 2**20, GIB)
    assert gpu.memory_free_bytes == 143_771 * 2**20 - GIB
    assert (gpu.compute_capability, gpu.sm_clock_mhz, gpu.sm_clock_max_mhz, gpu.memory_clock_mhz) == (
        "9.0",
        345,
        1980,
        3201,
    )
    assert (gpu.power_watts, gpu.power_limit_watts) == (123.456, 700.0)
    assert (gpu.unified_memory, gpu.mig, gpu.slices, gpu.visible) == (False, False, (), True)
    assert warnings == []
    with Nvml(Driver([H200])) as nvml:
        assert nvml.driver_version == "580.95.05"


def test_what_a_card_does_not_say_is_none() -> None:
    bare = card(
        "NVIDIA H200", "GPU-1", GIB, PowerUsage=None, EnforcedPowerLimit=None, MigMode=NOT_SUPPORTED,
        ClockInfo=NO_PERMISSION, MaxClockInfo=NOT_SUPPORTED, CudaComputeCapability=NOT_SUPPORTED,
    )  # fmt: skip
    (gpu,), _ = look(Driver([bare]))

    assert (gpu.power_watts, gpu.sm_clock_mhz, gpu.sm_clock_max_mhz, gpu.compute_capability) == (None,) * 4
    assert not gpu.mig


def test_unified_memory_is_the_machine_s(tmp_path: Path) -> None:
    """GB10: nvmlDeviceGetMemoryInfo is NOT_SUPPORTED (driver 580)."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(
        "MemTotal:       127600748 kB\nMemFree: 1 kB\nMemAvailable:   100000000 kB\nHugePages_Total: x\n"
    )
    spark = card("NVIDIA GB10", "GPU-1", 1, MemoryInfo=NOT_SUPPORTED)
    (gpu,), _ = look(Driver([spark]), meminfo=meminfo)
    (blind,), _ = look(Driver([spark]), meminfo=tmp_path / "none")

    assert gpu.unified_memory
    assert (gpu.memory_total_bytes, gpu.memory_free_bytes) == (127_600_748 * 1024, 100_000_000 * 1024)
    assert gpu.memory_used_bytes == 27_600_748 * 1024
    assert (blind.memory_total_bytes, blind.memory_free_bytes, blind.memory_used_bytes) == (None, None, None)


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (12, NoGpuError, "library is not found"), (9, NoGpuError, "not loaded"),
        (18, MeasureError, "different versions"),
        (4, MeasureError, "no permission"), (28, NoGpuError, "finds no GPU"), (999, MeasureError, "does not answer"),
    ],
)  # fmt: skip
def test_a_driver_that_does_not_answer(code: int, kind: type[MeasureError], says: str) -> None:
    with pytest.raises(kind, match=says) as caught, Nvml(Driver([], init=code)):
        pass
    assert caught.value.hint


def test_a_lost_card_ends_it_and_a_closed_one_is_left_out() -> None:
    gone = card("NVIDIA H200", "GPU-1", GIB, MemoryInfo=LOST)
    with pytest.raises(MeasureError, match="fallen off"):
        look(Driver([gone]))
    gpus, warnings = look(Driver([H200, A100], hidden=(0,)))

    assert [gpu.ordinal for gpu in gpus] == [1]
    assert "GPU 0" in warnings[0]


def test_an_old_binding_without_a_function_is_no_error() -> None:
    class Old(Driver):
        def __getattr__(self, name: str) -> Any:
            if name == "nvmlDeviceGetMigMode":
                raise AttributeError(name)
            return super().__getattr__(name)

    (gpu,), _ = look(Old([H200]))
    assert not gpu.mig


@pytest.mark.parametrize(
    ("asked", "seen"),
    [
        (None, [True, True]), ("0", [True, False]), ("1", [False, True]), ("1,0", [True, True]), ("", [False, False]),
        ("-1", [False, False]), ("NoDevFiles", [False, False]), ("GPU-bbbb-2", [False, True]), ("gpu-b", [False, True]),
        ("GPU-", [False, False]), ("0,7,1", [True, False]), ("MIG-0000", [False, False]), (" 1 ", [False, True]),
    ],
)  # fmt: skip
def test_visible_devices(asked: str | None, seen: list[bool]) -> None:
    gpus, warnings = look(Driver([H200, A100]), asked, environment={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})

    assert [gpu.visible for gpu in gpus] == seen
    assert any("leaves no device" in text for text in warnings) == (not any(seen))
    if asked in ("0,7,1", "MIG-0000", "GPU-"):
        assert f"names {asked.split(',')[-2] if ',' in asked else asked}" in warnings[0]


def test_cards_of_two_kinds_are_counted_otherwise_by_cuda() -> None:
    _, warnings = look(Driver([H200, A100]), "0")
    assert "fastest first" in warnings[0]


def test_slices_are_no_cards() -> None:
    (gpu,), _ = look(Driver([SPLIT]))
    (one,), _ = look(Driver([SPLIT]), "MIG-2222")
    (none,), warnings = look(Driver([SPLIT]), "MIG-3333")

    assert gpu.mig
    assert gpu.name == "NVIDIA A100-SXM4-80GB"
    assert [(part.name[-7:], part.memory_total_bytes, part.visible) for part in gpu.slices] == [
        ("3g.40gb", 40 * GIB, True), ("1g.10gb", 10 * GIB, False),
    ]  # fmt: skip
    assert [part.visible for part in one.slices] == [False, True]
    assert one.visible
    assert not none.visible
    assert "no device here" in warnings[0]
