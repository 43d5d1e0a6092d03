"""What a verb found out, before anybody decides how it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    ``--csv`` prints the first table; with ``keyed`` it the results, a row a key, where no table holds the answer.
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
    keyed: bool = False
