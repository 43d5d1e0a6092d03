"""GGUF files. The first bytes are checked; the header itself is not read yet."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from llmcalc.errors import MalformedConfigError, NotFoundError, SourceError
from llmcalc.sources.raw import RawConfig

VERSIONS: Final = (2, 3)


def read_gguf(path: Path) -> RawConfig:
    """A config from the header of a GGUF file.

    Raises: NotFoundError, MalformedConfigError for what is no GGUF file, SourceError for every other one.
    """
    try:
        with path.open("rb") as file:
            first = file.read(24)
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file or folder", "name a .gguf file by its path") from None
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if first[:4] != b"GGUF":
        raise MalformedConfigError(f"{path}: not a GGUF file: it does not begin with GGUF")
    if len(first) < 24:
        raise MalformedConfigError(f"{path}: truncated GGUF header: {len(first)} bytes, at least 24 are needed")
    version = int.from_bytes(first[4:8], "little")
    if version not in VERSIONS:
        raise MalformedConfigError(f"{path}: GGUF version {version}, expected {' or '.join(map(str, VERSIONS))}")
    raise SourceError(
        f"{path}: GGUF headers are not read yet",
        "use the config.json of the model that this file was converted from",
    )
