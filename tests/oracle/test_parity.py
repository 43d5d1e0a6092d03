"""Logits of the reference decoder against those of transformers, family by family."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from tests.oracle.cases import CASES
from tests.oracle.parity import TOLERANCE, difference, independent, logits, own_logits, reference, scores_seen, tokens

# Their q and k are normed without weights, so nothing but the norm decides how large scores are: about one.
WEIGHTLESS = ("llama4", "nanochat")


@pytest.mark.parametrize("name", CASES)
def test_logits_equal_and_differ_without(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    torch.set_num_threads(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, config = independent(case, tmp_path)
        batch = tokens(config, case.length)
        expected = logits(model, batch)
    with scores_seen() as deviations:
        found = difference(own_logits(reference(config, tmp_path), batch), expected)
    assert found <= TOLERANCE
    assert min(deviations, default=1.0) >= (0.95 if name in WEIGHTLESS else 1.0)
    for feature, change in case.without.items():
        changed = difference(own_logits(reference(config, tmp_path, change), batch), expected)
        assert changed > TOLERANCE, f"without {feature} the logits are as near as with it"
