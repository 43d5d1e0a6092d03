"""What every source returns: a config as it was written, and where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from llmcalc.errors import MalformedConfigError

SourceKind = Literal["catalog", "local", "hub", "gguf", "stdin"]


class Tensor(NamedTuple):
    """One tensor as a safetensors header states it; ``shard`` is the file that holds it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    shard: str


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a config came from.

    ``ref`` is what was asked, ``name`` what to call the model, ``revision`` a commit of the Hub, ``sha256`` that of the
    config's bytes, ``origin`` a sentence for people, ``date`` (YYYY-MM) when a shipped config was taken,
    ``asked`` what a person changed about reading it (``set``, ``as``, ``source``).
    """

    name: str
    source: SourceKind
    ref: str
    revision: str | None
    sha256: str
    origin: str
    date: str | None = None
    asked: Mapping[str, object] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class RawConfig:
    """A config.json as it stands, unread.

    ``where`` names the file in messages; ``tensors`` are the checkpoint's own headers, None where there are none.
    """

    data: dict[str, object]
    provenance: Provenance
    where: str
    warnings: tuple[str, ...] = ()
    tensors: tuple[Tensor, ...] | None = None


def check_object(data: object, where: str) -> Mapping[str, object]:
    """A config is a JSON object; say so where it is not.

    Raises: MalformedConfigError.
    """
    if not isinstance(data, dict):
        kind = {list: "a list", str: "a string", type(None): "null"}.get(type(data), type(data).__name__)
        raise MalformedConfigError(f"{where}: the config is {kind}, expected a JSON object")
    return data
