"""From a part of a model to all of it: time is a constant and a part that grows with the layers, by what they read."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch

from llmcalc.measure import predict
from llmcalc.measure.build import build
from llmcalc.measure.calibrate import Calibration
from llmcalc.measure.exactness import launches
from llmcalc.measure.machine import Machine
from llmcalc.measure.outcome import Run
from llmcalc.measure.steps import decode
from llmcalc.measure.timing import timed
from llmcalc.measure.workload import Workload, cut


class Extrapolated(NamedTuple):
    """Seconds of a decode step of all layers, fitted on two depths in one mode; and the estimates of that step."""

    seconds: float
    layers: int
    depths: tuple[int, int]
    calibrated: float
    catalogue: float | None
    mode: str


@torch.inference_mode()
def extrapolate(work: Workload, machine: Machine, found: Calibration, run: Run, limit: float) -> Extrapolated | None:
    """The step on all layers: t = a + b x (estimate), where a and b are those of the depths that ran.

    Of equal layers this is a line in their number; of unlike ones each counts by its own estimate. None where one layer
    is all that was run.
    """
    half = work.depth // 2
    if not half:
        return None
    short = replace(work, architecture=cut(work.architecture, half), layers=half)
    ready, deep = decode(model := build(short, machine), short, machine, work.tokens, work.batch), run.samples
    each = launches(model, ready.tokens, ready.cache, work.tokens).operators / half
    step = machine.capture(ready.step) if run.mode == "graph" else ready.step
    shallow = timed(machine, step, limit=limit)

    def estimate(part: Workload) -> float:
        count = round(each * part.depth)
        return predict.decode(machine, part, found, run.mode, count, work.tokens, work.batch).seconds

    everything = replace(work, architecture=work.whole, layers=None)
    low, high, far = estimate(short), estimate(work), estimate(everything)
    slope = (deep.median - shallow.median) / (high - low)
    row = predict.catalogue_decode(machine, everything, work.tokens, work.batch)
    return Extrapolated(
        deep.median + slope * (far - high),
        everything.depth,
        (half, work.depth),
        far,
        row.seconds if row else None,
        run.mode,
    )
