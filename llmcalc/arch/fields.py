"""The reader of raw config fields.

A key in the file wins over an alias, an alias over the default of the class; null is a value. What was read, what a
class had to supply and what nobody read are recorded, so that a reader of the figures can see each of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from llmcalc.arch.aliases import ALIASES
from llmcalc.arch.defaults import ClassDefaults, class_defaults
from llmcalc.errors import InvalidInputError, MalformedConfigError

LARGEST: Final = 2**53
# Each layer is an object here; the deepest published model has fewer than 200.
MOST_LAYERS: Final = 10_000


class Missing:
    """The type of ABSENT: no value was given, which is not the same as null."""


ABSENT: Final = Missing()

# Sizes that decide nearly every figure: a class default is never taken for them in a file's own top level.
CORE: Final = ("hidden_size", "num_hidden_layers", "num_attention_heads")
# Sizes whose default is taken with a warning that the user sees.
LOUD: Final = ("vocab_size", "intermediate_size", "moe_intermediate_size", "num_experts", "sliding_window")


@dataclass(slots=True)
class Notes:
    """What reading one config brought up, shared by its nested blocks."""

    warnings: list[str] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    overrides_used: set[str] = field(default_factory=set)
    dtype_assumed: bool = False

    def warn(self, text: str) -> None:
        """Add a warning once."""
        if text not in self.warnings:
            self.warnings.append(text)

    def assume(self, text: str) -> None:
        """Add an assumption once."""
        if text not in self.assumptions:
            self.assumptions.append(text)


class Fields:
    """One object of a config, with the defaults of its class.

    ``where`` names the file in messages, ``path`` the block inside it. ``overrides`` (``--set``) apply to dotted
    paths, and bare names to blocks that ``take_bare`` (the language model's own and its wrappers).
    """

    def __init__(
        self,
        data: Mapping[str, object],
        *,
        model_type: str = "",
        where: str = "config.json",
        path: str = "",
        notes: Notes | None = None,
        overrides: Mapping[str, object] | None = None,
        take_bare: bool = True,
        defaults: ClassDefaults | None = None,
    ) -> None:
        self.data = data
        self.model_type = model_type
        self.where = where
        self.path = path
        self.notes = notes if notes is not None else Notes()
        self.overrides = overrides or {}
        self.take_bare = take_bare
        self.defaults = defaults if defaults is not None else class_defaults(model_type)
        self.read: set[str] = set()
        self.asked: set[str] = set()
        self.spelled: dict[str, str] = {}
        self.children: dict[str, Fields] = {}

    # -- looking a field up ------------------------------------------------------------------------------------

    def names(self, name: str, more: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The spellings of a field in the order in which they are tried."""
        own = self.defaults.spellings.get(name)
        return (name, *((own,) if own else ()), *more, *ALIASES.get(name, ()))

    def _override(self, names: tuple[str, ...]) -> object:
        for name in names:
            keys = (f"{self.path}.{name}",) if self.path else ()
            for key in (*keys, *((name,) if self.take_bare else ())):
                if key in self.overrides:
                    self.notes.overrides_used.add(key)
                    return self.overrides[key]
        return ABSENT

    def explicit(self, name: str, *more: str) -> object:
        """The file's own value (or an override), ABSENT where it says nothing."""
        names = self.names(name, more)
        self.asked.add(name)
        value = self._override(names)
        for key in names:
            if key in self.data:
                self.read.add(key)
                if value is ABSENT:
                    self.spelled[name] = key
                    value = self.data[key]
        return value

    def has(self, name: str, *more: str) -> bool:
        """Whether the file itself gives the field a value other than null."""
        value = self.explicit(name, *more)
        return value is not ABSENT and value is not None

    def raw(self, name: str, *more: str) -> object:
        """The file's value, else the class's default, else None."""
        value = self.explicit(name, *more)
        if value is not ABSENT:
            return value
        return self._class_value(self.names(name, more), name)

    def _class_value(self, names: tuple[str, ...], name: str) -> object:
        for key in names:
            if key in self.defaults.values:
                value = self.defaults.values[key]
                if value is not None:
                    self._note_default(name, key, value)
                return value
        return None

    def _note_default(self, name: str, key: str, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            return
        if name in CORE and not self.path:
            raise InvalidInputError(
                f"{self.where}: {name} is missing",
                f"give it with --set {name}=N; the class {self.defaults.name} has {value:,}, which is not assumed here",
            )
        text = f"{self.label(key)} is not given: {value:,}, the default of {self.defaults.name}"
        if name in LOUD and not self.path:
            self.notes.warn(text)
        else:
            self.notes.assume(text)

    def label(self, name: str) -> str:
        """The field's dotted place in the file, as the file itself spells it."""
        name = self.spelled.get(name, name)
        return f"{self.path}.{name}" if self.path else name

    def wrong(self, name: str, found: object, expected: str) -> InvalidInputError:
        """The error that names file, field, what was found and what was expected."""
        shown = "NaN or Infinity" if isinstance(found, float) and not math.isfinite(found) else repr(found)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return InvalidInputError(f"{self.where}: {self.label(name)} is {shown}, expected {expected}")

    # -- typed reads -------------------------------------------------------------------------------------------

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

    def child(self, name: str, *more: str, model_type: str = "", language: bool = True) -> Fields | None:
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

    def block(self, value: Mapping[str, object], key: str, model_type: str, *, language: bool = True) -> Fields:
        """Fields over a nested object."""
        return Fields(
            value,
            model_type=model_type,
            where=self.where,
            path=self.label(key),
            notes=self.notes,
            overrides=self.overrides,
            take_bare=self.take_bare and language,
        )

    # -- after reading -----------------------------------------------------------------------------------------

    def ignore(self, *names: str) -> None:
        """Mark keys as known and without bearing on any figure in this class."""
        self.read.update(names)

    def leftover(self) -> Iterator[str]:
        """Keys of this block that nobody read; blocks inside it answer for themselves."""
        return (key for key in self.data if key not in self.read and key not in self.children)


def check_object(data: object, where: str) -> Mapping[str, object]:
    """A config is a JSON object; say so where it is not."""
    if not isinstance(data, dict):
        kind = {list: "a list", str: "a string", type(None): "null"}.get(type(data), type(data).__name__)
        raise MalformedConfigError(f"{where}: the config is {kind}, expected a JSON object")
    return data


SourceKind = Literal["catalog", "local", "hub", "gguf", "stdin"]
