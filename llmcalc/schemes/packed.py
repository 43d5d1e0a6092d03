"""Layouts of libraries that pack integers in words of their own: GPTQ, AWQ, compressed-tensors, bitsandbytes ..."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from llmcalc.schemes.layouts import Layout, Piece, divide, matrix, up

WORD = 32


@dataclass(frozen=True, slots=True)
class Gptq(Layout):
    """GPTQ: words along the inputs, zeros packed along the outputs, fp16 scales; ``g_idx`` is always written.

    group 0: one group a column of inputs. Act-order changes the numbers in ``g_idx``, not their size.
    """

    name: str
    width: int
    group: int
    source: str = "GPTQModel qlinear (qweight, qzeros, scales, g_idx)"

    def pieces(self, shape: tuple[int, ...]) -> Iterator[Piece]:
        rows, cols = matrix(shape, self.name)
        groups = up(cols, self.group or cols)
        words, zeros = up(cols * self.width, WORD), up(rows * self.width, WORD)
        yield Piece("qweight", (words, rows), 4, ("words of inputs", "out"), "bytes a word")
        yield Piece("qzeros", (groups, zeros), 4, ("groups", "words of outputs"), "bytes a word")
        yield Piece("scales", (groups, rows), 2, ("groups", "out"))
        yield Piece("g_idx", (cols,), 4, ("in",))

    @property
    def bits(self) -> Fraction:
        return self.width + Fraction(16 + self.width if self.group else 0, self.group or 1)

    @property
    def block(self) -> int:
        return self.group

    def describe(self) -> str:
        shared = self.group or "a row of"
        return f"{self.width}-bit values, fp16 scale and {self.width}-bit zero for {shared} values, g_idx"


@dataclass(frozen=True, slots=True)
class Awq(Layout):
    """AWQ's ``gemm``: words along the outputs, zeros alike, fp16 scales."""

    name: str
    width: int
    group: int
    source: str = "AutoAWQ WQLinear_GEMM (qweight, qzeros, scales)"

    def pieces(self, shape: tuple[int, ...]) -> Iterator[Piece]:
        rows, cols = matrix(shape, self.name)
        groups = divide(cols, self.group or cols, f"{self.name} has groups")
        words = divide(rows * self.width, WORD, f"{self.name} packs words: bits")
        yield Piece("qweight", (cols, words), 4, ("in", "words of outputs"), "bytes a word")
        yield Piece("qzeros", (groups, words), 4, ("groups", "words of outputs"), "bytes a word")
        yield Piece("scales", (groups, rows), 2, ("groups", "out"))

    @property
    def bits(self) -> Fraction:
        return self.width + Fraction(16 + self.width if self.group else 0, self.group or 1)

    @property
    def block(self) -> int:
        return self.group

    def describe(self) -> str:
        return f"{self.width}-bit values, fp16 scale and {self.width}-bit zero for {self.group or 'a row of'} values"


@dataclass(frozen=True, slots=True)
class PackQuantized(Layout):
    """compressed-tensors ``pack-quantized``: words along a row, scales in the model's format, the shape as int64.

    group 0: a scale a row; -1: one scale. zeros: packed along the outputs. order: ``weight_g_idx`` is stored.
    """

    name: str
    width: int
    group: int
    scale: int = 2
    zeros: bool = False
    order: bool = False
    source: str = "compressed-tensors pack_quantized"

    def pieces(self, shape: tuple[int, ...]) -> Iterator[Piece]:
        rows, cols = matrix(shape, self.name)
        groups = divide(cols, self.group, f"{self.name} has groups") if self.group > 0 else 1
        scales = 1 if self.group < 0 else rows
        yield Piece("weight_packed", (rows, up(cols * self.width, WORD)), 4, ("out", "words of inputs"), "bytes a word")
        yield Piece("weight_scale", (scales, groups), self.scale, ("out" if self.group >= 0 else "scale", "groups"))
        yield Piece("weight_shape", (2,), 8, ("sizes",))
        if self.zeros:
            words = up(rows * self.width, WORD)
            yield Piece("weight_zero_point", (words, groups), 4, ("words of outputs", "groups"), "bytes a word")
        if self.order:
            yield Piece("weight_g_idx", (cols,), 4, ("in",))

    @property
    def bits(self) -> Fraction:
        shared = 8 * self.scale + (self.width if self.zeros else 0)
        return self.width + Fraction(shared if self.group > 0 else 0, max(self.group, 1))

    @property
    def block(self) -> int:
        return max(self.group, 0)

    def describe(self) -> str:
        return (
            f"{self.width}-bit values in words, a scale of {self.scale} B for {self.group or 'a row of'} values, shape"
        )


@dataclass(frozen=True, slots=True)
class Bnb4(Layout):
    """bitsandbytes nf4 or fp4: two values a byte over the whole matrix, ``absmax`` for 64, and its state as JSON text.

    double: absmax in 8 bits, with fp32 scales of 256 of them. The text then holds an offset, a number of the weights
    themselves: ``OFFSET_DIGITS`` characters are counted for it, one to three may be missing or more.
    Source: bitsandbytes functional.py QuantState.as_dict, utils.pack_dict_to_tensor.
    """

    name: str
    kind: str
    double: bool = False
    dtype: str = "bfloat16"
    size: int = 64
    nested: int = 256
    source: str = "bitsandbytes QuantState.as_dict(packed=True)"

    def pieces(self, shape: tuple[int, ...]) -> Iterator[Piece]:
        rows, cols = matrix(shape, self.name)
        blocks = up(rows * cols, self.size)
        yield Piece("weight", (up(rows * cols, 2), 1), 1, ("bytes of two values", ""))
        if self.double:
            yield Piece("weight.absmax", (blocks,), 1, (f"blocks of {self.size}",))
            yield Piece("weight.nested_absmax", (up(blocks, self.nested),), 4, (f"blocks of {self.nested} blocks",))
            yield Piece("weight.nested_quant_map", (256,), 4, ("entries of a table",))
        else:
            yield Piece("weight.absmax", (blocks,), 4, (f"blocks of {self.size}",))
        yield Piece("weight.quant_map", (16,), 4, ("entries of a table",))
        text = len(self.state(rows, cols))
        yield Piece(f"weight.quant_state.bitsandbytes__{self.kind}", (text,), 1, ("characters of JSON",))

    def state(self, rows: int, cols: int) -> str:
        """The JSON text that the library stores beside the matrix."""
        state: dict[str, object] = {"quant_type": self.kind, "blocksize": self.size}
        state |= {"dtype": self.dtype, "shape": (rows, cols)}
        if self.double:
            state |= {"nested_blocksize": self.nested, "nested_dtype": "float32", "nested_offset": 0}
        return json.dumps(state) + (" " * (OFFSET_DIGITS - 1) if self.double else "")

    @property
    def bits(self) -> Fraction:
        if self.double:
            return 4 + Fraction(8, self.size) + Fraction(32, self.size * self.nested)
        return 4 + Fraction(32, self.size)

    @property
    def block(self) -> int:
        return self.size

    def describe(self) -> str:
        scale = f"8-bit absmax, fp32 for {self.nested} of them" if self.double else "fp32 absmax"
        return f"4-bit values of a table, {scale} for {self.size} values, tables, state as JSON"


OFFSET_DIGITS = 19


@dataclass(frozen=True, slots=True)
class Bits(Layout):
    """HQQ: values packed in bytes (3 bits: ten a word), a scale and a zero for each group, both ``scale`` bytes.

    A group is ``group`` values along a row (axis 1). dtype: what it computes in, a text in the state beside each matrix
    (bits, group, shape, axis, packing ...), which the library writes as tensors of ``STATE`` bytes and that text.
    """

    name: str
    width: int
    group: int
    scale: int = 2
    dtype: str = "torch.bfloat16"
    source: str = "hqq BitPack, HQQLinear.state_dict"

    def pieces(self, shape: tuple[int, ...]) -> Iterator[Piece]:
        rows, cols = matrix(shape, self.name)
        groups = divide(rows * cols, self.group, f"{self.name} has groups")
        if self.width == 3:
            yield Piece("W_q", (up(groups, 10), self.group), 4, ("tens of groups", "values"), "bytes a word")
        else:
            packed = divide(groups * self.width, 8, f"{self.name} packs groups into bytes: bits")
            yield Piece("W_q", (packed, self.group), 1, ("bytes of groups", "values"))
        yield Piece("scale", (groups, 1), self.scale, ("groups", ""))
        yield Piece("zero", (groups, 1), self.scale, ("groups", ""))
        yield Piece("state", (STATE + len(self.dtype),), 1, ("bytes of bits, group, shape, axis, packing ...",))

    @property
    def bits(self) -> Fraction:
        width = Fraction(32, 10) if self.width == 3 else Fraction(self.width)
        return width + Fraction(16 * self.scale, self.group)

    @property
    def block(self) -> int:
        return self.group

    def describe(self) -> str:
        return f"{self.width}-bit values, a scale and a zero of {self.scale} B for {self.group} values"


# nbits, group_size, axis 4 B each, shape 16, the names of packing and view 7 and 11, nine flags.
STATE = 55


@dataclass(frozen=True, slots=True)
class Ternary(Layout):
    """BitNet: four values of -1, 0, 1 a byte along the outputs, one scale a matrix."""

    name: str = "bitnet"
    scale: int = 2
    source: str = "transformers integrations/bitnet.py BitLinear"

    def pieces(self, shape: tuple[int, ...]) -> Iterator[Piece]:
        rows, cols = matrix(shape, self.name)
        packed = divide(rows, 4, "bitnet packs rows in fours: groups")
        yield Piece("weight", (packed, cols), 1, ("rows of four values a byte", "in"))
        yield Piece("weight_scale", (1,), self.scale, ("scale",))

    @property
    def bits(self) -> Fraction:
        return Fraction(2)

    def describe(self) -> str:
        return f"2-bit values, one scale of {self.scale} B a matrix"
