"""What a measurement leaves: files, tables, a calibration, and its document where it ends early."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.measure.conftest import TINY, Done
from tests.measure.test_command import QUICK

Measure = Callable[..., Done]


# -- files and forms ----------------------------------------------------------------------------------------------


def test_a_file_is_not_overwritten_and_nothing_is_measured(
    measure: Measure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("llmcalc.measure.run.run", lambda *words, **more: pytest.fail("it was measured"))
    (tmp_path / "out.json").write_text("mine")
    for words in (("--json",), ("--csv",), ()):
        done = measure(*QUICK, *words, "-o", str(tmp_path / "out.json"))
        assert (done.code, done.out) == (1, "")
        assert "exists already" in done.err
    assert (tmp_path / "out.json").read_text() == "mine"

    done = measure(*QUICK, "--json", "-o", str(tmp_path / "nowhere/out.json"))
    assert done.code == 1
    assert "could not be written: no such folder" in done.err


def test_a_file_holds_what_there_is_after_every_stage(
    measure: Measure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from llmcalc.measure.session import Session

    path, seen = tmp_path / "out.json", []
    real = Session._stage

    def stage(self: Session, name: str, work: Callable[[], None]) -> None:
        seen.append((name, len(json.loads(path.read_text())["results"]["runs"]) if path.exists() else None))
        real(self, name, work)

    monkeypatch.setattr(Session, "_stage", stage)
    done = measure(*QUICK, "--json", "--phase", "decode", "-o", str(path))

    assert (done.code, done.out) == (0, "")
    assert seen[:3] == [("exactness", None), ("calibration", 0), ("decode", 0)]
    assert seen[3][1] >= 1
    assert json.loads(path.read_text())["results"]["agrees"] in (True, False)
    assert not (tmp_path / "kept").exists()


def test_tables_hold_the_same_rows(measure: Measure, tmp_path: Path) -> None:
    done = measure(*QUICK, "--phase", "prefill", "--csv", "-o", str(tmp_path / "out.csv"))
    (kept,) = (tmp_path / "kept").iterdir()
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text())))
    document = json.loads(kept.read_text())["results"]["estimates"]

    assert done.code == 0
    by_name = {row["quantity"]: row for row in rows}
    assert by_name["parameters"]["measured"] == "689280"
    assert by_name["weight_bytes"]["catalogue"] == "2757120"
    assert by_name["weight_bytes"]["unit"] == "B"
    told = next(row for row in document if row["quantity"] == "prefill_seconds")
    assert float(by_name["prefill_seconds"]["measured"]) == told["measured"]
    assert len([row for row in rows if row["verdict"]]) == len(document)

    shown = measure(*QUICK, "--phase", "prefill", "--markdown").out
    assert "| parameters" in shown
    assert "689,280" in shown
    assert "2,757,120 B" in shown


def test_a_folder_that_cannot_be_written_is_said_and_the_run_goes_on(
    measure: Measure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LLMCALC_MEASUREMENTS", str(tmp_path / "file/kept"))
    done = measure(*QUICK, "--phase", "prefill", "--json")
    assert done.code == 0
    assert done.err.count("is not kept between stages") == 1


def test_saved_for_latency_and_capacity(measure: Measure, tmp_path: Path) -> None:
    done = measure(*QUICK, "--phase", "decode", "--save", "--json", batch=2)
    file = json.loads((tmp_path / "calibrations.json").read_text())
    (row,) = file["calibrations"]

    assert done.code == 0
    assert row["device"] == file["devices"][0]["id"] == "local-cpu"
    assert row["engine"] == "reference decoder"
    assert 0 < row["efficiency"] <= 1
    told = measure("--gpu", "local-cpu", "--tokens", "24", "--json", verb="latency").results
    expected = told["decode_seconds_expected"]
    assert 0 < expected["low"] <= expected["likely"] <= expected["high"]
    assert expected["calibration"]["date"] == row["date"]
    assert expected["calibration"]["residual"] == row["residual"]
    shown = measure("--gpu", "local-cpu", "--tokens", "24", verb="latency").out
    assert "expected:" in shown, shown
    assert row["date"] in shown, shown
    room = measure("--gpu", "local-cpu", "--tokens", "24", "--json", verb="capacity")
    assert room.code == 0
    assert room.results["tokens_per_second_per_device"] > 0


# -- ending early -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_stopped(tmp_path: Path, name: str) -> None:
    path = tmp_path / "out.json"
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    words = ["measure", "tiny.json", "--device", "cpu", "--tokens", "64", "--budget", "600", "--json", "-o", str(path)]
    # Started from a shell in the background, this test inherits an interrupt that is ignored; a person's is not.
    heeding = (
        "import runpy, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "runpy.run_module('llmcalc', run_name='__main__')"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", heeding, *words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    until = time.monotonic() + 60
    while not path.exists() and time.monotonic() < until and running.poll() is None:
        time.sleep(0.05)
    running.send_signal(getattr(signal, name))
    out, err = running.communicate(timeout=60)
    results = json.loads(path.read_text())["results"]

    assert (running.returncode, out) == (130, "")
    assert f"what was measured until then is in {path}" in err
    assert "Traceback" not in err
    assert results["errors"][0].endswith(": interrupted")
    assert results["agrees"] is False
    assert all(check["ok"] for check in results["checks"])


def test_a_phase_that_did_not_run_is_no_proof(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    from llmcalc.measure.session import Session

    monkeypatch.setattr(Session, "left", property(lambda found: 0.0 if found.checks else 1.0))
    done = measure("--device", "cpu", "--tokens", "8", "--json", "--check")

    assert done.code == 3
    assert done.results["agrees"] is False
    assert [row["verdict"] for row in done.results["estimates"]][:3] == ["equal"] * 3
    assert all("budget" in name for name in done.results["skipped"])
