"""Statistics of scripted times, how often a thing is timed, and how near is near."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from llmcalc.measure.judge import BANDS, decode_band, near, prefill_band, same
from llmcalc.measure.samples import Samples, drift
from llmcalc.measure.timing import BLOCK_SECONDS, SHORT, STEPS, WARM_SECONDS, WARM_STEPS, repeated, timed


class Scripted:
    """A machine whose steps take what is written; the host waits for it in ``sync`` alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
        self.seconds_of, self.steps, self.host, self.device, self.syncs = seconds, 0, 0.0, 0.0, 0
        monkeypatch.setattr("time.perf_counter", lambda: self.host)

    def step(self) -> None:
        took = self.seconds_of[min(self.steps, len(self.seconds_of) - 1)]
        self.steps, self.device = self.steps + 1, max(self.device, self.host) + took

    def sync(self) -> None:
        self.syncs, self.host = self.syncs + 1, max(self.host, self.device)

    def mark(self) -> float:
        return self.device

    def seconds(self, start: float, end: float) -> float:
        return end - start


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    return lambda *seconds: Scripted(monkeypatch, *seconds)


def test_median_and_quantiles() -> None:
    found = Samples(tuple(float(n) for n in (5, 1, 4, 2, 3)), warmup=7, first=9.0, wall=3.5)

    assert found.median == 3.0
    assert (found.quantile(0.0), found.quantile(0.1), found.quantile(0.9), found.quantile(1.0)) == (1.0, 1.4, 4.6, 5.0)
    assert found.summary() == {
        "median_seconds": 3.0, "p10_seconds": 1.4, "p90_seconds": 4.6, "min_seconds": 1.0, "iterations": 5,
        "warmup": 7, "first_call_seconds": 9.0, "wall_seconds": 3.5, "iqr_rel": 2 / 3, "trust": "unstable",
    }  # fmt: skip
    assert Samples((2.0,)).quantile(0.9) == 2.0


@pytest.mark.parametrize(
    ("half", "trust"), [(0.0, "steady"), (0.04, "steady"), (0.06, "wide"), (0.12, "wide"), (0.13, "unstable")]
)
def test_the_middle_half_says_how_far_to_trust(half: float, trust: str) -> None:
    """torch.utils.benchmark: a tenth is worth a word, a quarter too much."""
    found = Samples((0.0, 1 - half, 1.0, 1 + half, 50.0))

    assert found.spread == pytest.approx(2 * half)
    assert found.trust == trust


def test_drift() -> None:
    early, late = Samples((1.0, 1.0, 1.0)), Samples((1.04, 1.04, 9.0))

    assert drift(early, late) == pytest.approx(0.04)
    assert drift(late, early) == pytest.approx(-0.03846, rel=1e-3)


def test_warmed_up_by_time_and_count(scripted: Callable[..., Any]) -> None:
    slow = scripted(1.0, 0.1)  # a first call that loads
    found = timed(slow, slow.step, limit=100.0)
    assert found.first == 1.0
    assert found.warmup == WARM_STEPS
    assert len(found.seconds) == STEPS
    assert found.median == pytest.approx(0.1)
    assert max(found.seconds) < 0.2  # the first is not among them

    quick = scripted(0.001)
    found = timed(quick, quick.step, limit=100.0)
    assert found.warmup == pytest.approx(WARM_SECONDS / 0.001, abs=2)
    assert len(found.seconds) == pytest.approx(500, abs=2)
    assert found.wall == pytest.approx(0.001)


def test_nothing_is_waited_for_between_steps(scripted: Callable[..., Any]) -> None:
    machine = scripted(0.01)
    before = machine.syncs
    found = repeated(machine, machine.step, 20)

    assert machine.syncs - before == 2
    assert found.seconds == pytest.approx([0.01] * 20)


def test_short_steps_are_timed_in_blocks(scripted: Callable[..., Any]) -> None:
    took = SHORT / 10
    machine = scripted(took)
    found = timed(machine, machine.step, limit=10.0)

    block = round(BLOCK_SECONDS / took)
    assert found.median == pytest.approx(took)
    assert (machine.steps - found.warmup) / len(found.seconds) == pytest.approx(block, abs=1)
    assert len(found.seconds) >= 3


@pytest.mark.parametrize(("took", "limit"), [(1.0, 8.0), (5.0, 1.0), (0.5, 4.0)])
def test_a_limit_is_kept_but_for_three(scripted: Callable[..., Any], took: float, limit: float) -> None:
    machine = scripted(took)
    found = timed(machine, machine.step, limit=limit)

    assert 3 <= len(found.seconds) < STEPS
    assert machine.host <= max(limit, (found.warmup + 3) * took) + took


def test_equal_is_equal() -> None:
    assert same("weight_bytes", "B", 10, 10).verdict == "equal"
    row = same("weight_bytes", "B", 10, 11)
    assert (row.verdict, row.ratio, row.missed) == ("differs", 1.1, True)
    assert same("weight_bytes", "B", 0, 0).ratio is None


@pytest.mark.parametrize("name", BANDS)
def test_bands(name: str) -> None:
    low, high = BANDS[name]

    def verdict(ratio: float) -> str:
        return near("x", "s", None, 1.0, ratio, name).verdict

    assert low < 1.0 or name in ("copy", "matmul", "matmul amd")
    assert [verdict(ratio) for ratio in (low, (low + high) / 2, high)] == ["within"] * 3
    assert [verdict(ratio) for ratio in (low - 0.01, high + 0.01)] == ["outside"] * 2


def test_calibrated_comes_before_the_catalogue() -> None:
    both = near("x", "s", 1.0, 2.0, 2.0, "decode graph", binds="memory", mode="graph")
    assert (both.ratio, both.verdict, both.binds, both.mode) == (1.0, "within", "memory", "graph")
    assert near("x", "s", 1.0, None, 2.0, "decode graph").verdict == "outside"
    for lone in (near("x", "s", None, None, 2.0, "decode graph"), near("x", "s", None, 1.0, 2.0, None)):
        assert lone.verdict == "not judged"
        assert not lone.missed


@pytest.mark.parametrize(
    ("kind", "mode", "batch", "band"),
    [
        ("cuda", "graph", 1, (0.90, 1.20)), ("cuda", "graph", 8, (0.90, 1.20)), ("cuda", "compiled", 64, (0.90, 1.35)),
        ("cuda", "eager", 1, (0.70, 1.50)), ("cpu", "eager", 1, (0.60, 2.00)),
    ],
)  # fmt: skip
def test_decode_s_band(kind: str, mode: str, batch: int, band: tuple[float, float]) -> None:
    assert BANDS[decode_band(kind, mode, batch)] == band


def test_prefill_s_band() -> None:
    assert BANDS[prefill_band("cuda", 4096)] == (0.80, 1.30)
    assert BANDS[prefill_band("cuda", 100)] == (0.70, 1.80)
    assert BANDS[prefill_band("cpu", 4096)] == (0.60, 2.00)
