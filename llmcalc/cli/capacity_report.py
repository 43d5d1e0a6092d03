"""What ``llmcalc capacity`` says: the answer, the memory bar of a device, ways to spread, what would make it fit."""

from __future__ import annotations

from collections.abc import Iterator

from llmcalc.calc.capacity import Capacity
from llmcalc.calc.users import Users
from llmcalc.calc.weights import choose
from llmcalc.cli import options as opt
from llmcalc.cli.output import model_block
from llmcalc.loading import Model
from llmcalc.report.report import Cell, Column, Report, Table
from llmcalc.units import show_bytes, show_seconds

LIMITS = {"memory": "memory", "itl": "the time between tokens (--max-itl)", "ttft": "the first token (--max-ttft)",
          "nothing": "nothing"}  # fmt: skip


def report(model: Model, room: Capacity, served: Users | None, inputs: dict[str, object]) -> Report:
    """The capacity as a report."""
    kept = {name: value for name, value in inputs.items() if name != "ranks"}
    return Report(
        "capacity", model_block(model.provenance), kept, results(room, served), headline(model, room, served),
        (bar(room), ways(room)) if room.device is not None else (pool(room),), (room.figure,),
        (*model.assumptions, *assumptions(room, served)), (*model.warnings, *warned(room)),
    )  # fmt: skip


def results(room: Capacity, served: Users | None) -> dict[str, object]:
    """The keys of the JSON document; bytes are those of the fullest device, sequences those of one replica."""
    one, ranks = room.concurrency, room.asked.ranks
    held = room.memory
    out: dict[str, object] = {
        "fits": room.fits, "short_by_bytes": room.short_by_bytes, "cache_pool_bytes": room.cache_pool_bytes,
        "largest_cache_pool_bytes": room.largest_pool_bytes, "pool_tokens": room.pool_tokens,
        "concurrency": None if one is None else float(one), "max_sequences": room.max_sequences,
        "max_tokens_per_sequence": room.max_tokens_per_sequence,
        "max_position_embeddings": room.architecture.max_position_embeddings, "min_gpus": room.min_gpus,
        "min_gpus_ranks": None if room.fewest is None else dict(zip(("tp", "pp", "ep"), room.fewest[:3], strict=True)),
        "gpus": ranks.tp * ranks.pp * ranks.dp, "memory": None if held is None else held._asdict(),
        "weight_bytes": None if room.device is None else room.weight_bytes, "cache_bytes": room.cache_bytes,
        "cache_bytes_per_sequence": room.holding.bytes(room.asked.tokens, 1),
        "block_tokens": room.holding.block_tokens if room.holding.block_tokens > 1 else None,
        "limited_by": served.limited_by if served else "memory",
        "max_users": served.most if served else room.max_sequences,
        "tokens_per_second_per_device": served.tokens_per_second_per_device if served else None,
        "changes": [{"option": change.option, "change": change.text} for change in room.changes],
    }  # fmt: skip
    if served is not None and served.most:
        pace = served.pace(served.most)
        out |= {"itl_seconds": pace.itl_seconds, "ttft_seconds": pace.ttft_seconds, "basis": pace.basis}
    if room.device is not None:
        out["choices"] = [
            {**choice.ranks._asdict(), "weight_bytes": choice.weight_bytes, "valid": choice.weight_bytes is not None,
             "fits": fits, "reason": choice.reason or None}
            for choice, fits in room.choices
        ]  # fmt: skip
    return out


def headline(model: Model, room: Capacity, served: Users | None) -> list[str]:
    """The answer in a few lines."""
    a, most = room.asked, room.max_sequences
    where = "in the pool given" if room.device is None else f"on {a.ranks.tp * a.ranks.pp} x {room.device.name}"
    asked = f"{a.batch:,} sequence{'s' if a.batch > 1 else ''} of {a.tokens:,} tokens"
    lines = [f"{model.provenance.name} · {asked} · {where} · engine {a.engine}"]
    if room.fits:
        lines.append("it fits")
    else:
        lines.append(f"it does not fit: short by {room.short_by_bytes:,} bytes = {show_bytes(room.short_by_bytes)}"
                     + (" on the fullest device" if a.ranks.tp * a.ranks.pp > 1 else ""))  # fmt: skip
        lines += [f"  it would with {change.text} ({change.option})" for change in room.changes]
    lines.append(f"pool for the cache: {room.cache_pool_bytes:,} bytes = {show_bytes(room.cache_pool_bytes)} a device"
                 + (f", up to {show_bytes(room.largest_pool_bytes)} with the smallest reserves that were seen"
                    if room.largest_pool_bytes > room.cache_pool_bytes else ""))  # fmt: skip
    if room.concurrency is None:
        lines.append("sequences keep nothing: their number is not limited by memory")
    elif room.left > 0:
        lines.append(f"{float(room.concurrency):,.2f} sequences of {a.tokens:,} tokens = {room.pool_tokens:,} tokens; "
                     f"{most:,} whole ones")  # fmt: skip
        lines.append(_longest(room))
    if room.min_gpus is not None:
        lines.append(f"fewest devices: {room.min_gpus:,}{_cut(room)}")
    return [*lines, *_users(served)]


def _cut(room: Capacity) -> str:
    """How the fewest devices are used, where they are several."""
    named = zip(("tp", "pp", "ep"), room.fewest[:3] if room.fewest is not None else (), strict=False)
    said = ", ".join(f"{name} {degree}" for name, degree in named if degree > 1)
    return f" ({said})" if said else ""


def _longest(room: Capacity) -> str:
    longest, limit = room.max_tokens_per_sequence, room.architecture.max_position_embeddings
    beyond = limit is not None and (longest is None or longest > limit)
    named = f"; the config names {limit:,} positions" if beyond else ""
    if longest is None:
        return f"contexts may grow without limit: nothing kept grows{named}"
    return f"{room.asked.batch:,} may be as long as {longest:,} tokens by memory{named}"


def _users(served: Users | None) -> Iterator[str]:
    if served is None or not served.most:
        if served is not None and served.limited_by != "nothing":
            yield f"no user can be served: {LIMITS[served.limited_by]} does not allow one"
        return
    pace = served.pace(served.most)
    word = "likely" if pace.basis == "expected" else "at least"
    yield (f"{served.most:,} users at once, limited by {LIMITS[served.limited_by]}: a token takes {word} "
           f"{show_seconds(pace.itl_seconds)}, the first at least {show_seconds(pace.ttft_seconds)}, "
           f"{'at most ' if pace.basis == 'at_least' else ''}{served.tokens_per_second_per_device:,.0f} tokens/s a "
           "device")  # fmt: skip


def bar(room: Capacity) -> Table:
    """The memory of the fullest device."""
    columns = (Column("a device holds", "part"), Column("bytes", "bytes", "bytes"), Column("share", "share"))
    held, size = room.memory, room.device.memory() if room.device else 1
    rows: list[tuple[Cell, ...]] = []
    for name, value in (held._asdict() if held else {}).items():
        shown = "short" if value < 0 else f"{100 * value / size:.1f}%"
        rows.append((name, value if value >= 0 else f"{value:,} B", shown))
    return Table(columns, (*rows, ("memory", size, "100.0%")))


def ways(room: Capacity) -> Table:
    """The ways to use as many devices."""
    degrees = (Column(name, name, "count") for name in ("tp", "pp", "ep"))
    rest = (Column("weights a device", "weight_bytes", "bytes"), Column("fits", "fits"), Column("why not", "reason"))
    columns = (*degrees, *rest)
    rows = tuple(
        (c.ranks.tp, c.ranks.pp, c.ranks.ep, c.weight_bytes, "yes" if fits else "no" if c.weight_bytes else "invalid",
         c.reason)
        for c, fits in room.choices
    )  # fmt: skip
    return Table(columns, rows)


def pool(room: Capacity) -> Table:
    """What is asked of a pool that was given."""
    columns = (Column("of the pool", "part"), Column("bytes", "bytes", "bytes"))
    return Table(columns, (("asked for", room.cache_bytes), ("pool", room.cache_pool_bytes)))


def assumptions(room: Capacity, served: Users | None) -> Iterator[str]:
    """What the answer rests on."""
    a = room.asked
    if room.device is None:
        yield "the pool is given: nothing is said of weights and reserves"
    elif a.engine == "none":
        yield "engine none reserves only what --activation, --overhead and --utilization say; a real engine takes more"
    elif room.rule is not None:
        rule = f"{room.rule.rule.replace('_', ' ')}, a fraction of {room.rule.fraction:.4g}"
        yield f"{a.engine}: {rule} ({room.rule.source})"
        for part in room.reserves.parts:
            seen = f"{show_bytes(part.low_bytes)} to {show_bytes(part.high_bytes)}"
            yield f"{part.name}: {seen}, of which the largest is taken: {part.source}"
    if room.device is not None and room.limits.weight_memory is None:
        yield from room.spreading.notes(a.ranks)
    if a.ranks.dp > 1:
        yield "sequences and devices are those of one replica"
    if served is not None:
        yield "users: decode steps of all together; the first token is the last one's, of as many prompts at once"


def warned(room: Capacity) -> Iterator[str]:
    """What changes a figure."""
    if room.limits.weight_memory is None and room.device is not None:
        yield from choose(room.architecture, room.weights, room.group_size).warnings
    yield from opt.without_effect(room.architecture, room.asked.encoder_tokens, room.asked.image_tokens)
    if room.architecture.dtype_assumed:
        yield f"the config names no dtype; {room.architecture.dtype} is taken"
    limit = room.architecture.max_position_embeddings
    held = room.holding.estimate(room.asked.tokens, room.asked.batch)
    if held.allocation is not None:
        yield from held.allocation.warnings
    if limit is not None and room.asked.tokens > limit:
        yield (f"{room.asked.tokens:,} tokens are past the {limit:,} positions that the config names "
               "(max_position_embeddings)")  # fmt: skip
