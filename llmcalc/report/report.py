"""What a verb found out, before anybody decides how it is shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from llmcalc.figure import Figure

SCHEMA = "llmcalc/1"
Kind = Literal["text", "count", "bytes", "params", "bandwidth", "rate", "share"]
Cell = str | int | float | None


class Column(NamedTuple):
    """A column: its heading on the screen, its key in files, and what its cells are."""

    title: str
    key: str
    kind: Kind = "text"


class Table(NamedTuple):
    """Rows of one kind; ``indents`` (if given) say how deep a row stands in a tree."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    indents: tuple[int, ...] = ()


class Report(NamedTuple):
    """The answer of one verb. ``results`` is what JSON prints; headline, tables and figures are the same for eyes.

    ``--csv`` prints the first table, or ``csv`` where the answers are in none (:func:`answers`).
    """

    command: str
    model: Mapping[str, object] | None
    inputs: Mapping[str, object]
    results: Mapping[str, object]
    headline: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    assumptions: Sequence[str] = ()
    warnings: Sequence[str] = ()
    csv: Table | None = None


def answers(results: Mapping[str, object]) -> Table:
    """Every answer with its key, for scripts: what is inside another stands behind its key and a dot, of a list behind
    the place in it."""
    return Table((Column("key", "key"), Column("value", "value")), tuple(_answers(results.items(), "")))


def _answers(results: Iterable[tuple[object, object]], path: str) -> Iterator[tuple[Cell, ...]]:
    for key, value in results:
        if isinstance(value, (Mapping, list, tuple)):
            inside = value.items() if isinstance(value, Mapping) else enumerate(value)
            yield from _answers(inside, f"{path}{key}.")
        elif isinstance(value, bool):
            yield f"{path}{key}", str(value).lower()
        elif value is None or isinstance(value, (str, int, float)):
            yield f"{path}{key}", value
