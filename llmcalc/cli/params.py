"""``llmcalc params``: how many parameters, and where?"""

from __future__ import annotations

from dataclasses import fields as dataclass_fields

from llmcalc.calc.params import ParamCount, params
from llmcalc.cli import options as opt
from llmcalc.cli.output import Form, emit, model_block
from llmcalc.figure import Figure
from llmcalc.loading import Model, load
from llmcalc.report.report import Cell, Column, Report, Table
from llmcalc.units import show_count, words

app = opt.verb_app()


@app.command()
def verb(
    model: opt.ModelArg,
    settings: opt.Set = None,
    as_family: opt.As = None,
    source: opt.Source = None,
    explain: opt.Explain = False,
    as_json: opt.Json = False,
    csv: opt.Csv = False,
    markdown: opt.Markdown = False,
    output: opt.Output = None,
    force: opt.Force = False,
) -> None:
    """How many parameters, and where?"""
    form = Form(as_json, csv, markdown, output, force, explain)
    found = load(model, source=source, as_family=as_family, overrides=opt.overrides(settings))
    emit(report(found, params(found.architecture)), form)


def report(model: Model, count: ParamCount) -> Report:
    """The count as a report."""
    results: dict[str, object] = {
        field.name: getattr(count, field.name)
        for field in dataclass_fields(count)
        if field.name not in ("figure", "active", "beside")
    }
    results["components"] = [_component(part) for part in count.figure.parts]
    return Report(
        "params", model_block(model.provenance), {}, results, headline(model, count),
        (table(count),), (count.figure, count.active, *count.beside), model.assumptions, model.warnings,
    )  # fmt: skip


def _component(figure: Figure) -> dict[str, object]:
    """A branch of the tree down to the parts of a stack; single tensors are told by --explain."""
    out: dict[str, object] = {"name": figure.name, "params": figure.value}
    if figure.parts and figure.parts[0].parts:
        out["components"] = [_component(part) for part in figure.parts]
    return out


def headline(model: Model, count: ParamCount) -> list[str]:
    """The answer in a few lines."""
    lines = [
        f"{model.provenance.name} · {count.total_params:,} parameters ({show_count(count.total_params)})",
    ]
    if count.active_params != count.text_params:
        lines.append(f"one token passes {count.active_params:,} of them ({show_count(count.active_params)})")
    lines.append(f"without embeddings and head: {count.non_embedding_params:,}")
    if count.untied_params != count.total_params:
        lines.append(f"each name counted once, though tensors are shared: {count.untied_params:,}")
    if count.stored_params != count.total_params:
        lines.append(f"stored in the checkpoint: {count.stored_params:,} numbers")
    return lines


def table(count: ParamCount) -> Table:
    """The tree: stacks and their parts."""
    columns = (Column("part", "part"), Column("parameters", "params", "params"), Column("share", "share", "share"))
    rows: list[tuple[Cell, ...]] = []
    indents: list[int] = []

    def add(figure: Figure, depth: int) -> None:
        rows.append(
            (words(figure.name), figure.value, figure.value / count.total_params if count.total_params else None)
        )
        indents.append(depth)
        for part in figure.parts:
            if part.parts:
                add(part, depth + 1)

    for part in count.figure.parts:
        add(part, 0)
    rows.append(("total", count.total_params, 1.0))
    return Table(columns, tuple(rows), indents=(*indents, 0))
