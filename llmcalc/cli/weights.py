"""``llmcalc weights``: how many bytes are the weights in this format?"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from llmcalc.arch.families.build import NO_DTYPE
from llmcalc.calc.weight_shards import Ranks
from llmcalc.calc.weights import HEADERS, WeightBytes, rule_of_thumb, weights
from llmcalc.cli import options as opt
from llmcalc.cli.output import Form, emit, model_block
from llmcalc.errors import InvalidInputError
from llmcalc.figure import Figure
from llmcalc.loading import Model, load
from llmcalc.report.report import Cell, Column, Report, Table
from llmcalc.units import show_bytes, show_count, words

app = opt.verb_app()
Format = Annotated[str, typer.Option("--weights", metavar="FORMAT", help="config, bf16, fp8, gptq, nf4, q4_k_m ...")]
GroupSize = Annotated[
    int | None, typer.Option("--group-size", min=-1, max=2**20, metavar="N", help="Values of a group; -1: a whole row.")
]


@app.command()
def verb(
    model: opt.OptionalModel = None,
    stored: Format = "config",
    group_size: GroupSize = None,
    tp: opt.Tp = 1,
    pp: opt.Pp = 1,
    ep: Annotated[int, typer.Option("--ep", min=1, max=2**20, help="Expert-parallel ranks; divides tp x dp.")] = 1,
    dp: Annotated[int, typer.Option("--dp", min=1, max=2**20, help="Data-parallel ranks.")] = 1,
    params: opt.Params = None,
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
    """How many bytes are the weights in this format?"""
    form = Form(as_json, csv, markdown, output, force, explain)
    opt.one_of(model, params)
    inputs: dict[str, object] = {
        "weights": stored, "group_size": group_size, "tp": tp, "pp": pp, "ep": ep, "dp": dp, "params": params,
    }  # fmt: skip
    if model is None:
        emit(thumb(params or 0, stored, group_size, inputs), form)
        return
    changed = opt.overrides(settings)
    found = load(model, source=source, as_family=as_family, overrides=changed)
    answer = counted(found, stored, group_size, Ranks(tp, pp, ep, dp), changed=bool(changed))
    emit(report(found, answer, inputs), form)


def counted(model: Model, stored: str, group_size: int | None, ranks: Ranks, *, changed: bool) -> WeightBytes:
    """By the checkpoint's own headers where they are there and asked for, else by the config or the format."""
    if stored != "config" or model.tensors is None or group_size is not None:
        return weights(model.architecture, stored, group_size=group_size, ranks=ranks)
    if changed:
        found = weights(model.architecture, ranks=ranks)
        text = f"--set makes another model of it: the bytes are the config's ({found.format}), not the checkpoint's own"
        return replace(found, warnings=(*found.warnings, text))
    # Imported here: most calls have no headers.
    from llmcalc.calc.weights_of_headers import weights_of_headers

    return weights_of_headers(model.architecture, model.tensors, model.dialect, ranks=ranks, held=model.held)


def report(model: Model, found: WeightBytes, inputs: dict[str, object]) -> Report:
    """The bytes as a report."""
    results: dict[str, object] = {
        "total_bytes": found.total_bytes,
        "mtp_bytes": found.mtp_bytes,
        "vision_bytes": found.vision_bytes,
        "audio_bytes": found.audio_bytes,
        "bits_per_weight": found.bits_per_weight,
        "per_device_bytes": found.per_device_bytes,
        "weights_format": found.format,
        "formats": [{"format": name, "params": count, "bytes": size} for name, count, size in found.formats],
        "components": [_component(part) for part in found.figure.parts],
    }
    figures = (found.figure,) if found.mtp_figure is None else (found.figure, found.mtp_figure)
    return Report(
        "weights", model_block(model.provenance), inputs, results, headline(model, found),
        (table(found), mixture(found)), figures, (*_assumed(model, found), *found.assumptions),
        (*model.warnings, *found.warnings, *_silent(model, found, inputs)),
    )  # fmt: skip


def _component(figure: Figure) -> dict[str, object]:
    """A stack with its parts; single tensors are told by --explain."""
    parts = [{"name": part.name, "bytes": part.value} for part in figure.parts]
    return {"name": figure.name, "bytes": figure.value, "components": parts}


def _assumed(model: Model, found: WeightBytes) -> list[str]:
    """What the reader assumed; headers leave the stored type of nothing open."""
    return [text for text in model.assumptions if found.format != HEADERS or text != NO_DTYPE]


def _silent(model: Model, found: WeightBytes, inputs: dict[str, object]) -> list[str]:
    """A warning where a quantized model's config says nothing of it."""
    name = model.provenance.name.lower()
    marks = [mark for mark in ("nvfp4", "mxfp4", "fp8", "gptq", "awq", "int4", "int8", "bnb") if mark in name]
    told = found.format == HEADERS or model.architecture.quantization
    if inputs["weights"] != "config" or told or not marks:
        return []
    return [
        f"the name says {marks[0]}, but the config has no quantization_config (ModelOpt keeps it beside, in "
        "hf_quant_config.json): the model's own dtype is taken"
    ]


def headline(model: Model, found: WeightBytes) -> list[str]:
    """The answer in a few lines."""
    lines = [
        f"{model.provenance.name} · weights {'by the' if found.format == HEADERS else 'in'} {found.format}",
        f"{found.total_bytes:,} bytes = {show_bytes(found.total_bytes)}, {found.bits_per_weight:.3f} bits a parameter",
    ]
    if found.vision_bytes:
        lines.append(f"of this the vision tower: {found.vision_bytes:,} bytes = {show_bytes(found.vision_bytes)}")
    if found.audio_bytes:
        lines.append(f"of this the audio tower: {found.audio_bytes:,} bytes = {show_bytes(found.audio_bytes)}")
    if found.mtp_bytes:
        text = f"{found.mtp_bytes:,} bytes = {show_bytes(found.mtp_bytes)}"
        lines.append(f"beside it multi-token-prediction heads: {text}")
    if found.per_device_bytes != found.total_bytes:
        size = found.per_device_bytes
        lines.append(f"the fullest device holds: {size:,} bytes = {show_bytes(size)}")
    return lines


def table(found: WeightBytes) -> Table:
    """The tree: stacks and their parts."""
    columns = (Column("part", "part"), Column("bytes", "bytes", "bytes"), Column("share", "share"))
    rows: list[tuple[Cell, ...]] = []
    indents: list[int] = []
    for stack in found.figure.parts:
        for depth, figure in ((0, stack), *((1, part) for part in stack.parts)):
            rows.append((words(figure.name), figure.value, f"{100 * figure.value / found.total_bytes:.2f}%"))
            indents.append(depth)
    rows.append(("total", found.total_bytes, "100.00%"))
    return Table(columns, tuple(rows), indents=(*indents, 0))


def mixture(found: WeightBytes) -> Table:
    """How many parameters are held in which layout."""
    columns = (Column("stored as", "format"), Column("numbers", "params", "params"), Column("bytes", "bytes", "bytes"))
    return Table(columns, found.formats)


def thumb(params: int, stored: str, group_size: int | None, inputs: dict[str, object]) -> Report:
    """What a number of parameters takes, all in one format."""
    if stored == "config":
        raise InvalidInputError("--params has no config to say how weights are stored", "name a format with --weights")
    size, layout = rule_of_thumb(params, stored, group_size)
    bits = layout.bits
    note = (f"rule of thumb: {params:,} parameters x {float(bits):g} bits / 8, every one in {layout.name}; of tables, "
            "norms and head nothing is known")  # fmt: skip
    figure = Figure("weights, by the rule of thumb", size, "B", (), (), layout.source, (note,))
    results: dict[str, object] = {
        "total_bytes": size, "mtp_bytes": None, "vision_bytes": None, "bits_per_weight": float(bits), "components": [],
        "per_device_bytes": None, "rule_of_thumb": True,
    }  # fmt: skip
    columns = (
        Column("stored as", "format"),
        Column("parameters", "params", "params"),
        Column("bytes", "bytes", "bytes"),
    )
    lines = [f"{show_count(params)} parameters in {layout.name}, by the rule of thumb",
             f"{size:,} bytes = {show_bytes(size)}, {float(bits):g} bits a parameter"]  # fmt: skip
    rows = ((layout.name, params, size),)
    return Report("weights", None, inputs, results, lines, (Table(columns, rows),), (figure,), (note,))
