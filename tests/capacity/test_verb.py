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
