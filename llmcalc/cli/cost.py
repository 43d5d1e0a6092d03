"""``llmcalc cost``: money per request and per million tokens, and when an expense has paid for itself."""

from __future__ import annotations

from typing import Annotated

import typer

from llmcalc.calc.cost import Cost, break_even, cost, from_rate
from llmcalc.calc.fit import Need, need
from llmcalc.calc.latency import latency
from llmcalc.calc.sizing import sequences
from llmcalc.cli import device_options as dev
from llmcalc.cli import options as opt
from llmcalc.cli import rank_options as rank
from llmcalc.cli.output import Form, emit, model_block
from llmcalc.cli.priced import priced
from llmcalc.errors import InvalidInputError
from llmcalc.loading import Model, load
from llmcalc.report.report import Cell, Column, Report, Table, answers
from llmcalc.units import show_bytes

app = opt.verb_app()
Price = Annotated[float | None, typer.Option("--price", metavar="USD", help="Of one device and hour.")]
Expense = Annotated[str | None, typer.Option("--expense", metavar="USD", help="Spent once.")]
Saving = Annotated[str | None, typer.Option("--saving", metavar="USD", help="On each request.")]
Rate = Annotated[
    float | None,
    typer.Option("--tokens-per-second", metavar="R", help="Measured output of all devices, in place of the bound."),
]
Seconds = Annotated[float | None, typer.Option("--seconds", metavar="S", help="Measured seconds of a request.")]


@app.command()
def verb(
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="Whose bound prices a request.")] = None,
    price: Price = None,
    expense: Expense = None,
    saving: Saving = None,
    tokens_per_second: Rate = None,
    seconds: Seconds = None,
    tokens: opt.Tokens = 4096,
    batch: opt.Batch = 1,
    prompt: rank.Prompt = None,
    generated: rank.OutputTokens = 100,
    weights: rank.Weights = "config",
    cache: rank.Cache = "auto",
    gpu: dev.Gpu = None,
    gpus: dev.Gpus = None,
    memory: dev.Memory = None,
    bandwidth: dev.Bandwidth = None,
    peak: dev.Peak = None,
    link: dev.Link = None,
    tp: opt.Tp = 1,
    pp: opt.Pp = 1,
    ep: rank.Ep = 1,
    settings: opt.Set = None,
    as_family: opt.As = None,
    source: opt.Source = None,
    explain: opt.Explain = False,
    as_json: opt.Json = False,
    csv: opt.Csv = False,
    markdown: opt.Markdown = False,
    output: rank.OutFile = None,
    force: opt.Force = False,
) -> None:
    """What does a request cost, and a million tokens; when has an expense paid for itself?"""
    form = Form(as_json, csv, markdown, output, force, explain)
    evens = even(expense, saving)
    ranks, first = rank.ranks(gpus, tp, pp, ep, 1), prompt or tokens
    found, money, devices, room = None, None, ranks.tp * ranks.pp, None
    device = dev.described(gpu, memory, bandwidth, peak, link)
    basis = "at_least" if tokens_per_second is None and seconds is None else "measured"
    if price is not None and basis == "measured":
        money = measured(price, tokens_per_second, seconds, devices, batch, generated, first)
    elif price is not None and model is not None:
        found = priced(load(model, source=source, as_family=as_family, overrides=opt.overrides(settings)), weights)
        device = dev.needed(device)
        answer = latency(
            found.architecture, device, first, batch, prompt=first, output=generated, weights=weights, cache=cache,
            ranks=ranks,
        )  # fmt: skip
        # The last token that is generated is not cached.
        room = need(found.architecture, device, ranks, sequences(first + generated - 1, batch, None, None, 0),
                    weights=weights, cache=cache)  # fmt: skip
        money = cost(price, answer.request_seconds_at_least, devices=devices, together=batch, output=generated,
                     prompt=first)  # fmt: skip
    inputs: dict[str, object] = {
        "price": price, "expense": expense, "saving": saving, "tokens_per_second": tokens_per_second,
        "seconds": seconds,
        "prompt": first, "output": generated, "batch": batch, "weights": weights, "cache": cache,
        "gpu": gpu, **dev.device_inputs(device), **ranks._asdict(),
    }  # fmt: skip
    emit(report(found, money, basis, evens, inputs, room), form)


def even(expense: str | None, saving: str | None) -> int | None:
    """Requests until an expense has paid for itself; None where neither is named.

    Raises: InvalidInputError.
    """
    if (expense is None) != (saving is None):
        raise InvalidInputError("--expense and --saving belong together")
    return None if expense is None or saving is None else break_even(expense, saving)


def measured(
    price: float, rate: float | None, seconds: float | None, devices: int, batch: int, output: int, prompt: int
) -> Cost:
    """The money of a rate or of a time that was measured.

    Raises: InvalidInputError.
    """
    if rate is not None and seconds is not None:
        raise InvalidInputError("--tokens-per-second and --seconds are two ways to say the same; give one")
    if rate is not None:
        return from_rate(price, rate, devices=devices, output=output, prompt=prompt)
    return cost(price, seconds or 0.0, devices=devices, together=batch, output=output, prompt=prompt)


def report(
    model: Model | None, money: Cost | None, basis: str, evens: int | None, inputs: dict[str, object], room: Need | None
) -> Report:  # fmt: skip
    """The money as a report; room: what weights and sequences take of a device, None where it is not known.

    Raises: InvalidInputError where nothing was asked.
    """
    if money is None and evens is None:
        raise InvalidInputError(
            "nothing to price",
            "give --price with MODEL and a device (or --tokens-per-second), or --expense and --saving",
        )
    results: dict[str, object] = {
        "usd_per_million_output_tokens": money and money.usd_per_million_output_tokens,
        "usd_per_million_tokens": money and money.usd_per_million_tokens,
        "usd_per_request": money and money.usd_per_request,
        "device_seconds_per_request": money and money.device_seconds_per_request,
        "break_even_requests": evens, "basis": basis if money else None,
        "fits": None if room is None else not room.short_by_bytes, "short_by_bytes": room and room.short_by_bytes,
    }  # fmt: skip
    lines, rows = [], list[tuple[Cell, ...]]()
    if money is not None:
        word = "at least " if basis == "at_least" else ""
        lines.append(f"a request of {inputs['prompt']:,} + {inputs['output']:,} tokens costs {word}"
                     f"${money.usd_per_request:,.6g}; a million output tokens {word}"
                     f"${money.usd_per_million_output_tokens:,.4g}")  # fmt: skip
        rows += [("a request", f"{money.usd_per_request:.6g}"),
                 ("a million output tokens", f"{money.usd_per_million_output_tokens:.6g}"),
                 ("a million tokens of either kind", f"{money.usd_per_million_tokens:.6g}")]  # fmt: skip
    if evens is not None:
        lines.append(f"the expense has paid for itself after {evens:,} requests")
        rows.append(("requests to break even", f"{evens}"))
    said = ["a bound, not an expectation: the fastest that the device could be, all devices busy with these requests"]
    formula = "price x device seconds of a request / 3600"
    if money is not None:
        formula += (f" = ${inputs['price']:g} x {money.device_seconds_per_request:,.6g} s / 3600 = "
                    f"${money.usd_per_request:.6g} (device seconds: devices x seconds / requests at once)")  # fmt: skip
    block = model_block(model.provenance) if model is not None else None
    table = Table((Column("US dollars", "what"), Column("", "usd")), tuple(rows))
    told = [formula, *(said if basis == "at_least" else [])]
    warnings = [*(model.warnings if model else ())]
    if room is not None and room.short_by_bytes:
        lines.append(f"but it does not fit: short by {room.short_by_bytes:,} bytes = {show_bytes(room.short_by_bytes)}")
        told.append("the price is that of devices that could hold it, which these can not")
        warnings.append(f"it does not fit: {room}; no request can be served at this price")
    return Report("cost", block, inputs, results, lines, (table,), (), told, warnings, answers(results))
