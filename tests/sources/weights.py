"""Small safetensors files for the tests."""

import json
from pathlib import Path


def header(entries: dict[str, object], pad: int = 0) -> bytes:
    text = json.dumps(entries).encode() + b" " * pad
    return len(text).to_bytes(8, "little") + text


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def write(path: Path, *names: str) -> Path:
    """A file with a BF16 tensor of 2 x 3 for each name."""
    entries: dict[str, object] = {name: entry("BF16", [2, 3], 12 * at, 12 * at + 12) for at, name in enumerate(names)}
    path.write_bytes(header({"__metadata__": {"format": "pt"}, **entries}, pad=5) + bytes(12 * len(names)))
    return path
