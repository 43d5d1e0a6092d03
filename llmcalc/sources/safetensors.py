"""Headers of safetensors files: names, types and shapes, never the tensor data.

Layout (github.com/huggingface/safetensors): 8 bytes little-endian length of the header, the header as JSON, the data.
"""

from __future__ import annotations

import os
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from llmcalc.arch.stored import SAFETENSORS
from llmcalc.errors import MalformedConfigError
from llmcalc.sources.raw import Tensor
from llmcalc.sources.text import POINTER, parse_json

LARGEST_HEADER: Final = 100_000_000  # the limit of the reference reader
LARGEST: Final = 2**63
MOST_VALUES: Final = 1_200_000  # five a tensor


class _Span(NamedTuple):
    begin: int
    end: int
    name: str


class Readable(Protocol):
    """What a header is read from: a file, or the body of an answer."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, fewer only at the end."""
        ...


def read_header(path: Path) -> tuple[Tensor, ...]:
    """The tensors of one safetensors file, in the order of its header.

    Raises: MalformedConfigError where the header is cut short, is no header, or disagrees with the file's length.
    """
    with path.open("rb") as file:
        return parse_header(file, os.fstat(file.fileno()).st_size, str(path), path.name)


def parse_header(file: Readable, length: int, where: str, shard: str) -> tuple[Tensor, ...]:
    """The tensors of a safetensors file of ``length`` bytes; nothing behind the header is read.

    Raises: MalformedConfigError.
    """
    header = file.read(header_length(file.read(8), length, where))
    if header.count(b":") > MOST_VALUES or header.count(b",") > 4 * MOST_VALUES:
        # Parsed, a value takes tens of times the bytes that name it.
        raise MalformedConfigError(f"{where}: the header names more than {MOST_VALUES:,} values")
    entries, _ = parse_json(header, where, unique=True)
    if not isinstance(entries, dict):
        raise MalformedConfigError(f"{where}: the header is not a JSON object")
    tensors: list[Tensor] = []
    spans: list[_Span] = []
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        tensor, span = _tensor(name, entry, shard, where)
        tensors.append(tensor)
        spans.append(span)
    _check_spans(spans, length - 8 - len(header), where)
    return tuple(tensors)


def header_length(first: bytes, length: int, where: str) -> int:
    """Bytes of the header, by the first eight of a file of ``length``. Raises: MalformedConfigError."""
    if len(first) < 8:
        raise MalformedConfigError(
            f"{where}: truncated: {len(first)} bytes, a safetensors header has at least 8", _AGAIN
        )
    if POINTER.startswith(first):
        raise MalformedConfigError(f"{where}: a Git LFS pointer, not the weights", "fetch them with git lfs pull")
    size = int.from_bytes(first, "little")
    if size > LARGEST_HEADER:
        raise MalformedConfigError(f"{where}: the header claims {size:,} bytes, over the format's limit of 100,000,000")
    if 8 + size > length:
        raise MalformedConfigError(
            f"{where}: truncated header: it claims {size:,} bytes, the file has {length:,} in all", _AGAIN
        )
    return size


_AGAIN: Final = "download it again"


def _tensor(name: str, entry: object, shard: str, where: str) -> tuple[Tensor, _Span]:
    if not isinstance(entry, dict):
        raise MalformedConfigError(f"{where}: tensor {name}: the entry is not an object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in SAFETENSORS:
        raise MalformedConfigError(
            f"{where}: tensor {name}: dtype is {dtype!r:.60}, expected one of {', '.join(SAFETENSORS)}"
        )
    sizes = _whole_numbers(shape)
    if sizes is None:
        raise MalformedConfigError(f"{where}: tensor {name}: shape is {shape!r:.60}, expected a list of sizes")
    span = _whole_numbers(offsets)
    if span is None or len(span) != 2 or span[0] > span[1]:
        raise MalformedConfigError(
            f"{where}: tensor {name}: data_offsets is {offsets!r:.60}, expected [begin, end] in bytes"
        )
    bits = prod(sizes) * SAFETENSORS[dtype].bits
    if bits != 8 * (span[1] - span[0]):
        raise MalformedConfigError(
            f"{where}: tensor {name}: {dtype} of shape {list(sizes)!r:.60} takes {-(-bits // 8)} bytes, "
            f"its offsets span {span[1] - span[0]}"
        )
    return Tensor(name, dtype, sizes, shard), _Span(span[0], span[1], name)


def _whole_numbers(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list) or len(value) > 64:
        return None
    numbers = tuple(item for item in value if type(item) is int and 0 <= item < LARGEST)
    return numbers if len(numbers) == len(value) else None


def _check_spans(spans: list[_Span], available: int, where: str) -> None:
    """The data must be covered once, without a gap, to the last byte."""
    spans = sorted([_Span(0, 0, ""), *spans])
    for before, span in pairwise(spans):
        if span.begin != before.end:
            kind = "overlaps the one before it" if span.begin < before.end else "leaves a gap before it"
            raise MalformedConfigError(f"{where}: tensor {span.name}: its data {kind}")
    claimed = spans[-1].end
    if claimed > available:
        raise MalformedConfigError(
            f"{where}: the header claims {claimed:,} bytes of tensors, the file has {available:,}", _AGAIN
        )
    if claimed < available:
        raise MalformedConfigError(f"{where}: {available - claimed:,} bytes follow the last tensor", _AGAIN)
