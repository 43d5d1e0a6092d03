"""Decode steps that people published: none beats the bound, and what calibrations expect of them.

Rows are facts from the READMEs and tables named in them; contexts are those of the first step, the shortest.
"""

from __future__ import annotations

import sys
from collections import Counter
from statistics import mean, median
from typing import Any

import pytest

from llmcalc.calc.expected import OTHER_DEVICE, OTHER_EXPERTS, UNSEEN
from llmcalc.hardware.calibrations import Calibration, EngineLine, engine_lines, known
from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import decode_times as times
from published_rows import REQUEST, STEP, published

ROWS = list(times.rows())
SINGLE = [row for row in ROWS if row.single]


def test_every_row_has_a_fate() -> None:
    assert Counter(what for _, what in published()) == {
        STEP: 209, REQUEST: 13, "another figure of a run that is here as a rate of tokens": 5,
        "its device is not in the catalogue": 2,
        "its devices are not known: it counts one, on which the model does not fit": 6,
        "the same figure as that of a run whose name tells how experts were spread": 6,
    }  # fmt: skip


def test_no_measurement_beats_the_bound() -> None:
    assert len(ROWS) == 209
    assert [row for row in ROWS if row.seconds < row.at_least] == []


def test_no_rate_of_requests_beats_the_bound() -> None:
    found = list(times.requests())
    assert len(found) == 8
    assert [one for one in found if one.rate > one.at_most] == []


def test_rows_of_single_steps_follow_from_their_lengths() -> None:
    assert Counter(row.single for row in ROWS) == {True: 131, False: 78}


def test_a_model_on_a_device_left_out_is_expected_within_15_percent() -> None:
    tested = times.left_out(SINGLE)
    assert Counter(one.basis for one in tested) == {"the device": 20, "other devices": 73, "nothing": 38}
    by = {basis: [abs(one.error) for one in tested if one.error is not None and one.basis == basis]
          for basis in ("the device", "other devices")}  # fmt: skip
    assert median(by["the device"]) < 0.15
    assert median(by["other devices"]) < 0.15
    assert max(by["the device"]) < UNSEEN
    assert max(by["other devices"]) < OTHER_DEVICE


def test_a_format_left_out_is_expected_within_5_percent() -> None:
    errors = times.held_out(SINGLE)
    assert len(errors) == 15
    assert mean(map(abs, errors)) < 0.05
    assert max(map(abs, errors)) < times.HELD_OUT


def test_the_range_of_other_experts_holds_every_family() -> None:
    few, many = OTHER_EXPERTS
    errors = times.carried_over(SINGLE)
    assert len(errors) == 42  # three fits, each on the 19 rows but its own 7, 4 or 4
    assert all(1 / many <= error + 1 <= few for error in errors)


def test_calibrations_are_those_of_the_rows() -> None:
    devices, engines = times.made(SINGLE)
    shipped = {(row.device, row.engine): row for row in known() if row.origin == "published"}
    lines = {(row.vendor, row.engine): row for row in engine_lines()}
    assert (len(shipped), len(lines)) == (len(devices), len(engines)) == (17, 3)
    for row in devices:
        alike(row, shipped[row["device"], row["engine"]])
    for row in engines:
        alike(row, lines[row["vendor"], row["engine"]])


def alike(row: dict[str, Any], kept: Calibration | EngineLine) -> None:
    assert kept.efficiency == pytest.approx(row["efficiency"], rel=1e-4)
    assert kept.overhead_seconds == pytest.approx(row["overhead_seconds"], rel=1e-3, abs=1e-9)
