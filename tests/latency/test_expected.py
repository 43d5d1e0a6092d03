"""Expectations: only where a calibration speaks, always as a range."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmcalc import load
from llmcalc.calc.expected import UNSEEN, Point, expected, fit, silence
from llmcalc.calc.latency import latency
from llmcalc.calc.weight_shards import Ranks
from llmcalc.errors import MalformedConfigError
from llmcalc.hardware.calibrations import VARIABLE, find, known, local_path, read
from llmcalc.hardware.catalogue import describe

LLAMA = load("llama-2-7b").architecture
ROW = """{"calibrations": [{"device": "rtx-4090", "engine": "mine", "overhead_seconds": 1e-5, "efficiency": 0.5,
 "bandwidth_bytes_per_second": 1008000000000, "rows": 3, "residual": 0.01, "worst": 0.02, "spread": 0.12,
 "bytes_low": 1000, "bytes_high": 9000000000, "models": ["x"], "dense": true, "experts": false,
 "sources": ["here"]}]}"""


def test_a_range_around_its_middle() -> None:
    found = latency(LLAMA, describe("apple-m1-pro"), 64, weights="q4_0")
    likely = expected(found)
    assert likely is not None
    assert found.decode.seconds_at_least <= likely.low < likely.likely < likely.high
    assert likely.likely == pytest.approx(1 / 36, rel=0.05)  # 35.52 and 36.41 tokens a second were published
    assert likely.calibration.engine == "llama.cpp metal"


def test_another_model_is_known_less_well() -> None:
    device = describe("apple-m1-pro")
    seen, other = (expected(latency(load(name).architecture, device, 64)) for name in ("llama-2-7b", "llama-2-13b"))
    assert seen is not None
    assert other is not None
    assert seen.high / seen.likely == pytest.approx(1.12)
    assert other.high / other.likely == pytest.approx(1 + UNSEEN)


def latency_of(name: str) -> float:
    found = latency(load(name).architecture, describe("h100-sxm5-80gb"), 1000, engine="vllm")
    return found.decode.seconds_at_least


def test_an_engine_speaks_for_other_devices_of_the_maker() -> None:
    """llama.cpp was measured on eight NVIDIA devices, and on no L4."""
    likely = expected(latency(LLAMA, describe("l4"), 64, weights="q4_0", engine="llama.cpp"))
    assert likely is not None
    assert "under llama.cpp cuda on this device: the expectation rests on what it reached on a100" in likely.warnings[0]
    assert "rtx-4090" in likely.calibration.devices
    assert likely.calibration.origin == "published of other devices"
    assert (likely.calibration.device, likely.calibration.bandwidth_bytes_per_second) == ("l4", 300_000_000_000)
    assert likely.high / likely.likely == pytest.approx(1.30)
    other = expected(latency(load("llama-2-13b").architecture, describe("l4"), 64, weights="q4_0", engine="llama.cpp"))
    assert other is not None
    assert other.high / other.likely == pytest.approx(1.30 * 1.27)
    own = expected(latency(LLAMA, describe("apple-m1-pro"), 64, weights="q4_0", engine="llama.cpp"))
    assert own is not None
    assert own.calibration.devices == ()


def test_an_engine_is_silent_of_other_makers_and_kinds() -> None:
    def on(device: str, name: str, engine: str) -> object:
        return expected(latency(load(name).architecture, describe(device), 64, weights="q4_0", engine=engine))

    assert on("mi300x", "llama-2-7b", "llama.cpp") is None  # on AMD's two cards it used Vulkan: two rows
    assert on("apple-m1-pro", "gpt-oss-20b", "llama.cpp") is None  # one Apple device ran experts
    assert on("l4", "llama-2-7b", "vllm") is None  # one device ran a dense model
    assert on("l4", "qwen3-30b-a3b", "vllm") is not None
    assert on("l4", "llama-2-7b", "none") is None


def test_experts_of_another_family_are_hardly_known() -> None:
    """On the H100 under vLLM MiniMax-M2.7 alone was measured: 62 layers of 3,072."""
    likely = expected(latency(load("gpt-oss-120b").architecture, describe("h100-sxm5-80gb"), 1000, engine="vllm"))
    assert likely is not None
    assert likely.warnings[0].startswith("the expectation of a model with experts rests on 4 rows of minimax-m2.7")
    assert likely.high / likely.likely == pytest.approx(1.3)
    assert likely.low == pytest.approx(max(likely.likely / 1.7, latency_of("gpt-oss-120b")))


def test_no_calibration_no_expectation() -> None:
    assert expected(latency(LLAMA, describe("l4"))) is None
    assert expected(latency(LLAMA, describe("apple-m1-pro", bandwidth=1e12))) is None
    assert expected(latency(LLAMA, describe("apple-m1-pro"), engine="vllm")) is None
    assert expected(latency(load("gpt-oss-20b").architecture, describe("apple-m1-pro"))) is None  # it saw no experts
    assert expected(latency(LLAMA, describe("h200-sxm-141gb"), 1, 4096)) is None  # bound by compute


@pytest.mark.parametrize(("name", "device", "given", "words"), [
    ("llama-2-7b", "h100", {}, "no calibration speaks for this device, engine and kind of model; --engine llama.cpp"),
    ("qwen3-30b-a3b", "h200", {"ranks": Ranks(4)}, "kind of model; --engine vllm would go by other devices"),
    ("llama-2-7b", "h100", {"ranks": Ranks(2)}, "no calibration speaks for this device, engine and kind of model"),
    ("llama-2-7b", "h100", {"engine": "sglang"}, "no calibration speaks for this device, engine and kind of model"),
    ("llama-2-7b", "h200", {"batch": 4096, "tokens": 1}, "the step is bound by computing"),
    ("llama-2-7b", "h200", {"rate": 4e12}, "with --bandwidth it is another device than any that was measured"),
])  # fmt: skip
def test_silence_has_its_reason(name: str, device: str, given: dict[str, Any], words: str) -> None:
    described = describe(device, bandwidth=given.get("rate"))
    options = {key: value for key, value in given.items() if key != "rate"}
    found = latency(load(name).architecture, described, **options)
    assert expected(found) is None
    reason = silence(found, found.decode)
    assert words in reason
    assert ("--engine" in reason) == ("--engine" in words)


def test_more_devices_than_were_measured_is_said() -> None:
    """llama.cpp ran on one chip, gpt-fast on up to eight A100."""
    likely = expected(latency(LLAMA, describe("apple-m1-pro"), 64, ranks=Ranks(2)))
    assert likely is not None
    assert "the expectation is of 2 devices and rests on one device alone" in likely.warnings[-1]
    many = expected(latency(load("llama-2-70b").architecture, describe("a100-sxm4-80gb"), 64, ranks=Ranks(8)))
    assert many is not None
    assert many.warnings == ()


def test_far_from_what_was_measured_is_said() -> None:
    likely = expected(latency(load("smollm2-135m").architecture, describe("apple-m1-pro"), 64))
    assert likely is not None
    assert "stretches" in likely.warnings[0]


def test_calibrations_of_this_machine_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "calibrations.json"
    monkeypatch.setenv(VARIABLE, str(file))
    assert local_path() == file
    assert all(row.origin == "published" for row in known())
    file.write_text(ROW, encoding="utf-8")
    row = find(describe("rtx-4090"), "none", experts=False)
    assert row is not None
    assert row.origin == "measured here"
    assert row.seconds(10, 504e9) == pytest.approx(1.0001)
    likely = expected(latency(LLAMA, describe("rtx-4090"), 64))
    assert likely is not None
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(MalformedConfigError, match="calibrations"):
        known()


def test_impossible_calibrations_are_refused() -> None:
    with pytest.raises(MalformedConfigError, match="efficiency"):
        read(ROW.replace('"efficiency": 0.5', '"efficiency": 1.5'), "a file")


def test_a_fit_finds_its_line() -> None:
    line = [Point(32, moving, 32 * 2e-4 + moving / 0.8) for moving in (0.01, 0.03, 0.05)]
    assert fit(line) == pytest.approx((2e-4, 0.8))
    assert fit(line[:1]) is None
    assert fit([line[0], line[0]]) is None
    faster = fit([Point(32, 0.02, 0.01), Point(32, 0.01, 0.006)])
    assert faster is not None
    assert faster[1] == 1.0  # never above the datasheet
