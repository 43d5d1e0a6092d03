"""A report as text, JSON, CSV or Markdown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from llmcalc.report.report import SCHEMA, Cell, Column, Kind, Report, Table
from llmcalc.units import show_bandwidth, show_bytes, show_count, show_flops

if TYPE_CHECKING:
    from llmcalc.figure import Figure


def as_json(report: Report, *, version: str, explain: bool = False) -> str:
    """One JSON document in the envelope ``llmcalc/1``; integers stay integers, strict JSON throughout."""
    document: dict[str, object] = {
        "schema": SCHEMA,
        "version": version,
        "command": report.command,
        "model": report.model,
        "inputs": report.inputs,
        "assumptions": list(report.assumptions),
        "results": report.results,
        "warnings": list(report.warnings),
    }
    if explain:
        document["figures"] = [_figure_dict(figure) for figure in report.figures]
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _figure_dict(figure: Figure) -> dict[str, object]:
    out: dict[str, object] = {
        "name": figure.name,
        "value": figure.value,
        "unit": figure.unit,
        "formula": figure.formula(),
        "numbers": figure.numbers(),
    }
    if figure.source:
        out["source"] = figure.source
    if figure.notes:
        out["notes"] = list(figure.notes)
    if figure.parts:
        out["parts"] = [_figure_dict(part) for part in figure.parts]
    return out


def as_csv(report: Report) -> str:
    """The first table, exact numbers, a header of keys."""
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    table = report.tables[0]
    writer.writerow([column.key for column in table.columns])
    writer.writerows(table.rows)
    return out.getvalue()


def as_markdown(report: Report, *, explain: bool = False) -> str:
    """Headline, tables, and the derivation if asked."""
    lines = [f"{line}  " for line in report.headline if line]
    for table in report.tables:
        lines.append("")
        if table.title:
            lines += [f"**{table.title}**", ""]
        lines.append("| " + " | ".join(column.title for column in table.columns) + " |")
        lines.append("|" + "|".join(" --- " if column.kind == "text" else " ---: " for column in table.columns) + "|")
        for row in table.rows:
            shown = [show(cell, column.kind) for cell, column in zip(row, table.columns, strict=True)]
            lines.append("| " + " | ".join(text.replace("|", "\\|") for text in shown) + " |")
    if explain:
        lines += ["", "```", *derivation(report), "```"]
    lines += ["", *[f"> warning: {text}" for text in report.warnings]] if report.warnings else []
    return "\n".join(lines) + "\n"


SHOWN: dict[Kind, Callable[[float], str]] = {
    "count": lambda value: f"{value:,}",
    "bytes": lambda value: f"{value:,} B ({show_bytes(value)})" if value >= 1024 else f"{value:,} B",
    "params": lambda value: f"{value:,} ({show_count(value)})" if value >= 1000 else f"{value:,}",
    "bandwidth": show_bandwidth,
    "rate": lambda value: f"{show_flops(value)}/s",
    "text": str,
}


def show(cell: Cell, kind: Kind) -> str:
    """A cell for eyes; nothing for what there is not."""
    if cell is None:
        return ""
    return SHOWN[kind](cell) if isinstance(cell, (int, float)) else cell


def derivation(report: Report) -> Iterator[str]:
    """Each figure's formula, the same formula with its numbers, what is not counted, and the source."""
    for figure in report.figures:
        yield from _derive(figure, 0)
    if report.assumptions:
        yield "assumed:"
        yield from (f"  {text}" for text in report.assumptions)


def _derive(figure: Figure, depth: int) -> Iterator[str]:
    pad = "  " * depth
    yield f"{pad}{figure.name}"
    if figure.factors:
        yield f"{pad}  = {figure.formula()}"
        yield f"{pad}  = {figure.numbers()}" + _human(figure)
    elif figure.parts:
        yield f"{pad}  = {figure.numbers()}" + _human(figure)
    for note in figure.notes:
        yield f"{pad}  {note}"
    if figure.source:
        yield f"{pad}  source: {figure.source}"
    for part in figure.parts:
        yield from _derive(part, depth + 1)


def _human(figure: Figure) -> str:
    if figure.unit == "B" and figure.value >= 1024:
        return f" = {show_bytes(figure.value)}"
    return ""


def as_text(report: Report, *, width: int | None, color: bool, explain: bool = False) -> str:
    """Text for a terminal of ``width`` columns, or (None) for a pipe: no colour, nothing cut."""
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    console = Console(
        file=out, width=width or 1000, force_terminal=color, no_color=not color, highlight=False, markup=False,
        emoji=False, soft_wrap=width is None,
    )  # fmt: skip
    for line in report.headline:
        console.print(line)
    for table in report.tables:
        console.print()
        _rich_table(console, table)
    if explain:
        console.print()
        for line in derivation(report):
            console.print(line)
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


def _rich_table(console: object, table: Table) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    assert isinstance(console, Console)
    drawn = RichTable(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, title=table.title or None, title_justify="left"
    )
    for column in table.columns:
        number = column.kind != "text"
        drawn.add_column(Text(column.title), justify="right" if number else "left", no_wrap=number, overflow="fold")
    for index, row in enumerate(table.rows):
        pad = "  " * table.indents[index] if table.indents else ""
        drawn.add_row(*_cells(row, table.columns, pad))
    console.print(drawn)


def _cells(row: tuple[Cell, ...], columns: tuple[Column, ...], pad: str) -> Iterator[str]:
    for index, (cell, column) in enumerate(zip(row, columns, strict=True)):
        text = show(cell, column.kind)
        yield pad + text if index == 0 else text
