"""What a run takes, whether it is there, and what would fit instead; and what a processor has."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llmcalc import kv_cache, read_config
from llmcalc.errors import MeasureError
from llmcalc.measure.cpu import CpuMachine
from llmcalc.measure.need import ALLOCATOR, GRAPHS, need, refuse, weight_bytes
from llmcalc.measure.workload import Workload, cut
from tests.conftest import config
from tests.hardware.fake import GIB
from tests.measure.test_exactness import workload

MIB = 2**20
OLD, OLD_USED = "memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"
LLAMA = workload(read_config(config("meta-llama--meta-llama-3.1-8b")), "bf16", tokens=4096, batch=1)


def machine(free: int, total: int = 0, context: int = 0, graphs: bool = True) -> Any:
    return SimpleNamespace(
        name="NVIDIA Scripted", free_bytes=lambda: free, total_bytes=lambda: total or free,
        supports=lambda ability: graphs, context_bytes=lambda: context,
    )  # fmt: skip


def test_the_parts_of_a_run() -> None:
    found = need(LLAMA, machine(80 * GIB, context=600 * MIB))

    assert found.weights == 16_060_522_496
    assert found.cache == 4097 * 131_072
    assert (
        (found.allocator, found.graphs, found.context)
        == (ALLOCATOR, GRAPHS, 600 * MIB)
        == (64 * MIB, 256 * MIB, 600 * MIB)
    )
    assert found.spare == round(0.03 * 80 * GIB)
    assert found.second_depth == 0
    assert found.total == sum(found)
    assert need(LLAMA, machine(8 * GIB, graphs=False)).spare == GIB
    assert need(LLAMA, machine(8 * GIB, graphs=False)).graphs == 0


def test_training_keeps_gradients_and_two_moments() -> None:
    alone = need(LLAMA, machine(GIB))
    trained = need(replace(LLAMA, phases=("train",)), machine(GIB))
    assert trained.weights == 4 * alone.weights
    assert trained.activations > alone.activations


def test_a_part_of_a_model_is_timed_beside_a_shorter_one() -> None:
    part = replace(LLAMA, architecture=cut(LLAMA.whole, 12), layers=12)
    shorter = replace(LLAMA, architecture=cut(LLAMA.whole, 6))

    assert need(part, machine(GIB)).second_depth == weight_bytes(shorter)
    assert need(replace(part, phases=("prefill",)), machine(GIB)).second_depth == 0


def options(work: Workload, device: Any) -> tuple[MeasureError, list[str]]:
    with pytest.raises(MeasureError) as caught:
        refuse(work, device)
    return caught.value, re.findall(r"--(\w+) (\d+)", caught.value.hint)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("changes", "free"),
    [
        ({}, 12 * GIB), ({"batch": 64}, 40 * GIB), ({"tokens": 300_000, "prompt": 300_000}, 40 * GIB),
        ({"tokens": 300_000, "prompt": 64, "batch": 3}, 40 * GIB), ({"batch": 64, "phases": ("decode",)}, 24 * GIB),
        ({"phases": ("train",)}, 60 * GIB),
    ],
)  # fmt: skip
def test_what_is_said_to_fit_fits_and_one_more_does_not(changes: dict[str, Any], free: int) -> None:
    work, device = replace(LLAMA, **changes), machine(free)
    error, found = options(work, device)
    said = dict(found)

    assert f"{free:,} bytes free" in error.message
    assert f"this run takes {need(work, device).total:,}" in error.message
    for name in ("weights", "cache", "activations", "allocator", "graphs", "spare"):
        assert name in error.message
    assert said
    for name, value in said.items():
        for number, fits in ((int(value), True), (int(value) + 1, False)):
            change: dict[str, Any] = {name: number}
            if name == "layers":
                change["architecture"] = cut(work.whole, number)
            elif name in ("tokens", "prompt"):
                change = {"tokens": number, "prompt": number}
            assert (need(replace(work, **change), device).total <= free) is fits, (name, number)


def test_where_nothing_would_fit() -> None:
    error, found = options(LLAMA, machine(GIB // 2))
    assert found == []
    assert error.hint == "no single change would do"


def test_what_fits_is_let_through() -> None:
    assert refuse(LLAMA, machine(80 * GIB)) == need(LLAMA, machine(80 * GIB))


def test_layers_that_cannot_be_parted_are_not_offered() -> None:
    """Gemma-3n: its last layers read the caches of earlier ones, and the first read none."""
    work = workload(read_config(config("defaults--gemma3n-text")), "bf16", tokens=64, batch=1)
    _, found = options(work, machine(12 * GIB))
    for name, value in found:
        if name == "layers":
            cut(work.whole, int(value))


def test_a_cache_of_sliding_layers_is_the_estimate() -> None:
    found = read_config(config("openai--gpt-oss-20b"))
    work = workload(found, "bf16", tokens=4096, batch=2)
    assert need(work, machine(GIB)).cache == kv_cache(work.architecture, 4097, 2, cache="bf16").total_bytes


# -- the processor ------------------------------------------------------------------------------------------------


@pytest.fixture
def system(tmp_path: Path) -> Path:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 8388608 kB\nMemAvailable: 6291456 kB\n")
    (tmp_path / "proc/cpuinfo").write_text("processor: 0\nmodel name\t: Scripted CPU @ 3 GHz\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    return tmp_path


def cpu(system: Path) -> CpuMachine:
    return CpuMachine(threads=1, proc=system / "proc", sys=system / "sys")


def test_a_processor_s_memory_is_the_machine_s(system: Path) -> None:
    found = cpu(system)
    assert found.name.startswith("Scripted CPU @ 3 GHz (")
    assert (found.total_bytes(), found.free_bytes()) == (8 * GIB, 6 * GIB)
    assert found.energy_joules() is None


@pytest.mark.parametrize(
    ("files", "total", "free"),
    [
        ({"memory.max": "max", "memory.current": "1000"}, 8 * GIB, 6 * GIB),
        ({"memory.max": f"{2 * GIB}", "memory.current": f"{GIB}"}, 2 * GIB, GIB),
        ({"memory.max": f"{2 * GIB}", "memory.current": f"{2 * GIB}", "memory.stat": f"anon 5\ninactive_file {GIB}\n"},
         2 * GIB, GIB),
        ({"memory.max": f"{GIB}", "memory.current": f"{2 * GIB}"}, GIB, 0),
        ({OLD: "9223372036854771712", OLD_USED: "1"}, 8 * GIB, 6 * GIB),
        ({OLD: f"{4 * GIB}", OLD_USED: f"{GIB}"}, 4 * GIB, 3 * GIB),
    ],
)  # fmt: skip
def test_a_control_group_grants_less(system: Path, files: dict[str, str], total: int, free: int) -> None:
    for name, text in files.items():
        path = system / "sys/fs/cgroup" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    found = cpu(system)

    assert (found.total_bytes(), found.free_bytes()) == (total, free)
    if free < 2 * GIB:
        with pytest.raises(MeasureError, match=f"has {free:,} bytes free"):
            refuse(LLAMA, found)


@pytest.mark.parametrize(("quota", "threads"), [("max 100000", 4), ("200000 100000", 2), ("50000 100000", 1)])
def test_threads_are_what_the_group_grants(
    system: Path, monkeypatch: pytest.MonkeyPatch, quota: str, threads: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr("torch.set_num_threads", lambda number: None)
    (system / "sys/fs/cgroup/cpu.max").write_text(quota)
    found = CpuMachine(proc=system / "proc", sys=system / "sys")
    assert (found.threads, found.shared) == (threads, False)

    monkeypatch.setattr("os.getloadavg", lambda: (3.0, 0.0, 0.0))
    busy = CpuMachine(proc=system / "proc", sys=system / "sys")
    assert (busy.threads, busy.shared) == (max(1, threads - 1), True)
    assert "others work on this machine (load 3.0" in busy.warnings[0]


def test_energy_of_the_packages(system: Path) -> None:
    for name, value in (("intel-rapl:0", 5_000_000), ("intel-rapl:1", 2_500_000), ("intel-rapl:0:0", 999)):
        folder = system / "sys/class/powercap" / name
        folder.mkdir(parents=True)
        (folder / "energy_uj").write_text(str(value))
    assert cpu(system).energy_joules() == 7.5


def test_the_last_level_cache(system: Path) -> None:
    assert cpu(system).cache_bytes() == 0
    for index, size in enumerate(("32K", "1M", "36608K")):
        folder = system / "sys/devices/system/cpu/cpu0/cache" / f"index{index}"
        folder.mkdir(parents=True)
        (folder / "size").write_text(size + "\n")
    assert cpu(system).cache_bytes() == 36_608 * 1024


def test_resident_bytes(system: Path) -> None:
    (system / "proc/self").mkdir()
    (system / "proc/self/status").write_text("VmPeak: 9 kB\nVmHWM:\t  300 kB\nVmRSS:\t  200 kB\n")
    used = cpu(system).memory()
    assert (used.process, used.peak_process, used.allocated, used.context) == (200 * 1024, 300 * 1024, None, None)
