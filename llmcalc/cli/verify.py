"""``llmcalc verify``: do these figures agree with this checkpoint's own tensor headers?"""

from __future__ import annotations

from typing import Annotated

import typer

from llmcalc.calc.headers import header_bytes
from llmcalc.calc.verify import Verification, verify
from llmcalc.cli import options as opt
from llmcalc.cli.output import Form, emit, model_block
from llmcalc.loading import Model, load
from llmcalc.report.report import Cell, Column, Report, Table
from llmcalc.units import show_bytes

app = opt.verb_app()


@app.command()
def verb(
    model: opt.ModelArg,
    check: Annotated[bool, typer.Option("--check", help="Exit 3 where they differ.")] = False,
    settings: opt.Set = None,
    as_family: opt.As = None,
    source: opt.Source = None,
    as_json: opt.Json = False,
    csv: opt.Csv = False,
    markdown: opt.Markdown = False,
    output: opt.Output = None,
    force: opt.Force = False,
) -> None:
    """Do these figures agree with this checkpoint's own tensor headers?"""
    form = Form(as_json, csv, markdown, output, force)
    changed = opt.overrides(settings)
    found = load(model, source=source, as_family=as_family, overrides=changed, headers=True)
    held = verify(found.architecture, found.tensors or (), found.dialect)
    emit(report(found, held), form)
    if check and not held.agrees:
        raise typer.Exit(3)


def report(model: Model, held: Verification) -> Report:
    """What the two disagree about."""
    sizes = header_bytes(model.tensors or ())
    results: dict[str, object] = {
        "agrees": held.agrees,
        "missing": [{"name": t.name, "shape": list(t.shape)} for t in held.missing],
        "unexpected": [{"name": t.name, "shape": list(t.shape)} for t in held.unexpected],
        "mismatched": [
            {"name": m.name, "expected": list(m.expected), "found": list(m.found), "holds": list(m.holds)}
            for m in held.mismatched
        ],
        "matched": held.matched,
        "beside": len(held.beside),
        "mtp_heads": held.heads,
        "header_bytes": sizes.total,
        "header_bytes_by_dtype": sizes.by_dtype,
    }
    return Report(
        "verify", model_block(model.provenance), {}, results, headline(model, held), (table(held),),
        (), model.assumptions, model.warnings,
    )  # fmt: skip


def headline(model: Model, held: Verification) -> list[str]:
    """The answer in a few lines."""
    sizes = header_bytes(model.tensors or ())
    kinds = ", ".join(f"{name} {show_bytes(size)}" for name, size in sizes.by_dtype.items())
    if held.agrees:
        first = f"agrees: {held.matched:,} tensors have the names and shapes that this config implies"
    else:
        first = (
            f"differs: {len(held.missing):,} missing, {len(held.unexpected):,} unexpected, "
            f"{len(held.mismatched):,} of another shape; {held.matched - len(held.mismatched):,} agree"
        )
    lines = [f"{model.provenance.name} · {model.architecture.model_type}", first]
    lines.append(f"{sizes.total:,} bytes of tensors = {show_bytes(sizes.total)} ({kinds})")
    if held.beside:
        lines.append(f"{len(held.beside):,} more are scales, tables and tied copies, such as {held.beside[0].name}")
    if model.architecture.mtp and not held.heads:
        lines.append("its multi-token-prediction heads are not in these files")
    return lines


def table(held: Verification) -> Table:
    """One row a difference."""
    columns = (
        Column("what", "what"), Column("tensor", "name"), Column("expected", "expected"), Column("found", "found"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = [("missing", t.name, _shape(t.shape), None) for t in held.missing]
    rows += [("unexpected", t.name, None, _shape(t.shape)) for t in held.unexpected]
    rows += [("other shape", m.name, _shape(m.expected), _shape(m.found)) for m in held.mismatched]
    return Table(columns, tuple(rows))


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one number"
