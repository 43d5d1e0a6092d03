"""The layering of the house, what start-up loads, and the library's door."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import llmcalc
from tests.conftest import ROOT

PACKAGE = ROOT / "llmcalc"
HEAVY = {"rich", "typer", "torch", "huggingface_hub", "pydantic", "numpy", "transformers", "pynvml"}
# room -> rooms it may import from; units, errors, figure and formats are everyone's.
MAY = {
    "arch": {"arch"},
    "engines": {"engines", "arch"},
    "sources": {"sources", "arch"},
    "schemes": {"schemes", "arch"},
    "hardware": {"hardware"},
    "calc": {"calc", "arch", "engines", "schemes", "hardware"},
    "report": {"report"},
}
EVERYONE = {"units", "errors", "figure", "formats"}


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("room", MAY)
def test_rooms_import_downwards(room: str) -> None:
    for path in (PACKAGE / room).rglob("*.py"):
        for name in imports(path):
            parts = name.split(".")
            if parts[0] != "llmcalc" or len(parts) == 1 or not (PACKAGE / parts[1]).is_dir():
                continue
            assert parts[1] in MAY[room] | EVERYONE, f"{path} imports {name}"


@pytest.mark.parametrize("room", ["arch", "calc", "engines"])
def test_pure_rooms_stay_pure(room: str) -> None:
    for path in (PACKAGE / room).rglob("*.py"):
        assert not {name.split(".")[0] for name in imports(path)} & HEAVY, path


def test_nobody_imports_the_command_line() -> None:
    for path in PACKAGE.rglob("*.py"):
        if "cli" not in path.relative_to(PACKAGE).parts and path.name != "__main__.py":
            assert not any(name.startswith("llmcalc.cli") for name in imports(path)), path


def loaded_by(*words: str) -> set[str]:
    code = (
        "import sys, json, runpy\n"
        f"sys.argv = {['llmcalc', *words]!r}\n"
        "sys.stdout = open('/dev/null', 'w')\n"
        "try:\n    runpy.run_module('llmcalc', run_name='__main__')\nexcept SystemExit:\n    pass\n"
        "sys.stderr.write('LOADED' + json.dumps(sorted(m.split('.')[0] for m in sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(json.loads(done.stderr.split("LOADED")[1]))


def test_the_main_job_loads_nothing_heavy() -> None:
    heavy = {"torch", "huggingface_hub", "numpy", "rich", "pydantic", "pynvml"}

    assert not loaded_by("kv-cache", "llama-3-70b", "--tokens", "4096", "--json") & heavy
    assert not loaded_by("kv-cache", "llama-3-70b", "--tokens", "4096") & heavy


def test_the_door_is_sorted_and_opens() -> None:
    assert llmcalc.__all__ == sorted(llmcalc.__all__)
    for name in llmcalc.__all__:
        assert getattr(llmcalc, name) is not None
    with pytest.raises(AttributeError):
        _ = llmcalc.nothing  # type: ignore[attr-defined]


def test_every_module_imports() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if not name.endswith("__main__"):
            importlib.import_module(name.removesuffix(".__init__"))


def test_every_family_that_is_named_can_be_read() -> None:
    from llmcalc.arch.families import registry

    for module in sorted({*registry.READERS.values(), *registry.WRAPPERS.values()}):
        assert callable(importlib.import_module(f"llmcalc.arch.families.{module}").read)
    for target in registry.ALIASES.values():
        assert target in registry.READERS or target in registry.WRAPPERS
