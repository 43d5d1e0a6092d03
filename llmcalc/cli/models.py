"""``llmcalc models``: what the catalogue holds."""

from __future__ import annotations

from typing import Annotated

import typer

from llmcalc.cli import options as opt
from llmcalc.cli.output import Form, emit
from llmcalc.report.report import Column, Report, Table
from llmcalc.sources import catalogue

app = opt.verb_app()


@app.command()
def verb(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One model; all of them without it.")] = None,
    as_json: opt.Json = False,
    csv: opt.Csv = False,
    markdown: opt.Markdown = False,
    output: opt.Output = None,
    force: opt.Force = False,
) -> None:
    """What does the catalogue hold?"""
    form = Form(as_json, csv, markdown, output, force)
    form.check()
    emit(report(name), form)


def report(name: str | None) -> Report:
    """The catalogue, or one entry of it, as a report."""
    found = catalogue.entries() if name is None else (one(name),)
    columns = (
        Column("name", "name"), Column("family", "model_type"), Column("Hub id", "hub_id"),
        Column("config", "origin_kind"), Column("date", "date"),
    )  # fmt: skip
    rows = tuple((e.name, e.model_type, e.hub_ids[0] if e.hub_ids else None, e.origin_kind, e.date) for e in found)
    listed = [
        {"name": e.name, "aliases": list(e.aliases), "hub_ids": list(e.hub_ids), "model_type": e.model_type,
         "origin_kind": e.origin_kind, "origin": e.origin, "date": e.date}
        for e in found
    ]  # fmt: skip
    head = [f"{len(found)} models, offline; any of them stands where MODEL is asked"]
    if name is not None:
        head = [found[0].name, f"also: {', '.join(found[0].aliases) or 'no other name'}", f"config: {found[0].origin}"]
    return Report("models", None, {"name": name}, {"models": listed}, head, (Table(columns, rows),))


def one(name: str) -> catalogue.Entry:
    """The entry of that name or hub id.

    Raises: NotFoundError with the closest names.
    """
    entry = catalogue.find(name) or catalogue.find_hub_id(name)
    if entry is None:
        raise catalogue.not_found(name)
    return entry
