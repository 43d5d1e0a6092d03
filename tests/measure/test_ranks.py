"""Several processes share a model out, started by torchrun as a user would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT
from tests.measure.conftest import TINY, Done

Measure = Callable[..., Done]
SMALL = {**TINY, "num_hidden_layers": 2}
WORDS = ("--device", "cpu", "--tokens", "16", "--budget", "1", "--json")


def together(folder: Path, number: int, *words: str, **changes: object) -> subprocess.CompletedProcess[str]:
    """The command in so many processes."""
    (folder / "tiny.json").write_text(json.dumps({**SMALL, **changes}))
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(number))
    return subprocess.run(
        [sys.executable, *launcher, "-m", "llmcalc", "measure", "tiny.json", *WORDS, *words], cwd=folder, timeout=100,
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_two_processes(tmp_path: Path) -> None:
    done = together(tmp_path, 2, "--tp", "2", "--check")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)  # one document, and nothing beside it
    results = document["results"]
    rows = {row["quantity"]: row for row in results["estimates"]}

    assert results["ranks"] == 2
    assert results["agrees"] is True
    # two layers of 128: tables of 512, attention and feed-forward cut in two, norms on both
    layer = (2 * 128 * 128 + 2 * 32 * 128 + 3 * 256 * 128) // 2
    held = 2 * 512 * 128 // 2 + 2 * layer + 5 * 128
    assert rows["weight_bytes_of_the_fullest_rank"]["measured"] == 4 * held
    assert rows["cache_bytes_of_the_fullest_rank"]["measured"] == 16 * 2 * 2 * 1 * 16 * 4
    for name in ("weight_bytes_of_the_fullest_rank", "cache_bytes_of_the_fullest_rank"):
        assert rows[name]["verdict"] == "equal"
    logits = rows["logits_of_2_ranks_against_one"]
    assert (logits["verdict"], logits["band"]) == ("within", [0.0, 1e-5])
    assert 0 <= logits["measured"] < 1e-5
    assert rows["cached_decode_against_one_full_pass"]["verdict"] == "within"
    assert rows["decode_seconds"]["verdict"] == "not judged"
    assert results["runs"][0]["iterations"] == 20
    assert "Traceback" not in done.stderr


def test_another_number_of_processes(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torchrun says it to the first of two."""
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0"), ("MASTER_ADDR", "127.0.0.1"),
                        ("MASTER_PORT", "29511")):  # fmt: skip
        monkeypatch.setenv(name, value)
    done = measure("--device", "cpu", "--tp", "4", "--json")
    assert (done.code, done.out) == (1, "")
    assert "--tp 4" in done.err
    assert "torchrun --nproc-per-node 4" in done.err
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize("words", [("--tp", "2"), ("--tp", "2", "--json")])
def test_without_torchrun(measure: Measure, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    done = measure("--device", "cpu", *words)
    assert (done.code, done.out) == (1, "")
    assert "torchrun --nproc-per-node 2" in done.err
    assert not torch.distributed.is_initialized()
