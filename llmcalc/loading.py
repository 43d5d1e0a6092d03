"""From what a person types to an architecture with its provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from llmcalc.arch.families import read_config
from llmcalc.arch.model import Architecture
from llmcalc.errors import NotFoundError
from llmcalc.sources import resolve
from llmcalc.sources.raw import Provenance, RawConfig, Tensor


@dataclass(frozen=True, slots=True)
class Model:
    """A model that was found and read: what it is, and where its config came from.

    ``tensors``: what the checkpoint's own headers say, None where none were read.
    """

    architecture: Architecture
    provenance: Provenance
    tensors: tuple[Tensor, ...] | None = None

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
    headers: bool = False,
) -> Model:
    """Find a config and read it.

    Args: ref: a catalogue name, a path, ``-`` for standard input, or ``org/name[@revision]`` on the Hub.
    source: ``catalog``, ``local``, ``hub`` or ``gguf`` where the spelling shall not decide. as_family: read an unknown
    model_type as this one. overrides: config fields to replace before reading. headers: those of the checkpoint are
    wanted, and fetched by range requests where it is on the Hub.
    Raises: SourceError, UnsupportedArchitectureError, InvalidInputError.
    """
    raw = resolve(ref, source=source)
    if headers and raw.tensors is None:
        raw = _with_headers(raw)
    architecture = read_config(raw.data, where=raw.where, as_family=as_family, overrides=overrides)
    warnings = (*raw.warnings, *architecture.warnings)
    if raw.provenance.source == "gguf" and not headers and not overrides:
        warnings = (*warnings, *_doubts(architecture, raw))
    return Model(replace(architecture, warnings=warnings), raw.provenance, raw.tensors)


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


def _doubts(architecture: Architecture, raw: RawConfig) -> tuple[str, ...]:
    """A warning where the config made from a GGUF header does not describe the tensors that the header lists."""
    from llmcalc.calc.verify import verify

    found = verify(architecture, raw.tensors or (), "gguf")
    if found.agrees:
        return ()
    names = [t.name for t in (*found.missing, *found.unexpected)] + [m.name for m in found.mismatched]
    return (
        f"{raw.where}: what its metadata describes and its list of tensors disagree about {len(names):,} tensors "
        f"(the first is {names[0]}); llmcalc verify names them",
    )
