"""Reading the header of a 200 GB file against that of a 2 MB file with the same header, in pairs.

Both are sparse files: the tensor data is a hole, which no reader may touch. Prints the medians, their ratio, the spread
of the ratio of each pair, and the memory that a process of its own takes at most.
"""

from __future__ import annotations

import json
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from llmcalc.sources.gguf_header import read_header as read_gguf
from llmcalc.sources.safetensors import read_header as read_safetensors

PAIRS = 60
WARM = 5
LARGE, SMALL = 200 * 10**9, 2 * 10**6
TENSORS = 1000


def gguf_header(size: int) -> bytes:
    """A thousand tensors of one size and a vocabulary of 128,000 words; together they fill ``size`` bytes."""
    each = size // TENSORS // 64 * 32
    words = b"".join(struct.pack("<Q", 7) + b"word %02d" % (number % 100) for number in range(128_000))
    pairs = b"".join(
        struct.pack("<Q", len(key)) + key + value
        for key, value in (
            (b"general.architecture", struct.pack("<IQ", 8, 5) + b"llama"),
            (b"tokenizer.ggml.tokens", struct.pack("<IIQ", 9, 8, 128_000) + words),
        )
    )
    infos = b"".join(
        struct.pack("<Q", 18) + b"blk.%04d.ffn_down." % number + struct.pack("<IQIQ", 1, each, 1, 2 * each * number)
        for number in range(TENSORS)
    )
    head = b"GGUF" + struct.pack("<IQQ", 3, TENSORS, 2) + pairs + infos
    return head + bytes(-len(head) % 32)


def safetensors_header(size: int) -> bytes:
    """The same thousand tensors as a JSON header; offsets are padded so that both files have headers of one length."""
    each = size // TENSORS // 64 * 32
    entries = {
        f"model.layers.{number}.mlp.down_proj.weight": {
            "dtype": "F16", "shape": [each], "data_offsets": [2 * each * number, 2 * each * (number + 1)],
        }
        for number in range(TENSORS)
    }  # fmt: skip
    text = json.dumps(entries).encode().ljust(200_000)
    return struct.pack("<Q", len(text)) + text


def sparse(path: Path, header: bytes, size: int) -> Path:
    """A file of the header and a hole."""
    path.write_bytes(header)
    with path.open("r+b") as file:
        file.truncate(len(header) + size)
    return path


def milliseconds(read: Callable[[Path], object], path: Path) -> float:
    """One reading."""
    begin = time.perf_counter()
    read(path)
    return 1e3 * (time.perf_counter() - begin)


def peak_mib(kind: str, path: Path) -> float:
    """The largest resident size of a process that imports the reader and reads the file."""
    code = (
        "import resource\nfrom pathlib import Path\n"
        f"from llmcalc.sources.{kind} import read_header\nread_header(Path({str(path)!r}))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout) / 1024


def compare(name: str, kind: str, read: Callable[[Path], object], large: Path, small: Path) -> None:
    """Time both in turn and print what came out."""
    for _ in range(WARM):
        read(large)
        read(small)
    pairs = [(milliseconds(read, large), milliseconds(read, small)) for _ in range(PAIRS)]
    ratios = sorted(a / b for a, b in pairs)
    middle = [statistics.median(column) for column in zip(*pairs, strict=True)]
    print(
        f"{name}: {large.stat().st_size / 1e9:.0f} GB {middle[0]:.2f} ms, {small.stat().st_size / 1e6:.1f} MB "
        f"{middle[1]:.2f} ms; ratio {statistics.median(ratios):.3f} (p10 {ratios[PAIRS // 10]:.3f}, "
        f"p90 {ratios[-PAIRS // 10]:.3f}); at most {peak_mib(kind, large):.1f} MiB resident"
    )


def main() -> None:
    """Both formats."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, kind, read, make in (
            ("GGUF", "gguf_header", read_gguf, gguf_header),
            ("safetensors", "safetensors", read_safetensors, safetensors_header),
        ):
            large = sparse(root / f"large.{kind}", make(LARGE), LARGE // TENSORS // 64 * 64 * TENSORS)
            small = sparse(root / f"small.{kind}", make(SMALL), SMALL // TENSORS // 64 * 64 * TENSORS)
            compare(name, kind, read, large, small)
    print(f"this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.1f} MiB")


if __name__ == "__main__":
    main()
