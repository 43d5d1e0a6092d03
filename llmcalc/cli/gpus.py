"""``llmcalc gpus``: what accelerators can do, and which of them this machine has."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmcalc.cli import options as opt
from llmcalc.cli.output import Form, emit
from llmcalc.errors import InvalidInputError
from llmcalc.hardware.catalogue import Device, device, devices
from llmcalc.hardware.matching import Match, match
from llmcalc.report.report import Cell, Column, Report, Table
from llmcalc.units import show_bandwidth, show_bytes, show_flops

app = opt.verb_app()
Local = Annotated[bool, typer.Option("--local", help="What this machine has, through NVML; no torch needed.")]
COLUMNS = (
    Column("id", "id"), Column("name", "name"), Column("memory", "memory_bytes", "bytes"),
    Column("bandwidth", "bandwidth_bytes_per_second", "bandwidth"),
    Column("dense bf16", "peak_dense_bf16_per_second", "rate"),
    Column("dense fp8", "peak_dense_fp8_per_second", "rate"), Column("source", "source"),
)  # fmt: skip


@app.command()
def verb(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One accelerator; all without it.")] = None,
    local: Local = False,
    as_json: opt.Json = False,
    csv: opt.Csv = False,
    markdown: opt.Markdown = False,
    output: opt.Output = None,
    force: opt.Force = False,
) -> None:
    """What can the accelerators do, and which of them has this machine?"""
    form = Form(as_json, csv, markdown, output, force)
    if local and name is not None:
        raise InvalidInputError("--local looks at this machine, NAME at the catalogue", "give one of them")
    emit(here() if local else catalogue() if name is None else one(device(name)), form)


def catalogue() -> Report:
    """Every accelerator of the catalogue."""
    found = devices()
    head = [
        f"{len(found)} accelerators; peaks are dense, accumulated in fp32; memory as the driver shows it where known",
        f"as of {found[0].date}; llmcalc gpus NAME shows every figure with its source and confidence",
    ]
    return Report(
        "gpus", None, {"name": None, "local": False}, {"gpus": [facts(d) for d in found]}, head,
        (Table(COLUMNS, tuple(_row(d) for d in found)),),
    )  # fmt: skip


def _row(d: Device) -> tuple[Cell, ...]:
    rates = d.peak_dense_per_second
    return (
        d.id, d.name, d.memory_bytes, d.bandwidth_bytes_per_second, rates.get("bf16"), rates.get("fp8"),
        d.source[0] if d.source else None,
    )  # fmt: skip


def one(d: Device) -> Report:
    """Every figure of one accelerator, with its confidence."""
    others = ", ".join((*d.device_names, *d.aliases))
    head = [f"{d.name} · {d.id}", *([f"also: {others}"] if others else [])]
    head += [f"sources: {'; '.join(d.source)} ({d.date})", *([d.notes] if d.notes else [])]
    columns = (Column("figure", "figure"), Column("value", "value"), Column("confidence", "confidence"))
    rows = tuple((label, text, sure) for label, text, sure in _lines(d))
    return Report(
        "gpus", None, {"name": d.id, "local": False}, {"gpus": [facts(d)]}, head, (Table(columns, rows),)
    )  # fmt: skip


def _lines(d: Device) -> list[tuple[str, str, str]]:
    """Label, value with its unit, confidence."""
    sure = d.confidence
    sizes = {"memory": "memory_bytes", "L2 cache": "l2_bytes", "last-level cache": "last_level_cache_bytes"}
    speeds = {
        "memory bandwidth": "bandwidth_bytes_per_second", f"{d.link or 'link'}, one way": "link_bytes_per_second",
        f"PCIe {d.pcie_gen} x{d.pcie_lanes}, one way": "pcie_bytes_per_second",
    }  # fmt: skip
    out = [(name, _size(getattr(d, key)), sure.get(key, "")) for name, key in sizes.items() if getattr(d, key)]
    out += [
        (name, show_bandwidth(getattr(d, key)), sure.get(key, "")) for name, key in speeds.items() if getattr(d, key)
    ]
    out += [(f"dense {k}", f"{show_flops(v)}/s", sure.get(f"peak_{k}", "")) for k, v in d.peak_dense_per_second.items()]
    out += [
        (f"dense {k}, fp16 accumulation", f"{show_flops(v)}/s", "")
        for k, v in d.peak_fp16_accumulate_per_second.items()
    ]
    plain = {
        "compute capability": d.compute_capability, "architecture": d.architecture, "memory type": d.memory_type,
        "memory on the box": f"{d.label_gb} GB" if d.label_gb else "",
        "power": f"{d.power_watts} W" if d.power_watts else "",
        "units": d.units, "boost clock": f"{d.boost_mhz} MHz" if d.boost_mhz else "",
        "devices a package": d.devices_per_package if d.devices_per_package > 1 else "",
    }  # fmt: skip
    keys = {"memory on the box": "label_gb", "power": "power_watts"}
    return out + [(name, str(v), sure.get(keys.get(name, ""), "")) for name, v in plain.items() if v]


def _size(value: int) -> str:
    return f"{value:,} B = {show_bytes(value)}"


def facts(d: Device) -> dict[str, object]:
    """A device as JSON: every figure in its unit."""
    skip = ("given",)
    out: dict[str, object] = {}
    for key, value in d._asdict().items():
        if key not in skip:
            out[key] = dict(value) if hasattr(value, "items") else list(value) if isinstance(value, tuple) else value
    return out


def here() -> Report:
    """The accelerators of this machine, matched to the catalogue.

    Raises: NoGpuError, MeasureError where the driver does not answer.
    """
    from llmcalc.hardware.nvml import LocalGpu, Nvml

    with Nvml() as nvml:
        gpus, driver = nvml.gpus(), nvml.driver_version
    found: list[tuple[LocalGpu, Match | None]] = [
        (gpu, match(gpu.name, None if gpu.unified_memory else gpu.memory_total_bytes, gpu.compute_capability))
        for gpu in gpus
    ]
    columns = (
        Column("index", "index", "count"), Column("name", "name"), Column("memory", "memory_total_bytes", "bytes"),
        Column("free", "memory_free_bytes", "bytes"), Column("in the catalogue", "catalogue_id"),
        Column("bandwidth", "bandwidth_bytes_per_second", "bandwidth"),
        Column("dense bf16", "peak_dense_bf16_per_second", "rate"), Column("CUDA sees", "visible"),
    )  # fmt: skip
    rows = tuple(row for gpu, known in found for row in _local_rows(gpu, known))
    listed = [local_facts(gpu, known) for gpu, known in found]
    head = [f"{len(gpus)} GPU{'s' * (len(gpus) != 1)} here, driver {driver or 'of unknown version'}"]
    warnings = [*nvml.warnings, *(_unknown(gpu) for gpu, known in found if known is None)]
    return Report(
        "gpus", None, {"name": None, "local": True}, {"driver_version": driver, "gpus": listed}, head,
        (Table(columns, rows),), warnings=warnings,
    )  # fmt: skip


def _unknown(gpu: Any) -> str:
    return f"{gpu.name} is not in the catalogue, or cannot be told apart there: no peak and no bandwidth are known"


def _local_rows(gpu: Any, known: Match | None) -> list[tuple[Cell, ...]]:
    """A card, and below it its slices, of which the catalogue knows no rates."""
    d = device(known.id) if known and not known.profile else None
    yes = {True: "yes", False: "no"}
    rates = d.peak_dense_per_second if d else {}
    rows: list[tuple[Cell, ...]] = [
        (gpu.ordinal, gpu.name, gpu.memory_total_bytes, gpu.memory_free_bytes, known.id if known else "unknown",
         d.bandwidth_bytes_per_second if d else None, rates.get("bf16"), yes[gpu.visible])
    ]  # fmt: skip
    rows += [
        (
            None,
            f"  {part.name}",
            part.memory_total_bytes,
            part.memory_free_bytes,
            "a slice",
            None,
            None,
            yes[part.visible],
        )
        for part in gpu.slices
    ]
    return rows


def local_facts(gpu: Any, known: Match | None) -> dict[str, object]:
    """A card of this machine as JSON; a slice's rates are not those of its card, and are not given."""
    whole = device(known.id) if known and not known.profile else None
    return {
        "index": gpu.ordinal,
        **{key: value for key, value in gpu._asdict().items() if key not in ("slices", "ordinal")},
        "slices": [part._asdict() for part in gpu.slices],
        "catalogue_id": known.id if known else None,
        "matched_by": known.how if known else None,
        "profile": known.profile or None if known else None,
        "bandwidth_bytes_per_second": whole.bandwidth_bytes_per_second if whole else None,
        "peak_dense_per_second": dict(whole.peak_dense_per_second) if whole else None,
    }
