"""The same architecture with a field of some specs changed: what a comparison must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from llmcalc.arch.base import Spec
from llmcalc.arch.model import Architecture, Layer, Named, Parallel, Stack, Sublayer

Change = Callable[[Architecture], Architecture]


def but(kind: type[Spec], **fields: object) -> Change:
    """Every spec of a kind with other fields; a value that is callable gets the spec."""

    def spec(found: Spec) -> Spec:
        if isinstance(found, Parallel):
            return Parallel(tuple(sublayer(branch) for branch in found.branches))
        if not isinstance(found, kind):
            return found
        values = {name: value(found) if callable(value) else value for name, value in fields.items()}
        return replace(found, **values)  # type: ignore[type-var]

    def named(found: Named | None) -> Named | None:
        return None if found is None else Named(found.name, spec(found.spec))

    def sublayer(found: Sublayer) -> Sublayer:
        return Sublayer(found.name, spec(found.spec), named(found.before), named(found.after), named(found.outer))

    def layer(found: Layer) -> Layer:
        return replace(found, sublayers=tuple(map(sublayer, found.sublayers)))

    def ends(found: tuple[Named, ...]) -> tuple[Named, ...]:
        return tuple(Named(name, spec(inner)) for name, inner in found)

    def stack(found: Stack) -> Stack:
        return replace(found, layers=tuple(map(layer, found.layers)), stem=ends(found.stem), tail=ends(found.tail))

    return lambda found: replace(found, decoder=stack(found.decoder))


def residual(*names: str) -> Change:
    """Every layer of the decoder without what its residual path has under these names."""

    def changed(found: Architecture) -> Architecture:
        made = tuple(
            replace(layer, residual=tuple(named for named in layer.residual if named.name not in names))
            for layer in found.decoder.layers
        )
        return replace(found, decoder=replace(found.decoder, layers=made))

    return changed


def layers(**fields: object) -> Change:
    """Every layer of the decoder with other fields."""

    def changed(found: Architecture) -> Architecture:
        made = tuple(replace(layer, **fields) for layer in found.decoder.layers)
        return replace(found, decoder=replace(found.decoder, layers=made))

    return changed
