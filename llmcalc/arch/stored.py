"""Types that checkpoint headers name: how many numbers a block of each holds and how many bits it takes.

Source: github.com/huggingface/safetensors; ggml.h and ``GGML_QUANT_SIZES`` of gguf-py, except that it gives 40 bytes
for Q8_1, a type of activations that no file holds.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Block(NamedTuple):
    """Numbers in a block of a stored type, and bits of the block with its scales."""

    size: int
    bits: int


SAFETENSORS: Final = {
    name: Block(1, bits)
    for bits, names in (
        (4, "F4"), (6, "F6_E2M3 F6_E3M2"),
        (8, "BOOL U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ"),
        (16, "U16 I16 F16 BF16"), (32, "U32 I32 F32"), (64, "U64 I64 F64 C64"),
    )
    for name in names.split()
}  # fmt: skip

# The number that a GGUF file gives a type -> its name, numbers in a block, bytes of a block.
_GGML: Final = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18), 42: ("Q2_0", 64, 18),
}  # fmt: skip
GGML_NAMES: Final = {number: name for number, (name, _, _) in _GGML.items()}

# The two formats agree about every name that both have.
TYPES: Final = {name: Block(size, 8 * item) for name, size, item in _GGML.values()} | SAFETENSORS
