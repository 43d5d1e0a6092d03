"""Where a config comes from: the catalogue, a file or folder, standard input, the Hub.

Each source returns a :class:`~llmcalc.sources.raw.RawConfig`; :func:`resolve` picks the source by how MODEL is written.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Final, get_args

from llmcalc.errors import InvalidInputError, NotFoundError, SourceError
from llmcalc.sources import catalogue
from llmcalc.sources.raw import Provenance, RawConfig, SourceKind, Tensor

__all__ = ["Provenance", "RawConfig", "Tensor", "resolve"]

_SUFFIXES: Final = (".json", ".gguf", ".safetensors")
_REPO: Final = re.compile(r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)


def resolve(ref: str, *, source: str | None = None) -> RawConfig:
    """The config that ``ref`` names, with its provenance and what is odd about it.

    Args: ref: ``-``, a path, a bare name of the catalogue, ``org/name`` or ``org/name@revision``, also as the Hub's
        address of it.
        source: one of catalog, local, hub, gguf, stdin, where the spelling shall not decide.
    Raises: SourceError (NotFoundError, GatedError, OfflineError, MalformedConfigError), or InvalidInputError for a
        source of another name.
    """
    if source is not None and source not in get_args(SourceKind):
        raise InvalidInputError(f"--source {source!r:.40}: expected catalog, local, hub or gguf")
    if not ref.strip():
        raise NotFoundError("no model is named: it is an empty string", "llmcalc models lists the names")
    ref = _without_address(ref)
    kind = source or _kind(ref)
    if kind == "catalog":
        return _read_catalogue(ref)
    if kind == "hub":
        return _read_hub(ref)
    if kind == "gguf":
        from llmcalc.sources.gguf import read_gguf

        return read_gguf(Path(ref))
    from llmcalc.sources import local

    if kind == "repo":
        return _read_repo(ref)
    return local.read_stdin() if ref == "-" or kind == "stdin" else local.read_local(ref)


def _without_address(ref: str) -> str:
    """The repository that an address of the Hub names; anything else as it is."""
    if ":" not in ref and ".co/" not in ref.lower():  # most spellings: the module is not loaded for them
        return ref
    from llmcalc.sources.links import is_link, read_link

    return read_link(ref.strip()) if is_link(ref.strip()) and not _exists(ref) else ref


def _kind(ref: str) -> str:
    """The source that the spelling names; ``repo`` for org/name, which three sources may have."""
    if ref == "-":
        return "stdin"
    name, at, _ = ref.partition("@")
    suffixed = ref.lower().endswith(_SUFFIXES)
    if at and "/" in ref and _exists(ref):
        return "local"
    if _REPO.fullmatch(name) and not suffixed:
        return "hub" if at else "repo"
    if suffixed or ref.startswith((".", "~")) or "/" in name or os.sep in name:
        return "local"
    return "hub" if at and name and not _exists(ref) else "local" if at and "/" in ref else "catalog"


def _read_repo(ref: str) -> RawConfig:
    """``org/name``: a folder or file here, else a catalogue model's own hub id, else the Hub."""
    if _exists(ref):
        from llmcalc.sources.local import read_local

        raw = read_local(ref)
        note = f"{ref} is read as the {_what(ref)} of that name here; --source hub asks the Hub instead"
        return replace(raw, warnings=(note, *raw.warnings))
    entry = catalogue.find_hub_id(ref)
    return catalogue.read(entry, ref) if entry else _read_hub(ref)


def _read_catalogue(ref: str) -> RawConfig:
    try:
        return catalogue.read_named(ref)
    except NotFoundError as error:
        if _exists(ref):
            bare = _kind(ref) == "catalog"
            way = f"write it as .{os.sep}{ref}" if bare else "leave out --source catalog, or write --source local"
            error.hint = f"a {_what(ref)} of that name is here: {way}"
        raise


def _read_hub(ref: str) -> RawConfig:
    from llmcalc.sources.hub import read_hub

    try:
        return read_hub(ref)
    except SourceError as error:
        near = catalogue.suggestions(ref.partition("@")[0], 2, cutoff=0.75)
        if near and "catalogue" not in error.hint:
            error.hint += f"; the catalogue has {' and '.join(near)}, which need no network"
        raise


def _what(path: str) -> str:
    return "folder" if os.path.isdir(path) else "file"


def _exists(ref: str) -> bool:
    try:
        return os.path.lexists(ref)
    except ValueError:
        return False
