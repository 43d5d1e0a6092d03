"""``llmcalc gpus``."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

from llmcalc.cli import gpus
from llmcalc.hardware import nvml
from tests.hardware.fake import GIB, Driver, card
from tests.hardware.test_nvml import H200, SPLIT

Run = Callable[..., CompletedProcess[str]]


def test_the_catalogue(run: Run) -> None:
    done = run("gpus", "--json")
    rows = json.loads(done.stdout)["results"]["gpus"]

    assert done.returncode == 0
    assert len(rows) == 132
    assert {"memory_bytes", "bandwidth_bytes_per_second", "peak_dense_per_second", "power_watts"} <= rows[0].keys()
    assert "h200-sxm-141gb" in run("gpus").stdout
    assert run("gpus", "--csv").stdout.startswith("id,name,memory_bytes,bandwidth_bytes_per_second,")


def test_one(run: Run) -> None:
    text = run("gpus", "H200").stdout

    assert "150,754,820,096 B = 140.40 GiB" in text
    assert "4,800 GB/s" in text
    assert "989.40 TFLOP/s" in text
    assert json.loads(run("gpus", "h200", "--json").stdout)["results"]["gpus"][0]["id"] == "h200-sxm-141gb"
    assert run("gpus", "h2000").returncode == 1
    assert run("gpus", "h200", "--local").returncode == 1


def test_here_without_a_driver_or_with_one(run: Run) -> None:
    """A variable that names a slice that is not here brings up no traceback either."""
    done = run("gpus", "--local", "--json", CUDA_VISIBLE_DEVICES="MIG-00000000-0000-0000-0000-000000000000")

    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1)
    if done.returncode:
        assert done.stdout == ""
        assert done.stderr.startswith("error[")
        assert "hint: " in done.stderr


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[dict[str, Any]]], dict[str, Any]]:
    def look(cards: list[dict[str, Any]]) -> dict[str, Any]:
        monkeypatch.setattr(nvml, "_pynvml", lambda: Driver(cards))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        report = gpus.here()
        assert len(report.tables[0].rows) >= len(cards)
        return {**report.results, "warnings": list(report.warnings)}

    return look


def test_matched_to_a_row(here: Callable[..., dict[str, Any]]) -> None:
    found = here([H200])
    gpu = found["gpus"][0]

    assert found["driver_version"] == "580.95.05"
    assert (gpu["index"], gpu["catalogue_id"], gpu["matched_by"]) == (0, "h200-sxm-141gb", "its name")
    assert gpu["bandwidth_bytes_per_second"] == 4800 * 10**9
    json.dumps(found, allow_nan=False)


def test_a_slice_has_no_rates_of_its_card(here: Callable[..., dict[str, Any]]) -> None:
    gpu = here([SPLIT])["gpus"][0]

    assert [part["memory_total_bytes"] for part in gpu["slices"]] == [40 * GIB, 10 * GIB]
    passed = here([card("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "MIG-1", 40 * GIB)])["gpus"][0]
    assert (passed["catalogue_id"], passed["profile"]) == ("a100-sxm4-80gb", "3g.40gb")
    assert passed["bandwidth_bytes_per_second"] is None
    assert passed["peak_dense_per_second"] is None


def test_an_unknown_card_has_no_peak(here: Callable[..., dict[str, Any]]) -> None:
    found = here([card("NVIDIA GeForce RTX 4090 Laptop GPU", "GPU-1", 16 * GIB)])

    assert found["gpus"][0]["catalogue_id"] is None
    assert found["gpus"][0]["peak_dense_per_second"] is None
    assert "not in the catalogue" in found["warnings"][0]
