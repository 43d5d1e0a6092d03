"""README, CHANGELOG and examples are true: every block runs, every row of the table is computed again."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import llmcalc
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)\n```", README, flags=re.DOTALL)
CONSOLE = [text for language, text in BLOCKS if language == "console"]
Run = Callable[..., CompletedProcess[str]]


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    assert {language for language, _ in BLOCKS} <= {"console", "python", "sh"}


@pytest.mark.parametrize("text", CONSOLE, ids=[text.splitlines()[0] for text in CONSOLE])
def test_console_blocks_print_what_they_show(run: Run, text: str) -> None:
    command, *shown = text.splitlines()
    program, *words = shlex.split(command.removeprefix("$ "))

    assert program == "llmcalc"
    assert run(*words).stdout.rstrip("\n").splitlines() == shown


@pytest.mark.parametrize("text", [text for language, text in BLOCKS if language == "python"])
def test_python_blocks_run(text: str) -> None:
    exec(compile(text, "README.md", "exec"), {})


def test_first_screen_has_the_two_lines() -> None:
    """One installs and runs the main job, one installs the extras and passes the tests; .ci/run pastes the second."""
    lines = [text for language, text in BLOCKS if language == "sh"]

    assert lines[0].endswith("&& .venv/bin/llmcalc kv-cache llama-3-70b --tokens 4096")
    assert CONSOLE[0].splitlines()[0] == "$ llmcalc kv-cache llama-3-70b --tokens 4096"
    assert "pip install '.[dev]'" in lines[1]
    assert all(len(text.splitlines()) == 1 for text in lines[:2])
    assert "pip install '.[dev]'" in (ROOT / ".ci" / "run").read_text("utf-8")
    assert README.index(lines[1]) < 2000


def test_later_lines_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is pasted into a shell further down."""
    monkeypatch.setenv("LLMCALC_MEASUREMENTS", str(tmp_path))
    lines = [line for language, text in BLOCKS if language == "sh" for line in text.splitlines()][2:]
    assert lines
    for line in lines:
        program, *words = shlex.split(line)
        assert program == ".venv/bin/llmcalc"
        assert "exact figures, all equal" in run(*words).stdout


ROWS = re.findall(r"^\| ([\w.-]+) \| ([\d,]+) \| ([\d,]+) \| 0 \|$", README, flags=re.MULTILINE)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_table_of_verified_models(row: tuple[str, str, str]) -> None:
    name, published, ours = row

    assert llmcalc.params(llmcalc.load(name).architecture).stored_params == int(ours.replace(",", ""))
    assert published == ours


def test_the_table_is_there() -> None:
    assert len(ROWS) >= 15


def test_example_of_a_capacity_plan() -> None:
    done = subprocess.run(
        [sys.executable, "examples/plan_capacity.py", "--memory", "80GiB", "llama-3-8b", "mixtral-8x7b"],
        capture_output=True, text=True, timeout=60, check=True, cwd=ROOT,
    )  # fmt: skip

    assert re.search(r"llama-3-8b .* fit +14$", done.stdout, flags=re.MULTILINE)
    assert re.search(r"mixtral-8x7b .* fit +0$", done.stdout, flags=re.MULTILINE)


def test_changelog_has_an_unreleased_part() -> None:
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text("utf-8")
