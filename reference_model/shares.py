"""A rank's share of a whole model: the architecture that it builds, and where its part of every tensor lies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from llmcalc.arch import base, model
from llmcalc.arch.model import Architecture, Layer, Named, Stack, Sublayer
from reference_model.cuts import Cut, Cuts, Place, cut_spec, outputs
from reference_model.shared import ATTENTION, FEED_FORWARD


def _adapters(named: Named, place: Place) -> tuple[Named, Cuts]:
    """Zamba2's low-rank additions to a shared block's projections: up to its share of them."""
    if not isinstance(named.spec, base.Extra) or named.name not in (ATTENTION, FEED_FORWARD):
        return named, {}
    tensors, cuts = [], {}
    for tensor in named.spec.tensors:
        if tensor.name.endswith("1.weight"):
            parts = 2 if named.name == FEED_FORWARD else 1  # rows of gate, then of up
            mine = place.units(tensor.shape[0] // parts, "rows of an adapter")
            cuts[tensor.name.removesuffix(".weight")] = outputs(*[(mine, 1)] * parts)
            tensor = tensor._replace(shape=(parts * mine.count, tensor.shape[1]))  # noqa: PLW2901
        tensors.append(tensor)
    return Named(named.name, replace(named.spec, tensors=tuple(tensors))), cuts


def _under(prefix: str, cuts: Cuts) -> Cuts:
    return {".".join(filter(None, (prefix, name))): cut for name, cut in cuts.items()}


def _sublayer(found: Sublayer, place: Place) -> tuple[Sublayer, Cuts]:
    if isinstance(found.spec, model.Parallel):
        made = [_sublayer(branch, place) for branch in found.spec.branches]
        branches = model.Parallel(tuple(branch for branch, _ in made))
        return found._replace(spec=branches), {name: cut for _, cuts in made for name, cut in cuts.items()}
    spec, cuts = cut_spec(found.spec, place)
    return found._replace(spec=spec), _under(found.name, cuts)


def _layer(found: Layer, place: Place) -> tuple[Layer, Cuts]:
    parts = [_sublayer(part, place) for part in found.sublayers]
    beside = [_adapters(named, place) for named in found.residual]
    cuts = {name: cut for _, held in parts for name, cut in held.items()}
    for named, held in beside:
        cuts |= _under(named.name, held)
    small = replace(found, sublayers=tuple(part for part, _ in parts), residual=tuple(named for named, _ in beside))
    return small, cuts


def _ends(found: tuple[Named, ...], place: Place) -> Iterator[tuple[Named, Cuts]]:
    for name, spec in found:
        small, cuts = cut_spec(spec, place)
        yield Named(name, small), _under(name, cuts)


def _stack(found: Stack, place: Place) -> tuple[Stack, Cuts]:
    """Equal layers stay one object, so that they are still known as equal."""
    made: dict[int, tuple[Layer, Cuts]] = {}
    cuts: Cuts = {}
    for index, layer in enumerate(found.layers):
        if id(layer) not in made:
            made[id(layer)] = _layer(layer, place)
        cuts |= _under(f"{found.prefix}.{index}", made[id(layer)][1])
    stem, tail = (list(_ends(group, place)) for group in (found.stem, found.tail))
    for _, held in (*stem, *tail):
        cuts |= held
    layers = tuple(made[id(layer)][0] for layer in found.layers)
    small = replace(found, layers=layers, stem=tuple(n for n, _ in stem), tail=tuple(n for n, _ in tail))
    return small, cuts


def cut(architecture: Architecture, place: Place) -> tuple[Architecture, Cuts]:
    """What a rank builds, and which part of every tensor is its own, by the names of :func:`reference_model.load`.

    Towers and multi-token-prediction heads stay as they are: the decoder does not build them.
    Raises: InvalidInputError: where a number of heads or channels cannot be shared out. UnsupportedLayerError: for a
    kind of layer that cannot.
    """
    decoder, cuts = _stack(architecture.decoder, place)
    if architecture.encoder is None:
        return replace(architecture, decoder=decoder), cuts
    encoder, more = _stack(architecture.encoder, place)
    return replace(architecture, decoder=decoder, encoder=encoder), cuts | more


def own(name: str, tensor: Tensor, cuts: Cuts) -> Tensor:
    """A rank's part of a whole tensor, which is all of it where nothing is cut."""
    found = found_in(name, cuts)
    return tensor if found is None else found.of(tensor)


def found_in(name: str, cuts: Cuts) -> Cut | None:
    """How a parameter is cut, by its full name."""
    place = re.sub(r"\.experts\.\d+\.", ".experts.{}.", name)
    return cuts.get(re.sub(r"\.(weight|bias)$", "", place), cuts.get(place))
