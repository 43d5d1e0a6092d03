"""What ``llmcalc measure`` says: every estimate beside what was measured, and how near they are."""

from __future__ import annotations

from collections.abc import Sequence

from llmcalc.cli.output import model_block
from llmcalc.loading import Model
from llmcalc.measure.compare import checked, memory_bar, rows
from llmcalc.measure.environment import environment, facts
from llmcalc.measure.judge import Row
from llmcalc.measure.outcome import Run
from llmcalc.measure.ranks import RankedRun
from llmcalc.measure.session import Session
from llmcalc.report.report import Cell, Column, Report, Table
from llmcalc.units import show_bandwidth, show_bytes, show_flops, show_seconds, words

COLUMNS = tuple(Column(name.replace("_", " "), name) for name in (
    "quantity", "unit", "catalogue", "calibrated", "measured", "ratio", "verdict", "binds"))  # fmt: skip


def report(model: Model, found: Session, asked: dict[str, object], kept: Sequence[str] = ()) -> Report:
    """A run as a report, finished or not."""
    table = rows(found)
    results: dict[str, object] = {
        "estimates": [estimate(row) for row in table],
        "device": found.device, "environment": found.environment,
        "checks": [check._asdict() for check in found.checks],
        "calibration": found.calibration.document() if found.calibration is not None else None,
        "runs": [run.document(found.calibration, found.machine.catalogue) for run in found.runs],
        **memory_of(found), "memory": memory_bar(found), "training": found.training, "energy": found.energy,
        "drift": found.drift, "state": found.states, "layers": found.work.depth,
        "whole_layers": len(found.work.whole.decoder.calls), "weights": found.work.dtype,
        "skipped": found.skipped, "errors": found.errors, "agrees": not missed(found, table),
    }  # fmt: skip
    warnings = [*found.warnings, *(f"skipped: {name}" for name in found.skipped),
                *(f"failed: {name}" for name in found.errors)]  # fmt: skip
    return Report(
        "measure", model_block(model.provenance), asked, results, [*headline(model, found, table), *kept],
        (screen(table), bar(found)), (), tuple(assumptions(found)), (*model.warnings, *dict.fromkeys(warnings)),
        numbers(table),
    )  # fmt: skip


def estimate(row: Row) -> dict[str, object]:
    """A row as JSON."""
    told = row._asdict()
    return told | {"band": None if row.band is None else list(row.band)}


def memory_of(found: Session) -> dict[str, object]:
    """The figures of memory that scripts look for first, bytes; and of training where that ran."""
    held = memory_bar(found)
    out: dict[str, object] = {
        name: held.get(name) for name in ("allocated_bytes", "reserved_bytes", "nvml_used_bytes", "context_bytes")
    }
    if found.training is not None:
        out |= {name: found.training[name] for name in ("steady_bytes", "peak_bytes")}
    return out


def missed(found: Session, table: Sequence[Row]) -> bool:
    """Whether what must be equal differs, a band was missed, a stage failed, or a phase did not run at all."""
    ran = {run.phase for run in found.runs} | ({"train"} if found.training is not None else set())
    unseen = bool(set(found.work.phases) - ran)
    return unseen or bool(found.errors) or any(row.missed for row in table)


def headline(model: Model, found: Session, table: Sequence[Row]) -> list[str]:
    """The answer in a few lines."""
    work = found.work
    part = f"{work.depth} of {len(work.whole.decoder.calls)} layers, " if work.layers is not None else ""
    lines = [f"{model.provenance.name} · {part}{work.dtype} · {found.machine.name}"]
    equal = [row for row in table if row.verdict in ("equal", "differs")]
    differing = [words(row.quantity) for row in equal if row.verdict == "differs"]
    lines.append(f"differs: {', '.join(differing)}" if differing else f"{len(equal)} exact figures, all equal")
    lines += [_first(run) for run in found.runs[:1]]
    judged = [row for row in table if row.verdict in ("within", "outside")]
    outside = [words(row.quantity) for row in judged if row.verdict == "outside"]
    if judged:
        lines.append(f"{len(judged) - len(outside)} of {len(judged)} within their bands"
                     + (f"; outside: {', '.join(dict.fromkeys(outside))}" if outside else ""))  # fmt: skip
    return lines


def _first(run: Run) -> str:
    took = show_seconds(run.samples.median)
    if run.phase == "decode":
        return f"a decode step of {run.batch:,} x {run.tokens:,} tokens: {took} measured, {run.rate:,.1f} tokens/s"
    return f"a prompt of {run.batch:,} x {run.tokens:,} tokens: {took} measured"


def shown(value: float | None, unit: str, *, exact: bool = False) -> str:
    """A value in the unit that a person reads; one that must be equal in full."""
    if value is None:
        return ""
    if exact:
        return f"{value:,} {unit}" if unit == "B" else f"{value:,}"
    match unit:
        case "B":
            return show_bytes(value)
        case "s":
            return show_seconds(value)
        case "B/s":
            return show_bandwidth(value)
        case "FLOP/s":
            return f"{show_flops(value)}/s"
        case "count":
            return f"{value:,.0f}"
        case "FLOP":
            return show_flops(value)
        case _:
            return f"{value:.3g}"


def screen(table: Sequence[Row]) -> Table:
    """The table; CSV has the exact numbers."""
    out: list[tuple[Cell, ...]] = []
    for row in table:
        name = words(row.quantity)
        shape = [f"{row.batch} x {row.tokens:,}" if row.batch and row.tokens else "", row.mode or ""]
        told = " ".join(part for part in shape if part)
        exact = row.verdict in ("equal", "differs")
        out.append((
            f"{name} ({told})" if told else name, row.unit, shown(row.catalogue, row.unit, exact=exact),
            shown(row.calibrated, row.unit, exact=exact), shown(row.measured, row.unit, exact=exact),
            "" if row.ratio is None else f"{row.ratio:.3f}",
            row.verdict + (f" ({row.note})" if row.note else ""), row.binds or "",
        ))  # fmt: skip
    return Table(COLUMNS, tuple(out))


def numbers(table: Sequence[Row]) -> Table:
    """The same for files: a number is a number, and the shape has columns of its own."""
    columns = (*COLUMNS, *(Column(name, name) for name in ("mode", "batch", "tokens", "note")))
    return Table(columns, tuple(tuple(getattr(row, column.key) for column in columns) for row in table))


def bar(found: Session) -> Table:
    """Memory, part by part."""
    columns = (Column("memory", "part"), Column("bytes", "bytes", "bytes"))
    return Table(columns, tuple((words(n.removesuffix("_bytes")), v) for n, v in memory_bar(found).items() if v))


def assumptions(found: Session) -> list[str]:
    """What the rows rest on."""
    said = [
        "weights and tokens are random; times are medians after a warm-up; ratio: measured over calibrated (over "
        "catalogue where that is all there is)",
        "catalogue: the estimate by the datasheet; calibrated: the same by the rates measured here",
    ]
    if found.machine.catalogue is None:
        said.append("this device has no row in the catalogue, so nothing is estimated by a datasheet")
    if found.machine.kind == "cpu":
        said.append("a processor's memory is the process's resident size over that before the weights")
    return said


def ranks(model: Model, found: RankedRun, asked: dict[str, object]) -> Report:
    """A run on several processes, as a report."""
    step = Row("decode_seconds", "s", None, None, found.samples.median, None, "not judged", mode="eager",
               batch=found.work.batch, tokens=found.work.tokens, note=f"{found.tp} ranks, links and all")  # fmt: skip
    every = (*(checked(check) for check in found.checks), step)
    results: dict[str, object] = {
        "estimates": [estimate(row) for row in every], "device": facts(found.machine),
        "environment": environment(found.machine), "checks": [check._asdict() for check in found.checks],
        "runs": [{"phase": "decode", "mode": "eager", **found.samples.summary()}], "ranks": found.tp,
        "agrees": not found.missed,
    }  # fmt: skip
    lines = [
        f"{model.provenance.name} · {found.tp} ranks · {found.work.dtype} · {found.machine.name}",
        "the ranks differ from the estimate" if found.missed else "every rank agrees with the estimate",
    ]
    return Report("measure", model_block(model.provenance), asked, results, lines, (screen(every),), (), (),
                  (*model.warnings, *found.warnings), numbers(every))  # fmt: skip
