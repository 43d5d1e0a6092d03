"""The header of a GGUF file: its metadata and its list of tensors, never the tensor data.

Layout (github.com/ggml-org/ggml, docs/gguf.md): the magic, a version, two counts, then so many pairs of key and value,
so many entries of tensors, padding, and the data. Written by hand, as the gguf package maps the whole file, makes an
array of every token of the vocabulary and imports numpy; here whatever is not asked for is skipped, and every count is
held against what the file can hold before anything is read.
"""

from __future__ import annotations

import os
import struct
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from llmcalc.arch.stored import GGML_NAMES, TYPES
from llmcalc.errors import MalformedConfigError
from llmcalc.sources.raw import Tensor

VERSIONS: Final = (2, 3)
LARGEST_HEADER: Final = 256 * 2**20
MOST_STRINGS: Final = 8_000_000
MOST_TENSORS: Final = 65_536
MOST_KEYS: Final = 65_536
LONGEST_KEY: Final = 65_535
LONGEST_NAME: Final = 256
MOST_KEPT: Final = 16 * 2**20
KEPT_TEXT: Final = 4_096
KEPT_ARRAY: Final = 4_096
MOST_AXES: Final = 4
ALIGNMENT: Final = 32
_CHUNK: Final = 1 << 18
_AGAIN: Final = "download it again"

# number in the file -> struct code and bytes; 8 is text, 9 an array.
_SCALARS: Final = {
    0: ("B", 1), 1: ("b", 1), 2: ("H", 2), 3: ("h", 2), 4: ("I", 4), 5: ("i", 4), 6: ("f", 4), 7: ("?", 1),
    10: ("Q", 8), 11: ("q", 8), 12: ("d", 8),
}  # fmt: skip
_TEXT, _ARRAY = 8, 9


class Skipped(NamedTuple):
    """An array or a text that is too long to be kept: how many items or bytes it has."""

    length: int


Value = int | float | bool | str | tuple[int | float | bool, ...] | Skipped


class GgufHeader(NamedTuple):
    """What stands before the data; ``size``: its bytes."""

    version: int
    metadata: dict[str, Value]
    tensors: tuple[Tensor, ...]
    size: int


def read_header(path: Path) -> GgufHeader:
    """The header of one GGUF file, checked against the file's length.

    Raises: MalformedConfigError where it is cut short, is no header or disagrees with the file; OSError.
    """
    with path.open("rb") as file:
        reader = _Reader(file, os.fstat(file.fileno()).st_size, path)
        version = reader.begin()
        count, keys = reader.number("Q", 8), reader.number("Q", 8)
        reader.check_count(count, MOST_TENSORS, 24, "tensors")
        reader.check_count(keys, MOST_KEYS, 13, "metadata keys")
        metadata = reader.metadata(keys)
        alignment = metadata.get("general.alignment", ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment > 2**20 or alignment & (alignment - 1):
            raise reader.bad(f"general.alignment is {alignment!r:.40}, expected a power of two")
        entries = [reader.tensor() for _ in range(count)]
        size = reader.position
        _check(entries, reader, -(-size // alignment) * alignment, alignment)
    return GgufHeader(version, metadata, tuple(entry.tensor for entry in entries), size)


class _Entry(NamedTuple):
    tensor: Tensor
    offset: int
    size: int


def _check(entries: list[_Entry], reader: _Reader, start: int, alignment: int) -> None:
    """Names are given once; the data of each lies in the file, aligned, and overlaps no other's."""
    seen: set[str] = set()
    for entry in entries:
        if entry.tensor.name in seen:
            raise reader.bad(f"the tensor {_short(entry.tensor.name)} is given twice")
        seen.add(entry.tensor.name)
        if entry.offset % alignment:
            raise reader.bad(f"tensor {_short(entry.tensor.name)}: its data is not aligned to {alignment} bytes")
        if start + entry.offset + entry.size > reader.length:
            raise reader.bad(
                f"tensor {_short(entry.tensor.name)}: its data ends at byte {start + entry.offset + entry.size:,}, "
                f"the file has {reader.length:,}", _AGAIN,
            )  # fmt: skip
    for before, entry in pairwise(sorted(entries, key=lambda entry: (entry.offset, entry.size))):
        if entry.offset < before.offset + before.size:
            raise reader.bad(f"tensor {_short(entry.tensor.name)}: its data overlaps that of another")


class _Reader:
    """Reads forward through a window of the file, so that a header of any length takes the memory of one chunk."""

    def __init__(self, file: BinaryIO, length: int, path: Path) -> None:
        self.file, self.length, self.where, self.shard = file, length, str(path), path.name
        self.window, self.at, self.base = b"", 0, 0
        self.order = "<"
        self.strings = self.kept = 0

    @property
    def position(self) -> int:
        """Bytes read so far."""
        return self.base + self.at

    def bad(self, message: str, hint: str = "") -> MalformedConfigError:
        """An error about this file."""
        return MalformedConfigError(f"{self.where}: {message}", hint)

    def begin(self) -> int:
        """The magic and the version, which also tells the byte order."""
        first = self.take(min(8, self.length))
        if first[:4] != b"GGUF":
            raise self.bad("not a GGUF file: it does not begin with GGUF")
        if self.length < 24:
            raise self.bad(f"truncated GGUF header: {self.length} bytes, at least 24 are needed", _AGAIN)
        version = int.from_bytes(first[4:8], "little")
        if version not in VERSIONS and int.from_bytes(first[4:8], "big") in VERSIONS:
            self.order, version = ">", int.from_bytes(first[4:8], "big")
        if version not in VERSIONS:
            raise self.bad(f"GGUF version {version}, expected {' or '.join(map(str, VERSIONS))}")
        return version

    # -- bytes ---------------------------------------------------------------------------------------------------

    def need(self, size: int) -> None:
        """Have ``size`` bytes in the window."""
        if len(self.window) - self.at >= size:
            return
        if self.position + size > self.length:
            raise self.bad(
                f"truncated GGUF header: it goes on to byte {self.position + size:,} at least, the file has "
                f"{self.length:,}", _AGAIN,
            )  # fmt: skip
        if self.position + size > LARGEST_HEADER:
            raise self.bad(f"a GGUF header of more than {LARGEST_HEADER:,} bytes")
        self.base, rest = self.position, self.window[self.at :]
        self.window, self.at = rest + self.file.read(max(size, _CHUNK) - len(rest)), 0
        if len(self.window) < size:
            raise self.bad("truncated while it was read", _AGAIN)

    def take(self, size: int) -> bytes:
        """The next bytes."""
        self.need(size)
        self.at += size
        return self.window[self.at - size : self.at]

    def skip(self, size: int) -> None:
        """Go past bytes without reading them."""
        if size <= len(self.window) - self.at:
            self.at += size
            return
        target = self.position + size
        if target > min(self.length, LARGEST_HEADER):
            self.need(size)
        self.file.seek(target)
        self.window, self.at, self.base = b"", 0, target

    def number(self, code: str, size: int) -> int:
        """One whole number."""
        self.need(size)
        (value,) = struct.unpack_from(self.order + code, self.window, self.at)
        self.at += size
        return int(value)

    def check_count(self, count: int, most: int, size: int, what: str) -> None:
        """Refuse a count that the rest of the file cannot hold, before anything is read or made."""
        if count > most:
            raise self.bad(f"the header claims {count:,} {what}, more than {most:,}")
        if self.position + count * size > self.length:
            raise self.bad(f"the header claims {count:,} {what}, the file has {self.length:,} bytes", _AGAIN)

    # -- values --------------------------------------------------------------------------------------------------

    def text(self, longest: int, what: str) -> str:
        """A text that is kept."""
        length = self.number("Q", 8)
        if length > longest:
            raise self.bad(f"{what} of {length:,} bytes, more than {longest:,}")
        self.keep(length)
        data = self.take(length)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self.bad(f"{what} is not UTF-8: {data[:40]!r}") from None

    def keep(self, size: int) -> None:
        """Count what is kept, so that many small things do not fill the memory either."""
        self.kept += size
        if self.kept > MOST_KEPT:
            raise self.bad(f"more than {MOST_KEPT:,} bytes of metadata beside the vocabulary")

    def metadata(self, count: int) -> dict[str, Value]:
        """The pairs of key and value; long ones by their length alone."""
        found: dict[str, Value] = {}
        for _ in range(count):
            key = self.text(LONGEST_KEY, "a metadata key")
            if key in found:
                raise self.bad(f"the metadata key {_short(key)} is given twice")
            found[key] = self.value(key)
        return found

    def value(self, key: str) -> Value:
        """One value of metadata."""
        kind = self.number("I", 4)
        if kind in _SCALARS:
            return self.scalars(kind, 1)[0]
        if kind == _TEXT:
            length = self.number("Q", 8)
            if length > KEPT_TEXT:
                self.skip_checked(length, f"the text of {_short(key)}")
                return Skipped(length)
            self.at -= 8
            return self.text(KEPT_TEXT, f"the text of {_short(key)}")
        if kind != _ARRAY:
            raise self.bad(f"metadata {_short(key)}: value type {kind}, which GGUF does not know")
        return self.array(key)

    def array(self, key: str) -> Value:
        """An array: kept where it is short and of numbers."""
        kind, length = self.number("I", 4), self.number("Q", 8)
        if kind == _TEXT:
            self.check_count(length, MOST_STRINGS - self.strings, 8, f"texts in {_short(key)}")
            self.strings += length
            self.skip_texts(length, key)
            return Skipped(length)
        if kind not in _SCALARS:
            raise self.bad(f"metadata {_short(key)}: an array of type {kind}, expected numbers or texts")
        if length <= KEPT_ARRAY:
            return self.scalars(kind, length)
        self.skip_checked(length * _SCALARS[kind][1], f"the array {_short(key)}")
        return Skipped(length)

    def skip_checked(self, size: int, what: str) -> None:
        """Go past bytes; an error that names what they belong to where the file has fewer."""
        if self.position + size > self.length:
            raise self.bad(f"{what} claims {size:,} bytes, the file has {self.length:,} in all", _AGAIN)
        self.skip(size)

    def scalars(self, kind: int, count: int) -> tuple[int | float | bool, ...]:
        """Numbers in a row."""
        code, size = _SCALARS[kind]
        self.keep(32 * count)
        return struct.unpack(f"{self.order}{count}{code}", self.take(count * size))

    def skip_texts(self, count: int, key: str) -> None:
        """Go past the texts of a vocabulary: a length, so many bytes, and again."""
        length_of = struct.Struct(f"{self.order}Q").unpack_from
        for _ in range(count):
            if len(self.window) - self.at < 8:
                self.need(8)
            (length,) = length_of(self.window, self.at)
            self.at += 8
            if length <= len(self.window) - self.at:
                self.at += length
            else:
                self.skip_checked(length, f"a text in {_short(key)}")

    def tensor(self) -> _Entry:
        """One entry of the list of tensors; GGUF names the fastest axis first, a shape here the slowest."""
        name = self.text(LONGEST_NAME, "a tensor's name")
        what = f"tensor {_short(name)}"
        axes = self.number("I", 4)
        if axes > MOST_AXES:
            raise self.bad(f"{what}: {axes} dimensions, at most {MOST_AXES} are possible")
        shape = tuple(int(size) for size in reversed(self.scalars(10, axes)))
        kind, offset = self.number("I", 4), self.number("Q", 8)
        if kind not in GGML_NAMES:
            raise self.bad(f"{what}: stored type {kind}, which is not known")
        dtype, total = GGML_NAMES[kind], prod(shape)
        block = TYPES[dtype]
        if total >= 2**63:
            raise self.bad(f"{what}: shape {list(shape)}, more than 2^63 numbers")
        if block.size > 1 and (not shape or shape[-1] % block.size):
            raise self.bad(
                f"{what}: rows of {shape[-1] if shape else 1:,} in {dtype}, whose blocks are of {block.size}"
            )
        return _Entry(Tensor(name, dtype, shape, self.shard), offset, total // block.size * block.bits // 8)


def _short(text: str, limit: int = 60) -> str:
    shown = text if text.isprintable() else ascii(text)
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."
