"""What a calculator is given, checked: an architecture, and whole numbers that are whole."""

from __future__ import annotations

from operator import index
from typing import Protocol

from llmcalc.arch.model import Architecture
from llmcalc.errors import InvalidInputError

LARGEST = 2**53


class Described(Protocol):
    """What carries an architecture, as a loaded model does."""

    @property
    def architecture(self) -> Architecture:
        """What it is."""
        ...


def architecture_of(given: Architecture | Described) -> Architecture:
    """The architecture that is given, or that of a loaded model.

    Raises: InvalidInputError for anything else.
    """
    if isinstance(given, Architecture):
        return given
    found = getattr(given, "architecture", None)
    if not isinstance(found, Architecture):
        raise InvalidInputError(
            f"expected a model or its architecture, found {_called(given)}", "llmcalc.load(...) gives a model"
        )
    return found


def text(name: str, value: object) -> str:
    """A text. Raises: InvalidInputError."""
    if not isinstance(value, str):
        raise InvalidInputError(f"{name} is {_called(value)}, expected a text")
    return value


def whole(name: str, value: object, low: int) -> int:
    """A whole number of at least ``low`` and at most 2^53.

    Raises: InvalidInputError, which names what was found.
    """
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise InvalidInputError(f"{name} is {_called(value)}, expected a whole number")
    if not low <= number <= LARGEST:
        shown = f"{number:,}" if abs(number) < 10**30 else "far out"
        raise InvalidInputError(f"{name} is {shown}, expected at least {low} and at most 2^53")
    return number


def _called(value: object) -> str:
    return (
        f"{value!r:.60}"
        if isinstance(value, (str, int, float)) or value is None
        else f"an object of type {type(value).__name__}"
    )
