"""Shared by all tests: where the data is, and how to run the program as a user would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).parent / "data"
CATALOGUE = ROOT / "llmcalc" / "data" / "models"


def config(slug: str) -> dict[str, Any]:
    """A config of the corpus as it was measured: the one kept for tests (a class's default instance, or what the
    catalogue has since corrected), else the catalogue's."""
    path = DATA / "configs" / f"{slug}.json"
    return json.loads((path if path.exists() else CATALOGUE / f"{slug}.json").read_text("utf-8"))


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``run("kv-cache", "llama-3-70b")``: the installed program in its own process, in an empty folder, offline."""

    def call(*words: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "HF_ENDPOINT")}
        return subprocess.run(
            [sys.executable, "-m", "llmcalc", *words],
            input=stdin, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
            env={**clean, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), **environment},
        )  # fmt: skip

    return call
