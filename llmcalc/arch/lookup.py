"""Looking a raw config field up: a key in the file, an alias, an override, the default of the class; and what came up.

What was read, what a class had to supply and what nobody read are recorded, so that a reader of the figures can see
each of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from llmcalc.arch.aliases import ALIASES
from llmcalc.arch.defaults import ClassDefaults, class_defaults
from llmcalc.errors import InvalidInputError

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


class Lookup:
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
        self.children: dict[str, Self] = {}

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

    # -- after reading -----------------------------------------------------------------------------------------

    def ignore(self, *names: str) -> None:
        """Mark keys as known and without bearing on any figure in this class."""
        self.read.update(names)

    def leftover(self) -> Iterator[str]:
        """Keys of this block that nobody read; blocks inside it answer for themselves."""
        return (key for key in self.data if key not in self.read and key not in self.children)
