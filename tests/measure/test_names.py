"""What the package never calls: whatever changes a device."""

from __future__ import annotations

import ast
import re

import pytest

from tests.conftest import ROOT

CHANGES = re.compile(r"nvml\w*(Set|Reset|Clear|Freeze|Inject|Remove|Discover|CreateGpuInstance|Destroy)\w*")
FILES = [path for folder in ("llmcalc", "reference_model", "benchmarks", "examples")
         for path in sorted((ROOT / folder).rglob("*.py"))]  # fmt: skip


def names(text: str) -> set[str]:
    """Names, attributes and strings of a module: what is called by name as well."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found.add(name)
            case ast.Constant(value=str(name)):
                found |= set(re.findall(r"\w+", name))
    return found


def test_no_setter_of_nvml_is_named() -> None:
    assert len(FILES) > 100
    for path in FILES:
        assert not [name for name in names(path.read_text("utf-8")) if CHANGES.match(name)], path


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("nvmlDeviceSetPowerManagementLimit", True), ("nvmlDeviceResetGpuLockedClocks", True),
        ("nvmlDeviceSetMigMode", True), ("nvmlDeviceGetMemoryInfo", False), ("nvmlSystemGetDriverVersion", False),
        ("nvmlDeviceClearEccErrorCounts", True), ("nvmlDeviceGetCurrentClocksEventReasons", False),
    ],
)  # fmt: skip
def test_setters_are_known(name: str, changes: bool) -> None:
    assert bool([one for one in names(f"library.{name}()") if CHANGES.match(one)]) is changes
    assert bool([one for one in names(f"ask('{name}')") if CHANGES.match(one)]) is changes
