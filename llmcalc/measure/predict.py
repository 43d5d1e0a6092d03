"""Times by the toolkit's own estimate: on the catalogue's device, and on one with the rates that were just measured.

decode = sum over operators of max(bytes / bandwidth, operations / peak), and the launches; prefill the same with the
shares of the peak that products (0.9) and attention (0.6) reach.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

from llmcalc.calc.flops import flops
from llmcalc.calc.latency import Latency, latency
from llmcalc.errors import InvalidInputError
from llmcalc.hardware.device import Device
from llmcalc.measure.calibrate import Calibration
from llmcalc.measure.machine import Machine
from llmcalc.measure.workload import Workload

PRODUCTS, ATTENTION = 0.9, 0.6
# What a level-two cache serves, over the memory, and how much of it a step can count on.
CACHED_RATE, CACHED_SHARE = 2.5, 0.7
ANY = Device("any", "any device", bandwidth_bytes_per_second=1)


class Predicted(NamedTuple):
    """Seconds, and what most of them go to. at_least: the true bound, on the catalogue's device alone."""

    seconds: float
    binds: str
    at_least: float | None = None


def calibrated_device(machine: Machine, work: Workload, found: Calibration) -> Device:
    """This device by its measured rates; the cache is left to :func:`decode`."""
    return Device(
        "measured", machine.name, machine.total_bytes(), round(found.bandwidth),
        MappingProxyType({work.dtype if work.dtype != "fp32" else "tf32": round(found.matmul.median)}),
        source=("measured here",),
    )  # fmt: skip


def _latency(work: Workload, device: Device, tokens: int, batch: int) -> Latency:
    return latency(work.architecture, device, tokens, batch, prompt=work.prompt, weights=work.dtype, cache=work.dtype)


def moved(work: Workload, phase: str, tokens: int, batch: int) -> tuple[int, int]:
    """Bytes that a pass reads and writes, and its operations, each query with the keys it sees; on any device."""
    answer = _latency(work, ANY, tokens, batch)
    timing = answer.decode if phase == "decode" else answer.prefill
    return timing.likely_read_bytes + timing.written_bytes, timing.flops


def catalogue_decode(machine: Machine, work: Workload, tokens: int, batch: int) -> Predicted | None:
    """By the catalogue's figures; None where the device has no row."""
    if machine.catalogue is None:
        return None
    try:
        step = _latency(work, machine.catalogue, tokens, batch).decode
    except InvalidInputError:
        return None
    return Predicted(step.seconds_roofline, step.bound, step.seconds_at_least)


def decode(
    machine: Machine, work: Workload, found: Calibration, mode: str, launches: int, tokens: int, batch: int
) -> Predicted:
    """By the measured rates, with the launches of the mode."""
    step = _latency(work, calibrated_device(machine, work, found), tokens, batch).decode
    moved, device = step.likely_read_bytes + step.written_bytes, step.seconds_roofline
    if machine.kind == "cuda":
        quick = min(moved, CACHED_SHARE * machine.cache_bytes())
        device -= quick / found.bandwidth * (1 - 1 / CACHED_RATE)
    if mode == "eager" and machine.kind == "cuda":
        host = launches * found.launch_seconds
        return Predicted(max(host, device), "launches" if host > device else step.bound)
    each = found.launch_seconds if found.graph_seconds is None else found.graph_seconds
    total = device + launches * each
    return Predicted(total, "launches" if launches * each > device else step.bound)


def catalogue_prefill(machine: Machine, work: Workload) -> Predicted | None:
    """By the catalogue's figures; None where the device has no row, or no peak of the format."""
    if machine.catalogue is None:
        return None
    try:
        answer = _latency(work, machine.catalogue, work.prompt, work.batch)
    except InvalidInputError:
        return None
    if answer.peak is None:
        return None
    return Predicted(answer.prefill_seconds_roofline, answer.prefill.bound, answer.prefill_seconds_at_least)


def prefill(machine: Machine, work: Workload, found: Calibration, launches: int) -> Predicted:
    """By the measured rates, with the launches, which a GPU's own work hides."""
    step = _latency(work, calibrated_device(machine, work, found), work.prompt, work.batch).prefill
    count = flops(work.architecture, work.prompt, batch=work.batch, logits="last", scan="recurrent")
    peak = found.matmul.median
    reading = step.read_bytes / found.bandwidth
    products = count.matmul_flops / (PRODUCTS * peak)
    mixing = (count.attention_flops + count.scan_flops) / (ATTENTION * peak)
    device, host = max(reading, products) + mixing, launches * found.launch_seconds
    binds = "launches" if host > device else "memory" if reading > products + mixing else "compute"
    return Predicted(max(device, host) if machine.kind == "cuda" else device + host, binds)


def scans(work: Workload) -> bool:
    """Whether a prompt runs token by token somewhere: the reference decoder has no scan in blocks."""
    return any(held.state.kind in ("recurrent", "conv") for held in work.architecture.states)
