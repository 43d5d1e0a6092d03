"""``llmcalc measure``: run the reference decoder here and hold every estimate against what was seen."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from llmcalc.cli import options as opt
from llmcalc.cli import rank_options as rank
from llmcalc.cli.output import Form, emit
from llmcalc.errors import MeasureError
from llmcalc.loading import load

app = opt.verb_app()
PHASES = ("all", "decode", "prefill", "train")
DeviceName = Annotated[
    str, typer.Option("--device", metavar="NAME", help="auto, cpu, cuda, cuda:N, or the start of a GPU's UUID."),
]  # fmt: skip
PhaseName = Annotated[
    str, typer.Option("--phase", parser=opt.pick("phase", *PHASES), metavar="NAME",
                      help="decode, prefill, train; all: decode and prefill."),
]  # fmt: skip
Layers = Annotated[
    int | None,
    typer.Option("--layers", parser=opt.whole("layers"), metavar="N", help="Run the first N, and extrapolate."),
]
Budget = Annotated[
    int, typer.Option("--budget", parser=opt.whole("budget", 1, 86_400), metavar="S", help="Seconds of timing, about.")
]
Weights = Annotated[
    str, typer.Option("--weights", metavar="FORMAT", help="What the decoder stores: config, fp32, bf16 or fp16.")
]
Compiled = Annotated[bool, typer.Option("--compile", help="Also time compiled blocks; takes minutes to compile.")]
Save = Annotated[bool, typer.Option("--save", help="Keep the calibration for latency and capacity.")]
Check = Annotated[bool, typer.Option("--check", help="Exit 3 where an estimate is missed.")]
Taking = Annotated[
    bool, typer.Option("--force", help="Let -o overwrite a file, and measure beside others on the device.",
                       rich_help_panel=opt.OUTPUT),
]  # fmt: skip


@app.command()
def verb(
    model: opt.ModelArg,
    device: DeviceName = "auto",
    phase: PhaseName = "all",
    layers: Layers = None,
    tokens: opt.Tokens = 1024,
    batch: opt.Batch = 1,
    prompt: rank.Prompt = None,
    weights: Weights = "config",
    tp: opt.Tp = 1,
    budget: Budget = 120,
    compiled: Compiled = False,
    save: Save = False,
    check: Check = False,
    settings: opt.Set = None,
    as_family: opt.As = None,
    source: opt.Source = None,
    as_json: opt.Json = False,
    csv: opt.Csv = False,
    markdown: opt.Markdown = False,
    output: opt.Output = None,
    force: Taking = False,
) -> None:
    """Run the reference decoder here and hold every estimate against what is seen."""
    form = Form(as_json, csv, markdown, output, force)
    found = load(model, source=source, as_family=as_family, overrides=opt.overrides(settings))
    phases = ("decode", "prefill") if phase == "all" else (phase,)
    asked: dict[str, object] = {
        "device": device, "phase": phase, "layers": layers, "tokens": tokens, "batch": batch,
        "prompt": prompt or tokens, "weights": weights, "tp": tp, "budget": budget, "compile": compiled,
    }  # fmt: skip
    combines(phases, tp, save=save, compiled=compiled, chosen=phase)
    needs_torch()
    from llmcalc.cli import measure_report
    from llmcalc.cli.measure_kept import Kept, progress, saved
    from llmcalc.measure.run import Asked, run

    wanted = Asked(device, phases, layers, tokens, batch, prompt or tokens, weights, float(budget), compiled, force,
                   save)  # fmt: skip
    with ExitStack() as stack:
        if tp > 1:
            from llmcalc.measure.ranks import run_ranks

            shared = run_ranks(found.architecture, wanted, tp, stack)
            missed = shared.missed
            if shared.rank == 0:
                emit(measure_report.ranks(found, shared, asked), form)
        else:
            kept = Kept(found, asked, form)
            stack.enter_context(kept.interruptible())
            session = run(found.architecture, wanted, stack, keep=kept.write, say=progress)
            told = measure_report.report(found, session, asked, saved(session) if save else ())
            emit(told, kept.form)
            missed = not told.results["agrees"]
    if check and missed:
        raise typer.Exit(3)


def combines(phases: tuple[str, ...], tp: int, *, save: bool, compiled: bool, chosen: str) -> None:
    """Raises: typer.BadParameter where options exclude each other, before anything is measured."""
    if save and "decode" not in phases:
        raise typer.BadParameter("--save keeps what decode steps took: it wants --phase decode or all")
    beside = [name for name, asked in (("--save", save), ("--compile", compiled), (f"--phase {chosen}", chosen in
              ("prefill", "train"))) if asked]  # fmt: skip
    if tp > 1 and beside:
        raise typer.BadParameter(f"--tp {tp} runs decode steps, eager, on all ranks: it goes without {beside[0]}")


def needs_torch() -> None:
    """Raises: MeasureError where torch is not installed, or is and cannot be loaded."""
    from importlib import import_module
    from importlib.util import find_spec

    hint = "pip install 'llmcalc[measure]'"
    if find_spec("torch") is None:
        raise MeasureError("measure runs a decoder in torch, which is not installed", hint)
    try:
        import_module("torch")
    except (ImportError, OSError) as error:  # a library of CUDA that is not there, for one
        raise MeasureError(f"torch is installed and cannot be loaded: {error}", f"install it anew: {hint}") from None
