"""The whole command as on a GPU, on scripted cards: times that are known beforehand, and everything that can go wrong.

measuring.md's list of bad environments, row by row, is in test_environments.py where no run is needed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.measure.conftest import Done
from tests.measure.fake import CAPTURING, MIB, Card, World

Measure = Callable[..., Done]
PLAIN = Card(name="NVIDIA Scripted")
SHORT = ("--device", "cuda", "--tokens", "16", "--budget", "600")


def run(measure: Measure, monkeypatch: pytest.MonkeyPatch, world: World, *words: str, **changes: Any) -> Done:
    world.install(monkeypatch)
    with world.clock:
        return measure(*SHORT, *words, **{"num_hidden_layers": 2, **changes})


def test_the_whole_command(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(measure, monkeypatch, World(PLAIN), "--json", "--check")
    found = done.results

    assert done.code == 0
    assert found["agrees"]
    assert found["errors"] == found["skipped"] == []
    assert found["device"]["pci"] == "0000:18:00.0"
    assert found["environment"]["driver"] == "580.95.05"
    # the clock's own rates come back as calibrated
    rates = {name: part["value"] for name, part in found["calibration"].items() if isinstance(part, dict)}
    assert rates["copy_bytes_per_second"] == pytest.approx(1e8, rel=1e-4)
    assert rates["gemv_bytes_per_second"] == pytest.approx(1e8, rel=0.02)
    assert rates["matmul_flops_per_second"] == pytest.approx(1e11, rel=1e-4)
    assert found["calibration"]["graph_launch_seconds"] == pytest.approx(2e-6 + 8e-8, rel=0.3)
    # a step in a graph: what is read by the estimate at that rate, and a gap an operator
    rows = [row for row in found["estimates"] if row["quantity"] == "decode_seconds"]
    assert [(row["mode"], row["tokens"]) for row in rows] == [
        ("eager", 16), ("eager", 2), ("graph", 16), ("graph", 2),
    ]  # fmt: skip
    assert all(0.99 < row["ratio"] < 1.06 and row["verdict"] == "within" for row in rows)
    assert done.row("graph_against_eager")["measured"] == 0.0
    # torch's bytes: the estimate and a little; the driver's: the context and what torch reserved
    peak = done.row("peak_memory_bytes")
    assert 0 <= peak["measured"] - peak["catalogue"] < MIB
    whole = done.row("process_memory_bytes")
    assert (whole["ratio"], whole["measured"] - 500 * MIB) == (1.0, found["runs"][0]["peak_reserved_bytes"])
    assert found["context_bytes"] == 500 * MIB
    assert found["nvml_used_bytes"] >= found["context_bytes"] + found["allocated_bytes"]
    # 400 W for as long as a step took
    energy = found["energy"]
    assert energy["watts"] == pytest.approx(400, rel=1e-3)
    assert energy["joules_per_token"] == pytest.approx(400 * rows[2]["measured"], rel=1e-2)
    assert found["drift"] == pytest.approx(0, abs=1e-3)
    assert {(run["mode"], run["trust"]) for run in found["runs"]} == {("eager", "steady"), ("graph", "steady")}
    assert found["state"]["load"]["throttled"] is False


def test_a_slower_graph_is_a_miss(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(PLAIN)
    world.clock.slow = 1.4  # and the launches of a calibration with it, which are a small part
    done = run(measure, monkeypatch, world, "--json", "--check", "--phase", "decode")

    assert done.code == 3
    assert done.row("decode_seconds", "eager")["verdict"] == "within"
    row = done.row("decode_seconds", "graph")
    assert (row["verdict"], row["band"]) == ("outside", [0.90, 1.20])
    assert 1.3 < row["ratio"] < 1.5
    assert done.results["agrees"] is False


def test_a_row_of_the_catalogue_keeps_its_own_estimate(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    """A card that says it is an H200 and is a thousand times slower."""
    done = run(measure, monkeypatch, World(Card(total=143_771 * MIB, free=8192 * MIB)), "--json", "--phase", "decode")

    assert done.code == 0
    assert done.results["device"]["catalogue"] == "h200-sxm-141gb"
    copied = done.row("copy_bytes_per_second")
    assert (copied["catalogue"], copied["verdict"]) == (4.8e12, "outside")
    row = done.row("decode_seconds", "graph")
    assert row["catalogue"] < 1e-4 < row["calibrated"]
    # the H200's last-level cache would hold this model, and serve it faster; what is scripted has none
    assert (row["verdict"], row["binds"]) == ("outside", "memory")
    assert 2.0 < row["ratio"] < 2.6
    bound = done.row("decode_seconds_at_least")
    assert bound["measured"] > bound["catalogue"]
    assert bound["verdict"] == "within"


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
    assert done.results["errors"] == [f"decode in a graph: {CAPTURING}"]
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


def test_memory_that_is_not_explained(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(PLAIN)
    monkeypatch.setattr(world.cuda, "max_memory_allocated", lambda index: 200 * MIB)
    monkeypatch.setattr(world.cuda, "max_memory_reserved", lambda index: 300 * MIB)
    done = run(measure, monkeypatch, world, "--json", "--check", "--phase", "decode")
    peak, whole = done.row("peak_memory_bytes"), done.row("process_memory_bytes")

    assert done.code == 3
    assert (peak["verdict"], peak["measured"]) == ("outside", 200 * MIB)
    assert peak["note"].startswith("unexplained: +")
    assert (whole["verdict"], whole["calibrated"]) == ("outside", 800 * MIB)


def test_room_for_a_longer_prompt_is_not_the_step_s(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache that is explained is that of the shape that ran."""
    done = run(measure, monkeypatch, World(PLAIN), "--json", "--phase", "decode", "--prompt", "400")
    weights, cache = done.row("weight_bytes")["measured"], 17 * 2 * 2 * 2 * 16 * 4
    assert done.row("peak_memory_bytes")["catalogue"] == weights + cache
    assert done.results["memory"]["cache_bytes"] == 400 * 2 * 2 * 2 * 16 * 4


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
