"""Bad environments (measuring.md's list), row by row: what is said, and how it ends."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from llmcalc.errors import MeasureError, NoGpuError
from llmcalc.hardware.nvml import Nvml
from llmcalc.measure.choose import choose
from llmcalc.measure.cpu import CpuMachine
from llmcalc.measure.cuda import CONTEXT
from llmcalc.measure.environment import slowing
from llmcalc.measure.machine import Machine
from tests.hardware.fake import GIB, NOT_SUPPORTED, NVMLError
from tests.measure.conftest import Done
from tests.measure.fake import MIB, Card, OnProcessor, World

FIRST, SECOND = "GPU-aaaa1111-0000-0000-0000-000000000001", "GPU-bbbb2222-0000-0000-0000-000000000002"
PAIR = (Card(uuid=FIRST), Card(name="NVIDIA A100-SXM4-80GB", uuid=SECOND, total=80 * GIB, clock=1410))


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
