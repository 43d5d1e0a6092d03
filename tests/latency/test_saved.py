"""A calibration that a person saved here: whatever is expected by it says when it was made and how well it fits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from llmcalc.hardware.calibrations import VARIABLE

Run = Callable[..., CompletedProcess[str]]
CALIBRATION = {
    "device": "local-cpu", "engine": "llmcalc", "overhead_seconds": 1e-4, "efficiency": 0.8,
    "bandwidth_bytes_per_second": 40_000_000_000, "rows": 3, "residual": 0.031, "worst": 0.052, "spread": 0.12,
    "bytes_low": 1_000_000_000, "bytes_high": 9_000_000_000, "models": ["llama"], "dense": True, "experts": False,
    "sources": ["llmcalc measure on some CPU"], "shapes": ["32x4096"], "date": "2026-11-20",
}  # fmt: skip
DEVICE = {
    "id": "local-cpu", "name": "some CPU", "memory_bytes": 32_000_000_000, "bandwidth_bytes_per_second": 40_000_000_000,
    "peak_dense_per_second": {"bf16": 1_000_000_000_000}, "source": ["measured here by llmcalc measure --save"],
    "date": "2026-11-20", "notes": "the fastest that was seen",
}  # fmt: skip
MODEL = ("llama-2-7b", "--weights", "q4_0", "--tokens", "500", "--gpu", "local-cpu")
SAID = "from 3 rows of llama under llmcalc, measured here on 2026-11-20: llmcalc measure on some CPU; mean error 3.1%"


@pytest.fixture
def saved(run: Run, tmp_path: Path) -> Run:
    """The program where such a file was saved."""
    file = tmp_path / "saved.json"
    file.write_text(json.dumps({"calibrations": [CALIBRATION], "devices": [DEVICE]}), encoding="utf-8")
    return lambda *words: run(*words, **{VARIABLE: str(file)})


def calibration(done: CompletedProcess[str]) -> dict[str, Any]:
    return json.loads(done.stdout)["results"]["decode_seconds_expected"]["calibration"]


def test_latency_says_when_and_how_well(saved: Run) -> None:
    text = saved("latency", *MODEL).stdout
    assert f"likely 128.6 ms ({SAID})" in text  # 32 x 0.1 ms + 4,013,615,... B / (0.8 x 40 GB/s)
    row = calibration(saved("latency", *MODEL, "--json"))
    assert (row["date"], row["residual"], row["origin"]) == ("2026-11-20", 0.031, "measured here")


@pytest.mark.parametrize("words", [("--max-itl", "0.3"), ("--memory", "5GiB")], ids=["target", "users"])
def test_capacity_says_so_too(saved: Run, words: tuple[str, ...]) -> None:
    assert f"expected {SAID}" in saved("capacity", *MODEL, *words).stdout
    row = calibration(saved("capacity", *MODEL, *words, "--json"))
    assert (row["date"], row["residual"], row["origin"]) == ("2026-11-20", 0.031, "measured here")


def test_where_nothing_is_expected_nothing_is_said(saved: Run) -> None:
    done = saved("capacity", *MODEL, "--engine", "vllm", "--json")
    assert json.loads(done.stdout)["results"]["decode_seconds_expected"] is None


def test_the_device_is_one_of_gpus(saved: Run) -> None:
    text = saved("gpus", "local-cpu").stdout
    assert text.startswith("some CPU · local-cpu\nsources: measured here by llmcalc measure --save (2026-11-20)\n")
