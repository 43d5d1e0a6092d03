"""Logits of the reference decoder against those of transformers, family by family."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.oracle.cases import CASES
from tests.oracle.parity import (
    TOLERANCE,
    difference,
    independent,
    logits,
    own_logits,
    picture,
    reference,
    scores_seen,
    tokens,
)

# Their q and k are normed without weights, so nothing but the norm decides how large scores are: about one.
WEIGHTLESS = ("llama4", "nanochat")


def test_layers_about_an_image_are_passed_by_without_one(tmp_path: Path) -> None:
    case = replace(CASES["mllama"], image=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, config = independent(case, tmp_path)
        expected = logits(model, tokens(config, case))
    assert difference(own_logits(reference(config, tmp_path), tokens(config, case)), expected) <= TOLERANCE


@pytest.mark.parametrize("name", CASES)
def test_logits_equal_and_differ_without(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    torch.set_num_threads(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, config = independent(case, tmp_path)
        given = (tokens(config, case), picture(case, config))
        expected = logits(model, *given)
    with scores_seen() as deviations:
        found = difference(own_logits(reference(config, tmp_path), *given), expected)
    assert found <= TOLERANCE
    assert min(deviations, default=1.0) >= (0.95 if name in WEIGHTLESS else 1.0)
    for feature, change in case.without.items():
        changed = difference(own_logits(reference(config, tmp_path, change), *given), expected)
        assert changed > TOLERANCE, f"without {feature} the logits are as near as with it"
