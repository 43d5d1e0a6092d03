"""What ``llmcalc capacity`` says: the answer, the memory bar of a device, ways to spread, what would make it fit."""

from __future__ import annotations

from collections.abc import Iterator

from llmcalc.calc.capacity import Capacity
from llmcalc.calc.expected import Expected
from llmcalc.calc.fewest import MOST_DEVICES
from llmcalc.calc.users import Met, Users
from llmcalc.calc.weights import choose
from llmcalc.cli import options as opt
from llmcalc.cli.expectation import in_json, rests_on
from llmcalc.cli.output import model_block
from llmcalc.loading import Model
from llmcalc.report.report import Cell, Column, Report, Table, answers
from llmcalc.units import show_bytes, show_seconds

LIMITS = {"memory": "memory", "itl": "the time between tokens (--max-itl)", "ttft": "the first token (--max-ttft)",
          "nothing": "nothing"}  # fmt: skip


def report(model: Model, room: Capacity, served: Users | None, inputs: dict[str, object]) -> Report:
    """The capacity as a report."""
    kept = {name: value for name, value in inputs.items() if name != "ranks"}
    found = results(room, served)
    return Report(
        "capacity", model_block(model.provenance), kept, found, headline(model, room, served),
        (bar(room), ways(room)) if room.device is not None else (pool(room),), (room.figure,),
        (*model.assumptions, *assumptions(room, served)), (*model.warnings, *warned(room, served)), csv=answers(found),
    )  # fmt: skip


def results(room: Capacity, served: Users | None) -> dict[str, object]:
    """The keys of the JSON document; bytes are those of the fullest device, sequences those of one replica."""
    one, ranks, kept = room.concurrency, room.asked.ranks, room.holding.keeps
    held = room.memory
    out: dict[str, object] = {
        "fits": room.fits, "short_by_bytes": room.short_by_bytes,
        "cache_pool_bytes": room.cache_pool_bytes if kept else None,
        "largest_cache_pool_bytes": room.largest_pool_bytes if kept else None, "pool_tokens": room.pool_tokens,
        "concurrency": None if one is None else float(one), "max_sequences": room.max_sequences,
        "max_tokens_per_sequence": room.max_tokens_per_sequence,
        "max_position_embeddings": room.architecture.max_position_embeddings, "min_gpus": room.min_gpus,
        "min_gpus_ranks": None if room.fewest is None else dict(zip(("tp", "pp", "ep"), room.fewest[:3], strict=True)),
        "gpus": ranks.tp * ranks.pp * ranks.dp, "memory": None if held is None else held._asdict(),
        "weight_bytes": None if room.device is None else room.weight_bytes,
        "cache_bytes": room.cache_bytes if kept else None,
        "cache_bytes_per_sequence": room.holding.bytes(room.asked.tokens, 1) if kept else None,
        "block_tokens": room.holding.block_tokens if room.holding.block_tokens > 1 else None,
        "changes": [{"option": change.option, "change": change.text} for change in room.changes],
        **of_users(room, served),
    }  # fmt: skip
    if room.device is not None:
        out["choices"] = [
            {**choice.ranks._asdict(), "weight_bytes": choice.weight_bytes, "valid": choice.weight_bytes is not None,
             "fits": fits, "reason": choice.reason or None}
            for choice, fits in room.choices
        ]  # fmt: skip
    return out


def of_users(room: Capacity, served: Users | None) -> dict[str, object]:
    """Users by the bound under the plain keys, by what is expected under their own."""
    if served is None:
        name = "memory" if room.max_sequences is not None else "nothing"
        return {"limited_by": name, "max_users": room.max_sequences, "tokens_per_second_per_device": None,
                "basis": "at_least", "targets": [], "max_users_expected": None, "expected_reason": None}  # fmt: skip
    bound, likely, told = served.bound, served.expected, served.told
    return {
        "limited_by": bound.limited_by, "max_users": bound.most,
        "tokens_per_second_per_device": bound.tokens_per_second_per_device, "basis": bound.basis,
        "itl_seconds": bound.itl_seconds, "ttft_seconds": served.ttft(bound.most) if bound.most else None,
        "targets": [target._asdict() for target in served.met()],
        "max_users_expected": likely and likely.most, "limited_by_expected": likely and likely.limited_by,
        "tokens_per_second_per_device_expected": likely and likely.tokens_per_second_per_device,
        "itl_seconds_expected": likely and likely.itl_seconds,
        "decode_seconds_expected": told and in_json(told),
        "expected_up_to_users": served.spoken, "expected_reason": served.silent or None,
    }  # fmt: skip


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
    if room.holding.keeps:
        size, largest = room.cache_pool_bytes, room.largest_pool_bytes
        seen = f", up to {show_bytes(largest)} with the smallest reserves that were seen" if largest > size else ""
        lines.append(f"pool for the cache: {size:,} bytes = {show_bytes(size)} a device{seen}")
    if room.concurrency is None:
        further = "further sequences" if room.asked.shared_prefix else "sequences"
        lines.append(f"{further} keep nothing: their number is not limited by memory")
    elif room.left > 0:
        lines.append(f"{float(room.concurrency):,.2f} sequences of {a.tokens:,} tokens = {room.pool_tokens:,} tokens; "
                     f"{most:,} whole ones")  # fmt: skip
        lines.append(_longest(room))
    if room.min_gpus is not None:
        lines.append(f"fewest devices: {room.min_gpus:,}{_cut(room)}")
    elif room.device is not None and room.limits.weight_memory is None:
        lines.append(f"fewest devices: none up to {MOST_DEVICES:,} would do")
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
    """Users by the bound and by what is expected, and whether the sequences asked for meet the targets."""
    if served is None:
        return
    bound, likely = served.bound, served.expected
    if bound.most == 0:
        yield f"no user can be served: {LIMITS[bound.limited_by]} does not allow one"
    elif bound.most and bound.itl_seconds:
        yield (f"at most {bound.most:,} users at once, limited by {LIMITS[bound.limited_by]}: a token takes at least "
               f"{show_seconds(bound.itl_seconds)}, the first at least {show_seconds(served.ttft(bound.most))}, "
               f"at most {bound.tokens_per_second_per_device:,.0f} tokens/s a device")  # fmt: skip
    if likely is not None and likely.most and likely.itl_seconds:
        yield (f"expected: {likely.most:,} users at once, limited by {LIMITS[likely.limited_by]}: a token likely takes "
               f"{show_seconds(likely.itl_seconds)}{_between(likely.step)}, "
               f"{likely.tokens_per_second_per_device:,.0f} tokens/s a device")  # fmt: skip
    elif likely is not None and likely.most == 0 and bound.most:
        yield f"expected: no user is served within {LIMITS[likely.limited_by]}"
    elif served.spoken != 0 and bound.most:
        yield f"expected: not known, for {served.silent}"
    yield from (_target(target, served.room.asked.batch) for target in served.met())
    if served.told is not None:
        yield f"expected {rests_on(served.told)}"


def _between(step: Expected | None) -> str:
    return "" if step is None else f" ({show_seconds(step.low)} to {show_seconds(step.high)})"


def _target(target: Met, number: int) -> str:
    """Whether the sequences asked for meet a target, and on what basis that is said."""
    what = "a token" if target.target == "itl" else "the last first token"
    least = f"{what} takes at least {show_seconds(target.at_least)}"
    low, likely, high = target.expected_low, target.expected, target.expected_high
    seen = ""
    if low is not None and likely is not None and high is not None:
        seen = f"{what} likely takes {show_seconds(likely)} ({show_seconds(low)} to {show_seconds(high)})"
    verdict = {
        (False, "at_least"): f"surely missed, {least}", (False, "expected"): f"expected to be missed, {seen}",
        (True, "expected"): f"expected to be met, {seen}", (None, None): f"not ruled out, {least}",
    }[target.met, target.basis]  # fmt: skip
    return f"--max-{target.target} {show_seconds(target.seconds)} with {number:,} at once: {verdict}"


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
        if a.ranks.pp > 1:
            yield "by the bound, stages may work on different sequences at once; expected are steps of all together"


def warned(room: Capacity, served: Users | None) -> Iterator[str]:
    """What changes a figure."""
    if served is not None and served.told is not None:
        yield from served.told.warnings
    if room.limits.weight_memory is None and room.device is not None:
        yield from choose(room.architecture, room.weights, room.group_size).warnings
    yield from opt.without_effect(room.architecture, room.asked.encoder_tokens, room.asked.image_tokens)
    if room.architecture.dtype_assumed:
        yield f"the config names no dtype; {room.architecture.dtype} is taken"
    limit = room.architecture.max_position_embeddings
    if room.device is not None and room.device.unified_memory and "memory" not in room.device.given:
        yield (f"{room.device.name}: the memory is the system's too, which may leave the GPU less (macOS by default "
               "two thirds to three quarters); --memory says how much")  # fmt: skip
    if room.device is None:
        given = [f"--{name.replace('_', '-')}" for name, value in room.limits._asdict().items()
                 if value is not None and name != "cache_memory"]  # fmt: skip
        if given:
            yield f"beside --cache-memory, which is the pool itself, {', '.join(given)} has no effect"
    held = room.holding.estimate(room.asked.tokens, room.asked.batch)
    if held.allocation is not None:
        yield from held.allocation.warnings
    if limit is not None and room.asked.tokens > limit:
        yield (f"{room.asked.tokens:,} tokens are past the {limit:,} positions that the config names "
               "(max_position_embeddings)")  # fmt: skip
