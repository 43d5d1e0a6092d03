"""What to expect of a decode step, where a device was measured: never without a calibration, always as a range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from llmcalc.arch.model import Architecture
from llmcalc.calc.latency import Latency
from llmcalc.calc.timing import Timing
from llmcalc.hardware.calibrations import Calibration, find, lines

# The largest error on a format held out of the fit: Q4_0 from F16 and Q8_0, 15 Apple chips (benchmarks/).
HELD_OUT = 0.12


# The largest error on a model held out of the fit: 7 B from 70 B and 8x7B on one device (benchmarks/).
UNSEEN = 0.27
# With experts each calibration saw one family. Carried over to another family's rows, its middle is up to 1.63 times
# what was measured, or 1.27 times less (benchmarks/): the range of a shape that it did not see.
OTHER_EXPERTS = (1.7, 1.3)
# The largest error of an engine's line on a device and model held out of it, 73 rows of 24 pairs (benchmarks/).
OTHER_DEVICE = 0.30
# Figures of a device that make it another than the one that was measured.
DECIDES = {"bandwidth", "peak", "link"}


class Expected(NamedTuple):
    """Seconds of a decode step: a range and its middle, whose calibration it is, and what stretches it."""

    low: float
    likely: float
    high: float
    calibration: Calibration
    warnings: tuple[str, ...] = ()


class Point(NamedTuple):
    """One measured step: layers, bytes moved over the datasheet's bandwidth in seconds, and what it took."""

    layers: int
    moving: float
    seconds: float


def shape(architecture: Architecture) -> str:
    """Layers that run and their width, which tell models of a calibration from others."""
    return f"{len(architecture.decoder.calls)}x{architecture.hidden_size}"


def moved(found: Latency, timing: Timing) -> int:
    """Bytes of a step with random experts, over all pipeline stages."""
    return (timing.likely_read_bytes + timing.written_bytes) * found.reader.ranks.pp


def expected(found: Latency) -> Expected | None:
    """The expectation of the decode step; None where no calibration speaks for the device, the engine and the model."""
    return step_expected(found, found.decode)


def silence(found: Latency, timing: Timing) -> str:
    """Why nothing is expected of a step."""
    if given := set(found.device.given) & DECIDES:
        options = ", ".join(f"--{name}" for name in sorted(given))
        return f"with {options} it is another device than any that was measured"
    if (timing.compute_seconds or 0.0) > timing.memory_seconds:
        return "the step is bound by computing, and calibrations are of steps bound by memory"
    reason = "no calibration speaks for this device, engine and kind of model"
    names = dict.fromkeys(
        line.engine.split()[0] for line in lines(found.device, experts=found.reader.experts, ranks=_ranks(found))
    )
    if found.engine == "none" and names:
        return f"{reason}; {' or '.join(f'--engine {name}' for name in names)} would go by other devices"
    return reason


def step_expected(found: Latency, timing: Timing) -> Expected | None:
    """The expectation of a decode step of that model on that device.

    A step that computes longer than it moves bytes has none: calibrations are of steps bound by memory.
    """
    if set(found.device.given) & DECIDES or (timing.compute_seconds or 0.0) > timing.memory_seconds:
        return None
    calibration = find(found.device, found.engine, experts=found.reader.experts, ranks=_ranks(found))
    if calibration is None:
        return None
    size = moved(found, timing)
    likely = max(timing.seconds_at_least, calibration.seconds(len(found.architecture.decoder.calls), size))
    seen = shape(found.architecture) in calibration.shapes
    low, high = _range(calibration, seen=seen, experts=found.reader.experts)
    told = (*_elsewhere(calibration), *_narrow(calibration, found, seen=seen), *_stretched(calibration, size, found),
            *_together(calibration, _ranks(found)))  # fmt: skip
    return Expected(max(timing.seconds_at_least, likely * low), likely, likely * high, calibration, told)


def _range(calibration: Calibration, *, seen: bool, experts: bool) -> tuple[float, float]:
    """How far below and above its middle an expectation reaches; errors of device and model may come together."""
    spread = max(calibration.spread, OTHER_DEVICE) if calibration.devices else calibration.spread
    low, high = 1 - spread, 1 + spread
    if seen:
        return low, high
    fewer, more = (1 / OTHER_EXPERTS[0], OTHER_EXPERTS[1]) if experts else (1 - UNSEEN, 1 + UNSEEN)
    return (low * fewer, high * more) if calibration.devices else (min(low, fewer), max(high, more))


def _elsewhere(calibration: Calibration) -> tuple[str, ...]:
    if not calibration.devices:
        return ()
    return (
        f"too few such models were measured under {calibration.engine} on this device: the expectation rests on what "
        f"it reached on {', '.join(calibration.devices)}",
    )


def _ranks(found: Latency) -> int:
    return found.reader.ranks.tp * found.reader.ranks.pp


def _together(calibration: Calibration, ranks: int) -> tuple[str, ...]:
    if ranks <= calibration.ranks:
        return ()
    most = "one device alone" if calibration.ranks == 1 else f"at most {calibration.ranks} devices"
    return (f"the expectation is of {ranks} devices and rests on {most}: what they say to each other is not in it",)


def _narrow(calibration: Calibration, found: Latency, *, seen: bool) -> tuple[str, ...]:
    if not found.reader.experts:
        return ()
    wide = "" if seen else f"; for another shape its range is 1/{OTHER_EXPERTS[0]:g} to {OTHER_EXPERTS[1]:g} times"
    return (
        f"the expectation of a model with experts rests on {calibration.rows} rows of {', '.join(calibration.models)} "
        f"under {calibration.engine}{wide}",
    )


def _stretched(calibration: Calibration, size: int, found: Latency) -> tuple[str, ...]:
    each = size // found.reader.ranks.pp
    if calibration.bytes_low / 2 <= each <= calibration.bytes_high * 2:
        return ()
    return (
        f"the expectation stretches a calibration on {calibration.bytes_low:,} to {calibration.bytes_high:,} B a step "
        f"to one of {each:,} B",
    )


def fit(points: Sequence[Point]) -> tuple[float, float] | None:
    """(overhead a layer, efficiency) with the smallest squares of relative errors; None where rows cannot tell.

    Overheads are at least 0, efficiencies at most 1.
    """
    uu = ux = xx = u1 = x1 = 0.0
    for layers, moving, seconds in points:
        u, x = layers / seconds, moving / seconds
        uu, ux, xx, u1, x1 = uu + u * u, ux + u * x, xx + x * x, u1 + u, x1 + x
    determinant = uu * xx - ux * ux
    if len(points) < 2 or determinant <= 1e-6 * uu * xx:
        return None
    overhead = (u1 * xx - x1 * ux) / determinant
    slope = (uu * x1 - ux * u1) / determinant
    if overhead < 0:
        overhead, slope = 0.0, x1 / xx
    if slope < 1:
        slope, overhead = 1.0, max(0.0, (u1 - ux) / uu)
    return overhead, 1 / slope
