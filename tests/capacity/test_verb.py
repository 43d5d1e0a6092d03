"""``llmcalc capacity`` as people type it."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

Run = Callable[..., "CompletedProcess[str]"]


def results(run: Run, *words: str) -> dict[str, Any]:
    done = run("capacity", *words, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["results"]
    return found


def test_users_of_a_card(run: Run) -> None:
    words = ("llama-3-8b", "--memory", "24GiB", "--utilization", "0.9", "--tokens", "4096", "--overhead", "1GiB")
    found = results(run, *words)
    # (0.9 x 24 - 1) GiB less the weights, over 512 MiB a sequence
    assert found["concurrency"] == pytest.approx(11.28, abs=0.01)
    assert found["max_sequences"] == 11
    assert found["weight_bytes"] == found["memory"]["weights"] == 16_060_522_496
    assert found["memory"]["runtime"] == 2**30
    assert sum(found["memory"].values()) == 24 * 2**30
    assert found["tokens_per_second_per_device"] is None


def test_a_pool_that_is_given(run: Run) -> None:
    # QwenLM/Qwen3#16: 11.875 GiB of an MHA model hold 24,320 tokens; BatsResearch/bonito#7: 16,816 tokens of Mistral
    found = results(run, "llama-2-7b", "--cache-memory", "11.875GiB", "--block-size", "16", "--cache", "fp16")
    assert found["pool_tokens"] == 24_320
    found = results(run, "mistral-7b-v0.1", "--cache-memory", "2204106752B", "--block-size", "16", "--cache", "fp16")
    assert found["pool_tokens"] == 16_816
    assert found["memory"] is None


def test_check(run: Run) -> None:
    fits = run("capacity", "llama-3-8b", "--gpu", "h100", "--check")
    assert (fits.returncode, "it fits" in fits.stdout) == (0, True)
    done = run("capacity", "llama-3-70b", "--gpu", "h100", "--check")
    assert done.returncode == 3
    assert "short by" in done.stdout
    assert "--weights fp8" in done.stdout
    assert run("capacity", "llama-3-70b", "--gpu", "h100").returncode == 0


def test_an_engine_says_what_it_reserves(run: Run) -> None:
    text = run("capacity", "llama-3-8b", "--gpu", "h100", "--engine", "vllm", "--explain").stdout
    assert "activations of a full batch" in text
    assert "determine_available_memory" in text
    text = run("capacity", "llama-3-8b", "--gpu", "h100", "--explain").stdout
    assert "reserves only what" in text


def test_targets(run: Run) -> None:
    found = results(run, "llama-3-8b", "--gpu", "l4", "--tokens", "2048", "--max-itl", "0.06")
    assert found["limited_by"] == "itl"
    assert found["max_users"] < found["max_sequences"]
    assert found["itl_seconds"] <= 0.06
    assert found["tokens_per_second_per_device"] > 0
    assert "users at once" in run("capacity", "llama-3-8b", "--gpu", "l4", "--max-itl", "0.06").stdout


def test_no_number_where_nothing_is_left(run: Run) -> None:
    found = results(run, "llama-3-70b", "--memory", "24GiB")
    assert (found["fits"], found["pool_tokens"], found["concurrency"], found["max_users"]) == (False, 0, 0.0, 0)
    assert found["short_by_bytes"] == found["weight_bytes"] + found["cache_bytes"] - 24 * 2**30
    assert all(change["option"] for change in found["changes"])


@pytest.mark.parametrize(
    ("words", "code", "mentions"),
    [
        (("llama-3-8b",), 1, "no device is described"),
        (("llama-3-8b", "--memory", "24G"), 2, "ambiguous"),
        (("llama-3-8b", "--gpu", "h100", "--utilization", "2"), 1, "utilization"),
        (("llama-3-8b", "--gpu", "h100", "--tp", "3"), 1, "--tp 3"),
        (("llama-3-8b", "--memory", "24GiB", "--max-itl", "0.1"), 1, "--bandwidth"),
        (("llama-3-8b", "--gpu", "h100", "--engine", "exllama"), 1, "no such engine"),
    ],
)
def test_refusals(run: Run, words: tuple[str, ...], code: int, mentions: str) -> None:
    done = run("capacity", *words)
    assert done.returncode == code
    assert done.stdout == ""
    assert mentions in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "mentions"),
    [
        (("--tokens", "0"), 2, "--tokens"),
        (("--tokens", "-1"), 2, "--tokens"),
        (("--batch", "0"), 2, "--batch"),
        (("--utilization", "0"), 1, "--utilization"),
        (("--utilization", "1.01"), 1, "--utilization"),
        (("--utilization", "nan"), 1, "--utilization"),
        (("--memory", "0"), 1, "--memory"),
        (("--memory", "-1GiB"), 2, "--memory"),
        (("--activation", "-1"), 2, "--activation"),
        (("--overhead", "-1GiB"), 2, "--overhead"),
        (("--weight-memory", "-1"), 2, "--weight-memory"),
        (("--cache-memory", "-1"), 2, "--cache-memory"),
        (("--block-size", "0"), 2, "--block-size"),
        (("--max-batched-tokens", "0"), 2, "--max-batched-tokens"),
        (("--max-itl", "0"), 1, "--max-itl"),
        (("--ep", "3"), 1, "--ep"),
    ],
)
def test_numbers_that_are_none(run: Run, words: tuple[str, ...], code: int, mentions: str) -> None:
    done = run("capacity", "llama-3-8b", "--gpu", "l4", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert mentions in done.stderr
    assert "Traceback" not in done.stderr


def test_an_encoder_is_asked_for_its_weights_alone(run: Run) -> None:
    found = results(run, "bert-base-uncased", "--gpu", "l4", "--tokens", "512", "--tp", "2", "--pp", "3")
    asked = (
        "pool_tokens",
        "concurrency",
        "max_sequences",
        "max_tokens_per_sequence",
        "cache_pool_bytes",
        "cache_bytes",
    )
    assert [found[key] for key in asked] == [None] * len(asked)
    assert (found["fits"], found["min_gpus"], found["limited_by"]) == (True, 1, "nothing")
    found = results(run, "bert-base-uncased", "--memory", "100MiB", "--tokens", "512")
    assert (found["fits"], found["max_sequences"]) == (False, None)
    assert found["short_by_bytes"] == found["weight_bytes"] - 100 * 2**20
    assert found["min_gpus_ranks"] == {"tp": 3, "pp": 1, "ep": 1}


@pytest.mark.parametrize("name", ["t5-base", "bart-base", "whisper-large-v3"])
def test_encoders_with_decoders(run: Run, name: str) -> None:
    found = results(run, name, "--gpu", "l4", "--tokens", "400")
    assert found["max_sequences"] > 1
    held = results(run, name, "--gpu", "l4", "--tokens", "400", "--batch", str(found["max_sequences"]))
    more = results(run, name, "--gpu", "l4", "--tokens", "400", "--batch", str(found["max_sequences"] + 1))
    assert (held["fits"], more["fits"]) == (True, False)


def test_csv_holds_the_answers(run: Run) -> None:
    lines = run("capacity", "llama-3-70b", "--memory", "24GiB", "--csv").stdout.splitlines()
    assert lines[0] == "key,value"
    rows = dict(line.split(",", 1) for line in lines[1:])
    assert (rows["fits"], rows["min_gpus"], rows["min_gpus_ranks.pp"]) == ("false", "6", "3")
    assert int(rows["short_by_bytes"]) > 0
    assert rows["concurrency"] == "0.0"
    assert rows["changes.0.option"] == "--gpus 6 --tp 2 --pp 3"


def test_the_device_is_among_the_inputs(run: Run) -> None:
    done = run("capacity", "llama-3-8b", "--memory", "24GiB", "--bandwidth", "1TB/s", "--json")
    inputs = json.loads(done.stdout)["inputs"]
    assert (inputs["memory_bytes"], inputs["bandwidth_bytes_per_second"]) == (24 * 2**30, 10**12)
    assert inputs["device"] is None or isinstance(inputs["device"], str)


def test_what_has_no_effect_is_said(run: Run) -> None:
    done = run("capacity", "llama-3-8b", "--cache-memory", "1GiB", "--utilization", "0.5", "--overhead", "1GiB")
    assert "--utilization, --overhead has no effect" in done.stderr
    assert (
        "fewest devices: none up to 1,024"
        in run("capacity", "llama-3-8b", "--memory", "1GiB", "--engine", "vllm").stdout
    )


def test_expectations_say_whose_they_are_and_how_wide(run: Run) -> None:
    """On the H100 one model with experts was measured: another is told with its rows and range, as by latency."""
    words = ("gpt-oss-120b", "--gpu", "h100", "--engine", "vllm")
    done = run("capacity", *words, "--max-itl", "0.02")
    line = "the expectation of a model with experts rests on 4 rows of minimax-m2.7 under vllm; for another shape"
    assert line in done.stderr
    assert line in run("latency", *words).stderr
    assert "a token likely takes 5.972 ms (3.513 ms to 7.764 ms)" in done.stdout
    assert "expected from 4 rows of minimax-m2.7 under vllm, published: aiconfigurator-core" in done.stdout
    found = results(run, *words, "--max-itl", "0.02")
    assert found["decode_seconds_expected"]["likely"] == found["itl_seconds_expected"]
    (target,) = found["targets"]
    assert target["expected_low"] < target["expected"] < target["expected_high"]
    likely = json.loads(run("latency", *words, "--json").stdout)["results"]["decode_seconds_expected"]
    assert [target["expected_low"], target["expected_high"]] == pytest.approx([likely["low"], likely["high"]])


def test_memory_that_is_shared_with_the_system(run: Run) -> None:
    words = ("llama-3-8b", "--gpu", "m3-max", "--weights", "q4_k_m", "--engine", "llama.cpp")
    assert "macOS by default two thirds to three quarters" in run("capacity", *words).stderr
    assert "macOS" not in run("capacity", *words, "--memory", "96GiB").stderr
