"""Options that name a device, or describe one by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from llmcalc.errors import InvalidInputError
from llmcalc.hardware.catalogue import Device, describe
from llmcalc.units import parse_rate, parse_size

DEVICE = "Device"
BYTES, FLOPS = ("B/s",), ("FLOP/s", "FLOPS", "OP/s")


def _rate(name: str, units: tuple[str, ...]) -> Callable[[str], float]:
    def read(text: str | float) -> float:
        try:
            return parse_rate(str(text), name, units)
        except InvalidInputError as error:
            raise typer.BadParameter(error.message) from None

    return read


def _rated(name: str, units: tuple[str, ...], text: str) -> Any:
    return typer.Option(f"--{name}", parser=_rate(name, units), metavar="RATE", help=text, rich_help_panel=DEVICE)


def _size(text: str | int) -> int:
    try:
        return parse_size(str(text))
    except InvalidInputError as error:
        raise typer.BadParameter(error.message) from None


Gpu = Annotated[
    str | None, typer.Option("--gpu", metavar="NAME", help="An accelerator of the catalogue.", rich_help_panel=DEVICE)
]
Gpus = Annotated[
    int | None, typer.Option("--gpus", min=1, max=2**20, help="How many; alone it means --tp.", rich_help_panel=DEVICE)
]
Memory = Annotated[
    int | None,
    typer.Option("--memory", parser=_size, metavar="SIZE", help="Of one device: 80GiB.", rich_help_panel=DEVICE),
]
Bandwidth = Annotated[float | None, _rated("bandwidth", BYTES, "Of its memory: 3350GB/s.")]
Peak = Annotated[float | None, _rated("peak", FLOPS, "Dense operations: 989e12, 989TFLOP/s.")]
Link = Annotated[float | None, _rated("link", BYTES, "To other devices, one way: 450GB/s.")]


def described(
    gpu: str | None, memory: int | None, bandwidth: float | None, peak: float | None, link: float | None
) -> Device | None:
    """The device that the options name or describe, None where they say nothing.

    Raises: NotFoundError, InvalidInputError.
    """
    if all(value is None for value in (gpu, memory, bandwidth, peak, link)):
        return None
    return describe(gpu, memory=memory, bandwidth=bandwidth, peak=peak, link=link)


def needed(device: Device | None) -> Device:
    """The device, where there is no answer without one.

    Raises: InvalidInputError.
    """
    return describe(None) if device is None else device


def device_inputs(device: Device | None) -> dict[str, object]:
    """A device among the inputs of a document: its id, and every figure that an answer can rest on, as they were used.

    Described again by hand with these figures, it gives the same answer; None where nothing is known or given.
    """
    if device is None:
        return {"device": None}
    return {
        "device": device.id,
        "device_name": device.name,
        "memory_bytes": device.memory_bytes,
        "bandwidth_bytes_per_second": device.bandwidth_bytes_per_second,
        "peak_dense_per_second": dict(device.peak_dense_per_second),
        "link_bytes_per_second": device.link_bytes_per_second,
        "last_level_cache_bytes": device.cache_bytes(),
        "device_figures_given": list(device.given),
    }
