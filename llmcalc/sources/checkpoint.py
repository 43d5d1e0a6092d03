"""The tensors of a checkpoint folder: which files hold them, and whether all of them are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from llmcalc.errors import MalformedConfigError, NotFoundError
from llmcalc.sources.raw import Tensor
from llmcalc.sources.safetensors import read_header
from llmcalc.sources.text import parse_json, read_bounded

INDEX: Final = "model.safetensors.index.json"
_SHARD: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")
# Files that lie beside a model's weights and are not them; consolidated: the same weights under other names.
_BESIDE: Final = re.compile(r"(adapter|consolidated|optimizer|training|scheduler|mmproj).*", re.IGNORECASE)


def read_tensors(folder: Path, names: list[str]) -> tuple[tuple[Tensor, ...] | None, tuple[str, ...]]:
    """The tensors of a folder's safetensors files and warnings, None where it has no such files.

    Args: names: the files in the folder.
    Raises: NotFoundError for shards that are not there, MalformedConfigError for headers that are not right.
    """
    index: dict[str, str] = {}
    if INDEX in names:
        index = read_index(folder / INDEX)
        files = sorted(set(index.values()))
        _check_present(folder, [name for name in files if not (folder / name).is_file()], f" ({INDEX} names them)")
    else:
        files = _weight_files(names)
        _check_present(folder, _gaps(files), "")
    if not files:
        return None, ()
    return collect(str(folder), {name: read_header(folder / name) for name in files}, index)


def collect(
    where: str, headers: dict[str, tuple[Tensor, ...]], index: dict[str, str]
) -> tuple[tuple[Tensor, ...], tuple[str, ...]]:
    """The tensors of several files as one list, and what is odd about it. Args: index: tensor to file, may be empty."""
    found: dict[str, Tensor] = {}
    twice: list[str] = []
    for name, tensors in headers.items():
        for tensor in tensors:
            if index and index.get(tensor.name, name) != name:
                continue
            if tensor.name in found:
                twice.append(tensor.name)
            found.setdefault(tensor.name, tensor._replace(shard=name))
    warnings = []
    absent = [name for name in index if name not in found]
    if absent:
        warnings.append(f"{where}: {len(absent):,} tensors of {INDEX} are in no header, the first is {absent[0]}")
    if twice:
        warnings.append(f"{where}: {len(twice):,} tensors are in two files, the first is {twice[0]}")
    return tuple(found.values()), tuple(warnings)


def read_index(path: Path) -> dict[str, str]:
    """Which file holds each tensor. Raises: MalformedConfigError."""
    with path.open("rb") as file:
        value, _ = parse_json(read_bounded(file, str(path)), str(path))
    shards = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(shards, dict) or not shards:
        raise MalformedConfigError(f"{path}: weight_map is missing or empty, expected an object of tensor to shard")
    for shard in set(map(str, shards.values())):
        if (
            "\0" in shard
            or Path(shard).is_absolute()
            or ".." in Path(shard).parts
            or not shard.endswith(".safetensors")
        ):
            raise MalformedConfigError(f"{path}: weight_map names {shard!r:.60}, expected a safetensors file beside it")
    return {str(name): str(shard) for name, shard in shards.items()}


def _weight_files(names: list[str]) -> list[str]:
    """The weights where no index lists them: the whole file, else everything that is not known to be beside them."""
    if "model.safetensors" in names:
        return ["model.safetensors"]
    files = [name for name in names if name.endswith(".safetensors") and not name.startswith(".")]
    return [name for name in files if not _BESIDE.fullmatch(name)] or [n for n in files if n.startswith("consolidated")]


def _gaps(files: list[str]) -> list[str]:
    """Shards that the names of the others (-00001-of-00004) say there should be."""
    groups: dict[tuple[str, str], set[int]] = {}
    for name in files:
        match = _SHARD.fullmatch(name)
        if match:
            groups.setdefault((match["stem"], match["count"]), set()).add(int(match["number"]))
    return [
        f"{stem}-{number:05}-of-{count}.safetensors"
        for (stem, count), numbers in groups.items()
        for number in range(1, int(count) + 1)
        if number not in numbers
    ]


def _check_present(folder: Path, missing: list[str], because: str) -> None:
    if missing:
        shown = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
        what = "shard is" if len(missing) == 1 else "shards are"
        raise NotFoundError(
            f"{folder}: {len(missing)} {what} missing: {shown}{because}",
            "finish the download, or name the config.json alone to go by the config",
        )
