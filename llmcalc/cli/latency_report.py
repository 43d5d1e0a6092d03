"""What ``llmcalc latency`` says: times with what they rest on, the split of what is read, and the derivation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmcalc.calc.expected import Expected, expected, silence
from llmcalc.calc.fit import need
from llmcalc.calc.latency import Latency
from llmcalc.calc.speculative import Speculation
from llmcalc.calc.timing import Timing, longest
from llmcalc.calc.weight_shards import Ranks, uneven
from llmcalc.calc.weights import rule_of_thumb
from llmcalc.cli import options as opt
from llmcalc.cli.expectation import in_json, rests_on
from llmcalc.cli.output import model_block
from llmcalc.errors import InvalidInputError
from llmcalc.figure import Factor, Figure, product, total
from llmcalc.hardware.device import Device
from llmcalc.loading import Model
from llmcalc.report.report import Cell, Column, Report, Table, answers
from llmcalc.units import show_bandwidth, show_bytes, show_count, show_flops, show_seconds, words

PARTS = (("weights", "weight_read_bytes"), ("embedding rows", "embedding_read_bytes"), ("cache", "cache_read_bytes"),
         ("recurrent state", "state_read_bytes"))  # fmt: skip
NOT_COUNTED = "not counted: launches, sampling, activations between products, the host"
NEEDED = (
    "the bound counts what must come from memory: of a window min(n, w-1) rows, of a chunk n mod c, of picked rows the "
    "certain ones, one embedding row; reported bytes keep min(n, w), ((n-1) mod c)+1, all picks, a row a token"
)


def report(
    model: Model, found: Latency, inputs: dict[str, object], drafts: Speculation | None, unused: Sequence[str]
) -> Report:
    """The times as a report. Args: unused: options that have no effect."""
    likely = expected(found)
    chooser = found.reader.chooser
    assumed = (*model.assumptions, *chooser.notes, *assumptions(found))
    warnings = (
        *model.warnings, *chooser.warnings, *opt.without_effect(model.architecture, found.encoder_tokens, found.images),
        *(f"--{name} has no effect without --draft" for name in unused), *warned(model, found),
        *(likely.warnings if likely else ()),
    )  # fmt: skip
    answer = results(found, likely) | {"speculative": drafts and drafts._asdict()}
    lines = [*headline(model, found, likely), *_drafted(drafts)]
    return Report(
        "latency", model_block(model.provenance), inputs, answer, lines,
        (split(found), phases(found, likely)), (figure(found),), assumed, warnings, answers(answer),
    )  # fmt: skip


def results(found: Latency, likely: Expected | None) -> dict[str, object]:
    """The keys of the JSON document; seconds and rates are floats, bytes and operations whole numbers."""
    step, number = found.decode, found.sizes.number
    return {
        "decode_seconds_at_least": step.seconds_at_least, "decode_bound": step.bound,
        "decode_seconds_roofline": step.seconds_roofline,
        "decode_memory_seconds": step.memory_seconds, "decode_compute_seconds": step.compute_seconds,
        "decode_link_seconds": step.link_seconds,
        "decode_tokens_per_second_at_most": number / step.seconds_at_least if step.seconds_at_least else None,
        "decode_flops": step.flops, "compute_bound_batch": found.compute_bound_batch,
        "read_bytes": step.read_bytes, **{name: getattr(step, name) for _, name in PARTS},
        "cache_reads": [{"kind": kind, "bytes": size} for kind, size in found.cache_reads],
        "written_bytes": step.written_bytes, "roofline_read_bytes": step.likely_read_bytes,
        "prefill_seconds_at_least": found.prefill_seconds_at_least, "prefill_bound": found.prefill_bound,
        "prefill_seconds_roofline": found.prefill_seconds_roofline, "prefill_passes": sum(n for _, n in found.passes),
        "prefill_flops": sum(n * timing.flops for timing, n in found.passes),
        "ttft_seconds_at_least": found.prefill_seconds_at_least,
        "request_seconds_at_least": found.request_seconds_at_least,
        "decode_seconds_expected": None if likely is None else in_json(likely),
    }  # fmt: skip


def headline(model: Model, found: Latency, likely: Expected | None) -> list[str]:
    """The answer in a few lines."""
    step, number = found.decode, found.sizes.number
    devices = found.reader.ranks.tp * found.reader.ranks.pp
    what = "sequence" if number == 1 else "sequences"
    lines = [
        f"{model.provenance.name} · {number:,} {what} of {found.sizes.tokens // number:,} tokens · "
        f"{devices} x {found.device.name}",
        f"a decode step takes at least {show_seconds(step.seconds_at_least)}, bound by {step.bound}: "
        f"{step.read_bytes:,} bytes = {show_bytes(step.read_bytes)} read at {show_bandwidth(found.device.bandwidth())}",
        f"the roofline of operators one after another: {show_seconds(step.seconds_roofline)}",
    ]
    if likely is not None:
        lines.append(f"expected: {show_seconds(likely.low)} to {show_seconds(likely.high)}, likely "
                     f"{show_seconds(likely.likely)} ({rests_on(likely)})")  # fmt: skip
    else:
        lines.append(f"no expectation: {silence(found, step)}")
    batch = found.compute_bound_batch
    if found.peak is not None:
        lines.append("at this length decode never turns compute-bound" if batch is None
                     else f"decode turns compute-bound from {batch:,} sequences")  # fmt: skip
    lines.append(
        f"the first token takes at least {show_seconds(found.prefill_seconds_at_least)} "
        f"({found.prompt:,} tokens of prompt, bound by {found.prefill_bound})"
    )
    if found.output > 1:
        lines.append(f"a request of {found.output:,} tokens: at least {show_seconds(found.request_seconds_at_least)}")
    return lines


def _drafted(drafts: Speculation | None) -> Iterator[str]:
    if drafts is not None:
        yield (f"drafting: {drafts.tokens_per_round:.2f} tokens a round of {show_seconds(drafts.draft_seconds)} + "
               f"{show_seconds(drafts.check_seconds)} (roofline), {show_seconds(drafts.seconds_per_token)} a token: "
               f"{drafts.speed_up:.2f} times as fast")  # fmt: skip


def split(found: Latency) -> Table:
    """What a decode step reads."""
    step = found.decode
    columns = (Column("a decode step reads", "part"), Column("bytes", "bytes", "bytes"), Column("share", "share"))
    parts = [(name, getattr(step, key)) for name, key in PARTS]
    parts += [("total", step.read_bytes), *((f"of this by {words(kind)}", size) for kind, size in found.cache_reads)]
    rows: list[tuple[Cell, ...]] = [
        (name, size, f"{100 * size / max(1, step.read_bytes):.2f}%") for name, size in parts
    ]
    return Table(columns, tuple(rows))


def phases(found: Latency, likely: Expected | None) -> Table:
    """Decode and prefill: the three bounds, the roofline, the expectation."""
    columns = tuple(Column(name, name.replace(" ", "_")) for name in (
        "phase", "at least", "memory", "compute", "links", "roofline", "expected"))  # fmt: skip

    def shown(value: float | None) -> str:
        return "" if value is None else show_seconds(value)

    step = found.decode
    rows = (
        ("decode", step.seconds_at_least, step.memory_seconds, step.compute_seconds, step.link_seconds,
         step.seconds_roofline, likely.likely if likely else None),
        ("prefill", found.prefill_seconds_at_least, *found.prefill_seconds, found.prefill_seconds_roofline, None),
    )  # fmt: skip
    return Table(columns, tuple((name, *(shown(value) for value in values)) for name, *values in rows))


def figure(found: Latency) -> Figure:
    """What the busiest device reads in a decode step, by branch and tensor; how the bound follows, in the notes."""
    step, device = found.decode, found.device
    operators = found.reader.operators(found.decode_pass())
    stage = max(range(len(found.reader.spans)), key=lambda index: sum(op.least[index] for op in operators))
    branches: dict[str, list[Figure]] = {}
    for op in operators:
        if op.least[stage]:
            calls = op.calls[stage]
            each = Factor("bytes a call" if calls > 1 else "bytes", op.least[stage] // calls, "b")
            times = (Factor("calls", calls, "L"),) if calls > 1 else ()
            branches.setdefault(f"{op.part}: {words(op.branch)}", []).append(
                product(words(op.name), "B", (*times, each))
            )
    parts = tuple(total(name, "B", tuple(leaves)) for name, leaves in branches.items())
    return total("a decode step reads", "B", parts, "CACM 52(4), 2009", tuple(_bounds(step, device, found)))


def _bounds(step: Timing, device: Device, found: Latency) -> Iterator[str]:
    cache = device.cache_bytes()
    left_out = f"less {step.spare_bytes:,} B that it can do without, " if step.spare_bytes else ""
    yield (f"memory: {step.moved_bytes:,} B / {device.bandwidth():,} B/s = {step.memory_seconds:.6g} s (read and "
           f"written, {left_out}less what a last-level cache of {cache:,} B can hold from the step before)"
           )  # fmt: skip
    if step.spare_bytes:
        yield NEEDED
    if found.peak is not None and step.compute_seconds is not None:
        tp, rate, own = found.reader.ranks.tp, found.bounds.product_rate, found.bounds.attention_rate
        work = f"{step.work.flops:,} FLOP / ({tp} x {rate:,}/s, {found.peak.dtype})"
        if own != rate:
            work = (f"{step.work.products:,} FLOP / ({tp} x {rate:,}/s, {found.peak.dtype}) + {step.work.attention:,} "
                    f"FLOP of attention / ({tp} x {own:,}/s)")  # fmt: skip
        yield f"compute: {work} = {step.compute_seconds:.6g} s"
    if step.link_seconds is not None:
        yield f"links: {step.traffic.least:,.0f} B / {device.link_bytes_per_second:,} B/s = {step.link_seconds:.6g} s"
    yield NOT_COUNTED


def assumptions(found: Latency) -> list[str]:
    """What the times rest on."""
    said = [NOT_COUNTED]
    if found.peak is not None:
        said.append(f"products run in {found.peak.dtype} at the fastest, at {show_flops(found.peak.per_second)}/s")
    if found.peak is not None and found.bounds.product_rate != found.peak.per_second:
        said.append(f"the bound takes {show_flops(found.bounds.product_rate or 0)}/s, the rate with sums in fp16")
    if found.decode.spare_bytes:
        said.append(NEEDED)
    if found.prefill.work.flops < found.prefill.flops:
        said.append(
            "the bound of a prompt leaves out what neither its last token nor the cache needs: of the last layer, all "
            "but the keys and values of the tokens before"
        )
    if found.reader.experts:
        said.append(
            "the bound reads only the experts that one token needs; the roofline those that tokens find at random"
        )
    said += uneven(found.architecture, found.reader.ranks, found.reader.group)
    if found.reader.ranks.dp > 1:
        said.append("sequences and times are those of one replica")
    return said


def warned(model: Model, found: Latency) -> Iterator[str]:
    """What is not in the figures."""
    limit, ranks = found.architecture.max_position_embeddings, found.reader.ranks
    longest_context = max(size.tokens for size, _ in found.sizes.groups)
    for name in model.architecture.uncounted:
        yield f"{name} is not counted: no reader describes it"
    if model.architecture.dtype_assumed:
        yield f"the config names no dtype; {model.architecture.dtype} is taken"
    if found.peak is not None and found.peak.note:
        yield found.peak.note
    if found.peak is None:
        yield f"{found.device.name}: no peak is known, so that nothing is said of compute (--peak)"
    if ranks.tp * ranks.pp > 1 and found.device.link_bytes_per_second is None:
        yield f"{found.device.name}: no link is known, so that communication is not counted (--link)"
    taken = need(
        found.architecture, found.device, ranks, found.sizes, weights=found.reader.weights,
        group_size=found.reader.group_size, cache=found.reader.cache, shared_prefix=found.reader.prefix,
    )  # fmt: skip
    if taken is not None and taken.short_by_bytes:
        yield f"it does not fit: {taken}; the times are those of a device that could hold it"
    if limit is not None and longest_context > limit:
        yield (f"{longest_context:,} tokens are past the {limit:,} positions that the config names "
               "(max_position_embeddings)")  # fmt: skip


def thumb(params: int, device: Device, ranks: Ranks, inputs: dict[str, object]) -> Report:
    """By the rules of thumb: every parameter is read once a step, and multiplied once a token."""
    if inputs["weights"] == "config":
        raise InvalidInputError("--params has no config to say how weights are stored", "name a format with --weights")
    size, layout = rule_of_thumb(params, str(inputs["weights"]), None)
    each = -(-size // (ranks.tp * ranks.pp))
    memory = each * ranks.pp / device.bandwidth()
    rates = device.peak_dense_per_second
    rate = rates.get("given") or rates.get("bf16")
    compute = 2 * params * int(str(inputs["batch"])) / (ranks.tp * rate) if rate else None
    seconds, bound = longest(memory, compute, None)
    note = (f"rule of thumb: {params:,} parameters in {layout.name} read once a step = {size:,} B, 2 operations each "
            "and token; no cache, tables or communication")  # fmt: skip
    answer: dict[str, object] = {
        "decode_seconds_at_least": seconds, "decode_bound": bound, "read_bytes": each, "weight_read_bytes": each,
        "cache_read_bytes": None, "decode_tokens_per_second_at_most": int(str(inputs["batch"])) / seconds,
        "rule_of_thumb": True,
    }  # fmt: skip
    lines = [f"{show_count(params)} parameters in {layout.name} on {device.name}, by the rule of thumb",
             f"a step of decode takes at least {show_seconds(seconds)}, bound by {bound}: {each:,} B read"]  # fmt: skip
    columns = (
        Column("parameters", "params", "params"),
        Column("bytes", "bytes", "bytes"),
        Column("at least", "seconds"),
    )
    found = Figure("weights, by the rule of thumb", size, "B", (), (), layout.source, (note,))
    return Report("latency", None, inputs, answer, lines, (Table(columns, ((params, each, show_seconds(seconds)),)),),
                  (found,), (note,), (), answers(answer))  # fmt: skip
