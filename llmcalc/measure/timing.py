"""Times of repeated steps, with nothing waited for between them."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

from llmcalc.measure.machine import Machine
from llmcalc.measure.samples import Samples

WARM_STEPS, WARM_SECONDS = 5, 0.3
STEPS, SECONDS = 30, 0.5
SHORT = 200e-6  # below this, a mark around every step would be a part of the step
BLOCK_SECONDS = 1e-3


def timed(
    machine: Machine,
    step: Callable[[], object],
    *,
    seconds: float = SECONDS,
    steps: int = STEPS,
    limit: float = 20.0,
    warm: float = WARM_SECONDS,
) -> Samples:
    """Seconds of ``step``: warmed up by count and by time, then at least ``steps`` of them and ``seconds`` in all.

    limit: what warming up and timing may take together; fewer steps are taken where they would take longer, at least 3.
    """
    begun = time.perf_counter()
    first = _walled(machine, step)
    done, likely = 1, first
    while (done < WARM_STEPS or time.perf_counter() - begun < warm) and (
        time.perf_counter() - begun + likely < limit / 4
    ):
        likely = _walled(machine, step)
        done += 1
    left = max(0.0, limit - (time.perf_counter() - begun))
    likely = max(likely, 1e-7)
    count = max(3, min(max(steps, int(seconds / likely) + 1), int(left / likely)))
    block = max(1, int(BLOCK_SECONDS / likely)) if likely < SHORT else 1
    return repeated(machine, step, max(3, count // block), block, warmup=done, first=first)


def _walled(machine: Machine, step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    machine.sync()
    return time.perf_counter() - start


def repeated(
    machine: Machine, step: Callable[[], object], blocks: int, block: int = 1, *, warmup: int = 0,
    first: float | None = None,
) -> Samples:  # fmt: skip
    """So many blocks of steps, a mark between two blocks; seconds of one step in each."""
    machine.sync()
    begun = time.perf_counter()
    marks = [machine.mark()]
    for _ in range(blocks):
        for _ in range(block):
            step()
        marks.append(machine.mark())
    machine.sync()
    wall = (time.perf_counter() - begun) / (blocks * block)
    each = [machine.seconds(a, b) / block for a, b in pairwise(marks)]
    return Samples(tuple(each), warmup, first, wall)
