"""Money: what a request and a million tokens cost at a price of devices, and when an expense has paid for itself.

Legend: P price of a device and hour, D devices, B requests at once, T tokens of a request, s seconds of it.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil, isfinite
from typing import Final, NamedTuple

from llmcalc.errors import InvalidInputError

HOUR = 3600
MILLION = 10**6
# Bounded: 1e999999999 would be written out in full.
_DOLLARS: Final = re.compile(
    r"-?([0-9]{1,30}|[0-9]{1,3}([,_][0-9]{3}){1,10})?(\.[0-9]{0,30})?(?<=[0-9.])([eE][+-]?[0-9]{1,2})?"
)


class Cost(NamedTuple):
    """US dollars; seconds are those of a request beside ``together`` others."""

    usd_per_request: float
    usd_per_million_output_tokens: float
    usd_per_million_tokens: float
    device_seconds_per_request: float


def cost(
    price: float, seconds: float, *, devices: int = 1, together: int = 1, output: int = 1, prompt: int = 0
) -> Cost:
    """What a request of ``output`` tokens costs: P D s / (3600 B).

    All devices are paid for as long as the requests run, and not between them. Raises: InvalidInputError.
    """
    for name, value in (("price", price), ("seconds", seconds)):
        if not isfinite(value) or value < 0:
            raise InvalidInputError(f"a {name} of {value}: expected a number, not below zero")
    if min(devices, together, output) < 1 or prompt < 0:
        raise InvalidInputError("there is at least one device, one request and one token")
    each = seconds * devices / together
    request = price * each / HOUR
    return Cost(request, request / output * MILLION, request / (output + prompt) * MILLION, each)


def from_rate(price: float, tokens_per_second: float, *, devices: int = 1, output: int = 1, prompt: int = 0) -> Cost:
    """The same from a rate of output tokens, of all devices together."""
    if not isfinite(tokens_per_second) or tokens_per_second <= 0:
        raise InvalidInputError(f"a rate of {tokens_per_second} tokens a second: expected a number above zero")
    return cost(price, output / tokens_per_second, devices=devices, output=output, prompt=prompt)


def break_even(expense: str, saving: str) -> int:
    """After how many requests a saving on each has paid for an expense: 100,000 / 0.01 = 10,000,000, rounded up.

    Both are decimal numbers as a person writes them, so that the quotient is exact. Raises: InvalidInputError.
    """
    spent, saved = _money("expense", expense), _money("saving", saving)
    if saved <= 0:
        raise InvalidInputError(f"--saving {saving}: expected more than zero")
    return ceil(spent / saved)


def _money(name: str, text: str) -> Fraction:
    try:
        if not _DOLLARS.fullmatch(text.strip()):
            raise ValueError(text)
        value = Fraction(text.strip().replace(",", "").replace("_", ""))
    except (ValueError, ZeroDivisionError):
        raise InvalidInputError(
            f"--{name} {text!r}: expected a number of dollars", "write it like 100000 or 0.01"
        ) from None
    if value < 0:
        raise InvalidInputError(f"--{name} {text}: expected zero or more")
    return value
