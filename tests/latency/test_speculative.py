"""Speculative decoding: the published formula, the textbook's figures, and what it does to a model's steps."""

from __future__ import annotations

import pytest

from llmcalc import load
from llmcalc.calc.latency import latency
from llmcalc.calc.speculative import accepted, residual, speculate
from llmcalc.errors import InvalidInputError
from llmcalc.hardware.catalogue import describe


def test_textbook() -> None:
    chances, left = residual([0.8, 0.2], [0.6, 0.4])
    assert chances == pytest.approx([0.75, 1])
    assert left == pytest.approx([0, 1])
    assert [0.8 * chances[0] + 0.2 * left[0], 0.2 + 0.2 * left[1]] == pytest.approx([0.6, 0.4])


@pytest.mark.parametrize(("rate", "drafted", "tokens"), [(0.0, 4, 1.0), (1.0, 4, 5.0), (0.5, 1, 1.5), (0.8, 2, 2.44)])
def test_tokens_of_a_round(rate: float, drafted: int, tokens: float) -> None:
    assert accepted(rate, drafted) == pytest.approx(tokens)


def test_a_small_draft_pays_and_a_useless_one_costs() -> None:
    large, small = load("llama-3-70b").architecture, load("llama-3.2-1b").architecture
    found = latency(large, describe("h200-sxm-141gb"), weights="fp8")
    good, bad = speculate(found, small, 0.8, 4), speculate(found, small, 0.0, 4)
    assert good.speed_up > 2
    assert bad.speed_up < 1
    assert good.seconds_per_token == pytest.approx((good.draft_seconds + good.check_seconds) / good.tokens_per_round)


@pytest.mark.parametrize(("rate", "drafted"), [(-0.1, 4), (1.1, 4), (0.5, 0)])
def test_refusals(rate: float, drafted: int) -> None:
    with pytest.raises(InvalidInputError):
        accepted(rate, drafted)
