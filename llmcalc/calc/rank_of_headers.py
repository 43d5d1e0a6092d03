"""What of a checkpoint's tensors the fullest device holds: found where its bytes are known weight by weight.

Headers tell how each tensor is stored, not which part of a packed one a device takes. So the weights of our list get
the layouts of the tensors that hold them, or those of the config's scheme; where neither comes to the headers' total
to the byte, there is no figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llmcalc.arch.model import Architecture
from llmcalc.arch.stored import TYPES
from llmcalc.calc.header_parts import BESIDE, Place
from llmcalc.calc.headers import Header, tensor_bytes
from llmcalc.calc.verify import Verification
from llmcalc.calc.weight_shards import Ranks, largest_rank
from llmcalc.calc.weights import Found, Share, choose, shares
from llmcalc.errors import InvalidInputError, UnsupportedFormatError
from llmcalc.schemes.blocks import Blocks
from llmcalc.schemes.layouts import Layout, Plain
from llmcalc.schemes.sites import BLOCK, Site, sites


def rank_of_headers(
    architecture: Architecture, held: Verification, places: Mapping[Place, Sequence[Header]], ranks: Ranks
) -> int:
    """Bytes on the fullest device; tables beside the list of weights are on every one.

    Args: held: what ``verify`` found. places: the tensors of the model proper.
    Raises: InvalidInputError where it cannot be told from these headers.
    """
    ranks.check()
    headers = [header for members in places.values() for header in members]
    whole = sum(map(tensor_bytes, headers))
    if ranks.tp == ranks.pp == ranks.ep == 1:
        return whole
    if not held.agrees:
        raise InvalidInputError(
            "the headers are not those of this architecture, so what one device holds cannot be told",
            "llmcalc verify names the tensors; --weights FORMAT goes by the config",
        )
    beside = sum(map(tensor_bytes, places.get(BESIDE, ())))
    for found in (_by_tensor(architecture, held, headers), _by_config(architecture)):
        if found is not None and _sum(found) + beside == whole:
            return largest_rank(architecture, found, ranks, beside)
    raise InvalidInputError(
        f"the headers hold {whole:,} bytes, which neither the types of their tensors nor the config's scheme come to "
        "weight by weight, so what one device holds cannot be told",
        "without --tp, --pp and --ep the total stands; --weights FORMAT cuts a format of your choice",
    )


def configured_bytes(architecture: Architecture) -> tuple[str, int] | None:
    """The config's scheme and what it comes to, None where it states none that is known."""
    try:
        name = choose(architecture, "config").name
    except UnsupportedFormatError:
        return None
    found = _by_config(architecture)
    return None if found is None else (name, _sum(found))


def _sum(found: Found) -> int:
    return sum(share.number * share.copies * share.layout.bytes(site.shape) for site, parts in found for share in parts)


def _by_config(architecture: Architecture) -> Found | None:
    """Layouts by the config's scheme."""
    try:
        chooser = choose(architecture, "config")
        return [(site, shares(chooser, site)) for site in sites(architecture)]
    except UnsupportedFormatError:
        return None


# -- by tensor -----------------------------------------------------------------------------------------------------


def _by_tensor(architecture: Architecture, held: Verification, headers: Sequence[Header]) -> Found | None:
    """Each weight in the type of the tensors that hold it, None where they have two types or its rows no whole blocks.

    A weight in no tensor is one that files of this family leave out: the headers agree with the architecture.
    """
    types: dict[str, set[str]] = {}
    for header in headers:
        for ours in held.holds.get(header.name, ()):
            types.setdefault(ours, set()).add(header.dtype)
    for alias, source in architecture.ties:
        types.setdefault(source, types.get(alias, set()))
    found: Found = []
    for site in sites(architecture):
        for weight in site.weights:
            single = site._replace(weights=(weight,))
            blocks: dict[str, list[int]] = {}
            for block in site.blocks or (None,):
                kinds = types.get(_name(site, weight.name, block), set())
                if len(kinds) > 1:
                    return None
                for kind in kinds:  # none: what these files leave out
                    blocks.setdefault(kind, []).extend(() if block is None else (block,))
            try:
                found.append((single, tuple(_share(single, kind, tuple(b)) for kind, b in blocks.items())))
            except UnsupportedFormatError:
                return None
    return found


def _share(site: Site, kind: str, blocks: tuple[int, ...]) -> Share:
    """Blocks of a weight in a stored type. Raises: UnsupportedFormatError where its rows are no whole blocks."""
    layout = _layout(kind)
    layout.bytes(site.shape)
    return Share(layout, blocks, site.weight.copies)


def _layout(kind: str) -> Layout:
    block = TYPES[kind]
    if block.bits % 8:
        raise UnsupportedFormatError(f"{kind} is no whole number of bytes")
    if block.size == 1:
        return Plain(kind, block.bits // 8)
    return Blocks(kind, block.size, block.bits // 8)


def _name(site: Site, name: str, block: int | None) -> str:
    """The full name of a weight in a block."""
    if block is None:
        return name
    root = site.names[0].removesuffix(site.module.replace("{}", "0"))
    return root.replace(BLOCK, str(block + site.offset)) + name
