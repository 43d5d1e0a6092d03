"""``llmcalc mfu``: a measured rate of training as a share of the peak."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmcalc.calc.mfu import MEANING, RULES, Utilization, mfu
from llmcalc.cli import device_options as dev
from llmcalc.cli import options as opt
from llmcalc.cli.output import Form, emit, model_block
from llmcalc.errors import InvalidInputError
from llmcalc.hardware.catalogue import Device, device
from llmcalc.loading import Model, load
from llmcalc.report.report import Column, Report, Table
from llmcalc.units import parse_rate, show_flops, words

app = opt.verb_app()


@app.command()
def verb(
    model: opt.OptionalModel = None,
    tokens_per_second: Annotated[
        float | None, typer.Option("--tokens-per-second", metavar="R", help="Of all devices together.")
    ] = None,
    train_tokens: opt.TrainTokens = None,
    seconds: Annotated[float | None, typer.Option("--seconds", metavar="S", help="Taken by --train-tokens.")] = None,
    tokens: opt.Tokens = 4096,
    gpu: dev.Gpu = None,
    gpus: Annotated[int, typer.Option("--gpus", parser=opt.whole("gpus", 1, 2**24), metavar="N", help="How many.")] = 1,
    peak: Annotated[str | None, typer.Option("--peak", metavar="RATE", help="Dense peak of one, like 989e12.")] = None,
    peak_dtype: Annotated[
        str | None, typer.Option("--peak-dtype", metavar="DTYPE", help="Format of the products: bf16, fp8 ...")
    ] = None,
    recompute: opt.Recomputed = "none",
    convention: Annotated[
        str | None, typer.Option("--convention", parser=opt.pick("convention", *RULES), metavar="|".join(RULES))
    ] = None,
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
    """What share of the peak does a measured rate of training reach?"""
    form = Form(as_json, csv, markdown, output, force, explain)
    opt.one_of(model, params)
    found = model and load(model, source=source, as_family=as_family, overrides=opt.overrides(settings))
    rate = rate_of(tokens_per_second, train_tokens, seconds)
    best, dtype, where = peak_of(gpu, peak, peak_dtype, found or None)
    rows = mfu(
        found.architecture if found else None, rate, best, tokens=tokens, gpus=gpus, recompute=recompute,  # type: ignore[arg-type]
        parameters=params,
    )  # fmt: skip
    inputs: dict[str, object] = {
        "tokens_per_second": rate, "tokens": tokens, "gpu": gpu, "gpus": gpus, "recompute": recompute, "params": params,
        "peak_flops_per_second": best, "peak_dtype": dtype, "peak_source": where,
    }  # fmt: skip
    emit(report(found or None, rows, chosen(rows, convention), inputs), form)


def rate_of(given: float | None, train_tokens: int | None, seconds: float | None) -> float:
    """Tokens a second, given or from a run.

    Raises: InvalidInputError.
    """
    if given is not None and (train_tokens, seconds) == (None, None):
        rate = given
    elif given is None and train_tokens is not None and seconds is not None and seconds > 0:
        rate = train_tokens / seconds
    else:
        raise InvalidInputError("give --tokens-per-second, or --train-tokens with --seconds above zero")
    if not 0 < rate < float("inf"):
        raise InvalidInputError(f"a rate of {rate} tokens a second: expected a number above zero")
    return rate


def peak_of(gpu: str | None, peak: str | None, dtype: str | None, model: Model | None) -> tuple[float, str | None, str]:
    """The dense peak of one device, its number format, and where it is from; ``--peak`` goes before the catalogue."""
    if peak is not None:
        return parse_rate(peak, "peak", ("FLOP/s", "FLOPS", "OP/s")), dtype, "given with --peak"
    if gpu is None:
        raise InvalidInputError("no peak is known", "give --gpu NAME, or --peak RATE")
    own = model.architecture.dtype if model is not None else "bf16"
    dtype = dtype or (own if own in ("bf16", "fp16") else "bf16")
    found: Device = device(gpu)
    sure = found.confidence.get(f"peak_{dtype}", "")
    return found.peak(dtype), dtype, f"{found.name}, dense {dtype}, {sure}: {'; '.join(found.source)} ({found.date})"


def chosen(rows: tuple[Utilization, ...], convention: str | None) -> Utilization:
    """The row of the convention that was asked for: pairs that are seen by default, without a model 6 N."""
    names = {row.convention: row for row in rows}
    if convention is not None and convention not in names:
        raise InvalidInputError(f"--convention {convention} needs a model, not --params", f"known: {', '.join(names)}")
    return names.get(convention or "causal", rows[0])


def report(model: Model | None, rows: tuple[Utilization, ...], main: Utilization, inputs: dict[str, Any]) -> Report:
    """The shares as a report."""
    results: dict[str, object] = {
        "mfu": main.mfu, "hfu": main.hfu, "convention": main.convention,
        "by_convention": {
            r.convention: {"meaning": MEANING[r.convention], "mfu": r.mfu, "hfu": r.hfu,
                           "model_flops_per_token": r.model_flops_per_token,
                           "hardware_flops_per_token": r.hardware_flops_per_token}
            for r in rows
        },
        **{name: inputs[name] for name in ("tokens_per_second", "peak_flops_per_second", "peak_dtype", "peak_source")},
    }  # fmt: skip
    name = model.provenance.name if model is not None else "by the rule of thumb"
    lines = [
        f"{name} · {inputs['tokens_per_second']:,.6g} tokens/s on {inputs['gpus']} · sequences of {inputs['tokens']:,}",
        f"MFU {100 * main.mfu:.2f}%, HFU {100 * main.hfu:.2f}% ({MEANING[main.convention]})",
        f"of a peak of {show_flops(inputs['peak_flops_per_second'])}/s: {inputs['peak_source']}",
    ]
    columns = (
        Column("convention", "convention"), Column("FLOP a token", "model_flops_per_token", "count"),
        Column("MFU %", "mfu_percent"), Column("HFU %", "hfu_percent"), Column("counts", "meaning"),
    )  # fmt: skip
    table = Table(
        columns,
        tuple(
            (words(r.convention), round(r.model_flops_per_token), f"{100 * r.mfu:.2f}", f"{100 * r.hfu:.2f}",
             MEANING[r.convention])
            for r in rows
        ),
    )  # fmt: skip
    told = [] if model is not None else ["6 operations a parameter and token, by the rule of thumb"]
    block = model_block(model.provenance) if model is not None else None
    warnings = model.warnings if model is not None else ()
    if main.mfu > 1:
        warnings = (
            *warnings,
            f"an MFU of {main.mfu:.2f} is above one: is the rate that of all devices, the peak that of its dtype?",
        )
    return Report("mfu", block, inputs, results, lines, (table,), (), told, warnings)
