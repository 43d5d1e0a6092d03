"""``llmcalc kv-cache --engine``: the three numbers side by side, and which one the log shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

Run = Callable[..., CompletedProcess[str]]


def test_three_numbers_and_the_log_line(run: Run) -> None:
    text = run("kv-cache", "gemma-3-27b", "--tokens", "128Ki", "--engine", "vllm", "--explain").stdout

    for line in (
        "  exact arrays          11,173,625,856 bytes = 10.41 GiB   in bf16",
        "  the engine takes      15,275,130,880 bytes = 14.23 GiB   in bf16",
        "  every layer full      66,571,993,088 bytes = 62.00 GiB",
    ):
        assert line in text.splitlines()
    assert "the log shows the second: 15,275,130,880 bytes = 14.23 GiB" in text
    assert "= 6 groups x 577 blocks of 16 tokens x 10 layers a group x 131,072 bytes a page = 4,537,712,640 B" in text
    assert "source: vLLM v1/core/kv_cache_planning.py" in text


def test_json(run: Run) -> None:
    done = run("kv-cache", "llama-3-70b", "--lengths", "18,31", "--engine", "vllm", "--tp", "8", "--json")
    found = json.loads(done.stdout)["results"]

    assert (found["blocks"], found["slots_tokens"], found["unused_tokens"], found["block_tokens"]) == (4, 64, 15, 16)
    assert (found["block_bytes"], found["allocated_bytes"]) == (655_360, 8 * 4 * 655_360)
    assert found["allocated_per_device_bytes"] == found["log_line_bytes"] == 4 * 655_360


@pytest.mark.parametrize(
    "words", [("--cache", "q8_0"), ("--engine", "ollama"), ("--engine", "none", "--block-size", "16")]
)
def test_refusals_are_one_line_and_a_hint(run: Run, words: tuple[str, ...]) -> None:
    done = run("kv-cache", "llama-3-8b", "--engine", "vllm", *words)

    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error[")
    assert "hint: " in done.stderr


def test_no_engine_no_engine_module(run: Run) -> None:
    code = "import sys; from llmcalc import kv_cache, load; kv_cache(load('llama-3-8b').architecture);"
    code += "print([m for m in sys.modules if m.startswith('llmcalc.engines.')])"
    import subprocess
    import sys as system

    from tests.conftest import ROOT

    done = subprocess.run([system.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "['llmcalc.engines.ranks', 'llmcalc.engines.base']"
    assert run("kv-cache", "llama-3-8b", "--json").returncode == 0
