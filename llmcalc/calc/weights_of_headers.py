"""Bytes of a model's weights as its checkpoint's own headers state them, by component and stored type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Final

from llmcalc.arch.model import Architecture
from llmcalc.arch.stored import TYPES
from llmcalc.calc.header_parts import BESIDE, Place, placed
from llmcalc.calc.headers import Header, tensor_bytes
from llmcalc.calc.rank_of_headers import configured_bytes, rank_of_headers
from llmcalc.calc.verify import Verification, verify
from llmcalc.calc.weight_shards import Ranks, shared_out
from llmcalc.calc.weights import HEADERS, WeightBytes, check_counted
from llmcalc.errors import InvalidInputError
from llmcalc.figure import Factor, Figure, product, total
from llmcalc.schemes.sites import sites

SOURCE: Final = "the checkpoint's own headers: entries of every tensor, times the bits of its stored type"


def weights_of_headers(
    architecture: Architecture,
    headers: Iterable[Header],
    dialect: str = "",
    *,
    ranks: Ranks | None = None,
    held: Verification | None = None,
) -> WeightBytes:
    """Bytes of the weights that a checkpoint holds, its files' headers and padding left out.

    Every tensor counts: in ``mtp_bytes`` those of prediction heads, in ``total_bytes`` all the others.
    Args: dialect: ``gguf`` for llama.cpp's names. ranks: how the model is cut over devices. held: what
    ``verify`` found, where that is known.
    Raises: UnsupportedFormatError for a stored type that is not known, UnsupportedLayerError, InvalidInputError where
        there is nothing, or no telling which device holds what. Checked: tests/weights/test_of_headers.py
    """
    check_counted(architecture)
    tensors, ranks = list(headers), ranks or Ranks()
    held = verify(architecture, tensors, dialect) if held is None else held
    places = placed(architecture, tensors, held, dialect)
    proper = {place: members for place, members in places.items() if place[0] != "mtp"}
    extra = {place: members for place, members in places.items() if place[0] == "mtp"}
    figure = _tree(proper, "weights")
    mtp = _tree(extra, "multi-token-prediction heads") if extra else None
    if not figure.value:
        raise InvalidInputError("the checkpoint's headers list no weights", "--weights FORMAT needs none")
    stacks = {part.name: part.value for part in figure.parts}
    parameters = sum(site.size for site in sites(architecture) if site.weight.role != "buffer")
    return WeightBytes(
        format=HEADERS,
        total_bytes=figure.value,
        mtp_bytes=mtp.value if mtp else 0,
        vision_bytes=stacks.get("vision", 0) + stacks.get("projector", 0),
        audio_bytes=stacks.get("audio", 0),
        bits_per_weight=8 * figure.value / parameters if parameters else 0.0,
        per_device_bytes=rank_of_headers(architecture, held, proper, ranks),
        formats=_by_type(proper),
        figure=figure,
        mtp_figure=mtp,
        assumptions=(*shared_out(architecture, ranks), *_assumed(architecture, proper, ranks, dialect)),
        warnings=(*_differs(held), *_contradicts(architecture, proper, dialect)),
    )  # fmt: skip


# -- the tree ------------------------------------------------------------------------------------------------------


def _tree(places: Mapping[Place, Sequence[Header]], name: str) -> Figure:
    """Stacks, their branches, and in each branch what is stored in each type."""
    stacks: dict[str, list[Figure]] = {}
    for (stack, branch), members in places.items():
        kinds: dict[str, list[Header]] = {}
        for header in members:
            kinds.setdefault(header.dtype, []).append(header)
        leaves = tuple(_leaf(kind, tensors) for kind, tensors in kinds.items())
        stacks.setdefault(stack, []).append(total(branch, "B", leaves))
    return total(name, "B", tuple(total(stack, "B", tuple(parts)) for stack, parts in stacks.items()), SOURCE)


def _leaf(kind: str, tensors: Sequence[Header]) -> Figure:
    """The tensors of one type: blocks (or single entries) x their bytes."""
    size = sum(map(tensor_bytes, tensors))
    block = TYPES[kind]
    name = f"{len(tensors):,} tensor{'s' * (len(tensors) > 1)} in {kind}"
    if block.bits % 8:  # entries of four or six bits, packed tensor by tensor
        return Figure(name, size, "B")
    entries = Factor(f"blocks of {block.size}", _entries(tensors) // block.size, "n")
    if block.size == 1:
        return product(name, "B", (entries._replace(name="entries"), Factor("bytes", block.bits // 8, "s")))
    return product(name, "B", (entries, Factor("bytes a block", block.bits // 8, "s")))


def _entries(tensors: Iterable[Header]) -> int:
    return sum(prod(tensor.shape) for tensor in tensors)


def _by_type(places: Mapping[Place, Sequence[Header]]) -> tuple[tuple[str, int, int], ...]:
    """Stored type, entries, bytes; the largest first. Packed types hold several weights in an entry."""
    kinds: dict[str, list[Header]] = {}
    for header in (header for members in places.values() for header in members):
        kinds.setdefault(header.dtype, []).append(header)
    rows = [(kind, _entries(tensors), sum(map(tensor_bytes, tensors))) for kind, tensors in kinds.items()]
    return tuple(sorted(rows, key=lambda row: -row[2]))


# -- what is said about it -----------------------------------------------------------------------------------------


def _assumed(
    architecture: Architecture, places: Mapping[Place, Sequence[Header]], ranks: Ranks, dialect: str
) -> list[str]:
    said = []
    if architecture.quantization and not dialect:
        said.append("of a stored type the entries are counted; packed types hold several weights in one")
    beside = sum(map(tensor_bytes, places.get(BESIDE, ())))
    if beside and ranks != Ranks():
        said.append(f"{beside:,} bytes of tables beside the weights are on every device")
    return said


def _differs(held: Verification) -> list[str]:
    """A warning where the files hold another model than the config describes."""
    if held.agrees:
        return []
    return [
        f"the headers are not those of this architecture: {len(held.missing):,} tensors missing, "
        f"{len(held.unexpected):,} unexpected, {len(held.mismatched):,} of another shape (llmcalc verify names them); "
        "the bytes are the files' own, bits a weight go by the config's parameters"
    ]


def _contradicts(architecture: Architecture, places: Mapping[Place, Sequence[Header]], dialect: str) -> list[str]:
    """A warning where the config's own scheme comes to another total; a GGUF file or a silent config has none."""
    silent = bool(dialect) or (architecture.dtype_assumed and not architecture.quantization)
    stated = None if silent else configured_bytes(architecture)
    found = sum(tensor_bytes(header) for members in places.values() for header in members)
    if stated is None or stated[1] == found:
        return []
    beside = sum(map(tensor_bytes, places.get(BESIDE, ())))
    known = f"; {beside:,} of the headers' are of tensors that no config states" if beside else ""
    return [f"the config states {stated[1]:,} bytes ({stated[0]}), the headers {found:,}, which are taken{known}"]
