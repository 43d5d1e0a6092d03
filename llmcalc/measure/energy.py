"""Joules a token: a counter of the whole device over a window of equal steps, long beside the counter's own pace."""

from __future__ import annotations

import time
from collections.abc import Sequence

from llmcalc.measure.machine import Machine
from llmcalc.measure.outcome import Run, steps_of
from llmcalc.measure.steps import decode
from llmcalc.measure.workload import Workload
from reference_model import Decoder

SECONDS = 2.0  # counters move every tenth of a second or so


def energy(
    model: Decoder, work: Workload, machine: Machine, runs: Sequence[Run], left: float
) -> dict[str, object] | str:
    """Of the first shape, in the last mode that ran it; in words why not."""
    alike = steps_of(runs, *work.shapes()[0])
    if machine.energy_joules() is None:
        return "no counter here that is this run's alone"
    if not alike or left < 2 * SECONDS:
        return "no time, or nothing that was timed"
    last, ready = alike[-1], decode(model, work, machine, work.tokens, work.batch)
    step = machine.capture(ready.step) if last.mode == "graph" else ready.step
    count = max(1, int(SECONDS / last.samples.median) + 1)
    machine.sync()
    start, begun = machine.energy_joules(), time.perf_counter()
    for _ in range(count):
        step()
    machine.sync()
    window, end = time.perf_counter() - begun, machine.energy_joules()
    if start is None or end is None or end <= start:  # it ended, began anew or did not move
        return "its counter did not count"
    joules = end - start
    each = joules / (count * work.batch)
    return {"window_seconds": window, "joules": joules, "joules_per_token": each, "watts": joules / window}
