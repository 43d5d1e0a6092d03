"""The format in which a model's products run on a device: what decides which peak bounds them."""

from __future__ import annotations

from collections.abc import Iterable

from llmcalc.errors import InvalidInputError
from llmcalc.hardware.device import Device, Peak

# Layouts whose products run in a narrow format; of several, the fastest bounds the step. Others are widened to the
# model's own format on the way in. llama.cpp multiplies its blocks in int8 (ggml-cuda/mmq.cu).
NARROW: tuple[tuple[str, str], ...] = (
    ("nvfp4a16", ""), ("nvfp4", "fp4"), ("mxfp4", "fp4"), ("mxfp6", "fp6"), ("mxfp8", "fp8"), ("fp8", "fp8"),
    ("torchao-fp8", "fp8"), ("w8a8", "int8"), ("int8", "int8"), ("bnb-int8", "int8"), ("q", "int8"), ("iq", "int8"),
    ("tq", "int8"), ("fp32", "tf32"),
)  # fmt: skip


def product_format(layout: str, dtype: str) -> str:
    """The number format in which products with a layout run, at the fastest."""
    for prefix, name in NARROW:
        if layout.startswith(prefix):
            return name or dtype
    return "tf32" if dtype == "fp32" else dtype


def fastest(device: Device, layouts: Iterable[str], dtype: str) -> Peak | None:
    """The highest rate that any of the layouts' products can run at; None where the device has no peak."""
    found: list[Peak] = []
    for name in dict.fromkeys(product_format(layout, dtype) for layout in layouts):
        try:
            found.append(device.peak_or_fallback(name))
        except InvalidInputError:
            continue
    return max(found, key=lambda peak: peak.per_second, default=None)
