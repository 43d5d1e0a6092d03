"""Typed reads of a ``quantization_config``, with errors that name the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from llmcalc.errors import InvalidInputError


class Entries(NamedTuple):
    """One object of a config and where it stands."""

    data: Mapping[str, object]
    where: str

    def has(self, name: str) -> bool:
        """Whether the key has a value other than null."""
        return self.data.get(name) is not None

    def wrong(self, name: str, expected: str) -> InvalidInputError:
        """The error for a value of another kind."""
        return InvalidInputError(f"{self.where}.{name} is {self.data.get(name)!r:.60}, expected {expected}")

    def text(self, name: str, default: str = "") -> str:
        """A string; ``default`` for null or nothing."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(name, "a string")
        return value

    def integer(self, name: str, default: int, low: int = -1) -> int:
        """A whole number of at least ``low``."""
        value = self.data.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= 2**31:
            raise self.wrong(name, f"a whole number of at least {low}")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """True or false."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def names(self, *keys: str) -> list[object]:
        """The first of these keys that holds a list; empty where none does."""
        for key in keys:
            value = self.data.get(key)
            if value is not None:
                if not isinstance(value, list):
                    raise self.wrong(key, "a list of names")
                return value
        return []

    def pair(self, name: str) -> tuple[int, int] | None:
        """Two sizes, or None."""
        value = self.data.get(name)
        if value is None:
            return None
        if isinstance(value, list) and len(value) == 2:
            high, wide = value
            if type(high) is int and type(wide) is int and high > 0 and wide > 0:
                return high, wide
        raise self.wrong(name, "two positive whole numbers")

    def child(self, name: str) -> Entries | None:
        """A nested object, or None."""
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong(name, "an object")
        return Entries(value, f"{self.where}.{name}")

    def children(self, name: str) -> list[tuple[str, Entries]]:
        """The objects of a nested object, by key."""
        outer = self.child(name)
        if outer is None:
            return []
        found = [(key, outer.child(key)) for key in outer.data]
        return [(key, inner) for key, inner in found if inner is not None]
