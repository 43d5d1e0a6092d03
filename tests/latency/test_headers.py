"""A checkpoint whose headers hold other bytes than its config tells: the verbs that price the config say so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

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
