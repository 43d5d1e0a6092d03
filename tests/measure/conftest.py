"""How a measurement is started in a test: the command in this process, on one thread, with its files in a folder."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

TINY: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 512, "torch_dtype": "float32",
    "max_position_embeddings": 4096,
}  # fmt: skip


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def results(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)["results"]
        return found

    def row(self, quantity: str, mode: str | None = None) -> dict[str, Any]:
        rows = self.results["estimates"]
        return next(row for row in rows if row["quantity"] == quantity and (mode is None or row["mode"] == mode))


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    monkeypatch.setenv("LLMCALC_MEASUREMENTS", str(tmp_path / "kept"))
    monkeypatch.setenv("LLMCALC_CALIBRATIONS", str(tmp_path / "calibrations.json"))


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Done]:
    """``measure("--json", batch=2)``: the command on the tiny model, whose fields may be changed."""

    def call(*words: str, model: str | None = None, verb: str = "measure", **changes: Any) -> Done:
        from llmcalc.cli.app import main

        if model is None:
            model = str(tmp_path / "tiny.json")
            Path(model).write_text(json.dumps({**TINY, **changes}))
        monkeypatch.setattr(sys, "argv", ["llmcalc", verb, model, *words])
        code = 0
        capfd.readouterr()
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capfd.readouterr()
        return Done(code, out, err)

    return call


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No variable of CUDA's, and cards whose tensors lie here."""
    for name in [name for name in os.environ if name.startswith("CUDA_")]:
        monkeypatch.delenv(name)
    from tests.measure.fake import OnProcessor

    monkeypatch.setattr("llmcalc.measure.choose.CudaMachine", OnProcessor)
    return monkeypatch
