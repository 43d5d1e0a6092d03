"""``verify`` on a published checkpoint: rebuilt from the facts of its header, and itself where it is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmcalc import header_bytes, load, verify

from .published import FACTS, installed, rebuild


@pytest.fixture(params=[None, *installed()], ids=lambda folder: "installed" if folder else "rebuilt")
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return request.param or rebuild(tmp_path / "model")


def test_it_agrees(folder: Path) -> None:
    model = load(str(folder))
    found = verify(model.architecture, model.tensors or ())
    assert (found.missing, found.unexpected, found.mismatched) == ((), (), ())
    assert [tensor.name for tensor in found.beside] == ["embeddings.position_ids"]
    assert found.matched == 103
    assert header_bytes(model.tensors or ()) == (90_856_960, {"I64": 4_096, "F32": 90_852_864})


def test_the_facts_are_those_of_the_file(folder: Path) -> None:
    assert (folder / "model.safetensors").stat().st_size == FACTS["bytes"] == 90_868_376
    tensors = load(str(folder)).tensors or ()
    assert [[tensor.name, tensor.dtype, list(tensor.shape)] for tensor in tensors] == FACTS["tensors"]


def test_another_config_differs(tmp_path: Path) -> None:
    model = load(str(rebuild(tmp_path / "model")), overrides={"intermediate_size": 1024})
    found = verify(model.architecture, model.tensors or ())
    assert len(found.mismatched) == 6 * 3
