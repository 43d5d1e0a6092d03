"""Exact bytes of a checkpoint from its headers: every tensor's elements times the bits of its stored type."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import NamedTuple, Protocol

from llmcalc.arch.stored import TYPES
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


def tensor_bytes(tensor: Header) -> int:
    """Bytes of one tensor's data.

    Raises: UnsupportedFormatError for a stored type that is not known, or a row that its blocks do not divide.
    """
    block = TYPES.get(tensor.dtype)
    if block is None:
        raise UnsupportedFormatError(f"tensor {tensor.name}: the stored type {tensor.dtype!r:.40} is not known")
    if block.size > 1 and (not tensor.shape or tensor.shape[-1] % block.size):
        raise UnsupportedFormatError(
            f"tensor {tensor.name}: {tensor.dtype} has blocks of {block.size}, its shape is {list(tensor.shape)}"
        )
    bits = prod(tensor.shape) // block.size * block.bits
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
