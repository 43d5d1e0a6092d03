"""Where output goes: streams that are full, closed or poor in signs, and files of every kind."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.conftest import ROOT

Run = Callable[..., CompletedProcess[str]]
WORDS = ("kv-cache", "llama-3-70b", "--tokens", "4096")


def shell(line: str, folder: Path, **environment: str) -> CompletedProcess[str]:
    """``llmcalc`` with the redirections of a shell."""
    program = f"{sys.executable} -m llmcalc"
    return subprocess.run(
        ["bash", "-c", line.replace("llmcalc", program, 1)], capture_output=True, text=True, timeout=60, check=False,
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", **environment},
    )  # fmt: skip


@pytest.mark.parametrize(
    "verb", ["kv-cache llama-3-8b", "kv-cache llama-3-8b --json", "params gpt2 --csv", "models", "--version"]
)
@pytest.mark.parametrize(("where", "says"), [(">/dev/full", "No space left"), (">&-", "is closed")])
def test_standard_output_that_cannot_be_written(tmp_path: Path, verb: str, where: str, says: str) -> None:
    done = shell(f"llmcalc {verb} {where}", tmp_path)

    assert done.returncode == 1
    assert done.stderr.startswith("error[output]: standard output")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_help_on_a_full_disk(tmp_path: Path) -> None:
    done = shell("llmcalc --help >/dev/full", tmp_path)

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_a_file_needs_no_standard_output(tmp_path: Path) -> None:
    assert shell("llmcalc params gpt2 --json -o out.json >&-", tmp_path).returncode == 0
    assert json.loads((tmp_path / "out.json").read_text())["command"] == "params"


def test_a_broken_pipe_is_quiet(tmp_path: Path) -> None:
    done = shell("llmcalc models --json | head -c 10", tmp_path)

    assert (done.stdout, done.stderr) == ('{\n  "schem', "")


@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full"])
def test_standard_error_that_cannot_be_written(tmp_path: Path, where: str) -> None:
    assert shell(f"llmcalc kv-cache no-such-model {where}", tmp_path).returncode == 1
    done = shell(f"llmcalc kv-cache llama-3-8b --tokens 9000 --json {where}", tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["results"]["tokens"] == 9000


class TestPoorTerminals:
    def test_ascii(self, run: Run) -> None:
        lines = run(*WORDS, PYTHONIOENCODING="ascii").stdout.splitlines()

        assert lines[0] == "llama-3-70b | 4,096 tokens | cache in bf16"
        assert lines[5] == "-" * 78
        assert "\\" not in "".join(lines)

    def test_json_stays_json(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "modèle.json").write_text('{"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1}', "utf-8")
        done = run("kv-cache", "./modèle.json", "--json", PYTHONIOENCODING="ascii", PYTHONUTF8="1")

        assert json.loads(done.stdout)["model"]["name"] == "modèle"
        assert done.stdout.isascii()


class TestFiles:
    def test_dash_is_standard_output(self, run: Run, tmp_path: Path) -> None:
        assert run(*WORDS, "-o", "-").stdout == run(*WORDS).stdout
        assert list(tmp_path.iterdir()) == []

    def test_pipes_and_devices_are_left_alone(self, run: Run, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        for name in ("pipe", "/dev/null"):
            done = run(*WORDS, "-o", name, "--force")
            assert (done.returncode, done.stdout) == (1, "")
            assert "is no plain file" in done.stderr
        assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
        assert stat.S_ISCHR(os.stat("/dev/null").st_mode)

    def test_a_folder(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "d").mkdir()

        assert "d is a folder" in run(*WORDS, "-o", "d", "--force").stderr

    def test_links_are_followed(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "real").write_text("mine")
        (tmp_path / "link").symlink_to("real")
        (tmp_path / "dangling").symlink_to("new")

        assert run(*WORDS, "-o", "link").returncode == 1
        assert (tmp_path / "real").read_text() == "mine"
        assert run(*WORDS, "-o", "link", "--force").returncode == 0
        assert run(*WORDS, "-o", "dangling").returncode == 0
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "dangling").is_symlink()
        assert (tmp_path / "real").read_text() == (tmp_path / "new").read_text() == run(*WORDS).stdout

    def test_a_loop_of_links(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "loop").symlink_to("loop")
        done = run(*WORDS, "-o", "loop", "--force")

        assert done.returncode == 1
        assert done.stderr.startswith("error[output]: loop could not be written")

    @pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
    def test_the_mode_is_kept(self, run: Run, tmp_path: Path, mode: int) -> None:
        (tmp_path / "out").write_text("mine")
        (tmp_path / "out").chmod(mode)

        assert run(*WORDS, "-o", "out", "--force").returncode == 0
        assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == mode

    def test_a_name_that_is_too_long(self, run: Run) -> None:
        done = run(*WORDS, "-o", "n" * 300)

        assert done.returncode == 1
        assert "File name too long" in done.stderr
