"""Strict reading of JSON bytes: whatever the bytes are, a value with warnings or an error that names the file."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from typing import BinaryIO, Final

from llmcalc.errors import MalformedConfigError
from llmcalc.sources.raw import Provenance, RawConfig, SourceKind, check_object

LARGEST_FILE: Final = 64 * 2**20
DEEPEST: Final = 64
POINTER: Final = b"version https://git-lfs"
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")


def read_bounded(file: BinaryIO, where: str) -> bytes:
    """All bytes of a file that may be a pipe or a device.

    Raises: MalformedConfigError past 64 MiB, OSError where it cannot be read.
    """
    data = file.read(LARGEST_FILE + 1)
    check_size(len(data), where)
    return data


def check_size(size: int, where: str) -> None:
    """Refuse a config of more than 64 MiB."""
    if size > LARGEST_FILE:
        raise MalformedConfigError(f"{where}: more than 64 MiB, which is no config.json", "name the config.json itself")


def parse_json(data: bytes, where: str, *, unique: bool = False) -> tuple[object, tuple[str, ...]]:
    """The JSON value in ``data`` and what is odd about it: repeated keys, NaN and Infinity with their places.

    Args: unique: refuse repeated keys instead of warning.
    Raises: MalformedConfigError for anything that is not JSON in UTF-8, or not within bounds.
    """
    text = _decode(data, where)
    repeated: list[str] = []

    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(items)
        if len(found) != len(items):
            seen: set[str] = set()
            for key, _ in items:
                if key in seen:
                    repeated.append(key)
                seen.add(key)
        return found

    try:
        value = json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise MalformedConfigError(f"{where}: not valid JSON: {error.msg} at {place}") from None
    except RecursionError:
        raise _too_deep(where) from None
    except ValueError:
        limit = sys.get_int_max_str_digits()
        raise MalformedConfigError(f"{where}: a number of more than {limit:,} digits") from None
    if repeated and unique:
        raise MalformedConfigError(f"{where}: the key {_short(repeated[0])} is given twice")
    warnings = [f"{where}: the key {_short(key)} is given twice; the last value counts" for key in _some(repeated)]
    warnings += _some(list(_odd_values(value, where)))
    return value, tuple(warnings)


def parse_config(
    data: bytes, where: str, *, source: SourceKind, name: str, ref: str, origin: str,
    revision: str | None = None, date: str | None = None, digest: str | None = None,
) -> RawConfig:  # fmt: skip
    """A RawConfig from the bytes of a config.json. ``digest``: their sha256 where it is known already.

    Raises: MalformedConfigError.
    """
    value, warnings = parse_json(data, where)
    config = dict(check_object(value, where))
    _refuse_other_kinds(config, where)
    if digest is None:
        # Not at the top: loading it takes as long as reading a model of the catalogue.
        from hashlib import sha256

        digest = sha256(data).hexdigest()
    name, ref, origin = (_printable(text) for text in (name, ref, origin))
    return RawConfig(config, Provenance(name, source, ref, revision, digest, origin, date), where, warnings)


def _printable(text: str) -> str:
    """A file name may hold bytes that are no text."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _decode(data: bytes, where: str) -> str:
    if not data.strip():
        raise MalformedConfigError(f"{where}: the file is empty, expected a JSON object")
    if data.startswith(POINTER):
        raise MalformedConfigError(f"{where}: a Git LFS pointer, not the file itself", "fetch it with git lfs pull")
    if data.startswith(b"GGUF"):
        raise MalformedConfigError(f"{where}: a GGUF file, expected JSON", "name it with its .gguf suffix")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        kind = "UTF-16" if data.startswith(_UTF16) else f"byte {error.start} is not UTF-8"
        raise MalformedConfigError(f"{where}: not UTF-8 text ({kind})", "save it as UTF-8") from None


def _odd_values(value: object, where: str) -> Iterator[str]:
    """Warnings about NaN and Infinity. With a stack of its own: the value may be nested as the parser allows."""
    stack: list[tuple[object, str, int]] = [(value, "", 1)]
    while stack:
        item, path, depth = stack.pop()
        if depth > DEEPEST:
            raise _too_deep(where)
        if isinstance(item, dict):
            for key in item:
                _check_text(key, path, where)
            children = [(child, f"{path}.{key}" if path else key, depth + 1) for key, child in item.items()]
            stack += reversed(children)
        elif isinstance(item, list):
            stack += reversed([(child, f"{path}[{index}]", depth + 1) for index, child in enumerate(item)])
        elif isinstance(item, str):
            _check_text(item, path, where)
        elif isinstance(item, float) and not math.isfinite(item):
            shown = "NaN" if math.isnan(item) else "Infinity" if item > 0 else "-Infinity"
            yield f"{where}: {_short(path, 120)} is {shown}, which JSON does not know; no figure may rest on it"


def _check_text(text: str, path: str, where: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair (\ud800) passes the parser and then cannot be printed.
        raise MalformedConfigError(f"{where}: {_short(path, 120) or 'a key'} holds text that is not Unicode") from None


def _refuse_other_kinds(config: dict[str, object], where: str) -> None:
    """Files that are JSON objects beside a model and are no config of a language model."""
    if "model_type" in config:
        return
    if "peft_type" in config:
        raise MalformedConfigError(f"{where}: the config of an adapter, not of a model", base_hint(config))
    if "_diffusers_version" in config:
        raise MalformedConfigError(
            f"{where}: a diffusers config, not that of a language model",
            "a text encoder inside the pipeline has its own config.json (text_encoder/config.json)",
        )
    if "weight_map" in config:
        raise MalformedConfigError(f"{where}: an index of shards, not a config", "name the folder that holds it")
    if "dim" in config and ("n_layers" in config or "multiple_of" in config):
        raise MalformedConfigError(f"{where}: the native params.json format, not config.json", NATIVE_HINT)


NATIVE_HINT: Final = "use the config.json of the same model in the transformers format"


def base_hint(adapter: dict[str, object]) -> str:
    """What to ask for instead of an adapter."""
    base = adapter.get("base_model_name_or_path")
    return f"ask for its base model: {_short(base)}" if isinstance(base, str) and base else "ask for its base model"


def _too_deep(where: str) -> MalformedConfigError:
    return MalformedConfigError(f"{where}: nested more than {DEEPEST} levels deep")


def _short(text: str, limit: int = 60) -> str:
    shown = text if text.isprintable() else ascii(text)
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def _some(items: list[str], limit: int = 8) -> list[str]:
    """A file can hold a million of them; a few tell as much."""
    return items if len(items) <= limit else [*items[:limit], f"and {len(items) - limit} more of the same"]
