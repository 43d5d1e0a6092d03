"""Every estimate beside what was measured: the rows of the answer."""

from __future__ import annotations

from collections.abc import Iterator

from llmcalc.errors import InvalidInputError
from llmcalc.measure.exactness import Check
from llmcalc.measure.judge import Row, decode_band, near, prefill_band, same
from llmcalc.measure.need import cache_bytes, weight_bytes
from llmcalc.measure.outcome import Run
from llmcalc.measure.predict import scans
from llmcalc.measure.session import Session

SLACK, SHARE = 64 * 2**20, 0.02
PROCESS_SHARE = 0.01


def rows(found: Session) -> list[Row]:
    """Exact things first, then rates, times, memory, energy."""
    out = [checked(check) for check in found.checks]
    return [*out, *_rates(found), *_times(found), *_whole(found), *_memory(found), *_trained(found), *_energy(found)]


def checked(check: Check) -> Row:
    """A check as a row: whole numbers are equal or not, the rest lies within its tolerance or not."""
    name = check.name.replace(" ", "_")
    if check.tolerance is None:
        return same(name, check.unit, check.expected, check.found)
    verdict = "within" if check.ok else "outside"
    return Row(name, check.unit, None, None, check.found, None, verdict, band=(0.0, check.tolerance))


def _rates(found: Session) -> Iterator[Row]:
    rates, row, dtype = found.calibration, found.machine.catalogue, found.work.dtype
    if rates is None:
        return
    datasheet = row.bandwidth_bytes_per_second if row is not None else None
    unit = "B/s"
    yield near("copy_bytes_per_second", unit, datasheet, None, rates.copy.median, "copy")
    yield near("read_bytes_per_second", unit, datasheet, None, rates.read.median, None)
    yield near("gemv_bytes_per_second", unit, datasheet, None, rates.gemv.median, None)
    peak = None
    if row is not None:
        try:
            peak = row.peak_or_fallback(dtype).per_second
        except InvalidInputError:
            peak = None
    band = "matmul amd" if row is not None and row.vendor.lower() == "amd" else "matmul"
    yield near("matmul_flops_per_second", "FLOP/s", peak, None, rates.matmul.median, band)


def _times(found: Session) -> Iterator[Row]:
    kind = found.machine.kind
    for run in found.runs:
        band: str | None = decode_band(kind, run.mode, run.batch)
        note = ""
        if run.phase == "prefill":
            band = prefill_band(kind, run.tokens)
            if scans(found.work):
                band, note = None, "the reference decoder scans token by token, engines in blocks"
        if run.samples.trust == "unstable":
            count, spread = len(run.samples.seconds), run.samples.spread
            band, note = None, f"unstable: the middle half of {count} times spans {spread:.0%}"
        yield _timed(run, band, note)
        if run.catalogue is not None and run.catalogue.at_least is not None:
            held = run.samples.median >= run.catalogue.at_least
            yield Row(
                f"{run.phase}_seconds_at_least", "s", run.catalogue.at_least, None, run.samples.median,
                run.samples.median / run.catalogue.at_least, "within" if held else "outside", run.catalogue.binds,
                (1.0, float(2**31)), run.mode, run.batch, run.tokens, "the true bound",
            )  # fmt: skip


def _timed(run: Run, band: str | None, note: str) -> Row:
    catalogue = run.catalogue.seconds if run.catalogue is not None else None
    calibrated = run.calibrated.seconds if run.calibrated is not None else None
    name = band if calibrated is not None or run.phase == "prefill" or band is None else "decode catalogue"
    binds = run.calibrated.binds if run.calibrated else run.catalogue.binds if run.catalogue else None
    return near(
        f"{run.phase}_seconds", "s", catalogue, calibrated, run.samples.median, name,
        binds=binds, mode=run.mode, batch=run.batch, tokens=run.tokens, note=note,
    )  # fmt: skip


def _whole(found: Session) -> Iterator[Row]:
    if found.extrapolated is not None:
        one = found.extrapolated
        yield near(
            "whole_model_decode_seconds", "s", one.catalogue, one.calibrated, one.seconds, None, mode=one.mode,
            batch=found.work.batch, tokens=found.work.tokens,
            note=f"extrapolated to {one.layers} layers from {one.depths[0]} and {one.depths[1]}",
        )  # fmt: skip


def _memory(found: Session) -> Iterator[Row]:
    if found.need is None or not found.runs:
        return
    first = found.runs[0]
    length = first.tokens + 1 if first.phase == "decode" else first.tokens
    explained = weight_bytes(found.work) + cache_bytes(found.work, length, first.batch)
    explained += found.need.activations if first.phase == "prefill" else 0
    peak = first.memory.peak_allocated if found.machine.kind == "cuda" else _grown(found, first)
    if peak is None:
        return
    rest = peak - explained
    slack = max(SLACK, SHARE * explained)
    # What a prompt's activations are taken to be is the most that they can be.
    within = rest <= slack if first.phase == "prefill" else abs(rest) <= slack
    yield Row(
        "peak_memory_bytes", "B", explained, None, peak, peak / explained, "within" if within else "outside",
        mode=first.mode, batch=first.batch, tokens=first.tokens, note=f"unexplained: {rest:+,} B",
    )  # fmt: skip
    used = first.memory
    if used.context is not None and used.process is not None and used.peak_reserved is not None:
        told = used.context + used.peak_reserved
        within = abs(used.process - told) <= SLACK + PROCESS_SHARE * told
        yield Row("process_memory_bytes", "B", None, told, used.process, used.process / told,
                  "within" if within else "outside", note="the driver's context and what torch reserved")  # fmt: skip


def _grown(found: Session, run: Run) -> int | None:
    """By how much the weights and then the run made the process grow; libraries' own memory came between the two."""
    parts = (found.memory.get("process_after_weights_bytes"), found.memory.get("process_before_bytes"),
             run.memory.peak_process, run.before)  # fmt: skip
    if any(part is None for part in parts):
        return None
    after, before, peak, start = (part or 0 for part in parts)
    return after - before + peak - start


def _trained(found: Session) -> Iterator[Row]:
    told = found.training
    if told is None:
        return
    yield same("training_flops", "FLOP", _number(told["estimated_training_flops"]), _number(told["training_flops"]))
    stored = _number(told["weights_bytes"])
    yield same("gradient_bytes", "B", stored, _number(told["gradients_bytes"]))
    yield same("optimizer_bytes", "B", 2 * stored, _number(told["optimizer_bytes"]))


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _energy(found: Session) -> Iterator[Row]:
    if found.energy is not None:
        each = found.energy["joules_per_token"]
        assert isinstance(each, float)
        yield Row(
            "decode_joules_per_token", "J", None, None, each, None, "not judged", batch=found.work.batch,
            tokens=found.work.tokens, note="the whole device, idle power included",
        )  # fmt: skip


def memory_bar(found: Session) -> dict[str, int | None]:
    """The parts of memory in bytes: what the estimate names, and what was seen of each."""
    out: dict[str, int | None] = {
        f"{name}_bytes": value for name, value in (found.need._asdict() if found.need else {}).items()
    }
    seen = found.runs[0].memory if found.runs else None
    for name in ("allocated", "reserved", "context", "peak_allocated", "peak_reserved"):
        out[f"measured_{name}_bytes"] = getattr(seen, name) if seen else None
    out |= {"allocated_bytes": seen.allocated if seen else None, "reserved_bytes": seen.reserved if seen else None,
            "nvml_used_bytes": seen.process if seen and found.machine.kind == "cuda" else None,
            "context_bytes": seen.context if seen else None}  # fmt: skip
    return out | found.memory
