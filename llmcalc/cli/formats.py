"""``llmcalc formats``: how weights and caches can be stored."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from llmcalc.cli import options as opt
from llmcalc.cli.output import Form, emit
from llmcalc.errors import UnsupportedFormatError
from llmcalc.formats import FORMATS as CACHE
from llmcalc.report.report import Cell, Column, Report, Table
from llmcalc.schemes import named
from llmcalc.schemes.blocks import BLOCKS, FALLBACK
from llmcalc.schemes.mixes import FALCON_DOWN, MIXES, Mix

app = opt.verb_app()


class Listed(NamedTuple):
    """A format as it is listed."""

    name: str
    use: str
    bits: float
    block: int
    text: str
    source: str


@app.command()
def verb(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One format; all of them without it.")] = None,
    as_json: opt.Json = False,
    csv: opt.Csv = False,
    markdown: opt.Markdown = False,
    output: opt.Output = None,
    force: opt.Force = False,
) -> None:
    """How can weights and caches be stored, and in how many bits?"""
    form = Form(as_json, csv, markdown, output, force)
    emit(report(name), form)


def listed() -> list[Listed]:
    """Every format: of weights by name, llama.cpp's types and mixes, those of caches alone."""
    own = [(row.name, named.layout_of(row.name)) for row in named.ROWS]
    rows = [Listed(n, "weights", float(form.bits), form.block, form.describe(), form.source) for n, form in own]
    for name, block in BLOCKS.items():
        rows += [Listed(name, "llama.cpp type", float(block.bits), block.size, block.describe(), block.source)]
    for mix in MIXES.values():
        base = BLOCKS[mix.base]
        text = summary(mix)
        rows += [Listed(mix.name, "weights, llama.cpp mix", float(base.bits), base.size, text, "llama-quant.cpp")]
    known = {row.name for row in rows}
    kept = [fmt for fmt in CACHE.values() if fmt.name not in known]
    return rows + [Listed(f.name, "cache", f.bits, f.block, f"{f.row_bytes} B a row beside", f.source) for f in kept]


def summary(mix: Mix) -> str:
    """A mix in a line."""
    return f"{mix.base}; output {mix.output}" + (", needs an importance matrix" if mix.imatrix else "")


def report(name: str | None) -> Report:
    """The formats, or one of them, as a report.

    Raises: UnsupportedFormatError with the closest names.
    """
    rows = listed()
    head = [
        f"{len(rows)} formats; bits a value count scales of groups and blocks, not what is stored once a row or matrix"
    ]
    tables: tuple[Table, ...] = ()
    if name is not None:
        key = name.strip().lower()
        key = named.ALIASES.get(key, key)
        rows = [row for row in rows if row.name == key]
        if not rows:
            raise UnsupportedFormatError(f"unknown format {name!r}", named.near(key, [row.name for row in listed()]))
        head = [f"{row.name} · {row.use} · {row.bits:g} bits a value: {row.text}" for row in rows]
        tables = (rules(MIXES[key]),) if key in MIXES else ()
    columns = (
        Column("format", "name"), Column("for", "use"), Column("bits a value", "bits_per_weight", "count"),
        Column("block", "block", "count"), Column("stored", "stored"), Column("source", "source"),
    )  # fmt: skip
    cells: tuple[tuple[Cell, ...], ...] = tuple(tuple(row) for row in rows)
    out = [
        {
            "name": r.name,
            "use": r.use,
            "bits_per_weight": r.bits,
            "block": r.block,
            "stored": r.text,
            "source": r.source,
        }
        for r in rows
    ]
    results: dict[str, object] = {"formats": out}
    if name is not None and tables:
        results["tensors"] = [dict(zip(("tensor", "when", "type"), row, strict=True)) for row in tables[0].rows]
    return Report("formats", None, {"name": name}, results, head, (Table(columns, cells), *tables))


def rules(mix: Mix) -> Table:
    """Which tensor of a mix has which type, when."""
    rows: list[tuple[Cell, ...]] = [
        ("every other matrix", "always", mix.base),
        ("output, tied token table", "always", mix.output),
    ]
    if mix.embedding:
        rows.append(("token table", "always", mix.embedding))
    chosen = (("attn_v, fused qkv", mix.value), ("ffn_down", mix.down), ("ffn_gate, ffn_up", mix.gate_up))
    for tensor, choice in chosen:
        rows += [(tensor, condition, kind) for condition, kind in choice]
    single = (
        ("attn_output", mix.attention_output),
        ("attn_q", mix.query),
        ("attn_k", mix.key),
        ("experts", mix.experts),
    )
    rows += [(tensor, "always", kind) for tensor, kind in single if kind]
    rows += [("ffn_down of Falcon", condition, kind) for condition, kind in FALCON_DOWN.get(mix.name, ())]
    if mix.base in FALLBACK:
        rows.append((f"rows that {mix.base} does not divide", "always", FALLBACK[mix.base]))
    columns = (Column("tensor", "tensor"), Column("when", "when"), Column("type", "type"))
    return Table(
        columns, tuple(rows), f"{mix.name}: i counts tensors of a kind out of n, g = heads / K/V heads, E experts"
    )
