"""Money: the textbook's break-even, requests by time and by rate."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from llmcalc.calc.cost import break_even, cost, from_rate
from llmcalc.errors import InvalidInputError

Run = Callable[..., "CompletedProcess[str]"]


def test_textbook() -> None:
    assert break_even("100000", "0.01") == 10_000_000
    assert break_even("100,000", "0.03") == 3_333_334
    assert break_even("1_000_000.50", " .5 ") == 2_000_001
    assert break_even("1e5", "1e-2") == 10_000_000


def test_a_request() -> None:
    found = cost(3.6, 10.0, devices=8, together=4, output=100, prompt=300)
    assert found.usd_per_request == pytest.approx(0.02)
    assert found.usd_per_million_output_tokens == pytest.approx(200)
    assert found.usd_per_million_tokens == pytest.approx(50)
    assert found.device_seconds_per_request == 20


def test_a_rate() -> None:
    found = from_rate(2.0, 1000, devices=2, output=500)
    assert found.usd_per_million_output_tokens == pytest.approx(2 * 2 / 3600 / 1000 * 1e6)
    assert found.usd_per_request == pytest.approx(found.usd_per_million_output_tokens * 500 / 1e6)


@pytest.mark.parametrize(
    ("expense", "saving"),
    [
        ("1", "0"),
        ("1", "-1"),
        ("-1", "1"),
        ("x", "1"),
        ("1", "nan"),
        ("1,00", "1"),
        (".", "1"),
        ("", "1"),
        ("1e999999999", "1"),
        ("1", "1" * 99),
    ],
)
def test_refusals(expense: str, saving: str) -> None:
    with pytest.raises(InvalidInputError):
        break_even(expense, saving)


def test_no_negative_money() -> None:
    with pytest.raises(InvalidInputError):
        cost(-1.0, 1.0)
    with pytest.raises(InvalidInputError):
        from_rate(1.0, 0.0)


def test_verb(run: Run) -> None:
    done = run("cost", "--expense", "100000", "--saving", "0.01", "--json")
    assert json.loads(done.stdout)["results"]["break_even_requests"] == 10_000_000
    done = run("cost", "llama-3-8b", "--gpu", "h100", "--price", "3.6", "--prompt", "100", "--output", "10", "--json")
    results = json.loads(done.stdout)["results"]
    assert results["basis"] == "at_least"
    assert results["usd_per_request"] * 1e6 / 10 == pytest.approx(results["usd_per_million_output_tokens"])
    done = run("cost", "--price", "2", "--tokens-per-second", "1000", "--json")
    assert json.loads(done.stdout)["results"]["usd_per_million_output_tokens"] == pytest.approx(2 / 3.6)
    for words in (
        (),
        ("--expense", "5"),
        ("--price", "2"),
        ("--price", "2", "--seconds", "1", "--tokens-per-second", "1"),
    ):
        assert run("cost", *words).returncode == 1


def test_a_price_of_what_does_not_fit_is_said(run: Run) -> None:
    words = ("cost", "llama-3-70b", "--gpu", "h100", "--price", "3", "--prompt", "100", "--output", "10")
    done = run(*words, "--json")
    document = json.loads(done.stdout)
    results, inputs = document["results"], document["inputs"]
    assert results["fits"] is False
    # weights, and 109 positions: the last token is not cached
    assert results["short_by_bytes"] == 141_107_412_992 + 109 * 327_680 - inputs["memory_bytes"]
    assert any("does not fit" in warning for warning in document["warnings"])
    assert inputs["device"] == "h100-sxm5-80gb"
    assert "it does not fit" in run(*words).stdout
    assert "fits,false" in run(*words, "--csv").stdout
    two = json.loads(run(*words, "--tp", "2", "--json").stdout)
    assert (two["results"]["fits"], two["results"]["short_by_bytes"]) == (True, 0)
    unknown = json.loads(run("cost", "llama-3-8b", "--bandwidth", "1TB/s", "--price", "3", "--json").stdout)
    assert (unknown["results"]["fits"], unknown["inputs"]["memory_bytes"]) == (None, None)


def test_explained_with_its_numbers(run: Run) -> None:
    """Eight requests of 10 seconds on four devices of 3.6 dollars an hour: five device seconds each."""
    words = ("--price", "3.6", "--seconds", "10", "--tp", "4", "--batch", "8", "--prompt", "100", "--output", "100")
    text = run("cost", *words, "--explain").stdout
    assert "price x device seconds of a request / 3600 = $3.6 x 5 s / 3600 = $0.005" in text
