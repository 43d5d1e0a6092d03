"""Sizes and counts as people write them."""

from __future__ import annotations

import pytest

from llmcalc.errors import InvalidInputError
from llmcalc.units import parse_size, parse_tokens, show_bytes, show_count


@pytest.mark.parametrize(
    ("text", "value"),
    [("24GB", 24 * 10**9), ("24GiB", 24 * 2**30), ("24", 24), ("24B", 24), ("1.5GiB", 3 * 2**29), ("7e9", 7 * 10**9),
     ("80 GiB", 80 * 2**30), ("16KiB", 2**14)],
)  # fmt: skip
def test_sizes(text: str, value: int) -> None:
    assert parse_size(text) == value


def test_ambiguous_size_names_both_readings() -> None:
    with pytest.raises(InvalidInputError, match=r"24GB is 24,000,000,000 bytes, 24GiB is 25,769,803,776 bytes"):
        parse_size("24G")


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "24QB", "1,000", "nan", "1e400GB"])
def test_not_a_size(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_size(text)


@pytest.mark.parametrize(("text", "value"), [("4096", 4096), ("128k", 128_000), ("128Ki", 131_072), ("1M", 1_000_000)])
def test_tokens(text: str, value: int) -> None:
    assert parse_tokens(text) == value


@pytest.mark.parametrize("text", ["0", "-5", "1.5", "1e3", "many", "", "99999999999999999999"])
def test_not_tokens(text: str) -> None:
    with pytest.raises(InvalidInputError, match="--tokens"):
        parse_tokens(text)


def test_shown() -> None:
    assert show_bytes(5 * 2**28) == "1.25 GiB"
    assert show_bytes(1023) == "1,023 B"
    assert show_count(70_553_706_496) == "70.55 B"
    assert show_count(999) == "999"
