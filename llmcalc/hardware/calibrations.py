"""What devices were seen to reach: two numbers a device and engine, fitted on measurements that their makers published.

A calibration says t = layers x overhead + bytes / (efficiency x bandwidth). Those of the package are in
``data/calibrations.json`` (made by ``benchmarks/decode_times.py``); those of this machine in the user's own file. An
engine that was measured on several devices of a maker has a line of its own, which speaks for his other devices.
"""

from __future__ import annotations

import json
import os
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from llmcalc.errors import MalformedConfigError, OutputError
from llmcalc.hardware.device import Device

VARIABLE = "LLMCALC_CALIBRATIONS"
LOCAL_FIELDS = ("id", "name", "memory_bytes", "bandwidth_bytes_per_second", "peak_dense_per_second", "source", "date",
                "notes")  # fmt: skip


class Calibration(NamedTuple):
    """Seconds of a decode step by its layers and bytes, for one device under one engine.

    residual, worst: mean and largest relative error on its own rows. spread: half the width of the range that is
    shown around an expectation. bytes_low, bytes_high: what its rows read. experts, dense: the models that it saw.
    shapes: their layers and widths, ``32x4096``; of another shape, less is known.
    devices: those that the rows are from, where they are others than this one. ranks: the most that ran together.
    """

    device: str
    engine: str
    overhead_seconds: float
    efficiency: float
    bandwidth_bytes_per_second: int
    rows: int
    residual: float
    worst: float
    spread: float
    bytes_low: int
    bytes_high: int
    models: tuple[str, ...]
    dense: bool
    experts: bool
    sources: tuple[str, ...]
    shapes: tuple[str, ...] = ()
    origin: str = "published"
    date: str = ""
    devices: tuple[str, ...] = ()
    ranks: int = 1

    def seconds(self, layers: int, moved: float) -> float:
        """A decode step of so many layers and bytes."""
        return layers * self.overhead_seconds + moved / (self.efficiency * self.bandwidth_bytes_per_second)


class EngineLine(NamedTuple):
    """The line of an engine over all devices of a maker that it was measured on; fields as of :class:`Calibration`.

    dense, experts: whether at least two devices ran such models.
    """

    engine: str
    vendor: str
    overhead_seconds: float
    efficiency: float
    rows: int
    residual: float
    worst: float
    spread: float
    bytes_low: int
    bytes_high: int
    models: tuple[str, ...]
    dense: bool
    experts: bool
    sources: tuple[str, ...]
    shapes: tuple[str, ...]
    devices: tuple[str, ...]
    ranks: int

    def on(self, device: Device) -> Calibration:
        """What it says of a device."""
        fields = {name: value for name, value in self._asdict().items() if name != "vendor"}
        return Calibration(
            device=device.id, bandwidth_bytes_per_second=device.bandwidth(), origin="published of other devices",
            **fields,
        )  # fmt: skip


def local_path() -> Path:
    """Where the calibrations of this machine are kept; ``LLMCALC_CALIBRATIONS`` names another file."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "llmcalc" / "calibrations.json"


def read(text: str | bytes, where: str, origin: str = "published") -> tuple[Calibration, ...]:
    """The calibrations of a document.

    Raises: MalformedConfigError.
    """
    try:
        document = json.loads(text)
        return tuple(_row(row, origin) for row in document["calibrations"])
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedConfigError(
            f"{where}: not a list of calibrations ({error})", "remove it or write it anew"
        ) from None


def _row(row: dict[str, Any], origin: str) -> Calibration:
    found = Calibration(**{**_fields(row), "origin": origin})
    if not all(isinstance(value, tuple) for value in (found.models, found.sources, found.shapes)):
        raise ValueError(f"{found.device}: models, sources and shapes are lists")
    if not (found.overhead_seconds >= 0 and 0 < found.efficiency <= 1 and found.bandwidth_bytes_per_second > 0):
        raise ValueError(f"{found.device}: {found.overhead_seconds} s a layer, efficiency {found.efficiency}")
    return found


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}


def keep(row: Calibration, device: Device | None = None) -> Path:
    """Write a calibration of this machine to the user's file, in place of one of the same device, engine and kind of
    model; and the device itself, where the catalogue has none. Returns the file.

    Raises: OutputError; MalformedConfigError where the file is there and is not one of ours.
    """
    path = local_path()
    text = path.read_text("utf-8") if path.is_file() else '{"calibrations": []}'
    rows = [*(old for old in read(text, str(path), "measured here") if not _same_place(old, row)), row]
    devices = {one.id: one for one in (*local_devices(), *((device,) if device is not None else ()))}
    document = {
        "calibrations": [one._asdict() for one in rows],
        "devices": [{name: getattr(one, name) for name in LOCAL_FIELDS} for one in devices.values()],
    }
    for one in document["calibrations"]:
        del one["origin"]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(json.dumps(document, indent=1, default=dict) + "\n", "utf-8")
        draft.replace(path)
    except OSError as error:
        raise OutputError(f"{path} could not be written: {error.strerror}", f"name another with {VARIABLE}") from None
    return path


def _same_place(one: Calibration, other: Calibration) -> bool:
    return (one.device, one.engine, one.experts) == (other.device, other.engine, other.experts)


def local_devices() -> tuple[Device, ...]:
    """Devices that were measured here and that the catalogue has not.

    Raises: MalformedConfigError.
    """
    path = local_path()
    if not path.is_file():
        return ()
    try:
        rows = json.loads(path.read_text("utf-8")).get("devices", [])
        return tuple(Device(**{**row, "source": tuple(row["source"])}) for row in rows)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedConfigError(f"{path}: not a list of devices ({error})", "remove it or write it anew") from None


def known() -> tuple[Calibration, ...]:
    """Those of this machine first, then those of the package."""
    path = local_path()
    local = read(path.read_bytes(), str(path), "measured here") if path.is_file() else ()
    return (*local, *_shipped())


@cache
def _text() -> str:
    return (files("llmcalc.data") / "calibrations.json").read_text("utf-8")


@cache
def _shipped() -> tuple[Calibration, ...]:
    return read(_text(), "data/calibrations.json")


@cache
def engine_lines() -> tuple[EngineLine, ...]:
    """The lines of engines that were measured on several devices."""
    return tuple(EngineLine(**_fields(row)) for row in json.loads(_text())["engines"])


def find(device: Device, engine: str, *, experts: bool, ranks: int = 1) -> Calibration | None:
    """The calibration of a device: of the engine if one is named, else of whichever has most rows.

    Where a named engine was not measured on it, what it reached on several others of the maker speaks for it. Only one
    that saw a model of the same kind, with experts or without, speaks for a model; None where there is none.
    Args: ranks: devices that run together.
    """
    fitting = [
        row
        for row in known()
        if row.device == device.id and engine in ("none", *_names(row.engine))
        and (row.experts if experts else row.dense)
    ]  # fmt: skip
    if fitting:
        return max(fitting, key=lambda row: (row.origin != "published", row.rows))
    told = lines(device, experts=experts, ranks=ranks)
    return next((line.on(device) for line in told if engine in _names(line.engine)), None)


def lines(device: Device, *, experts: bool, ranks: int) -> tuple[EngineLine, ...]:
    """The lines that speak for a device: of engines that ran a model of the kind on several devices of its maker."""
    return tuple(
        line
        for line in engine_lines()
        if device.vendor == line.vendor and ranks <= line.ranks and (line.experts if experts else line.dense)
    )


def _names(engine: str) -> tuple[str, str]:
    """As it was measured (``llama.cpp metal``), and the engine alone."""
    return engine, engine.split(maxsplit=1)[0]
