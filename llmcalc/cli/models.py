"""``llmcalc models``: what the catalogue holds."""

from __future__ import annotations

from typing import Annotated

import typer

from llmcalc.cli import options as opt
from llmcalc.cli.output import Form, emit
from llmcalc.report.report import Column, Report, Table
from llmcalc.sources import catalogue
from llmcalc.units import counted

app = opt.verb_app()


@app.command()
def verb(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One model, or a word that names hold; all without it.")
    ] = None,
    as_json: opt.Json = False,
    csv: opt.Csv = False,
    markdown: opt.Markdown = False,
    output: opt.Output = None,
    force: opt.Force = False,
) -> None:
    """What does the catalogue hold?"""
    form = Form(as_json, csv, markdown, output, force)
    emit(report(name), form)


def report(name: str | None) -> Report:
    """The catalogue, or one entry of it, as a report."""
    found = catalogue.entries() if name is None else matching(name)
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
    head = [f"{counted(len(found), 'model')}, offline; any of them stands where MODEL is asked"]
    if name is not None and len(found) > 1:
        head = [f"{counted(len(found), 'model')} with {name!r} in a name, a Hub id or the family"]
    elif name is not None:
        head = [found[0].name, f"also: {', '.join(found[0].aliases) or 'no other name'}", f"config: {found[0].origin}"]
    return Report("models", None, {"name": name}, {"models": listed}, head, (Table(columns, rows),))


def matching(name: str) -> tuple[catalogue.Entry, ...]:
    """The entry of that name or hub id, else all that have the word in a name, a hub id or the family.

    Raises: NotFoundError with the closest names.
    """
    entry = catalogue.find(name) or catalogue.find_hub_id(name)
    if entry is not None:
        return (entry,)
    word = catalogue.squashed(name)
    found = tuple(
        e for e in catalogue.entries()
        if word and any(word in catalogue.squashed(text) for text in (e.name, *e.aliases, *e.hub_ids, e.model_type))
    )  # fmt: skip
    if not found:
        raise catalogue.not_found(name)
    return found
