"""``llmcalc latency`` as people type it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

Run = Callable[..., "CompletedProcess[str]"]


def results(run: Run, *words: str) -> dict[str, Any]:
    done = run("latency", *words, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["results"]
    return found


def test_keys_and_types(run: Run) -> None:
    found = results(run, "llama-3-8b", "--gpu", "h100", "--tokens", "2048", "--output", "100", "--batch", "2")
    assert found["weight_read_bytes"] == 15_009_849_344
    parts = ("weight_read_bytes", "embedding_read_bytes", "cache_read_bytes", "state_read_bytes")
    assert found["read_bytes"] == sum(found[name] for name in parts)
    assert all(type(value) is int for name, value in found.items() if name.endswith(("_bytes", "_flops")))
    seconds = {name: value for name, value in found.items() if name.endswith(("at_least", "roofline"))}
    assert all(type(value) is float for value in seconds.values())
    assert found["decode_tokens_per_second_at_most"] == 2 / found["decode_seconds_at_least"]
    assert (found["decode_bound"], found["prefill_bound"]) == ("memory", "compute")
    assert found["ttft_seconds_at_least"] == found["prefill_seconds_at_least"]
    assert (
        found["request_seconds_at_least"]
        > found["ttft_seconds_at_least"] + 99 * found["decode_seconds_at_least"] * 0.99
    )
    assert found["decode_seconds_expected"] is None


def test_the_device_is_among_the_inputs(run: Run) -> None:
    words = ("llama-3-8b", "--gpu", "h100", "--memory", "94GB", "--bandwidth", "3.9TB/s", "--peak", "800e12", "--json")
    found = json.loads(run("latency", *words, "--link", "300GB/s").stdout)["inputs"]
    assert found["device"] == "h100-sxm5-80gb"
    assert found["memory_bytes"] == 94_000_000_000
    assert found["bandwidth_bytes_per_second"] == 3_900_000_000_000
    assert found["peak_dense_per_second"] == {"given": 800_000_000_000_000}
    assert found["link_bytes_per_second"] == 300_000_000_000
    assert found["last_level_cache_bytes"] == 52_428_800
    assert found["device_figures_given"] == ["memory", "bandwidth", "peak", "link"]


def test_csv_holds_every_answer(run: Run) -> None:
    words = ("llama-2-7b", "--gpu", "m1-pro", "--weights", "q4_0", "--tokens", "64")
    found, text = results(run, *words), run("latency", *words, "--csv").stdout
    rows = {row["key"]: row["value"] for row in csv.DictReader(io.StringIO(text))}
    scalars = {
        name: value for name, value in found.items() if not isinstance(value, (list, dict)) and value is not None
    }
    assert {name: type(value)(rows[name]) for name, value in scalars.items()} == scalars
    assert float(rows["decode_seconds_expected.low"]) == found["decode_seconds_expected"]["low"]
    assert rows["decode_seconds_expected.calibration.engine"] == "llama.cpp metal"
    assert rows["decode_link_seconds"] == ""
    thumb = run("latency", "--params", "16e9", "--weights", "bf16", "--bandwidth", "1TB/s", "--csv").stdout
    assert "decode_seconds_at_least,0.032\n" in thumb


def test_textbook_by_the_rule_of_thumb(run: Run) -> None:
    found = results(run, "--params", "16e9", "--weights", "bf16", "--bandwidth", "1TB/s")
    assert found["read_bytes"] == 32_000_000_000
    assert found["decode_seconds_at_least"] == 0.032
    assert run("latency", "--params", "16e9", "--bandwidth", "1TB/s").returncode == 1


@pytest.mark.parametrize(
    ("model", "words", "rate"),
    [
        # meta-pytorch/gpt-fast README: at most; InternLM/lmdeploy#210; turboderp/exllama#266; llmfit#137
        ("llama-2-7b", ("--weights", "bf16", "--tokens", "205", "--bandwidth", "2039GB/s"), 1 / 0.00653),
        ("llama-2-70b", ("--weights", "int8", "--tokens", "205", "--bandwidth", "2039GB/s"), 1 / 0.0339),
        ("llama-2-7b", ("--weights", "fp16", "--tokens", "1", "--bandwidth", "600GB/s"), 1 / 0.02202),
        ("llama-2-70b", ("--weights", "gptq", "--tokens", "1", "--bandwidth", "1555GB/s"), 43.0),
        ("qwen3.6-27b", ("--weights", "q4_k_m", "--tokens", "1", "--bandwidth", "1008GB/s"), 65.0),
    ],
)
def test_ceilings_that_people_worked_out(run: Run, model: str, words: tuple[str, ...], rate: float) -> None:
    # the figures are rounded by hand, and weigh a head or a group in their own way
    assert results(run, model, *words)["decode_tokens_per_second_at_most"] == pytest.approx(rate, rel=0.1)


def test_an_expectation_says_whose_it_is(run: Run) -> None:
    words = ("llama-2-7b", "--gpu", "m1-pro", "--weights", "q4_0", "--tokens", "64")
    found = results(run, *words)["decode_seconds_expected"]
    assert found["low"] < found["likely"] < found["high"]
    assert found["calibration"]["sources"] == ["llama.cpp Apple Silicon"]
    assert "llama.cpp Apple Silicon" in run("latency", *words).stdout


def test_the_derivation(run: Run) -> None:
    text = run("latency", "llama-3-8b", "--gpu", "h100", "--explain").stdout
    assert "= 32 calls x 117,440,512 bytes a call = 3,758,096,384 B" in text
    assert "memory: 15,494,430,720 B / 3,350,000,000,000 B/s" in text


def test_drafting(run: Run) -> None:
    found = results(run, "llama-3-70b", "--gpu", "h200", "--tp", "4", "--draft", "llama-3-8b", "--acceptance", "0.8")
    assert found["speculative"]["speed_up"] > 1


def test_options_that_belong_to_a_draft(run: Run) -> None:
    done = run("latency", "llama-3-8b", "--gpu", "h100", "--acceptance", "0.5", "--json")
    assert "--acceptance has no effect without --draft" in done.stderr
    assert json.loads(done.stdout)["warnings"] == ["--acceptance has no effect without --draft"]


def test_warnings(run: Run) -> None:
    done = run("latency", "llama-3-70b", "--bandwidth", "1TB/s", "--tp", "2", "--tokens", "9000")
    assert "no peak is known" in done.stderr
    assert "no link is known" in done.stderr
    assert "max_position_embeddings" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "mentions"),
    [
        (("llama-3-8b",), 1, "no device is described"),
        (("llama-3-8b", "--memory", "8GiB"), 1, "--bandwidth"),
        (("llama-3-8b", "--gpu", "h1000"), 1, "did you mean"),
        (("llama-3-8b", "--gpu", "h100", "--gpus", "4", "--tp", "2"), 1, "tp x pp x dp"),
        (("llama-3-8b", "--gpu", "h100", "--gpus", "3"), 1, "--tp 3"),
        ((), 2, "MODEL"),
    ],
)
def test_refusals(run: Run, words: tuple[str, ...], code: int, mentions: str) -> None:
    done = run("latency", *words)
    assert done.returncode == code
    assert done.stdout == ""
    assert mentions in done.stderr
    assert "Traceback" not in done.stderr
