"""Decode steps that people published: none beats the bound, and what calibrations expect of them.

Rows are facts from the READMEs and tables named in them; contexts are those of the first step, the shortest.
"""

from __future__ import annotations

import sys
from collections import Counter
from statistics import mean, median

import pytest

from llmcalc.calc.expected import OTHER_EXPERTS, UNSEEN
from llmcalc.hardware.calibrations import known
from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import decode_times as times

ROWS = list(times.rows())
SINGLE = [row for row in ROWS if row.single]


def test_no_measurement_beats_the_bound() -> None:
    assert len(ROWS) == 215
    assert [row for row in ROWS if row.seconds < row.at_least] == []


def test_rows_of_single_steps_follow_from_their_lengths() -> None:
    assert Counter(row.single for row in ROWS) == {True: 138, False: 77}


def test_a_model_left_out_is_expected_within_15_percent() -> None:
    errors, alone = times.left_out(SINGLE)
    assert (len(errors), alone) == (20, 118)
    assert median(errors) < 0.15
    assert max(errors) < UNSEEN


def test_a_format_left_out_is_expected_within_5_percent() -> None:
    errors = times.held_out(SINGLE)
    assert len(errors) == 15
    assert mean(map(abs, errors)) < 0.05
    assert max(map(abs, errors)) < times.HELD_OUT


def test_the_range_of_other_experts_holds_every_family() -> None:
    few, many = OTHER_EXPERTS
    errors = times.carried_over(SINGLE)
    assert len(errors) == 56  # three fits, each on the 26 rows but its own 7, 10 or 5
    assert all(1 / many <= error + 1 <= few for error in errors)


def test_calibrations_are_those_of_the_rows() -> None:
    made = [times.calibration(key, group) for key, group in
            sorted(times.grouped([row for row in SINGLE if not row.given], "device", "engine").items())]  # fmt: skip
    shipped = {(row.device, row.engine): row for row in known() if row.origin == "published"}
    assert len(shipped) == sum(row is not None for row in made)
    for row in made:
        if row is not None:
            kept = shipped[str(row["device"]), str(row["engine"])]
            assert kept.efficiency == pytest.approx(row["efficiency"], rel=1e-4)
            assert kept.overhead_seconds == pytest.approx(row["overhead_seconds"], rel=1e-3, abs=1e-9)
