"""``llmcalc capacity``: how many sequences fit, what is the longest context, how many devices, how many users?"""

from __future__ import annotations

from typing import Annotated

import typer

from llmcalc.calc.capacity import Limits, capacity
from llmcalc.calc.room import Asked
from llmcalc.calc.users import known_users
from llmcalc.cli import device_options as dev
from llmcalc.cli import options as opt
from llmcalc.cli import rank_options as rank
from llmcalc.cli.capacity_report import report
from llmcalc.cli.output import Form, emit
from llmcalc.cli.priced import priced
from llmcalc.loading import load

app = opt.verb_app()
PANEL = "Memory"


def _bytes(name: str, text: str) -> object:
    return typer.Option(f"--{name}", parser=rank.size_of(name), metavar="SIZE", help=text, rich_help_panel=PANEL)


CacheMemory = Annotated[int | None, _bytes("cache-memory", "The pool of one device, given directly.")]
WeightMemory = Annotated[int | None, _bytes("weight-memory", "Weights of one device, instead of the estimate.")]
Activation = Annotated[int | None, _bytes("activation", "Activations of one device, instead of the engine's range.")]
Overhead = Annotated[int | None, _bytes("overhead", "Runtime of one device, instead of the engine's range.")]
Utilization = Annotated[
    float | None, typer.Option("--utilization", metavar="F", help="Share of the memory to use.", rich_help_panel=PANEL)
]
BlockSize = Annotated[
    int | None, typer.Option("--block-size", parser=opt.whole("block-size"), metavar="N", help="Tokens a block.")
]
MaxItl = Annotated[float | None, typer.Option("--max-itl", metavar="S", help="Seconds between tokens, at most.")]
MaxTtft = Annotated[float | None, typer.Option("--max-ttft", metavar="S", help="Seconds to the first token, at most.")]
Check = Annotated[
    bool, typer.Option("--check", help="Exit 3 where it does not fit, or misses a target.", rich_help_panel=opt.OUTPUT)
]


@app.command()
def verb(
    model: opt.ModelArg,
    tokens: opt.Tokens = 4096,
    batch: opt.Batch = 1,
    shared_prefix: rank.SharedPrefix = 0,
    encoder_tokens: opt.EncoderTokens = None,
    image_tokens: opt.ImageTokens = 0,
    weights: rank.Weights = "config",
    group_size: rank.GroupSize = None,
    cache: rank.Cache = "auto",
    engine: opt.Engine = "none",
    utilization: Utilization = None,
    cache_memory: CacheMemory = None,
    weight_memory: WeightMemory = None,
    activation: Activation = None,
    overhead: Overhead = None,
    max_batched_tokens: rank.BatchedTokens = None,
    block_size: BlockSize = None,
    max_itl: MaxItl = None,
    max_ttft: MaxTtft = None,
    gpu: dev.Gpu = None,
    gpus: dev.Gpus = None,
    memory: dev.Memory = None,
    bandwidth: dev.Bandwidth = None,
    peak: dev.Peak = None,
    link: dev.Link = None,
    tp: opt.Tp = 1,
    pp: opt.Pp = 1,
    ep: rank.Ep = 1,
    dp: rank.Dp = 1,
    check: Check = False,
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
    """How many sequences fit, what is the longest context, how many devices, and how many users?"""
    form = Form(as_json, csv, markdown, output, force, explain)
    device = dev.described(gpu, memory, bandwidth, peak, link)
    found = priced(load(model, source=source, as_family=as_family, overrides=opt.overrides(settings)), weights)
    asked = Asked(tokens, batch, cache, engine, rank.ranks(gpus, tp, pp, ep, dp), block_size, max_batched_tokens,
                  encoder_tokens, image_tokens, shared_prefix)  # fmt: skip
    limits = Limits(utilization, cache_memory, weight_memory, activation, overhead)
    room = capacity(found.architecture, device, asked, limits, weights=weights, group_size=group_size)
    served = known_users(room, device, max_itl, max_ttft)
    inputs: dict[str, object] = {
        **asked._asdict(), **asked.ranks._asdict(), **limits._asdict(), "ranks": None, "weights": weights,
        "group_size": group_size, "max_itl": max_itl, "max_ttft": max_ttft, **dev.device_inputs(device),
    }  # fmt: skip
    emit(report(found, room, served, inputs), form)
    if check and not (room.fits and all(target.met is not False for target in (served.met() if served else ()))):
        raise typer.Exit(3)
