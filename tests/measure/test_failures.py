"""The whole command on scripted cards where something goes wrong: what is recorded, what goes on, what ends it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.measure.clock import CAPTURING
from tests.measure.fake import MIB, Card, World
from tests.measure.test_scripted import PLAIN, Measure, run


def test_out_of_memory_of_one_shape(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(PLAIN)
    caches: list[str] = []

    def fails(name: str) -> None:
        if name.startswith("normal_"):
            caches.append(name)
            if world.calibrated and len(caches) == world.calibrated + 1:  # type: ignore[attr-defined]
                raise torch.OutOfMemoryError("CUDA out of memory.")

    from llmcalc.measure import session

    real = session.calibrate

    def calibrated(*words: Any) -> Any:
        found = real(*words)
        world.calibrated = len(caches)  # type: ignore[attr-defined]
        return found

    world.calibrated = 0  # type: ignore[attr-defined]
    monkeypatch.setattr(session, "calibrate", calibrated)
    world.clock.fails_at = fails
    done = run(measure, monkeypatch, world, "--json", "--check", "--phase", "decode")
    first, rest = done.results["errors"][0], done.results["errors"][1:]

    assert done.code == 3
    assert first.startswith("decode (eager, 1 x 16): out of memory, where ")
    assert "bytes were predicted" in first
    assert rest == []
    shapes = [(run["mode"], run["tokens"]) for run in done.results["runs"]]
    assert shapes == [("eager", 2), ("graph", 16), ("graph", 2)]
    assert "failed: decode (eager" in done.err


def test_a_graph_that_cannot_be_captured(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(PLAIN)
    world.cuda.cannot = CAPTURING
    done = run(measure, monkeypatch, world, "--json", "--phase", "decode")

    assert done.code == 0
    assert done.results["errors"] == [f"decode (graph, 1 x {tokens}): {CAPTURING}" for tokens in (16, 2)]
    assert {run["mode"] for run in done.results["runs"]} == {"eager"}
    assert done.results["calibration"]["graph_launch_seconds"] is None
    assert done.row("decode_seconds", "eager")["verdict"] == "within"
    assert done.results["energy"]["watts"] == pytest.approx(400, rel=1e-3)


def test_a_throttled_card_is_marked(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(measure, monkeypatch, World(Card(name="NVIDIA Scripted", reasons=0x44)), "--json", "--phase", "decode")

    assert done.code == 0
    assert done.results["state"]["load"]["reasons"] == ["software power cap", "hardware thermal"]
    assert done.results["state"]["load"]["throttled"] is True
    assert "times of a throttled one" in done.err


def test_logits_that_are_no_numbers_stop_it(measure: Measure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from llmcalc.measure import session

    real = session.decode

    def broken(model: Any, *words: Any) -> Any:
        with torch.inference_mode():
            next(iter(model.parameters())).fill_(math.nan)
        return real(model, *words)

    monkeypatch.setattr(session, "decode", broken)
    done = run(measure, monkeypatch, World(PLAIN), "--json", "--phase", "decode", "-o", str(tmp_path / "out.json"))
    left = json.loads((tmp_path / "out.json").read_text())["results"]

    assert (done.code, done.out) == (1, "")
    assert "error[measure]: the logits are not finite" in done.err
    assert f"what was measured until then is in {tmp_path / 'out.json'}" in done.err
    assert left["errors"] == ["decode: the logits are not finite: a fast wrong answer is no measurement"]
    assert left["calibration"]["copy_bytes_per_second"]["value"] > 0
    assert left["agrees"] is False


def test_a_card_that_is_lost_ends_it(measure: Measure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from llmcalc.measure import session
    from tests.hardware.fake import LOST, NVMLError

    world, real = World(PLAIN), session.decode

    def lost(*words: Any) -> Any:
        world.driver.cards[0]["MemoryInfo"] = NVMLError(LOST)
        return real(*words)

    monkeypatch.setattr(session, "decode", lost)
    done = run(measure, monkeypatch, world, "--json", "--phase", "decode", "-o", str(tmp_path / "out.json"))

    assert (done.code, done.out) == (1, "")
    assert "a GPU has fallen off the bus" in done.err
    assert "restart" in done.err
    left = json.loads((tmp_path / "out.json").read_text())["results"]
    assert left["errors"] == ["decode: a GPU has fallen off the bus"]
    assert left["runs"] == []


def test_no_room_is_said_before_anything_is_allocated(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(Card(name="NVIDIA Scripted", free=1500 * MIB))
    before = []
    real = world.cuda.mem_get_info
    monkeypatch.setattr(world.cuda, "mem_get_info", lambda i: (before.append(world.clock.allocations), real(i))[1])
    done = run(measure, monkeypatch, world, "--json", "--batch", "400", "--tokens", "2000", num_hidden_layers=8)

    assert (done.code, done.out) == (1, "")
    assert world.clock.allocations == before[0] == 2  # the context's own first product
    for word in ("weights", "cache", "activations", "allocator 64.00 MiB", "graphs 256.00 MiB", "spare 1.00 GiB"):
        assert word in done.err
    assert "1,572,864,000 bytes free" in done.err
    options = [part.split("with ")[1] for part in done.err.split("hint: ")[1].strip().split("; ")]
    assert [option.split()[0] for option in options] == ["--batch", "--tokens"]


def test_no_room_for_the_weights_all_the_same(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(PLAIN)

    def fails(name: str) -> None:
        if world.clock.held > MIB:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.\nAdvice.")

    world.clock.fails_at = fails
    done = run(measure, monkeypatch, world, "--json")
    assert (done.code, done.out) == (1, "")
    assert "error[measure]: the weights could not be made, with " in done.err
    assert "bytes free: CUDA out of memory. Tried to allocate 2.00 MiB." in done.err
    assert "Advice" not in done.err


def test_blocks_that_cannot_be_compiled(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*words: Any) -> None:
        raise RuntimeError("Cannot find a working triton installation.\nmore")

    monkeypatch.setattr("llmcalc.measure.session.compile_blocks", fails)
    done = run(measure, monkeypatch, World(PLAIN), "--json", "--phase", "decode", "--compile")
    assert done.code == 0
    assert done.results["errors"] == ["compiled decode: Cannot find a working triton installation."]
    assert {run["mode"] for run in done.results["runs"]} == {"eager", "graph"}


def test_a_check_that_fails_to_run_is_no_difference(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*words: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr("llmcalc.measure.session.checks", fails)
    done = run(measure, monkeypatch, World(PLAIN), "--json", "--check")
    assert done.code == 3
    assert done.results["errors"] == ["exactness: CUDA error: an illegal memory access was encountered"]
    assert done.results["skipped"] == ["every time: what must be equal was not checked"]


def test_others_on_the_card(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Card(name="NVIDIA Scripted", others=((77, 300 * MIB), (78, None)))
    refused = run(measure, monkeypatch, World(busy), "--json", "--phase", "decode")

    assert (refused.code, refused.out) == (1, "")
    assert "is in use" in refused.err
    assert "pid 77 (314,572,800 B), pid 78 (unknown)" in refused.err
    assert "--force" in refused.err

    forced = run(measure, monkeypatch, World(busy), "--json", "--phase", "decode", "--force")
    assert forced.code == 0
    assert forced.results["device"]["shared"] is True
    assert "others use this card" in forced.err
    assert forced.results["energy"] is None
    assert "energy: no counter here that is this run's alone" in forced.results["skipped"]
