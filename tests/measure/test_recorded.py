"""Recorded runs: what docs/measured says is what its documents hold, and the yardstick is one."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.conftest import ROOT

FOLDER = ROOT / "docs" / "measured"
RECORDED = {path.stem.removeprefix("cpu-"): json.loads(path.read_text("utf-8")) for path in FOLDER.glob("cpu-*.json")}
ROWS = re.findall(r"^\| ([\w.-]+) \| (.+) \|$", (FOLDER / "README.md").read_text("utf-8"), flags=re.MULTILINE)


def told(document: dict[str, Any]) -> list[str]:
    """A row of the table: bytes, rates and ratios as rounded there."""
    found, results = document["yardstick"], document["measure"]["results"]
    verdicts = [row["verdict"] for row in results["estimates"]]
    theirs = found["transformers_over_decode"]
    return [
        f"{found['layers']} of {found['of_layers']}", f"{found['weight_bytes'] / 2**30:.2f}",
        f"{found['decode_seconds'] * 1e3:.1f}", f"{found['decode_over_gemv']:.3f}",
        "-" if theirs is None else f"{theirs:.2f}", f"{verdicts.count('equal')} of {verdicts.count('equal')}"
        if "differs" not in verdicts else "differ",
        f"{verdicts.count('within')} of {verdicts.count('within') + verdicts.count('outside')}",
    ]  # fmt: skip


@pytest.mark.parametrize("name", RECORDED)
def test_the_table_is_what_was_measured(name: str) -> None:
    assert dict(ROWS)[name].split(" | ") == told(RECORDED[name])


def test_every_row_has_its_document() -> None:
    assert {name for name, _ in ROWS if name not in ("model", "---")} == set(RECORDED)
    assert len(RECORDED) >= 7


@pytest.mark.parametrize("name", RECORDED)
def test_exact_figures_were_equal(name: str) -> None:
    rows = RECORDED[name]["measure"]["results"]["estimates"]
    assert {row["verdict"] for row in rows} <= {"equal", "within", "outside", "not judged"}
    assert [row["quantity"] for row in rows if row["verdict"] == "equal"][:3] == [
        "parameters", "weight_bytes", "cache_bytes",
    ]  # fmt: skip


def test_the_llama_is_a_yardstick() -> None:
    """At least a GiB in fp32, ten pairs, four fifths of what a vector product reads, no slower than transformers."""
    found = RECORDED["tinyllama-1.1b"]["yardstick"]
    assert (found["dtype"], found["pairs"] >= 10, found["weight_bytes"] >= 2**30) == ("fp32", True, True)
    assert found["decode_over_gemv"] >= 0.80
    assert found["transformers_over_decode"] >= 1.0
    assert len(found["decode_over_gemv_each"]) == len(found["transformers_over_decode_each"]) == found["pairs"]
