"""GGUF files: a config and a list of tensors from the header, whatever the size of the data behind it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

from llmcalc.errors import LlmcalcError, MalformedConfigError, NotFoundError, SourceError
from llmcalc.sources.gguf_config import config_of
from llmcalc.sources.gguf_header import GgufHeader, read_header
from llmcalc.sources.raw import Provenance, RawConfig, Tensor

_SHARD: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
MOST_SHARDS: Final = 1000


def read_gguf(path: Path) -> RawConfig:
    """A config from the header of a GGUF file, or of all files of a split one.

    Raises: NotFoundError for a file or a shard that is not there, MalformedConfigError for a header that is not right,
        UnsupportedArchitectureError for an architecture without a row.
    """
    where = str(path)
    try:
        header = read_header(path)
        count = header.metadata.get("split.count")
        if isinstance(count, int) and count > 1:
            header = _whole(path, header, count)
        config = config_of(header, where)
        digest = _digest(path, header.size)
    except LlmcalcError:
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"{where}: no such file or folder", "name a .gguf file by its path") from None
    except (OSError, ValueError) as error:
        raise SourceError(f"{where}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    provenance = Provenance(_name(path, header), "gguf", where, None, digest, f"header of the GGUF file {where}")
    return RawConfig(config, provenance, where, (), header.tensors)


def _name(path: Path, header: GgufHeader) -> str:
    name = header.metadata.get("general.name")
    return name if isinstance(name, str) and name.isprintable() and name else path.stem


def _digest(path: Path, size: int) -> str:
    """The sha256 of the header's bytes."""
    sha, left = hashlib.sha256(), size
    with path.open("rb") as file:
        while left > 0 and (chunk := file.read(min(left, 1 << 20))):
            sha.update(chunk)
            left -= len(chunk)
    return sha.hexdigest()


def _whole(path: Path, header: GgufHeader, count: int) -> GgufHeader:
    """The header of the first file of a split model with the tensors of all of them."""
    match = _SHARD.fullmatch(path.name)
    if match is None or int(match["count"]) != count or count > MOST_SHARDS:
        raise MalformedConfigError(
            f"{path}: split.count is {count:,}, which the name does not say", "keep the names NAME-00001-of-00002.gguf"
        )
    names = [f"{match['stem']}-{number:05}-of-{match['count']}.gguf" for number in range(1, count + 1)]
    missing = [name for name in names if not (path.parent / name).is_file()]
    if missing:
        raise NotFoundError(
            f"{path}: {len(missing)} of {count} shards are missing: {', '.join(missing[:8])}", "finish the download"
        )
    headers = [header if name == path.name else read_header(path.parent / name) for name in names]
    first = next((found for found in headers if "general.architecture" in found.metadata), header)
    tensors = _joined(path, [found.tensors for found in headers])
    stated = first.metadata.get("split.tensors.count")
    if isinstance(stated, int) and stated != len(tensors):
        raise MalformedConfigError(
            f"{path}: split.tensors.count is {stated:,}, the shards have {len(tensors):,} tensors"
        )
    return header._replace(metadata=first.metadata, tensors=tensors)


def _joined(path: Path, shards: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    found: dict[str, Tensor] = {}
    for tensor in (tensor for shard in shards for tensor in shard):
        if tensor.name in found:
            raise MalformedConfigError(f"{path}: the tensor {tensor.name} is in two shards")
        found[tensor.name] = tensor
    return tuple(found.values())
