"""The catalogue of accelerators: facts, each with its source, date and confidence."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from llmcalc.errors import InvalidInputError, NotFoundError
from llmcalc.hardware.device import NOTHING, Device
from llmcalc.hardware.matching import folded, within

__all__ = ["Device", "describe", "device", "devices", "spellings"]


def device(name: str, memory_bytes: int | None = None) -> Device:
    """The accelerator of that id, name or alias; case, spaces and dashes do not matter, nor does the vendor's name.

    ``local-cpu`` and the like are devices that ``llmcalc measure --save`` measured here.

    Args: memory_bytes: tells two devices of one name apart (within 3%).
    Raises: NotFoundError, with the closest names; InvalidInputError where several answer to it.
    """
    asked = folded(name)
    if asked.startswith("local"):
        from llmcalc.hardware.calibrations import local_devices

        for mine in local_devices():
            if folded(mine.id) == asked:
                return mine
    by_id = {folded(identity): identity for identity in _rows()}
    found = [by_id[asked]] if asked in by_id else list(spellings().get(asked, ()))
    if len(found) > 1 and memory_bytes is not None:
        found = [i for i in found if within(memory_bytes, _device(i).memory_bytes)] or found
    if len(found) > 1:
        choice = ", ".join(found)
        raise InvalidInputError(f"--gpu {name}: {len(found)} devices answer to this", f"choose {choice}")
    if not found:
        import difflib

        near = difflib.get_close_matches(asked, spellings(), n=3, cutoff=0.6)
        ids = dict.fromkeys(identity for key in near for identity in spellings()[key])
        raise NotFoundError(
            f"--gpu {name}: no such device in the catalogue",
            f"did you mean {', '.join(ids)}?"
            if ids
            else "llmcalc gpus lists them; or describe it: --memory, --bandwidth, --peak",
        )
    return _device(found[0])


def devices() -> tuple[Device, ...]:
    """Every accelerator of the catalogue, in its order."""
    return tuple(_device(identity) for identity in _rows())


def describe(
    gpu: str | None = None,
    *,
    memory: int | None = None,
    bandwidth: float | None = None,
    peak: float | None = None,
    link: float | None = None,
) -> Device:
    """A device of the catalogue, or one described by hand, or the first with figures of the second in place of its own.

    Args: memory: bytes of one device. bandwidth, link: bytes per second; link one way. peak: dense operations per
    second in whatever format its products run.
    Raises: NotFoundError; InvalidInputError where nothing is described, or a figure is not above zero.
    """
    given = {"memory": memory, "bandwidth": bandwidth, "peak": peak, "link": link}
    said = tuple(name for name, value in given.items() if value is not None)
    for name in said:
        value = given[name]
        if value is None or not 0 < value < 2**63:
            raise InvalidInputError(f"--{name} {value}: expected a number above zero")
    if gpu is None and not said:
        raise InvalidInputError("no device is described", "give --gpu NAME, or --memory, --bandwidth, --peak, --link")
    base = Device("given", "the device described", source=("given by hand",)) if gpu is None else device(gpu)
    return base._replace(
        memory_bytes=base.memory_bytes if memory is None else memory,
        bandwidth_bytes_per_second=base.bandwidth_bytes_per_second if bandwidth is None else round(bandwidth),
        peak_dense_per_second=(
            base.peak_dense_per_second if peak is None else MappingProxyType({"given": round(peak)})
        ),
        peak_fp16_accumulate_per_second=base.peak_fp16_accumulate_per_second if peak is None else NOTHING,
        link_bytes_per_second=base.link_bytes_per_second if link is None else round(link),
        given=said,
    )


@cache
def spellings() -> dict[str, tuple[str, ...]]:
    """Every spelling, folded, and the ids that answer to it."""
    found: dict[str, list[str]] = {}
    for identity, row in _rows().items():
        names = (identity, row["name"], *row.get("aliases", ()), *row.get("device_names", ()))
        for key in {folded(name) for name in names}:
            found.setdefault(key, []).append(identity)
    return {key: tuple(ids) for key, ids in found.items()}


@cache
def _document() -> dict[str, Any]:
    text = (files("llmcalc.data") / "devices.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


@cache
def _rows() -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in _document()["devices"]}


RENAMED = {"peak_dense_fp16_accumulate_per_second": "peak_fp16_accumulate_per_second"}
LISTS = ("device_names", "aliases")
TABLES = ("peak_dense_per_second", "peak_dense_fp16_accumulate_per_second", "confidence", "measured")


@cache
def _device(identity: str) -> Device:
    document = _document()
    fields: dict[str, Any] = {}
    for key, value in _rows()[identity].items():
        name = RENAMED.get(key, key)
        if name in Device._fields:
            fields[name] = tuple(value) if key in LISTS else MappingProxyType(value) if key in TABLES else value
    fields["source"] = tuple(document["sources"][key] for key in fields["source"])
    fields["date"] = document["read_on"]
    return Device(**fields)
