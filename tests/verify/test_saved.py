"""Our list of weights against what transformers itself saves: names and shapes, family by family."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmcalc import load, verify

from .small import FAMILIES, WRAPPERS, save

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="session", autouse=True)
def quiet() -> None:
    pytest.importorskip("torch")
    logging = pytest.importorskip("transformers").logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()


@pytest.mark.parametrize("name", sorted(FAMILIES | WRAPPERS))
def test_a_saved_model_agrees(tmp_path: Path, name: str) -> None:
    save(name, tmp_path)
    model = load(str(tmp_path))
    found = verify(model.architecture, model.tensors or ())
    assert (found.missing, found.unexpected, found.mismatched) == ((), (), ())
    assert found.agrees
    assert found.matched


def test_a_hundred_families() -> None:
    assert len(FAMILIES) >= 100
