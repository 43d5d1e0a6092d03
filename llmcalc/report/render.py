"""A report as text, JSON, CSV or Markdown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from llmcalc.report.report import SCHEMA, Cell, Kind, Report, Table
from llmcalc.units import show_bandwidth, show_bytes, show_count, show_flops

if TYPE_CHECKING:
    from llmcalc.figure import Figure


def as_json(report: Report, *, version: str, explain: bool = False, ascii_only: bool = False) -> str:
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
    return json.dumps(document, indent=2, ensure_ascii=ascii_only, allow_nan=False) + "\n"


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
    """The answers, or the first table; exact numbers, a header of keys; of a tree the leaves, with their paths."""
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    table = report.csv or report.tables[0]
    keys = [column.key for column in table.columns]
    if table.indents:
        writer.writerow(["path", *keys])
        writer.writerows([path, *row] for path, row in _leaves(table))
    else:
        writer.writerow(keys)
        writer.writerows(table.rows)
    return out.getvalue()


def _leaves(table: Table) -> Iterator[tuple[str, tuple[Cell, ...]]]:
    """The rows of a tree that have none below them, with the names from the root down: they add up to the total."""
    names: list[str] = []
    following = (*table.indents[1:], 0)
    for row, depth, after in zip(table.rows, table.indents, following, strict=True):
        names[depth:] = [str(row[0]).replace(" ", "_")]
        if after <= depth:
            yield ".".join(names), row


def as_markdown(report: Report, *, explain: bool = False) -> str:
    """Headline, tables, and the derivation if asked."""
    lines = [f"{line}  " for line in report.headline if line]
    for table in report.tables:
        lines.append("")
        if table.title:
            lines += [f"**{table.title}**", ""]
        lines.append("| " + " | ".join(column.title for column in table.columns) + " |")
        lines.append("|" + "|".join(" --- " if column.kind == "text" else " ---: " for column in table.columns) + "|")
        for shown in _shown(table, "&nbsp;&nbsp;"):
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
    "share": lambda value: f"{100 * value:.2f}%",
    "text": str,
}


def show(cell: Cell, kind: Kind) -> str:
    """A cell for eyes; nothing for what there is not."""
    if cell is None:
        return ""
    return SHOWN[kind](cell) if isinstance(cell, (int, float)) else cell


def _shown(table: Table, indent: str) -> list[list[str]]:
    """The cells as text, the first of each row indented as deep as it stands in the tree."""
    rows = []
    for number, row in enumerate(table.rows):
        cells = [show(cell, column.kind) for cell, column in zip(row, table.columns, strict=True)]
        depth = table.indents[number] if table.indents else 0
        rows.append([indent * depth + cells[0], *cells[1:]] if depth else cells)
    return rows


def derivation(report: Report) -> Iterator[str]:
    """Each figure's formula, the same formula with its numbers, what is not counted, and the source."""
    for figure in report.figures:
        yield from _derive(figure, 0)
    if report.assumptions:
        yield "assumed:"
        yield from (f"  {text}" for text in report.assumptions)
    elif not report.figures:
        yield "nothing is assumed: all of it is what the config says"


def _derive(figure: Figure, depth: int) -> Iterator[str]:
    pad = "  " * depth
    yield f"{pad}{figure.name}"
    if figure.factors:
        yield f"{pad}  = {figure.formula()}"
        yield f"{pad}  = {figure.numbers()}" + _human(figure)
    else:
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
    """Text for a terminal of ``width`` columns, or (None) for a pipe: no colour, nothing folded."""
    from llmcalc.report.screen import fold, table_lines

    lines: list[str] = []
    for line in report.headline:
        lines += fold(line, width)
    for table in filter(lambda table: table.rows, report.tables):
        lines += ["", *table_lines(table, _shown(table, "  "), width, bold=color)]
    if explain:
        lines.append("")
        for line in derivation(report):
            lines += fold(line, width)
    return "".join(line.rstrip() + "\n" for line in lines)
