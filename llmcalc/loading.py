"""From what a person types to an architecture with its provenance."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from llmcalc.arch.families import read_config
from llmcalc.arch.model import Architecture
from llmcalc.errors import InvalidInputError, NotFoundError
from llmcalc.sources import resolve
from llmcalc.sources.raw import Provenance, RawConfig, Tensor

if TYPE_CHECKING:
    from llmcalc.calc.verify import Verification


@dataclass(frozen=True, slots=True)
class Model:
    """A model that was found and read: what it is, and where its config came from.

    ``tensors``: what the checkpoint's own headers say, None where none were read. ``held``: how they agree with the
    architecture, where loading looked.
    """

    architecture: Architecture
    provenance: Provenance
    tensors: tuple[Tensor, ...] | None = None
    held: Verification | None = None

    @property
    def dialect(self) -> str:
        """Whose names the tensors have: ``gguf`` for llama.cpp's, else empty."""
        return "gguf" if self.provenance.source == "gguf" else ""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything that finding and reading it brought up."""
        return self.architecture.warnings

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the class supplied where the config is silent."""
        return self.architecture.assumptions


def load(
    ref: str | os.PathLike[str],
    *,
    source: str | None = None,
    as_family: str | None = None,
    overrides: Mapping[str, object] | None = None,
    headers: bool = False,
) -> Model:
    """Find a config and read it.

    Args: ref: a catalogue name, a path (a ``Path`` is never taken for a name), ``-`` for standard input, or
    ``org/name[@revision]`` on the Hub.
    source: ``catalog``, ``local``, ``hub`` or ``gguf`` where the spelling shall not decide. as_family: read an unknown
    model_type as this one. overrides: config fields to replace before reading. headers: those of the checkpoint are
    wanted, and fetched by range requests where it is on the Hub.
    Raises: SourceError, UnsupportedArchitectureError, InvalidInputError.
    """
    name = _named(ref)
    kind = source if isinstance(ref, str) or source is not None else "local"
    if overrides is not None and not isinstance(overrides, Mapping):
        raise InvalidInputError(f"overrides is of type {type(overrides).__name__}, expected fields and their values")
    if as_family is not None and not isinstance(as_family, str):
        raise InvalidInputError(f"as_family is of type {type(as_family).__name__}, expected the name of a family")
    raw = resolve(name, source=kind)
    if headers and raw.tensors is None:
        raw = _with_headers(raw)
    architecture = read_config(raw.data, where=raw.where, as_family=as_family, overrides=overrides)
    warnings = (*raw.warnings, *architecture.warnings)
    held = None
    if raw.provenance.source == "gguf" and not headers and not overrides:
        held = _held(architecture, raw)
        warnings = (*warnings, *_doubts(held, raw))
    asked = {"set": dict(overrides or {}), "as": as_family, "source": source}
    found = replace(raw.provenance, asked=asked)
    return Model(replace(architecture, warnings=warnings), found, raw.tensors, held)


def _named(ref: object) -> str:
    """What names the model, as text.

    Raises: InvalidInputError for what is neither text nor a path.
    """
    if isinstance(ref, Model):
        raise InvalidInputError("a model was given where its name or path is expected", "it is loaded already")
    name = os.fspath(ref) if isinstance(ref, (str, os.PathLike)) else None
    if not isinstance(name, str):
        raise InvalidInputError(f"expected a model's name or path, found an object of type {type(ref).__name__}")
    return name


def _with_headers(raw: RawConfig) -> RawConfig:
    """The same with the headers of its checkpoint. Raises: NotFoundError where it has none."""
    found = raw.provenance
    if found.source != "hub":
        raise NotFoundError(
            f"{raw.where}: there are no weights beside this config, so no headers to read",
            "name a checkpoint folder, a .gguf file, or org/name with --source hub",
        )
    from llmcalc.sources.hub_headers import read_hub_tensors

    tensors, warnings = read_hub_tensors(found.name, found.revision)
    return replace(raw, tensors=tensors, warnings=(*raw.warnings, *warnings))


def _held(architecture: Architecture, raw: RawConfig) -> Verification:
    # Imported here: most models are read without headers.
    from llmcalc.calc.verify import verify

    return verify(architecture, raw.tensors or (), "gguf")


def _doubts(found: Verification, raw: RawConfig) -> tuple[str, ...]:
    """A warning where the config made from a GGUF header does not describe the tensors that the header lists."""
    if found.agrees:
        return ()
    names = [t.name for t in (*found.missing, *found.unexpected)] + [m.name for m in found.mismatched]
    return (
        f"{raw.where}: what its metadata describes and its list of tensors disagree about {len(names):,} tensors "
        f"(the first is {names[0]}); llmcalc verify names them",
    )
