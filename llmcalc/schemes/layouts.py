"""Layouts: which tensors stand for one matrix, with their exact shapes, so that bytes are sums of products.

A matrix is ``rows`` x ``cols`` (outputs x inputs). Sizes are whole numbers throughout; a matrix that a layout cannot
hold is refused, never rounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Literal, NamedTuple

from llmcalc.errors import UnsupportedFormatError

Per = Literal["none", "tensor", "channel", "group", "block"]


class Piece(NamedTuple):
    """A stored tensor: what follows the module's name, its shape, and the bytes of an entry.

    ``labels`` say what each axis counts, ``entry`` what an entry is.
    """

    name: str
    dims: tuple[int, ...]
    item: int
    labels: tuple[str, ...] = ()
    entry: str = "bytes"

    @property
    def bytes(self) -> int:
        """Bytes of the tensor."""
        return prod(self.dims) * self.item


class Layout:
    """How one tensor of the model is stored. ``block``: values that share a scale, 0 for a whole row or tensor."""

    __slots__ = ()
    name: str
    source: str = ""

    def pieces(self, shape: tuple[int, ...]) -> Iterator[Piece]:
        """The stored tensors of one weight.

        Raises: UnsupportedFormatError where the layout cannot hold that shape.
        """
        raise NotImplementedError

    def bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of one weight, everything that is stored for it."""
        return sum(piece.bytes for piece in self.pieces(shape))

    def holds(self, shape: tuple[int, ...]) -> Iterator[tuple[str, int, int]]:
        """What the weight is held in: names of layouts, numbers, bytes."""
        yield self.name, prod(shape), self.bytes(shape)

    @property
    def bits(self) -> Fraction:
        """Bits a value in a matrix without end: what is stored once a matrix, row or column does not count."""
        raise NotImplementedError

    @property
    def block(self) -> int:
        """Values that share a scale; 0 where a whole row or matrix does."""
        return 0

    def describe(self) -> str:
        """What is stored, in words."""
        return self.name


def up(value: int, step: int) -> int:
    """Whole steps that hold ``value``."""
    return -(-value // step)


def divide(value: int, step: int, what: str) -> int:
    """``value / step``.

    Raises: UnsupportedFormatError where it does not divide.
    """
    if value % step:
        raise UnsupportedFormatError(
            f"{what} of {step:,}, which do not divide {value:,}",
            "choose a group size that divides it, or a format without groups (bf16, fp8, int8)",
        )
    return value // step


def matrix(shape: tuple[int, ...], name: str) -> tuple[int, int]:
    """Rows and columns.

    Raises: UnsupportedFormatError for anything that is no matrix.
    """
    if len(shape) != 2:
        raise UnsupportedFormatError(f"{name} stores matrices; this tensor has {len(shape)} axes: {shape}")
    return shape[0], shape[1]


@dataclass(frozen=True, slots=True)
class Plain(Layout):
    """Numbers without scales, ``item`` bytes each, whatever the shape."""

    name: str
    item: int
    source: str = "IEEE 754; bfloat16"

    def pieces(self, shape: tuple[int, ...]) -> Iterator[Piece]:
        labels = {1: ("numbers",), 2: ("out", "in")}.get(len(shape), ())
        yield Piece("", shape, self.item, labels)

    @property
    def bits(self) -> Fraction:
        return Fraction(8 * self.item)

    @property
    def block(self) -> int:
        return 1

    def describe(self) -> str:
        return f"{8 * self.item}-bit numbers, no scales"


@dataclass(frozen=True, slots=True)
class Scaled(Layout):
    """Values of ``width`` bits, in bytes along a row, and scales beside them.

    per: what a scale covers: the ``tensor``, a ``channel`` (row), a ``group`` of columns, or a ``block`` of rows x
    columns; incomplete blocks have a scale too. scale: bytes of one. zero: bytes of a zero point, 0 where symmetric.
    once: further bytes stored once a matrix, by name. whole: groups must divide the row.
    """

    name: str
    width: int
    per: Per
    scale: int
    size: tuple[int, int] = (1, 0)
    zero: int = 0
    once: tuple[tuple[str, int], ...] = ()
    body: str = "weight"
    suffix: str = "weight_scale"
    whole: bool = True
    source: str = ""

    def pieces(self, shape: tuple[int, ...]) -> Iterator[Piece]:
        rows, cols = matrix(shape, self.name)
        if self.width == 8:
            yield Piece(self.body, (rows, cols), 1, ("out", "in"))
        else:
            packed = divide(cols * self.width, 8, f"{self.name} packs {self.width}-bit values into bytes: bits")
            yield Piece(self.body, (rows, packed), 1, ("out", f"bytes of {self.width}-bit values in a row"))
        if self.per != "none":
            dims, labels = self._scales(rows, cols)
            yield Piece(self.suffix, dims, self.scale, labels, "bytes a scale")
            if self.zero:
                yield Piece("weight_zero_point", dims, self.zero, labels, "bytes a zero point")
        for name, size in self.once:
            yield Piece(name, (1,), size, ("once a matrix",))

    def _scales(self, rows: int, cols: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
        high, wide = self.size
        match self.per:
            case "channel":
                return (rows, 1), ("out", "")
            case "group":
                groups = divide(cols, wide, f"{self.name} has groups") if self.whole else up(cols, wide)
                return (rows, groups), ("out", f"groups of {wide}")
            case "block":
                return (up(rows, high), up(cols, wide)), (f"blocks of {high} rows", f"blocks of {wide} columns")
            case _:
                return (1,), ("scale of the matrix",)

    @property
    def bits(self) -> Fraction:
        shared = self.size[0] * self.size[1] if self.per in ("group", "block") else 0
        return Fraction(self.width) + (Fraction(8 * (self.scale + self.zero), shared) if shared else 0)

    @property
    def block(self) -> int:
        return self.size[0] * self.size[1] if self.per in ("group", "block") else 0

    def describe(self) -> str:
        shares = {
            "none": "no scale", "tensor": "one scale a matrix", "channel": "one scale an output",
            "group": f"one scale for {self.size[1]} values",
            "block": f"one scale for {self.size[0]} x {self.size[1]} values",
        }[self.per]  # fmt: skip
        text = f"{self.width}-bit values, {shares}" + (f" of {self.scale} B" if self.per != "none" else "")
        text += f", a zero point of {self.zero} B beside each" if self.zero else ""
        return text + "".join(f", {name} {size} B" for name, size in self.once)
