"""Bad environments (measuring.md's list), row by row: what is said, and how it ends."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from llmcalc.errors import InvalidInputError, MeasureError, NoGpuError
from llmcalc.hardware.nvml import Nvml
from llmcalc.measure.choose import choose
from llmcalc.measure.cpu import CpuMachine
from llmcalc.measure.cuda import CONTEXT
from llmcalc.measure.environment import environment, facts, slowing
from llmcalc.measure.machine import Machine
from tests.hardware.fake import GIB, NOT_SUPPORTED, NVMLError
from tests.measure.conftest import Done
from tests.measure.fake import MIB, Card, OnProcessor, World

FIRST, SECOND = "GPU-aaaa1111-0000-0000-0000-000000000001", "GPU-bbbb2222-0000-0000-0000-000000000002"
PAIR = (Card(uuid=FIRST), Card(name="NVIDIA A100-SXM4-80GB", uuid=SECOND, total=80 * GIB, clock=1410))


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No variable of CUDA's, and cards whose tensors lie here."""
    for name in [name for name in os.environ if name.startswith("CUDA_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("llmcalc.measure.choose.CudaMachine", OnProcessor)
    return monkeypatch


@contextmanager
def chosen(world: World, asked: str = "auto", **more: Any) -> Iterator[tuple[Any, list[str]]]:
    """The device and every warning so far."""
    with ExitStack() as stack, world.clock:
        machine, told = choose(asked, stack, cuda=world.cuda, library=world.driver, **more)
        yield machine, [*machine.warnings, *told]


def refusal(world: World, asked: str = "cuda", **more: Any) -> MeasureError:
    with pytest.raises(MeasureError) as caught, chosen(world, asked, **more):
        pass
    assert caught.value.hint
    return caught.value


# -- no device ------------------------------------------------------------------------------------------------------


def test_no_torch(measure: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "torch" else real(name, *a))
    done = measure("--json")

    assert (done.code, done.out) == (1, "")
    assert "error[measure]: measure runs a decoder in torch, which is not installed" in done.err
    assert "hint: pip install 'llmcalc[measure]'" in done.err


def test_torch_that_cannot_be_loaded(measure: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def broken(name: str, *words: Any) -> Any:
        if name == "torch":
            raise OSError("libcudart.so.12: cannot open shared object file")
        return real(name, *words)

    monkeypatch.setattr(importlib, "import_module", broken)
    done = measure("--json")

    assert (done.code, done.out) == (1, "")
    assert "torch is installed and cannot be loaded: libcudart.so.12" in done.err


def unavailable(*cards: Card, says: str = "", **more: Any) -> World:
    world = World(*cards, **more)
    world.cuda.available, world.cuda.says = False, says
    return world


def test_a_torch_without_cuda_beside_a_card(clean: pytest.MonkeyPatch) -> None:
    clean.setattr(torch.version, "cuda", None)
    error = refusal(unavailable(Card()))

    assert isinstance(error, NoGpuError)
    assert error.message == "this torch is a CPU build, and this machine has NVIDIA H200"
    assert "install a CUDA build of torch" in error.hint
    assert "--device cpu" in error.hint
    with chosen(unavailable(Card()), "auto") as (machine, told):
        assert machine.kind == "cpu"
        assert "measured on the processor: this torch is a CPU build, and this machine has NVIDIA H200" in told


def test_a_driver_that_is_too_old(clean: pytest.MonkeyPatch) -> None:
    says = "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040)."
    clean.setattr(torch.version, "cuda", "13.0")
    error = refusal(unavailable(Card(), says=says))

    for word in ("built for CUDA 13.0", "driver 580.95.05", "NVIDIA H200", "too old (found version 11040)"):
        assert word in error.message
    assert "update the driver" in error.hint


@pytest.mark.parametrize(
    ("code", "says", "hint"),
    [
        (12, "there is no NVIDIA GPU here that CUDA shows", "--device cpu"),
        (9, "the NVIDIA driver is not loaded", "modprobe nvidia"),
        (18, "the NVIDIA driver and its library are of different versions", "reload the module"),
        (4, "no permission to use the NVIDIA driver", "/dev/nvidiactl"),
        (28, "the NVIDIA driver finds no GPU", "nvidia-smi"),
    ],
)
def test_no_nvml_and_no_cuda(clean: pytest.MonkeyPatch, code: int, says: str, hint: str) -> None:
    error = refusal(unavailable(Card(), init=code))

    assert says in error.message
    assert hint in error.hint
    assert "--device cpu" in error.hint


@pytest.mark.parametrize("code", [12, 9, 18, 4, 999])
def test_cuda_without_nvml_goes_on_and_says_what_is_missing(clean: pytest.MonkeyPatch, code: int) -> None:
    with chosen(World(Card(), init=code)) as (machine, told):
        assert machine.kind == "cuda"
        assert any("no NVML, so no clocks, power, energy or memory of the process" in text for text in told)
        assert machine.energy_joules() is None
        assert machine.state() == {}
        used = machine.memory()
        assert (used.process, used.context) == (None, None)
        assert used.allocated is not None
        assert machine.driver is None
        assert machine.shared is False


def test_a_stranger_by_the_name_of_pynvml(clean: pytest.MonkeyPatch) -> None:
    world = World(Card())
    stranger = ModuleType("pynvml")
    for name in ("nvmlInit", "nvmlShutdown", "NVMLError"):
        setattr(stranger, name, getattr(world.driver, name))
    with Nvml(stranger) as nvml:
        assert "pynvml is not nvidia-ml-py's" in nvml.warnings[0]


# -- what NVML does not say ---------------------------------------------------------------------------------------


def test_figures_that_are_not_supported_are_null(clean: pytest.MonkeyPatch) -> None:
    error = NVMLError(NOT_SUPPORTED)
    card = Card(name="NVIDIA GB10", unified=True, watts=error, reasons=error, clock=1980, told=None)
    with chosen(World(card)) as (machine, _):
        state = machine.state()
        assert [state[name] for name in ("memory_used_bytes", "power_watts", "energy_joules", "reasons")] == [None] * 4
        assert state["throttled"] is False
        assert machine.energy_joules() is None
        assert machine.memory().process is None
        assert machine.free_bytes() > 0
        assert machine.shared is False


def test_an_older_name_of_the_reasons(clean: pytest.MonkeyPatch) -> None:
    world = World(Card(reasons=0x8))
    world.driver.cards[0]["CurrentClocksThrottleReasons"] = 0x8
    world.driver.cards[0]["CurrentClocksEventReasons"] = NVMLError(13)
    with chosen(world) as (machine, _):
        assert machine.state()["reasons"] == ["hardware slowdown"]
        assert machine.state()["throttled"] is True


@pytest.mark.parametrize("bits", [0x0, 0x1, 0x2, 0x4, 0x10, 0x100, 0x107])
def test_reasons_that_are_no_throttling(clean: pytest.MonkeyPatch, bits: int) -> None:
    with chosen(World(Card(reasons=bits))) as (machine, _):
        assert machine.state()["throttled"] is False


@pytest.mark.parametrize("bits", [0x8, 0x20, 0x40, 0x80, 0x84])
def test_reasons_that_are(clean: pytest.MonkeyPatch, bits: int) -> None:
    with chosen(World(Card(reasons=bits))) as (machine, _):
        assert machine.state()["throttled"] is True


@pytest.mark.parametrize("told", [None, 2**64 - 1, "unlisted", "foreign"])
def test_memory_of_the_process_that_nobody_tells(clean: pytest.MonkeyPatch, told: Any) -> None:
    """None (WSL), all ones (the raw NVML_VALUE_NOT_AVAILABLE), an empty list, and a host's pid seen in a container."""
    card = Card(told=None if told == "unlisted" else told, used=100 * MIB)
    with chosen(World(card)) as (machine, said):
        used = machine.memory()
        assert used.process == 500 * MIB + used.reserved  # the card's growth, not what others hold
        assert used.context == 500 * MIB
        assert any("the growth of the card's use stands for it" in text for text in said)
    with chosen(World(Card())) as (machine, said):
        assert machine.memory().process == 500 * MIB + machine.memory().reserved
        assert said == []


def test_the_second_form_of_memory_is_asked_for_first(clean: pytest.MonkeyPatch) -> None:
    world = World(Card())
    first = SimpleNamespace(total=4 * GIB, used=700 * MIB, free=0)
    second = SimpleNamespace(total=4 * GIB, used=10 * MIB, free=0)
    world.driver.nvmlDeviceGetMemoryInfo = lambda handle, version=None: second if version else first  # type: ignore[attr-defined]
    with Nvml(world.driver) as nvml:
        reading = nvml.reading(FIRST)
        assert reading is not None
        assert reading.memory_used_bytes == 10 * MIB

    def old(handle: Any, version: Any = None) -> Any:
        if version:
            raise NVMLError(13)  # function not found: an older driver
        return first

    world.driver.nvmlDeviceGetMemoryInfo = old  # type: ignore[attr-defined]
    with Nvml(world.driver) as nvml:
        reading = nvml.reading(FIRST)
        assert reading is not None
        assert reading.memory_used_bytes == 700 * MIB


# -- whose card it is ---------------------------------------------------------------------------------------------


def test_what_is_used_before_a_context_is_others(clean: pytest.MonkeyPatch) -> None:
    error = refusal(World(Card(used=300 * MIB)))  # 7% of 4 GiB, and no process that is named
    assert "in use" in error.message
    assert "314,572,800 B" in error.message
    with chosen(World(Card(used=150 * MIB))) as (machine, _):  # the driver's own, 3.7%
        assert machine.shared is False


def test_force_measures_beside_others(clean: pytest.MonkeyPatch) -> None:
    with chosen(World(Card(others=((77, GIB),))), "cuda", force=True) as (machine, told):
        assert machine.shared is True
        assert facts(machine)["shared"] is True
        assert any("pid 77 (1,073,741,824 B)" in text for text in told)
        assert machine.energy_joules() is None


def test_a_card_that_another_holds_alone(clean: pytest.MonkeyPatch) -> None:
    world = World(Card())
    world.cuda.refuses = "CUDA error: all CUDA-capable devices are busy or unavailable\nCUDA kernel errors might be"
    error = refusal(world, "auto")

    assert "takes no work: CUDA error: all CUDA-capable devices are busy or unavailable" in error.message
    assert "\n" not in error.message
    assert "exclusive compute mode" in error.hint


def test_a_slice_is_not_its_card(clean: pytest.MonkeyPatch) -> None:
    name, uuid = "NVIDIA A100-SXM4-80GB MIG 3g.40gb", "MIG-cccc3333-0000-0000-0000-000000000003"
    part = Card(name=name, uuid=uuid, total=40 * GIB, watts=NVMLError(NOT_SUPPORTED))
    with chosen(World(part)) as (machine, _):
        assert (machine.uuid, machine.catalogue) == (uuid, None)
        assert machine.total_bytes() == 40 * GIB
        assert "a MIG slice" in machine.flags[0]
        assert machine.energy_joules() is None
        assert facts(machine)["catalogue"] is None
    with chosen(World(part), "mig-cccc") as (machine, _):
        assert machine.uuid == uuid


@pytest.mark.parametrize("name", ["GRID V100D-8Q", "NVIDIA A40-48Q", "GRID T4-16C"])
def test_a_virtual_card_is_marked(clean: pytest.MonkeyPatch, name: str) -> None:
    with chosen(World(Card(name=name))) as (machine, _):
        assert machine.shared is True
        assert machine.catalogue is None
        assert "a virtual GPU" in machine.flags[0]
        assert machine.energy_joules() is None


@pytest.mark.parametrize(
    "name", ["NVIDIA A100-SXM4-80GB", "Tesla P100-PCIE-16GB", "NVIDIA GeForce RTX 4090", "Tesla T4"]
)
def test_a_whole_card_is_not(clean: pytest.MonkeyPatch, name: str) -> None:
    with chosen(World(Card(name=name))) as (machine, _):
        assert (machine.shared, machine.flags) == (False, ())


def test_mps_is_marked(clean: pytest.MonkeyPatch) -> None:
    clean.setenv("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    with chosen(World(Card())) as (machine, _):
        assert machine.shared is True
        assert "MPS is on" in machine.flags[0]
        assert machine.energy_joules() is None


# -- which of several ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        ("auto", 0), ("cuda", 0), ("cuda:0", 0), ("cuda:1", 1), ("1", 1), (FIRST, 0), (SECOND, 1), ("GPU-bbbb", 1),
        ("gpu-BBBB2222", 1), ("CUDA:1", 1),
    ],
)  # fmt: skip
def test_the_card_that_is_asked_for(clean: pytest.MonkeyPatch, asked: str, index: int) -> None:
    with chosen(World(*PAIR), asked) as (machine, told):
        assert (machine.index, machine.uuid) == (index, (FIRST, SECOND)[index])
        assert told[0] == f"one of 2 GPUs: cuda:{index}, {machine.uuid}, PCI 0000:{0x18 + index:02x}:00.0"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("cuda:2", "CUDA shows 2 (cuda:0 to cuda:1)"), ("7", "CUDA shows 2"),
        ("GPU-cccc", "none of the GPUs that CUDA shows begin so"), ("MIG-aaaa", FIRST),
    ],
)  # fmt: skip
def test_a_card_that_is_not_there(clean: pytest.MonkeyPatch, asked: str, says: str) -> None:
    error = refusal(World(*PAIR), asked)
    assert isinstance(error, NoGpuError)
    assert says in error.message
    assert "gpus --local" in error.hint


def test_the_start_of_two_uuids_is_neither(clean: pytest.MonkeyPatch) -> None:
    error = refusal(World(Card(uuid=FIRST), Card(uuid=FIRST[:-1] + "9")), "GPU-aaaa")
    assert "2 of the GPUs that CUDA shows begin so" in error.message


@pytest.mark.parametrize("asked", ["gpu", "GPU-", "tpu", "cuda:x", "cuda:-1", "", "cuda:99999", "GPU_aaaa", "mps"])
def test_words_that_name_no_device(clean: pytest.MonkeyPatch, asked: str) -> None:
    with pytest.raises(InvalidInputError, match="expected auto, cpu, cuda, cuda:N"), chosen(World(*PAIR), asked):
        pass


def test_a_busy_card_is_never_taken_silently(clean: pytest.MonkeyPatch) -> None:
    idle, busy = Card(uuid=SECOND), Card(uuid=FIRST, others=((77, GIB),))
    with chosen(World(busy, idle), "auto") as (machine, _):
        assert machine.uuid == SECOND
    error = refusal(World(busy, idle), "cuda:0")
    assert "pid 77" in error.message
    assert "--device names another" in error.hint
    error = refusal(World(busy, Card(uuid=SECOND, others=((78, GIB),))), "auto")
    assert "others use this card" in error.message


def test_figures_are_those_of_the_card_whatever_cuda_counts_first(clean: pytest.MonkeyPatch) -> None:
    """CUDA's FASTEST_FIRST is not NVML's order of the bus: by the UUID they are the same card."""
    for order in ([0, 1], [1, 0]):
        for index in (0, 1):
            with chosen(World(*PAIR, order=order), f"cuda:{index}") as (machine, _):
                assert machine.uuid == (FIRST, SECOND)[order[index]]
                assert machine.state()["sm_clock_mhz"] == (1980, 1410)[order[index]]
                assert machine.catalogue is not None
                assert machine.catalogue.id.startswith(("h200", "a100")[order[index]])


def test_a_card_that_nvml_does_not_know_has_no_figures(clean: pytest.MonkeyPatch) -> None:
    world = World(Card(uuid=SECOND))
    world.driver.cards[0]["UUID"] = FIRST
    with chosen(world) as (machine, told):
        assert any(f"NVML has no card {SECOND}" in text for text in told)
        assert len([text for text in told if "NVML has no card" in text]) == 1
        assert machine.state() == {}


@pytest.mark.parametrize(
    ("visible", "order", "asked", "uuid"),
    [
        ("1,0", [1, 0], "cuda:0", SECOND), ("0", [0], "auto", FIRST), ("GPU-bbbb", [1], "auto", SECOND),
        ("GPU-aaaa", [0], "GPU-aaaa", FIRST), ("1", [1], "cuda:0", SECOND),
    ],
)  # fmt: skip
def test_cuda_visible_devices(clean: pytest.MonkeyPatch, visible: str, order: list[int], asked: str, uuid: str) -> None:
    clean.setenv("CUDA_VISIBLE_DEVICES", visible)
    with chosen(World(*PAIR, order=order), asked) as (machine, _):
        assert machine.uuid == uuid
        assert environment(machine)["variables"]["CUDA_VISIBLE_DEVICES"] == visible  # type: ignore[index]


@pytest.mark.parametrize("visible", ["", "-1", "7", "GPU-cccc", "MIG-0000"])
def test_cuda_visible_devices_that_hide_all(clean: pytest.MonkeyPatch, visible: str) -> None:
    clean.setenv("CUDA_VISIBLE_DEVICES", visible)
    clean.setattr(torch.version, "cuda", "13.0")
    error = refusal(unavailable(*PAIR))
    assert error.message == f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU here (2)"
    assert "unset it" in error.hint
    with chosen(unavailable(*PAIR), "auto") as (machine, told):
        assert machine.kind == "cpu"
        assert any("hides every GPU" in text for text in told)


def test_a_card_that_is_hidden_is_named_with_the_variable(clean: pytest.MonkeyPatch) -> None:
    clean.setenv("CUDA_VISIBLE_DEVICES", "0")
    error = refusal(World(*PAIR, order=[0]), "cuda:1")
    assert "CUDA shows 1 (cuda:0)" in error.message
    assert "CUDA_VISIBLE_DEVICES='0' may hide others" in error.hint


def test_no_card_at_all_is_not_the_variable_s_fault(clean: pytest.MonkeyPatch) -> None:
    clean.setenv("CUDA_VISIBLE_DEVICES", "0")
    error = refusal(unavailable(Card(), init=12))
    assert error.message.startswith("there is no NVIDIA GPU here")


# -- the rest -----------------------------------------------------------------------------------------------------


def test_the_processor_needs_no_driver(clean: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        machine, told = choose("cpu", stack, library=SimpleNamespace())
    assert (machine.kind, told) == ("cpu", [])


def test_a_context_that_is_not_there_is_estimated(clean: pytest.MonkeyPatch) -> None:
    world = World(Card())
    with ExitStack() as stack:
        machine = OnProcessor(0, stack.enter_context(Nvml(world.driver)), world.cuda)
        world.cuda.touched = False
        assert machine.context_bytes() == CONTEXT
        assert machine.memory().context is None


def test_every_launch_that_waits_is_said(clean: pytest.MonkeyPatch) -> None:
    assert slowing() == []
    clean.setenv("CUDA_LAUNCH_BLOCKING", "1")
    assert "every launch waits" in slowing()[0]


def test_both_kinds_are_machines() -> None:
    names = [name for name in vars(Machine) if not name.startswith("_")]
    for kind in (CpuMachine, OnProcessor):
        assert all(callable(getattr(kind, name)) for name in names if callable(getattr(Machine, name)))
