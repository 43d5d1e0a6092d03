"""Lists of module names in a config: what they match, by the rules of the library that reads them.

A module is known under several spellings (the checkpoint's, the model class's); a rule that matches one matches it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from fnmatch import translate
from typing import Final, Literal

from llmcalc.errors import InvalidInputError

Dialect = Literal["transformers", "compressed-tensors", "wildcard"]

# A key ends where a name does, or at a dot: "mlp.gate" is not "mlp.gate_proj".
_BOUNDARY: Final = r"(?:(?<=\.)|(?=\.|$))"
_OWN: Final = re.compile(r"\(\?(?!:|=|!|<=|<!|s:|>)|\\[1-9]")
_PLAIN: Final = re.compile(r"[\w.\-]*")


class Names:
    """A list of names and patterns in the dialect of one library.

    ``transformers``: a key is a regular expression from the start of the name up to a dot, or a suffix
    (quantizers_utils.should_convert_module). ``compressed-tensors``: the whole name, or after ``re:`` a regular
    expression from its start (utils/match.py). ``wildcard``: ModelOpt's and Quark's ``*``, or a module and all below.
    listed: whether the config itself lists them, so that an entry without a module is worth a warning.
    """

    def __init__(self, entries: Iterable[object], dialect: Dialect, *, listed: bool = True) -> None:
        self.dialect = dialect
        self.listed = listed
        self.entries = tuple(dict.fromkeys(str(entry) for entry in entries if isinstance(entry, str) and entry))
        self.plain = frozenset(e for e in self.entries if _PLAIN.fullmatch(e) and not e.startswith("re:"))
        patterns = [e for e in self.entries if e not in self.plain]
        self.patterns = self._compile(patterns)
        self.suffixes = tuple(self.plain) if dialect == "transformers" else ()
        self.numbered = any(re.search(r"experts\.\d", entry) for entry in self.entries)

    def __bool__(self) -> bool:
        return bool(self.entries)

    def _compile(self, patterns: Sequence[str]) -> tuple[re.Pattern[str], ...]:
        """One pattern of them all; each alone where groups or flags of one would speak of another's."""
        sources = [_expression(pattern, self.dialect) for pattern in patterns]
        if any(_OWN.search(source) for source in sources):
            return tuple(re.compile(source) for source in sources)
        return (re.compile("|".join(f"(?:{source})" for source in sources)),) if sources else ()

    def match(self, spellings: Iterable[str]) -> bool:
        """Whether a module of these spellings is named."""
        return any(self._one(name) for name in spellings)

    def _one(self, name: str) -> bool:
        if self.dialect == "compressed-tensors":
            found = name in self.plain
        else:
            found = any(head in self.plain for head in heads(name)) or bool(
                self.suffixes and name.endswith(self.suffixes)
            )
        return found or any(pattern.match(name) for pattern in self.patterns)

    def unmatched(self, names: Sequence[str]) -> list[str]:
        """Entries that name none of these modules."""
        unique = sorted(set(names))
        known = {head for name in unique for head in heads(name)}
        return [entry for entry in self.entries if entry not in known and not self._names_any(entry, unique)]

    def _names_any(self, entry: str, names: list[str]) -> bool:
        stem = entry.removesuffix("*")
        if self.dialect == "wildcard" and "*" not in stem:
            place = bisect_left(names, stem)
            return place < len(names) and names[place].startswith(stem)
        alone = Names((entry,), self.dialect)
        return any(alone.match((name,)) for name in names)


def _expression(pattern: str, dialect: Dialect) -> str:
    if pattern.startswith("re:"):
        return _valid(pattern.removeprefix("re:"))
    if dialect == "transformers":
        return f"(?:{_valid(pattern)}){_BOUNDARY}"
    if dialect == "wildcard":
        return translate(pattern)
    return re.escape(pattern) + r"\Z"


LONGEST: Final = 512
# What backtracks without end on a long name: a repeated group that repeats inside, or many repetitions of anything.
_NESTED: Final = re.compile(r"\([^()]*[*+}][^()]*\)[*+{]")
MOST_REPEATS: Final = 6


def _valid(source: str) -> str:
    """A regular expression as written, or its characters where it is none (``*.gate``).

    Raises: InvalidInputError for one that could run without end or that is no pattern of a sane size.
    """
    if len(source) > LONGEST or _NESTED.search(source) or len(re.findall(r"(?<!\\)[*+]", source)) > MOST_REPEATS:
        raise InvalidInputError(
            f"quantization_config: the pattern {source!r:.60} is too involved to be matched against names safely",
            "name the modules, or use fewer repetitions",
        )
    try:
        re.compile(source)
    except re.error:
        return re.escape(source)
    except (OverflowError, RecursionError, MemoryError):
        raise InvalidInputError(f"quantization_config: {source!r:.60} is not a pattern that can be used") from None
    return source


def heads(name: str) -> list[str]:
    """A name and the modules it is in: ``a.b.c``, ``a.b``, ``a``."""
    out = [name]
    while "." in name:
        name = name.rpartition(".")[0]
        out.append(name)
    return out
