"""``llmcalc inspect``: what is this model?"""

from __future__ import annotations

from llmcalc.arch.model import Architecture
from llmcalc.calc.describe import KindRow, kinds, layer_pattern, numbers, quantized, sentence
from llmcalc.cli import options as opt
from llmcalc.cli.output import Form, emit, model_block
from llmcalc.loading import Model, load
from llmcalc.report.report import Column, Report, Table

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
    """What is this model? Layer kinds, heads, widths, windows, experts, positions, ties."""
    form = Form(as_json, csv, markdown, output, force, explain)
    emit(report(load(model, source=source, as_family=as_family, overrides=opt.overrides(settings))), form)


def report(model: Model) -> Report:
    """The architecture as a report."""
    a = model.architecture
    stacks = [stack for stack in a.stacks if stack.layers]
    rows: list[tuple[str, KindRow]] = [(stack.name, row) for stack in stacks for row in kinds(stack)]
    main = a.decoder if a.decoder.layers else a.encoder or a.decoder
    drawn = [f"{stack.name}: {layer_pattern(stack)}" for stack in stacks]
    return Report(
        "inspect", model_block(model.provenance), {}, results(a, kinds(main), layer_pattern(main)),
        [f"{model.provenance.name} · {a.model_type}", sentence(a), *drawn, *origin(model)],
        (table(rows),), (), model.assumptions, model.warnings,
    )  # fmt: skip


def origin(model: Model) -> list[str]:
    """Where the config came from."""
    p = model.provenance
    revision = f", commit {p.revision}" if p.revision else ""
    return [f"config: {p.origin or p.source}{revision}"]


def results(a: Architecture, rows: list[KindRow], drawn: str) -> dict[str, object]:
    """The keys of the JSON document."""
    return {
        "model_type": a.model_type,
        "layers": [
            {"kind": r.kind, "count": r.layers, "ffn": r.ffn, "layers": list(r.depths), "mixer": r.mixer_text,
             "feed_forward": r.ffn_text, "mixers": [numbers(spec) for spec in r.layer.mixers],
             "feed_forwards": [numbers(spec) for spec in r.layer.ffns]}
            for r in rows
        ],
        "pattern": drawn,
        "sentence": sentence(a),
        "hidden_size": a.hidden_size,
        "vocab_size": a.vocab_size,
        "max_position_embeddings": a.max_position_embeddings,
        "tie_word_embeddings": a.tie_word_embeddings,
        "positions": a.positions,
        "dtype": a.dtype,
        "stacks": {stack.name: len(stack.calls) for stack in a.stacks if stack.calls},
        "quantization": quantized(a) or None,
        "mtp_layers": sum(len(stack.layers) for stack in a.mtp),
        "not_described": list(a.uncounted),
    }  # fmt: skip


def table(rows: list[tuple[str, KindRow]]) -> Table:
    """One row a kind of layer."""
    columns = (
        Column("stack", "stack"), Column("layers", "kind"), Column("count", "count", "count"),
        Column("mixer", "mixer"), Column("feed-forward", "feed_forward"),
    )  # fmt: skip
    return Table(
        columns,
        tuple((stack, r.kind.replace("_", " "), r.layers, r.mixer_text, r.ffn_text) for stack, r in rows),
    )
