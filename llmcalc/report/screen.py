"""A table as lines of text: numbers are never cut, words fold, and what does not fit side by side goes below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Final

from llmcalc.report.report import Table

GAP: Final = "  "
LEAST: Final = 14  # columns that words are folded to, at least


def fold(text: str, width: int | None) -> list[str]:
    """A line in lines of at most ``width``; a word that is longer is broken, nothing is lost."""
    if width is None or len(text) <= width:
        return [text]
    indent = text[: len(text) - len(text.lstrip())][: width // 2]
    return wrap(text.lstrip(), width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False) or [""]


def table_lines(table: Table, shown: Sequence[Sequence[str]], width: int | None, *, bold: bool) -> Iterator[str]:
    """The table in at most ``width`` columns (None: as wide as it is); ``shown``: its cells as text."""
    if table.title:
        yield from fold(table.title, width)
    numeric = [column.kind != "text" for column in table.columns]
    titles = [column.title for column in table.columns]
    widths = _widths([titles, *shown], numeric, width)
    if widths is None:
        yield from _below(titles, shown, width or 80, bold=bold)
        return
    for line in _row(titles, widths, numeric):
        yield f"\x1b[1m{line}\x1b[0m" if bold else line
    yield "─" * (sum(widths) + len(GAP) * (len(widths) - 1))
    for cells in shown:
        yield from _row(cells, widths, numeric)


def _widths(rows: Sequence[Sequence[str]], numeric: Sequence[bool], width: int | None) -> list[int] | None:
    """Columns wide enough; words get what numbers leave, the narrow ones first; None where that is too little."""
    full = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = None if width is None else width - len(GAP) * (len(full) - 1)
    if left is None or sum(full) <= left:
        return full
    left -= sum(size for size, number in zip(full, numeric, strict=True) if number)
    words = sorted((size, i) for i, (size, number) in enumerate(zip(full, numeric, strict=True)) if not number)
    for done, (size, i) in enumerate(words):
        share = left // (len(words) - done)
        if share < min(size, LEAST):
            return None
        full[i] = min(size, share)
        left -= full[i]
    return full if left >= 0 else None


def _row(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> Iterator[str]:
    """A row of as many lines as its highest cell."""
    folded = [
        [line.rjust(width) if number else line.ljust(width) for line in fold(cell, width)]
        for cell, width, number in zip(cells, widths, numeric, strict=True)
    ]
    for i in range(max(map(len, folded))):
        line = [cell[i] if i < len(cell) else " " * width for cell, width in zip(folded, widths, strict=True)]
        yield GAP.join(line).rstrip()


def _below(titles: Sequence[str], shown: Sequence[Sequence[str]], width: int, *, bold: bool) -> Iterator[str]:
    """Each row as a list of the cells that it has, one below the other, the title beside or above each."""
    label = max(map(len, titles))
    beside = label + len(GAP) + LEAST <= width
    for number, cells in enumerate(shown):
        if number:
            yield ""
        for title, cell in ((title, cell) for title, cell in zip(titles, cells, strict=True) if cell):
            head = f"\x1b[1m{title}\x1b[0m" if bold else title
            if not beside:
                yield head
                yield from (GAP + line for line in fold(cell, width - len(GAP)))
                continue
            for index, line in enumerate(fold(cell, width - label - len(GAP))):
                yield (head + " " * (label - len(title)) if index == 0 else " " * label) + GAP + line
