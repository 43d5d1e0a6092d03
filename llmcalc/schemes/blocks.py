"""Block types of llama.cpp: values in a block, and bytes of a block with its scales.

Source: llama.cpp ``ggml-common.h``, gguf-py ``GGML_QUANT_SIZES`` (which gives 40 bytes for q8_1, a type of activations
that no file holds; ``block_q8_1`` has 36).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from llmcalc.schemes.layouts import Layout, Piece, divide


@dataclass(frozen=True, slots=True)
class Blocks(Layout):
    """Rows cut into blocks of ``size`` values, ``item`` bytes each."""

    name: str
    size: int
    item: int
    source: str = "llama.cpp ggml-common.h"

    def pieces(self, shape: tuple[int, ...]) -> Iterator[Piece]:
        blocks = divide(shape[-1], self.size, f"{self.name} has blocks")
        if self.size == 1:
            yield Piece("", shape, self.item, ("out", "in") if len(shape) == 2 else ())
        else:
            labels = ("out",) if len(shape) == 2 else ("",) * (len(shape) - 1)
            dims = (*shape[:-1], blocks)
            yield Piece("", dims, self.item, (*labels, f"blocks of {self.size}"), "bytes a block")

    @property
    def bits(self) -> Fraction:
        return Fraction(8 * self.item, self.size)

    @property
    def block(self) -> int:
        return self.size

    def describe(self) -> str:
        return f"{self.item} B for {self.size} values, scales included"


_SIZES: Final = {
    "f32": (1, 4), "f16": (1, 2), "bf16": (1, 2),
    "q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24), "q8_0": (32, 34), "q8_1": (32, 36),
    "q2_k": (256, 84), "q3_k": (256, 110), "q4_k": (256, 144), "q5_k": (256, 176), "q6_k": (256, 210),
    "q8_k": (256, 292),
    "iq1_s": (256, 50), "iq1_m": (256, 56), "iq2_xxs": (256, 66), "iq2_xs": (256, 74), "iq2_s": (256, 82),
    "iq3_xxs": (256, 98), "iq3_s": (256, 110), "iq4_nl": (32, 18), "iq4_xs": (256, 136),
    "tq1_0": (256, 54), "tq2_0": (256, 66), "q1_0": (128, 18), "q2_0": (64, 18), "mxfp4": (32, 17),
    "nvfp4": (64, 36),
}  # fmt: skip
BLOCKS: Final[dict[str, Blocks]] = {name: Blocks(name, *sizes) for name, sizes in _SIZES.items()}

# What a row that is no whole number of blocks is stored in (llama-quant.cpp tensor_type_fallback).
FALLBACK: Final = {
    **dict.fromkeys(("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_xs"), "iq4_nl"),
    **dict.fromkeys(("q2_0", "q2_k", "q3_k", "tq1_0", "tq2_0"), "q4_0"),
    "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0",
}  # fmt: skip


def fitting(name: str, cols: int) -> str | None:
    """The type that llama.cpp stores rows of ``cols`` values in when ``name`` was meant; None where it gives up."""
    if cols % BLOCKS[name].size == 0:
        return name
    second = FALLBACK.get(name)
    if second is None:
        return None
    return second if cols % BLOCKS[second].size == 0 else "f16"
