"""A checkpoint whose headers hold other bytes than its config tells: the verbs that price the config say so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from llmcalc import load
from llmcalc.calc import verify, weights_of_headers
from llmcalc.cli.priced import priced
from tests.headers.gguf_files import write_llama

Run = Callable[..., "CompletedProcess[str]"]
VERBS = {"latency": (), "capacity": (), "cost": ("--price", "2")}


def warnings(run: Run, verb: str, path: Path, *words: str) -> list[str]:
    result = run(verb, str(path), "--gpu", "h100-sxm", "--tokens", "64", *VERBS[verb], *words, "--json")
    return [text for text in json.loads(result.stdout)["warnings"] if "own headers" in text]


@pytest.mark.parametrize("verb", VERBS)
def test_a_quantized_file_is_not_priced_as_its_config_in_silence(run: Run, tmp_path: Path, verb: str) -> None:
    path = write_llama(tmp_path / "a.gguf", "Q8_0")
    held = json.loads(run("weights", str(path), "--json").stdout)["results"]["total_bytes"]
    (told,) = warnings(run, verb, path)
    assert f"hold {held:,} bytes" in told
    assert warnings(run, verb, path, "--weights", "q8_0") == []


@pytest.mark.parametrize("verb", VERBS)
def test_a_changed_config_is_not_held_against_the_headers(run: Run, tmp_path: Path, verb: str) -> None:
    path = write_llama(tmp_path / "a.gguf", "Q8_0")
    words = ("--gpu", "h100-sxm", "--tokens", "64", *VERBS[verb], "--set", "num_hidden_layers=2", "--json")
    told = json.loads(run(verb, str(path), *words).stdout)["warnings"]
    assert not [text for text in told if "own headers" in text or "disagree" in text]
    assert [text for text in told if "--set makes another model" in text]


def test_a_file_is_matched_with_its_config_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*words: Any) -> verify.Verification:
        calls.append(words)
        return matched(*words)

    matched = verify.verify
    monkeypatch.setattr(verify, "verify", counted)
    monkeypatch.setattr(weights_of_headers, "verify", counted)
    assert "own headers" in priced(load(write_llama(tmp_path / "a.gguf", "Q8_0")), "config").warnings[-1]
    assert len(calls) == 1
