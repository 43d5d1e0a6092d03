"""From what a person types to an architecture with its provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from llmcalc.arch.families import read_config
from llmcalc.arch.model import Architecture
from llmcalc.sources import resolve
from llmcalc.sources.raw import Provenance


@dataclass(frozen=True, slots=True)
class Model:
    """A model that was found and read: what it is, and where its config came from."""

    architecture: Architecture
    provenance: Provenance

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything that finding and reading it brought up."""
        return self.architecture.warnings

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the class supplied where the config is silent."""
        return self.architecture.assumptions


def load(
    ref: str,
    *,
    source: str | None = None,
    as_family: str | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Model:
    """Find a config and read it.

    Args: ref: a catalogue name, a path, ``-`` for standard input, or ``org/name[@revision]`` on the Hub.
    source: ``catalog``, ``local``, ``hub`` or ``gguf`` where the spelling shall not decide. as_family: read an unknown
    model_type as this one. overrides: config fields to replace before reading.
    Raises: SourceError, UnsupportedArchitectureError, InvalidInputError.
    """
    raw = resolve(ref, source=source)
    architecture = read_config(raw.data, where=raw.where, as_family=as_family, overrides=overrides)
    return Model(replace(architecture, warnings=(*raw.warnings, *architecture.warnings)), raw.provenance)
