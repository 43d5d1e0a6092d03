"""The typed reader of raw config fields: whole numbers, flags, lists, nested blocks.

A key in the file wins over an alias, an alias over the default of the class; null is a value (see :mod:`.lookup`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Self

from llmcalc.arch.lookup import ABSENT, LARGEST, MOST_LAYERS, Lookup, Missing, Notes
from llmcalc.errors import InvalidInputError

__all__ = ["ABSENT", "LARGEST", "MOST_LAYERS", "Fields", "Missing", "Notes"]


class Fields(Lookup):
    """One object of a config, read by type; see :class:`~llmcalc.arch.lookup.Lookup` for its arguments."""

    def integer(self, name: str, *more: str, null: int | Missing = ABSENT, low: int = 1) -> int:
        """A whole number of at least ``low``. ``null``: what null means, or absence where the class says nothing."""
        value = self.optional(name, *more, low=low)
        if value is not None:
            return value
        if isinstance(null, Missing):
            state = "null" if self.explicit(name, *more) is None else "missing"
            raise InvalidInputError(
                f"{self.where}: {self.label(name)} is {state}, expected a whole number",
                f"give it with --set {name}=N",
            )
        return null

    def optional(self, name: str, *more: str, low: int = 1) -> int | None:
        """A whole number of at least ``low``, or None where the file (or the class) says null or nothing."""
        value = self.raw(name, *more)
        return None if value is None else self.as_integer(name, value, low)

    def as_integer(self, name: str, value: object, low: int = 1) -> int:
        """``value`` as a whole number; a numeric string or a whole float is taken with a warning."""
        number = value
        if isinstance(value, str) and value.strip().lstrip("+-").isdecimal() and len(value) < 20:
            number = int(value)
            self.notes.warn(f"{self.label(name)} is the string {value!r}; read as {number:,}")
        elif isinstance(value, float) and math.isfinite(value) and value == int(value):
            number = int(value)
            self.notes.warn(f"{self.label(name)} is the float {value!r}; read as {number:,}")
        if isinstance(number, bool) or not isinstance(number, int):
            raise self.wrong(name, value, "a whole number")
        if number < low:
            raise self.wrong(name, value, f"at least {low}")
        if number > LARGEST:
            raise self.wrong(name, value, "at most 2^53")
        if number > MOST_LAYERS and name.endswith("layers"):
            raise self.wrong(name, value, f"at most {MOST_LAYERS:,} layers")
        return number

    def number(self, name: str, *more: str, null: float | Missing = ABSENT) -> float:
        """A finite number."""
        value = self.raw(name, *more)
        if value is None:
            if isinstance(null, Missing):
                raise self.wrong(name, None, "a number")
            return null
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise self.wrong(name, value, "a finite number")
        return value

    def flag(self, name: str, *more: str, null: bool = False) -> bool:
        """True or false; ``null`` where neither the file nor the class says."""
        value = self.raw(name, *more)
        if value is None:
            return null
        if value in (0, 1) and isinstance(value, int):
            return bool(value)
        raise self.wrong(name, value, "true or false")

    def text(self, name: str, *more: str, null: str = "") -> str:
        """A string."""
        value = self.raw(name, *more)
        if value is None:
            return null
        if not isinstance(value, str):
            raise self.wrong(name, value, "a string")
        return value

    def sequence(self, name: str, *more: str) -> list[object] | None:
        """A list, or None."""
        value = self.raw(name, *more)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.wrong(name, value, "a list")
        return value

    def integers(self, name: str, *more: str, low: int = 0) -> list[int] | None:
        """A list of whole numbers, or None."""
        values = self.sequence(name, *more)
        return None if values is None else [self.as_integer(name, value, low) for value in values]

    def strings(self, name: str, *more: str) -> list[str] | None:
        """A list of strings, or None."""
        values = self.sequence(name, *more)
        if values is None:
            return None
        for value in values:
            if not isinstance(value, str):
                raise self.wrong(name, value, "a list of strings")
        return [str(value) for value in values]

    def per_layer(self, name: str, layers: int, *more: str, low: int = 0) -> list[int]:
        """A whole number per layer, given as a list of that length or as one number for all."""
        value = self.raw(name, *more)
        if not isinstance(value, list):
            return [self.integer(name, *more, low=low)] * layers
        if len(value) < layers:
            raise self.wrong(name, value, f"one entry for each of {layers} layers")
        return [self.as_integer(name, item, low) for item in value[:layers]]

    def pick(self, name: str, *more: str, of: tuple[str, ...]) -> str:
        """One of a set of words."""
        value = self.text(name, *more)
        if value not in of:
            raise self.wrong(name, value, f"one of {', '.join(of)}")
        return value

    def mapping(self, name: str) -> dict[str, object]:
        """A nested object as it stands (rope parameters and the like); empty where there is none."""
        value = self.raw(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.wrong(name, value, "an object")
        return {**value, **self._inner_overrides(name)}

    def _inner_overrides(self, name: str) -> dict[str, object]:
        """What dotted overrides put into a nested object (``rope_scaling.factor``)."""
        prefixes = {f"{self.label(name)}.", *((f"{name}.",) if self.take_bare else ())}
        found: dict[str, object] = {}
        for key, value in self.overrides.items():
            for prefix in prefixes:
                if key.startswith(prefix):
                    self.notes.overrides_used.add(key)
                    found[key.removeprefix(prefix)] = value
        return found

    def child(self, name: str, *more: str, model_type: str = "", language: bool = True) -> Self | None:
        """A nested block with the defaults of its own class; None where the file has none.

        ``model_type``: the class to take where the block does not name one. ``language``: whether bare overrides
        reach it.
        """
        value = self.explicit(name, *more)
        if value is ABSENT or value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong(name, value, "an object")
        key = next((key for key in self.names(name, more) if key in self.data), name)
        if key not in self.children:
            named = value.get("model_type")
            kind = named if isinstance(named, str) and named else model_type
            self.children[key] = self.block(value, key, kind, language=language)
        return self.children[key]

    def block(self, value: Mapping[str, object], key: str, model_type: str, *, language: bool = True) -> Self:
        """Fields over a nested object."""
        return type(self)(
            value,
            model_type=model_type,
            where=self.where,
            path=self.label(key),
            notes=self.notes,
            overrides=self.overrides,
            take_bare=self.take_bare and language,
        )
