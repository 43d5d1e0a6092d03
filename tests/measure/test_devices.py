"""Which card is measured, whose it is, and what it is less than: by index, by UUID, beside others, a slice of one."""

from __future__ import annotations

import pytest
import torch

from llmcalc.errors import InvalidInputError, NoGpuError
from llmcalc.measure.environment import environment, facts
from tests.hardware.fake import GIB, NOT_SUPPORTED, NVMLError
from tests.measure.fake import MIB, Card, World
from tests.measure.test_environments import FIRST, PAIR, SECOND, chosen, refusal, unavailable

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
    world = World(*PAIR)
    with chosen(world, asked) as (machine, told):
        assert (machine.index, machine.uuid) == (index, (FIRST, SECOND)[index])
        assert world.cuda.current == index  # else marks are made on another card's stream
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
