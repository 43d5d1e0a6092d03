"""``llmcalc latency``: how fast can it be at best, what limits it, and what to expect?"""

from __future__ import annotations

from typing import Annotated

import typer

from llmcalc.calc.latency import latency
from llmcalc.calc.speculative import speculate
from llmcalc.cli import device_options as dev
from llmcalc.cli import options as opt
from llmcalc.cli import rank_options as rank
from llmcalc.cli.latency_report import report, thumb
from llmcalc.cli.output import Form, emit
from llmcalc.cli.priced import priced
from llmcalc.loading import load

app = opt.verb_app()
Mla = Annotated[
    str, typer.Option("--mla", parser=opt.pick("mla", "absorbed", "expanded"), metavar="FORM",
                      help="What latent attention keeps and reads in decode: absorbed or expanded."),
]  # fmt: skip
Draft = Annotated[str | None, typer.Option("--draft", metavar="MODEL", help="A small model that drafts tokens.")]
Acceptance = Annotated[float, typer.Option("--acceptance", metavar="A", help="Chance that a drafted token is taken.")]
Drafted = Annotated[
    int, typer.Option("--draft-tokens", parser=opt.whole("draft-tokens"), metavar="K", help="Drafted in a round.")
]


@app.command()
def verb(
    ctx: typer.Context,
    model: opt.OptionalModel = None,
    tokens: opt.Tokens = 4096,
    batch: opt.Batch = 1,
    lengths: opt.Lengths = None,
    lengths_file: opt.LengthsFile = None,
    prompt: rank.Prompt = None,
    generated: rank.OutputTokens = 1,
    draft: Draft = None,
    acceptance: Acceptance = 0.7,
    draft_tokens: Drafted = 4,
    shared_prefix: rank.SharedPrefix = 0,
    encoder_tokens: opt.EncoderTokens = None,
    image_tokens: opt.ImageTokens = 0,
    weights: rank.Weights = "config",
    group_size: rank.GroupSize = None,
    cache: rank.Cache = "auto",
    mla: Mla = "absorbed",
    max_batched_tokens: rank.BatchedTokens = None,
    engine: opt.Engine = "none",
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
    params: opt.Params = None,
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
    """How fast can it be at best, what limits it, and what to expect?"""
    form = Form(as_json, csv, markdown, output, force, explain)
    opt.one_of(model, params)
    device, ranks = dev.needed(dev.described(gpu, memory, bandwidth, peak, link)), rank.ranks(gpus, tp, pp, ep, dp)
    inputs: dict[str, object] = {
        "tokens": tokens, "batch": batch, "prompt": prompt, "output": generated, "encoder_tokens": encoder_tokens,
        "image_tokens": image_tokens, "weights": weights, "group_size": group_size, "cache": cache, "mla": mla,
        "max_batched_tokens": max_batched_tokens, "engine": engine,
        "shared_prefix": shared_prefix, **dev.device_inputs(device), **ranks._asdict(),
        "draft": draft, "acceptance": acceptance if draft else None, "draft_tokens": draft_tokens if draft else None,
    }  # fmt: skip
    if model is None:
        emit(thumb(params or 0, device, ranks, inputs), form)
        return
    found = priced(load(model, source=source, as_family=as_family, overrides=opt.overrides(settings)), weights)
    answer = latency(
        found.architecture, device, tokens, batch, prompt=prompt, output=generated, weights=weights,
        group_size=group_size, cache=cache, ranks=ranks, mla="expanded" if mla == "expanded" else "absorbed",
        lengths=opt.lengths(lengths, lengths_file, ctx), encoder_tokens=encoder_tokens, image_tokens=image_tokens,
        batched_tokens=max_batched_tokens, engine=engine, shared_prefix=shared_prefix,
    )  # fmt: skip
    drafts = speculate(answer, load(draft).architecture, acceptance, draft_tokens) if draft else None
    unused = () if draft else opt.typed(ctx, "acceptance", "draft-tokens")
    emit(report(found, answer, inputs, drafts, unused), form)
