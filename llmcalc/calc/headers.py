"""Exact bytes of a checkpoint from its headers: every tensor's elements times the bits of its stored type."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Final, NamedTuple, Protocol

from llmcalc.errors import UnsupportedFormatError


class Header(Protocol):
    """What a header says of one tensor."""

    @property
    def name(self) -> str:
        """Its name in the file."""
        ...

    @property
    def dtype(self) -> str:
        """Its stored type, as the format spells it."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, outermost axis first."""
        ...


class Stored(NamedTuple):
    """Elements of one block of a stored type, and the bits that the block takes."""

    elements: int
    bits: int


def _plain(bits: int) -> Stored:
    return Stored(1, bits)


SAFETENSORS: Final = {
    "F4": _plain(4), "F6_E2M3": _plain(6), "F6_E3M2": _plain(6),
    "BOOL": _plain(8), "U8": _plain(8), "I8": _plain(8), "F8_E5M2": _plain(8), "F8_E4M3": _plain(8),
    "F8_E8M0": _plain(8), "F8_E4M3FNUZ": _plain(8), "F8_E5M2FNUZ": _plain(8),
    "U16": _plain(16), "I16": _plain(16), "F16": _plain(16), "BF16": _plain(16),
    "U32": _plain(32), "I32": _plain(32), "F32": _plain(32),
    "U64": _plain(64), "I64": _plain(64), "F64": _plain(64), "C64": _plain(64),
}  # fmt: skip

# number in the file -> name, elements of a block, bytes of a block (ggml.h; gguf-py GGML_QUANT_SIZES).
GGML: Final = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36),
}  # fmt: skip

TYPES: Final = SAFETENSORS | {name: Stored(elements, 8 * size) for name, elements, size in GGML.values()}


def tensor_bytes(tensor: Header) -> int:
    """Bytes of one tensor's data.

    Raises: UnsupportedFormatError for a stored type that is not known, or a row that its blocks do not divide.
    """
    stored = TYPES.get(tensor.dtype)
    if stored is None:
        raise UnsupportedFormatError(f"tensor {tensor.name}: the stored type {tensor.dtype!r:.40} is not known")
    if stored.elements > 1 and (not tensor.shape or tensor.shape[-1] % stored.elements):
        raise UnsupportedFormatError(
            f"tensor {tensor.name}: rows of {tensor.shape[-1:]} in {tensor.dtype}, blocks of {stored.elements}"
        )
    bits = prod(tensor.shape) // stored.elements * stored.bits
    return -(-bits // 8)


class HeaderBytes(NamedTuple):
    """Bytes of tensor data: in total, and by stored type in order of first appearance."""

    total: int
    by_dtype: dict[str, int]


def header_bytes(tensors: Iterable[Header]) -> HeaderBytes:
    """Bytes of a checkpoint's tensors as its headers state them; names, padding and the headers are not counted.

    Raises: UnsupportedFormatError. Checked: tests/headers/test_bytes.py
    """
    by_dtype: dict[str, int] = {}
    for tensor in tensors:
        by_dtype[tensor.dtype] = by_dtype.get(tensor.dtype, 0) + tensor_bytes(tensor)
    return HeaderBytes(sum(by_dtype.values()), by_dtype)
