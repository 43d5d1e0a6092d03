"""A measurement as a calibration: ``latency`` and ``capacity`` then expect of this device what it was seen to do."""

from __future__ import annotations

from datetime import UTC, datetime

from llmcalc.calc.expected import Point, fit, shape
from llmcalc.errors import MeasureError
from llmcalc.hardware.calibrations import Calibration, keep
from llmcalc.hardware.device import Device
from llmcalc.measure.outcome import Run
from llmcalc.measure.session import Session

ENGINE = "reference decoder"
LEAST_SPREAD = 0.05
APART = 1.3  # by how much the bytes of two lengths differ at least for a line through them to mean something


def local_device(found: Session) -> Device:
    """The device that a saved calibration is about: its row of the catalogue, or this machine's by measured rates.

    Raises: MeasureError where nothing was calibrated.
    """
    rates, machine = found.calibration, found.machine
    if rates is None:
        raise MeasureError("there is no calibration to save", "give the run more --budget")
    if machine.catalogue is not None:
        return machine.catalogue
    dtype = "tf32" if found.work.dtype == "fp32" else found.work.dtype
    fastest = max(
        rates.copy.best, rates.read.best, rates.gemv.best, *(run.moved / run.samples.median for run in _steps(found))
    )
    today = datetime.now(UTC).date().isoformat()
    return Device(
        f"local-{machine.kind}", machine.name, machine.total_bytes(), int(fastest) + 1,
        {dtype: int(max(rates.matmul.best, rates.matmul.median)) + 1}, ("measured here by llmcalc measure --save",),
        today, notes="the fastest that was seen, not a datasheet's ceiling",
    )  # fmt: skip


def _steps(found: Session) -> list[Run]:
    """The decode steps of the fastest mode that ran every shape."""
    runs = [run for run in found.runs if run.phase == "decode"]
    modes = [mode for mode in ("compiled", "graph", "eager") if any(run.mode == mode for run in runs)]
    return [run for run in runs if run.mode == modes[0]] if modes else []


def calibration(found: Session, device: Device) -> Calibration:
    """Overhead of a layer and share of the bandwidth, fitted on the decode steps; one alone gives the share only.

    Raises: MeasureError where no step was timed.
    """
    runs, bandwidth = _steps(found), device.bandwidth()
    if not runs:
        raise MeasureError(
            "no decode step was timed, so there is nothing to save", "give --phase decode, or more --budget"
        )
    points = [Point(found.work.depth, run.moved / bandwidth, run.samples.median) for run in runs]
    overhead, efficiency = _fitted(found, points)
    # Of every step that was timed, not of the medians, on which two numbers fit two lengths without a rest.
    likely = [p.layers * overhead + p.moving / efficiency for p in points]
    errors = sorted(abs(own / s - 1) for own, run in zip(likely, runs, strict=True) for s in run.samples.seconds)
    sizes = [run.moved for run in runs]
    experts = found.work.architecture.decoder.layers and any(
        spec.part == "experts" for layer in found.work.architecture.decoder.layers for spec in layer.ffns
    )
    architecture = found.work.architecture
    others = ", with others at work on it" if found.machine.shared else ""
    return Calibration(
        device.id, ENGINE, overhead, efficiency, bandwidth, len(points), sum(errors) / len(errors), max(errors),
        max(LEAST_SPREAD, errors[int(0.9 * (len(errors) - 1))]), min(sizes), max(sizes), (architecture.model_type,),
        not experts, bool(experts), (f"llmcalc measure on {found.machine.name}{others}",), (shape(architecture),),
        "measured here", datetime.now(UTC).date().isoformat(),
    )  # fmt: skip


def _fitted(found: Session, points: list[Point]) -> tuple[float, float]:
    """(overhead a layer, efficiency). Where the lengths move nearly the same bytes they cannot tell the two apart: the
    overhead is then that of the launches as they were calibrated."""
    moving = [point.moving for point in points]
    fitted = fit(points) if max(moving) > APART * min(moving) else None
    if fitted is not None:
        return fitted
    rates, run = found.calibration, _steps(found)[0]
    launch = 0.0 if rates is None else rates.launch_seconds if rates.graph_seconds is None else rates.graph_seconds
    overhead = run.launches.operators * launch / found.work.depth
    left = [point.seconds - point.layers * overhead for point in points]
    if min(left) <= 0:
        overhead, left = 0.0, [point.seconds for point in points]
    return overhead, min(1.0, sum(moving) / sum(left))


def save(found: Session) -> tuple[Calibration, str]:
    """Keep it among those of this machine, in place of an earlier one; and where that is.

    Raises: MeasureError, OutputError.
    """
    device = local_device(found)
    row = calibration(found, device)
    return row, str(keep(row, None if found.machine.catalogue is not None else device))
