"""``llmcalc kv-cache``: how many bytes does each conversation keep?"""

from __future__ import annotations

from typing import Annotated

import typer

from llmcalc.calc.cache import CacheEstimate, kv_cache
from llmcalc.cli import options as opt
from llmcalc.cli.output import Form, emit, model_block
from llmcalc.engines.base import Allocation
from llmcalc.figure import Figure
from llmcalc.loading import Model, load
from llmcalc.report.report import Cell, Column, Report, Table
from llmcalc.units import show_bytes, words

app = opt.verb_app()
BlockSize = Annotated[
    int | None, typer.Option("--block-size", min=1, max=2**20, help="Tokens a block; by default the engine's own.")
]
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
    model: opt.ModelArg,
    tokens: opt.Tokens = 4096,
    batch: opt.Batch = 1,
    lengths: opt.Lengths = None,
    lengths_file: opt.LengthsFile = None,
    encoder_tokens: opt.EncoderTokens = None,
    image_tokens: opt.ImageTokens = 0,
    cache: Annotated[str, typer.Option(help="Format of keys and values: auto, bf16, fp8, q8_0, K:V ...")] = "auto",
    engine: Annotated[str, typer.Option(help="none, vllm, sglang, tensorrt-llm, llama.cpp, transformers.")] = "none",
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
    form.check()
    found = load(model, source=source, as_family=as_family, overrides=opt.overrides(settings))
    sizes = opt.lengths(lengths, lengths_file)
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


def report(model: Model, estimate: CacheEstimate, inputs: dict[str, object]) -> Report:
    """The estimate as a report."""
    told = estimate.allocation.warnings if estimate.allocation else ()
    warnings = [*model.warnings, *_context(model, estimate), *_dtype(model, str(inputs["cache"])), *told]
    return Report(
        "kv-cache", model_block(model.provenance), inputs, results(estimate, str(inputs["engine"])),
        headline(model, estimate), (table(estimate),), figures(estimate), model.assumptions, warnings,
    )  # fmt: skip


def results(estimate: CacheEstimate, engine: str) -> dict[str, object]:
    """The keys of the JSON document."""
    out: dict[str, object] = {
        "total_bytes": estimate.total_bytes,
        "kv_bytes": estimate.kv_bytes,
        "recurrent_bytes": estimate.recurrent_bytes,
        "bytes_per_sequence": estimate.bytes_per_sequence,
        "bytes_per_token": estimate.bytes_per_token,
        "cache_format": estimate.cache_format,
        "tokens": estimate.tokens,
        "batch": estimate.batch,
        "total_tokens": estimate.total_tokens,
        "layers": [
            {
                "kind": r.kind,
                "count": r.layers,
                "bytes": r.bytes,
                "bytes_per_token": r.bytes_per_token,
                "arrays": list(r.arrays),
            }
            for r in estimate.layers
        ],
        "every_layer_full_bytes": estimate.every_layer_full_bytes,
        "mla_expanded_bytes": estimate.mla_expanded_bytes,
    }
    if engine != "none":
        out |= reserved(estimate)
    if estimate.per_device_bytes is not None:
        out["per_device_bytes"] = estimate.per_device_bytes
    return out


def reserved(estimate: CacheEstimate) -> dict[str, object]:
    """What the engine takes, as JSON; figures of blocks, slots and the log are those of one device."""
    taken = estimate.allocation
    if taken is None:
        return {}
    out: dict[str, object] = {
        "allocated_bytes": taken.allocated_bytes, "blocks": taken.blocks, "log_line_bytes": taken.log_line_bytes,
        "log_line": taken.log_line or None, "block_tokens": taken.block_tokens, "block_bytes": taken.block_bytes,
        "slots_tokens": taken.slots, "unused_tokens": taken.unused, "pool_reserve_bytes": taken.reserve_bytes,
        "allocated_cache_format": taken.cache_format,
    }  # fmt: skip
    if estimate.per_device_bytes is not None:
        out["allocated_per_device_bytes"] = taken.per_device_bytes
    return out


def figures(estimate: CacheEstimate) -> tuple[Figure, ...]:
    """The derivations: of the exact arrays, and of what the engine takes on the fullest device."""
    return (estimate.figure, *((estimate.allocation.figure,) if estimate.allocation else ()))


def headline(model: Model, estimate: CacheEstimate) -> list[str]:
    """The answer in a few lines."""
    each = estimate.bytes_per_sequence
    one = each if isinstance(each, int) else max(each)
    which = "per sequence" if isinstance(each, int) else "in the longest sequence"
    tokens = f"{estimate.tokens:,} tokens" if isinstance(estimate.tokens, int) else f"{estimate.batch} sequences"
    lines = [
        f"{model.provenance.name} · {tokens} · cache in {estimate.cache_format}",
        f"{one:,} bytes = {show_bytes(one)} {which}",
    ]
    if estimate.batch > 1:
        size = estimate.total_bytes
        lines.append(f"{size:,} bytes = {show_bytes(size)} in {estimate.batch:,} sequences")
    if estimate.bytes_per_token is not None:
        lines.append(f"each further token adds {estimate.bytes_per_token:,} bytes a sequence")
    if estimate.recurrent_bytes:
        lines.append(f"of this {estimate.recurrent_bytes:,} bytes are recurrent state, which does not grow")
    if estimate.allocation is not None:
        return lines + three(estimate, estimate.allocation)
    if estimate.every_layer_full_bytes not in (None, estimate.total_bytes):
        full = estimate.every_layer_full_bytes or 0
        lines.append(f"were every layer full attention: {full:,} bytes = {show_bytes(full)}")
    if estimate.mla_expanded_bytes is not None:
        size = estimate.mla_expanded_bytes
        lines.append(f"were the latents expanded to heads: {size:,} bytes = {show_bytes(size)}")
    if estimate.per_device_bytes is not None:
        size = estimate.per_device_bytes
        lines.append(f"the fullest device holds: {size:,} bytes = {show_bytes(size)}")
    return lines


def three(estimate: CacheEstimate, taken: Allocation) -> list[str]:
    """The three numbers that people mean by the cache, and which of them the engine's log shows."""
    full, split = estimate.every_layer_full_bytes, estimate.per_device_bytes is not None
    rows = [
        ("exact arrays", estimate.total_bytes, estimate.per_device_bytes, f"in {estimate.cache_format}"),
        ("the engine takes", taken.allocated_bytes, taken.per_device_bytes, f"in {taken.cache_format}"),
        ("every layer full", full, None, ""),
    ]
    lines = ["", "the three numbers, all sequences" + (", all devices (and the fullest one)" if split else "") + ":"]
    for name, size, device, note in rows:
        if size is not None:
            one = f"; one device {device:,} = {show_bytes(device)}" if split and device is not None else ""
            lines.append(f"  {name:<17} {size:>18,} bytes = {show_bytes(size):<11} {note}{one}".rstrip())
    if taken.blocks is not None and taken.block_bytes is not None:
        lines.append(
            f"{taken.blocks:,} blocks of {taken.block_bytes:,} bytes" + (" on the fullest device" if split else "")
        )
    if taken.slots is not None:
        lines.append(f"room for {taken.slots:,} tokens where nothing is dropped, {taken.unused:,} of them unused")
    if taken.log_line_bytes is not None:
        size = taken.log_line_bytes
        more = "" if size in (taken.per_device_bytes, taken.allocated_bytes) else ", with what the pool holds back"
        lines.append(f"the log shows the second{more}: {size:,} bytes = {show_bytes(size)}, in {taken.log_line}")
    return lines


def table(estimate: CacheEstimate) -> Table:
    """One row a kind of layer, and the sum."""
    columns = (
        Column("layers", "kind"), Column("count", "count", "count"), Column("bytes", "bytes", "bytes"),
        Column("bytes a token", "bytes_per_token", "count"), Column("keeps", "arrays"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (words(r.kind), r.layers, r.bytes, r.bytes_per_token, words(", ".join(r.arrays)) or "nothing")
        for r in estimate.layers
    ]
    if len(rows) > 1:
        layers = sum(r.layers for r in estimate.layers)
        rows.append(("total", layers, estimate.total_bytes, estimate.bytes_per_token, ""))
    return Table(columns, tuple(rows))


def _context(model: Model, estimate: CacheEstimate) -> list[str]:
    limit = model.architecture.max_position_embeddings
    longest = estimate.tokens if isinstance(estimate.tokens, int) else max(estimate.tokens)
    if limit is None or longest <= limit:
        return []
    return [f"{longest:,} tokens are past the {limit:,} positions that the config names (max_position_embeddings)"]


def _dtype(model: Model, cache: str) -> list[str]:
    """The model's dtype, where nobody named one and an array here is stored in it."""
    a = model.architecture
    used = (cache == "auto" and a.cache_format is None) or any(held.state.dtype == "model" for held in a.states)
    return [f"the config names no dtype; {a.dtype} is taken"] if a.dtype_assumed and used else []
