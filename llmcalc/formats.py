"""Number formats with exact sizes: values per block and bytes per block, scales included.

Sources: llama.cpp ``ggml-common.h`` for its block types; OCP Microscaling Formats 1.0 for mxfp; NVIDIA's NVFP4 (16
values, one e4m3 scale); vLLM ``kv_cache_interface.py`` for the ``*_per_token_head`` formats.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Final, NamedTuple

from llmcalc.errors import InvalidInputError, UnsupportedFormatError


class Format(NamedTuple):
    """``block`` values take ``block_bytes``; each row of the last axis takes ``row_bytes`` more (a scale per head)."""

    name: str
    block: int
    block_bytes: int
    row_bytes: int = 0
    source: str = ""

    @property
    def bits(self) -> float:
        """Bits per value, row scales apart."""
        return 8 * self.block_bytes / self.block

    @property
    def plain(self) -> bool:
        """Whether it is a 16 or 32-bit float without scales."""
        return self.block == 1 and self.block_bytes >= 2

    def array_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of an array whose last axis is contiguous.

        Raises: InvalidInputError where the last axis is not a whole number of blocks.
        """
        width = shape[-1]
        if width % self.block:
            raise InvalidInputError(
                f"{self.name} packs {self.block} values a block, which do not divide a row of {width}",
                "choose a cache format whose block divides the head width, or one without blocks (fp8, bf16)",
            )
        return prod(shape[:-1]) * (width // self.block * self.block_bytes + self.row_bytes)


GGML: Final = "llama.cpp ggml-common.h"
FORMATS: Final[dict[str, Format]] = {
    fmt.name: fmt
    for fmt in (
        Format("fp32", 1, 4),
        Format("bf16", 1, 2),
        Format("fp16", 1, 2),
        Format("fp8", 1, 1, source="one scale a tensor, outside the cache"),
        Format("int8", 1, 1, source="one scale a tensor, outside the cache"),
        Format("fp8_per_token_head", 1, 1, 4, "vLLM: a fp32 scale for each head of each token, keys and values apart"),
        Format("int8_per_token_head", 1, 1, 4, "vLLM: a fp32 scale for each head of each token, keys and values apart"),
        Format("q8_0", 32, 34, source=GGML),
        Format("q5_1", 32, 24, source=GGML),
        Format("q5_0", 32, 22, source=GGML),
        Format("q4_1", 32, 20, source=GGML),
        Format("q4_0", 32, 18, source=GGML),
        Format("iq4_nl", 32, 18, source=GGML),
        Format("mxfp8", 32, 33, source="OCP MX 1.0"),
        Format("mxfp4", 32, 17, source="OCP MX 1.0"),
        Format("nvfp4", 16, 9, source="NVFP4: an e4m3 scale for 16 values"),
    )
}
ALIASES: Final = {
    "f32": "fp32", "float32": "fp32", "f16": "fp16", "float16": "fp16", "half": "fp16", "bfloat16": "bf16",
    "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "float8_e4m3fn": "fp8", "fp8_e4m3fn": "fp8",
}  # fmt: skip


def find(name: str) -> Format:
    """The format of that name.

    Raises: UnsupportedFormatError.
    """
    key = name.strip().lower()
    found = FORMATS.get(ALIASES.get(key, key))
    if found is None:
        raise UnsupportedFormatError(f"unknown format {name!r}", f"known formats: {', '.join(FORMATS)}")
    return found


class CacheFormat(NamedTuple):
    """What keys are stored in, and values; latents, index keys and other cached rows take the keys' format."""

    key: Format
    value: Format

    @property
    def name(self) -> str:
        """One name, or ``K:V``."""
        return self.key.name if self.key == self.value else f"{self.key.name}:{self.value.name}"


@cache
def find_cache(text: str, own: str = "") -> CacheFormat:
    """A format, or two joined by a colon for keys and values; ``auto``, whole or on a side, is the model's ``own``.

    Raises: UnsupportedFormatError.
    """
    key, colon, value = text.partition(":")
    return CacheFormat(_side(key, own).key, _side(value if colon else key, own).value)


def _side(text: str, own: str) -> CacheFormat:
    if own and is_auto(text):
        return find_cache(own)
    found = find(text)
    return CacheFormat(found, found)


def is_auto(text: str) -> bool:
    """Whether the model's own format is asked for, at least on one side."""
    return "auto" in text.lower().replace(" ", "").split(":")
