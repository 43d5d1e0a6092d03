"""``llmcalc kv-cache``: how many bytes does each conversation keep?"""

from __future__ import annotations

from typing import Annotated

import typer

from llmcalc.calc.cache import kv_cache
from llmcalc.cli import options as opt
from llmcalc.cli.kv_cache_report import report
from llmcalc.cli.output import Form, emit
from llmcalc.loading import load

app = opt.verb_app()
BlockSize = Annotated[
    int | None,
    typer.Option("--block-size", parser=opt.whole("block-size"), metavar="N",
                 help="Tokens a block; by default the engine's own."),
]  # fmt: skip
BatchedTokens = Annotated[
    int | None,
    typer.Option("--max-batched-tokens", parser=opt.tokens_of("max-batched-tokens"), metavar="N",
                 help="Tokens in flight, which windows keep beside themselves."),
]  # fmt: skip
PrefixCaching = Annotated[
    bool,
    typer.Option("--prefix-caching/--no-prefix-caching", help="vLLM's: a second state a sequence."),
]


@app.command()
def verb(
    ctx: typer.Context,
    model: opt.ModelArg,
    tokens: opt.Tokens = 4096,
    batch: opt.Batch = 1,
    lengths: opt.Lengths = None,
    lengths_file: opt.LengthsFile = None,
    encoder_tokens: opt.EncoderTokens = None,
    image_tokens: opt.ImageTokens = 0,
    cache: Annotated[str, typer.Option(help="Format of keys and values: auto, bf16, fp8, q8_0, K:V ...")] = "auto",
    engine: opt.Engine = "none",
    block_size: BlockSize = None,
    max_batched_tokens: BatchedTokens = None,
    prefix_caching: PrefixCaching = True,
    tp: opt.Tp = 1,
    pp: opt.Pp = 1,
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
    """How many bytes does each conversation keep?"""
    form = Form(as_json, csv, markdown, output, force, explain)
    sizes = opt.lengths(lengths, lengths_file, ctx)
    found = load(model, source=source, as_family=as_family, overrides=opt.overrides(settings))
    estimate = kv_cache(
        found.architecture, tokens, batch, lengths=sizes, encoder_tokens=encoder_tokens, image_tokens=image_tokens,
        cache=cache, engine=engine, tp=tp, pp=pp, block_size=block_size, batched_tokens=max_batched_tokens,
        prefix_caching=prefix_caching,
    )  # fmt: skip
    inputs: dict[str, object] = {
        "tokens": estimate.tokens, "batch": estimate.batch, "encoder_tokens": encoder_tokens,
        "image_tokens": image_tokens, "cache": cache, "engine": engine, "tp": tp, "pp": pp,
        "block_size": block_size, "max_batched_tokens": max_batched_tokens, "prefix_caching": prefix_caching,
    }  # fmt: skip
    emit(report(found, estimate, inputs), form)
