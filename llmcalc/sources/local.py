"""Configs on this machine: a file, a checkpoint folder, standard input."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from llmcalc.errors import LlmcalcError, NotFoundError, SourceError
from llmcalc.sources.raw import RawConfig
from llmcalc.sources.text import NATIVE_HINT, base_hint, parse_config, read_bounded

STDIN: Final = "standard input"


def read_stdin() -> RawConfig:
    """A config.json from standard input. Raises: SourceError, MalformedConfigError."""
    try:
        data = read_bounded(sys.stdin.buffer, STDIN)
    except (OSError, ValueError, AttributeError) as error:
        # Closed (None, or a closed file), or replaced by something without bytes.
        raise SourceError(f"{STDIN} cannot be read: {error}", "pipe a config.json into the command") from None
    return parse_config(data, STDIN, source="stdin", name=STDIN, ref="-", origin=STDIN)


def read_local(ref: str) -> RawConfig:
    """A config.json, a checkpoint folder with the headers of its safetensors files, or a GGUF file.

    Raises: NotFoundError where there is none, MalformedConfigError where it is not what it should be.
    """
    path = Path(ref)
    try:
        path = path.expanduser()
        if path.is_dir():
            return _read_folder(path, ref)
        if path.suffix.lower() == ".gguf":
            from llmcalc.sources.gguf import read_gguf

            return read_gguf(path)
        if path.suffix.lower() == ".safetensors" and path.exists():
            return _read_beside(path, ref)
        return _read_file(path, ref)
    except LlmcalcError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        # ValueError: a NUL in the name; RuntimeError: ~user of an unknown user, or a loop of links.
        raise _unreadable(ref, error) from None


def _unreadable(ref: str, error: Exception) -> SourceError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return NotFoundError(f"{ref}: no such file or folder", "name a config.json or the folder that holds one")
    return SourceError(f"{ref!r}: cannot be read: {getattr(error, 'strerror', None) or error}")


def _read_file(path: Path, ref: str) -> RawConfig:
    where = str(path)
    with path.open("rb") as file:
        data = read_bounded(file, where)
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return parse_config(data, where, source="local", name=name or where, ref=ref, origin=f"file {where}")


def _read_folder(path: Path, ref: str) -> RawConfig:
    names = sorted(os.listdir(path))
    if "config.json" not in names:
        raise _no_config(path, names)
    raw = _read_file(path / "config.json", ref)
    # Imported here: most calls read a single file.
    from llmcalc.sources.checkpoint import read_tensors

    tensors, warnings = read_tensors(path, names)
    if "adapter_config.json" in names:
        warnings = (*warnings, f"{path}: the adapter beside the model is not counted")
    return replace(raw, tensors=tensors, warnings=(*raw.warnings, *warnings))


def _read_beside(path: Path, ref: str) -> RawConfig:
    """A file of weights: the folder that holds it."""
    folder = path.parent
    if not (folder / "config.json").is_file():
        raise NotFoundError(
            f"{ref}: weights, and no config.json beside them in {folder}",
            "name the model's config.json, or a folder that holds it with its weights",
        )
    raw = _read_folder(folder, ref)
    return replace(raw, warnings=(f"{ref} is read as the folder that holds it, {folder}", *raw.warnings))


def _no_config(path: Path, names: list[str]) -> SourceError:
    """What the folder holds instead of a config.json."""
    if "adapter_config.json" in names:
        return NotFoundError(f"{path}: a LoRA adapter (adapter_config.json), which has no config.json", _base(path))
    if "model_index.json" in names:
        return NotFoundError(
            f"{path}: a diffusers pipeline (model_index.json), not a language model",
            "a text encoder inside it has its own folder: name that one (text_encoder)",
        )
    gguf = [name for name in names if name.lower().endswith(".gguf")]
    if gguf:
        return NotFoundError(
            f"{path}: no config.json, only GGUF files: {listed(gguf)}", f"name one of them: {path / gguf[0]}"
        )
    if "params.json" in names:
        return NotFoundError(f"{path}: the native format (params.json), which has no config.json", NATIVE_HINT)
    nested = [name for name in names if (path / name / "config.json").is_file()]
    if nested:
        return NotFoundError(f"{path}: no config.json here, but in {listed(nested)}", f"name {path / nested[0]}")
    found = f"it holds {listed(names)}" if names else "it is empty"
    return NotFoundError(f"{path}: no config.json in this folder; {found}", "name a folder that holds a config.json")


def listed(names: list[str], limit: int = 8) -> str:
    """A few names in a sentence."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")


def _base(path: Path) -> str:
    try:
        with (path / "adapter_config.json").open("rb") as file:
            adapter = json.loads(read_bounded(file, str(path)))
    except (OSError, ValueError, RecursionError, SourceError):
        adapter = None
    return base_hint(adapter if isinstance(adapter, dict) else {})
