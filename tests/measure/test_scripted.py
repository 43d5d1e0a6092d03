"""The whole command as on a GPU, on scripted cards: times that are known beforehand, and everything that can go wrong.

measuring.md's list of bad environments, row by row, is in test_environments.py where no run is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.measure.conftest import Done
from tests.measure.fake import MIB, Card, World

Measure = Callable[..., Done]
PLAIN = Card(name="NVIDIA Scripted")
SHORT = ("--device", "cuda", "--tokens", "16", "--budget", "3000")


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
    assert rates["copy_bytes_per_second"] == pytest.approx(2e7, rel=1e-4)
    assert rates["gemv_bytes_per_second"] == pytest.approx(2e7, rel=0.02)
    assert rates["matmul_flops_per_second"] == pytest.approx(2e10, rel=1e-4)
    assert found["calibration"]["graph_launch_seconds"] == pytest.approx(2e-6 + 4e-7, rel=0.3)
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
    assert row["catalogue"] < 1e-3 < row["calibrated"]
    # the H200's last-level cache would hold this model, and serve it faster; what is scripted has none
    assert (row["verdict"], row["binds"]) == ("outside", "memory")
    assert 2.0 < row["ratio"] < 2.7
    bound = done.row("decode_seconds_at_least")
    assert bound["measured"] > bound["catalogue"]
    assert bound["verdict"] == "within"


def test_clocks_are_read_while_work_is_queued(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(PLAIN)
    clock = world.clock
    world.driver.cards[0]["ClockInfo"] = lambda: {1: 1980 if clock.device > clock.host else 345, 2: 3201}
    found = run(measure, monkeypatch, world, "--json", "--phase", "decode").results["state"]

    assert [found[name]["sm_clock_mhz"] for name in ("before", "load", "after")] == [345, 1980, 345]


def test_an_interrupt_between_two_stages_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    from llmcalc.measure.session import Session

    kept: list[list[str]] = []
    session = Session.__new__(Session)
    session.errors, session.checks, session.keep = [], [None], lambda one: kept.append([*one.errors])  # type: ignore[list-item]

    def stopped(self: Session) -> Session:
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "_run", stopped)
    with pytest.raises(KeyboardInterrupt):
        session.run()
    assert kept == [["between two stages: interrupted"]]


def test_a_part_tells_of_the_whole(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four equal layers by one and two of them, on a clock that is true."""
    words = ("--json", "--phase", "decode")
    whole = run(measure, monkeypatch, World(PLAIN), *words, num_hidden_layers=4)
    part = run(measure, monkeypatch, World(PLAIN), *words, "--layers", "2", num_hidden_layers=4)
    row = part.row("whole_model_decode_seconds")

    assert row["measured"] == pytest.approx(whole.row("decode_seconds", "eager")["measured"], rel=0.01)
    assert row["note"] == "extrapolated to 4 layers from 1 and 2"
    assert part.results["memory"]["second_depth_bytes"] > 0


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
