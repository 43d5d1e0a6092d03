"""Families: short readers from a raw config to an :class:`~llmcalc.arch.model.Architecture`.

One line of ``READERS`` names the module that reads a ``model_type``; the module is imported when it is needed.
Its ``read(fields)`` gets the language model's own block. Wrappers (vision, audio) are read by :mod:`.wrappers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module

from llmcalc.arch.cache_scheme import cache_scheme
from llmcalc.arch.families import registry
from llmcalc.arch.families.leftovers import blocks, refuse_structural, unread_warning
from llmcalc.arch.fields import ABSENT, Fields, Notes
from llmcalc.arch.model import Architecture
from llmcalc.errors import InvalidInputError, UnsupportedArchitectureError


def model_types() -> list[str]:
    """Every model_type that can be read, sorted."""
    return sorted({*registry.READERS, *registry.WRAPPERS})


def reader(module: str) -> Callable[[Fields], Architecture]:
    """The ``read`` of a family module."""
    function: Callable[[Fields], Architecture] = import_module(f"llmcalc.arch.families.{module}").read
    return function


def read_config(
    data: Mapping[str, object],
    *,
    where: str = "config.json",
    as_family: str | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Architecture:
    """A raw config as an architecture, with every assumption and warning that reading it brought up.

    Raises: UnsupportedArchitectureError for a model_type nobody reads, InvalidInputError for an impossible field or an
    override that nobody read.
    """
    model_type = family_of(data, where, as_family)
    notes = Notes()
    fields = Fields(data, model_type=model_type, where=where, notes=notes, overrides=overrides)
    fields.ignore("model_type")
    if as_family is not None:
        _tell_forced(data, where, model_type, notes)
    module = registry.WRAPPERS.get(model_type) or registry.READERS[model_type]
    try:
        architecture = reader(module)(fields)
    except RecursionError:
        raise InvalidInputError(f"{where}: the config is nested too deeply") from None
    stored, block = quantization(fields)
    _check_overrides(fields, overrides or {})
    refuse_structural(fields)
    unread = unread_warning(fields)
    if unread:
        notes.warn(unread)
    return replace(
        architecture,
        model_type=model_type,
        dtype_assumed=notes.dtype_assumed,
        quantization=stored,
        quantized_block=block,
        cache_format=cache_scheme(stored, notes),
        warnings=(*architecture.warnings, *notes.warnings),
        assumptions=(*architecture.assumptions, *notes.assumptions),
    )


QUANTIZATION = ("quantization_config", "compression_config", "quantization")


def quantization(fields: Fields) -> tuple[Mapping[str, object] | None, str]:
    """What the config says of how its weights are stored, and in which block: its top level or the language model's.

    ``expert_dtype`` (DeepSeek-V4) stands beside it in the file and is put in. Raises: InvalidInputError.
    """
    for block in blocks(fields):
        value = block.explicit(*QUANTIZATION)
        if value is None or value is ABSENT:
            continue
        if not isinstance(value, Mapping):
            raise block.wrong(QUANTIZATION[0], value, "an object")
        inner = block.child(*QUANTIZATION)
        changed = {} if inner is None else {key: inner.explicit(key) for key in inner.data}
        beside = block.explicit("expert_dtype")
        return {**changed, **({"expert_dtype": beside} if isinstance(beside, str) else {})}, block.path
    return None, ""


def family_of(data: Mapping[str, object], where: str, as_family: str | None) -> str:
    """The model_type to read a config as: ``--as``, the config's own, or what its class name implies."""
    if as_family is not None:
        known = _spelled(as_family)
        if known not in registry.READERS and known not in registry.WRAPPERS:
            raise UnsupportedArchitectureError(f"--as {as_family}: no such family", _close(as_family))
        return known
    found = data.get("model_type")
    if found is not None and not isinstance(found, str):
        raise InvalidInputError(f"{where}: model_type is {found!r:.60}, expected a string")
    if not found:
        found = registry.type_from_class(data.get("architectures"))
        if not found:
            raise UnsupportedArchitectureError(
                f"{where}: model_type is missing, so the layout of the layers is not known",
                "say which family it is with --as FAMILY (for instance --as llama)",
            )
    known = registry.ALIASES.get(found, found)
    if known not in registry.READERS and known not in registry.WRAPPERS:
        raise UnsupportedArchitectureError(f"{where}: model_type {found!r} is not known", _close(found))
    return known


def _spelled(name: str) -> str:
    """The family of that name; case and ``-`` for ``_`` do not matter where no family is spelled so."""
    known = {*registry.ALIASES, *registry.READERS, *registry.WRAPPERS}
    if name not in known:
        folded = {_folded(family): family for family in sorted(known)}
        name = folded.get(_folded(name), name)
    return registry.ALIASES.get(name, name)


def _folded(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def _tell_forced(data: Mapping[str, object], where: str, model_type: str, notes: Notes) -> None:
    """A warning where ``--as`` reads a config otherwise than its own, known model_type would."""
    try:
        own = family_of(data, where, None)
    except UnsupportedArchitectureError:
        return
    if own != model_type:
        notes.warn(f"read as {model_type} because --as says so; the config's own family {own} is known here")


def _close(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, model_types(), n=4, cutoff=0.5) or ["llama", "qwen3", "deepseek_v3"]
    return f"close families: {', '.join(near)}; read it as one of them with --as FAMILY"


def _check_overrides(fields: Fields, overrides: Mapping[str, object]) -> None:
    for key in overrides:
        if key not in fields.notes.overrides_used:
            raise InvalidInputError(
                f"--set {key}: nothing reads this field in a {fields.model_type} config",
                "use a field of the config, dotted where it is nested (text_config.num_hidden_layers)",
            )
