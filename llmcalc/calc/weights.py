"""Bytes of a model's weights: as its config says they are stored, or in a format that was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from llmcalc.arch.model import Architecture
from llmcalc.calc.inputs import Described, architecture_of
from llmcalc.calc.weight_shards import Ranks, dealt, largest_rank, shared_out, whole_towers
from llmcalc.errors import InvalidInputError, UnsupportedFormatError, UnsupportedLayerError
from llmcalc.figure import Factor, Figure, product, total
from llmcalc.schemes.layouts import Layout, Piece
from llmcalc.schemes.sites import Site, mtp_sites, respell, sites

HEADERS = "checkpoint headers"  # what a checkpoint's own headers are called among the formats
SOURCE = "sum over the stored tensors, each a product of its dimensions and the bytes of an entry"


class Chooser(Protocol):
    """What gives each weight its layout: a scheme, or a mix of llama.cpp."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def source(self) -> str:
        """Where its rules stand."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What changes a figure."""

    @property
    def numbered(self) -> bool:
        """Whether single experts differ."""

    def layout(self, site: Site, block: int | None, expert: int = 0) -> Layout:
        """The layout of a weight in one of its blocks."""

    def unmatched(self, names: list[str]) -> list[str]:
        """Names of its lists that no module has."""


class Share(NamedTuple):
    """A layout, and how many of a site's tensors have it, by block."""

    layout: Layout
    blocks: tuple[int, ...]
    copies: int

    @property
    def number(self) -> int:
        """Blocks that have it."""
        return len(self.blocks) or 1


Found = list[tuple[Site, tuple[Share, ...]]]


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """The bytes of a model's weights; ``figure`` is ``total_bytes`` with its derivation, its parts sum exactly.

    total_bytes: the model proper with its stored buffers and towers, ties once; ``mtp_bytes`` beside it.
    per_device_bytes: the rank that holds most of the model proper. formats: bytes by layout.
    """

    format: str
    total_bytes: int
    mtp_bytes: int
    vision_bytes: int
    audio_bytes: int
    bits_per_weight: float
    per_device_bytes: int
    formats: tuple[tuple[str, int, int], ...]
    figure: Figure
    mtp_figure: Figure | None = None
    assumptions: tuple[str, ...] = field(default=())
    warnings: tuple[str, ...] = field(default=())


def weights(
    architecture: Architecture | Described,
    weights: str = "config",
    *,
    group_size: int | None = None,
    ranks: Ranks | None = None,
) -> WeightBytes:
    """Bytes of the weights in a format; no alignment, padding of files or runtime copies.

    Args: weights: ``config`` for what the config says, or a name that ``llmcalc formats`` lists. group_size: values
    of a group, in formats that have them. ranks: how the model is cut over devices.
    Raises: UnsupportedFormatError, UnsupportedLayerError, InvalidInputError.
    Source: the layouts' own sources. Checked: tests/weights
    """
    architecture = architecture_of(architecture)
    check_counted(architecture)
    chooser = choose(architecture, weights, group_size)
    found = [(site, shares(chooser, site)) for site in sites(architecture)]
    extra = [(site, shares(chooser, site)) for site in mtp_sites(architecture)]
    figure = _tree(found, "weights", chooser, beside_of(chooser))
    mtp = _tree(extra, "multi-token-prediction heads", chooser) if extra else None
    parameters = sum(site.size for site, _ in found if site.weight.role != "buffer")
    ranks = ranks or Ranks()
    beside = sum(added.value for added in beside_of(chooser))
    return WeightBytes(
        format=chooser.name,
        total_bytes=figure.value,
        mtp_bytes=mtp.value if mtp else 0,
        vision_bytes=_part(figure, ("vision", "projector")),
        audio_bytes=_part(figure, ("audio",)),
        bits_per_weight=8 * figure.value / parameters if parameters else 0.0,
        per_device_bytes=largest_rank(architecture, found, ranks, beside),
        formats=_by_format(found),
        figure=figure,
        mtp_figure=mtp,
        assumptions=(*chooser.notes, *_said(architecture, found, ranks)),
        warnings=(*chooser.warnings, *_unmatched(architecture, chooser, found, extra)),
    )  # fmt: skip


def check_counted(architecture: Architecture) -> None:
    """Raises: UnsupportedLayerError where the config has a part that no reader describes."""
    if architecture.uncounted:
        raise UnsupportedLayerError(
            f"{architecture.model_type}: {', '.join(architecture.uncounted)} is not described here, so a total would "
            "leave it out",
            "kv-cache and inspect still answer for the language model",
        )


def choose(architecture: Architecture, name: str, group_size: int | None = None) -> Chooser:
    """The scheme of a name.

    Raises: UnsupportedFormatError, InvalidInputError.
    """
    if name == "config":
        from llmcalc.schemes.config import configured

        if group_size is not None:
            raise InvalidInputError("--group-size belongs to a format that is asked for with --weights")
        return configured(architecture)
    from llmcalc.schemes import named

    known = named.find(name)
    if known in named.FORMATS:
        return named.asked(known, architecture.dtype, group_size)
    from llmcalc.schemes.gguf import Gguf
    from llmcalc.schemes.mixes import MIXES

    if group_size is not None:
        raise InvalidInputError(f"--group-size {group_size}: the blocks of {known} have a fixed size")
    return Gguf(architecture, MIXES[known])


def shares(chooser: Chooser, site: Site) -> tuple[Share, ...]:
    """The layouts of a weight over its blocks (and experts, where a list names single ones)."""
    copies = site.weight.copies
    found: dict[tuple[Layout, int], list[int]] = {}
    for block in site.blocks or (None,):
        counts: dict[Layout, int] = {}
        single = chooser.numbered and "{}" in site.name
        for expert in range(copies if single else 1):
            layout = _holding(chooser.layout(site, block, expert), site)
            counts[layout] = counts.get(layout, 0) + (1 if single else copies)
        for layout, number in counts.items():
            found.setdefault((layout, number), []).extend(() if block is None else (block,))
    return tuple(Share(layout, tuple(blocks), number) for (layout, number), blocks in found.items())


def _holding(layout: Layout, site: Site) -> Layout:
    """The layout, once it has proved that it can hold the weight."""
    try:
        layout.bytes(site.shape)
    except UnsupportedFormatError as error:
        raise UnsupportedFormatError(f"{site.name}: {error.message}", error.hint) from None
    return layout


# -- the tree ------------------------------------------------------------------------------------------------------


def _tree(found: Found, name: str, chooser: Chooser, beside: tuple[Figure, ...] = ()) -> Figure:
    """Stacks, their branches, and in each branch every stored tensor with its dimensions."""
    stacks: dict[str, dict[str, list[Figure]]] = {}
    for site, parts in found:
        leaves = tuple(figure for share in parts for figure in _leaves(site, share))
        leaf = total(site.name, "B", leaves) if len(leaves) > 1 else leaves[0]._replace(name=_called(site, parts[0]))
        stacks.setdefault(site.stack, {}).setdefault(site.branch, []).append(leaf)
    if beside:
        stacks.setdefault("decoder", {})["converter"] = list(beside)
    tree = []
    for stack, branches in stacks.items():
        tree.append(total(stack, "B", tuple(total(b, "B", tuple(leaves)) for b, leaves in branches.items())))
    return total(name, "B", tuple(tree), f"{SOURCE}; layouts: {chooser.source}")


def _called(site: Site, share: Share) -> str:
    return f"{site.name} ({share.layout.name})"


def _leaves(site: Site, share: Share) -> list[Figure]:
    """One tensor in one layout: blocks that hold it x experts x its stored dimensions x bytes."""
    factors = [Factor("layers" if share.number > 1 else "layer", share.number, "L")] if site.blocks else []
    if "{}" in site.name:
        factors.append(Factor("experts", share.copies, "E"))
    label = share.layout.name
    return [
        product(f"{piece.name or site.module.rpartition('.')[2]} ({label})", "B", (*factors, *_dims(piece)))
        for piece in share.layout.pieces(site.shape)
    ]


def _dims(piece: Piece) -> list[Factor]:
    dims = []
    for index, size in enumerate(piece.dims):
        label = piece.labels[index] if index < len(piece.labels) else ""
        if size != 1 or len(piece.dims) == 1:
            dims.append(Factor(label, size, "abcd"[min(index, 3)]))
    return [*dims, Factor(piece.entry, piece.item, "s")]


def beside_of(chooser: Chooser) -> tuple[Figure, ...]:
    """What a converter adds to the model's own tensors."""
    from_converter = getattr(chooser, "beside", None)
    added = from_converter() if from_converter is not None else []
    return tuple(product(name, "B", (Factor("numbers", n, "n"), Factor("bytes", 4, "s"))) for name, n in added)


def _part(figure: Figure, names: tuple[str, ...]) -> int:
    return sum(part.value for part in figure.parts if part.name in names)


def _by_format(found: Found) -> tuple[tuple[str, int, int], ...]:
    """Layout, numbers of the model held in it, bytes; the largest first."""
    out: dict[str, tuple[int, int]] = {}
    for site, parts in found:
        for share in parts:
            number = share.number * share.copies
            for name, numbers, held in share.layout.holds(site.shape):
                count, size = out.get(name, (0, 0))
                out[name] = (count + number * numbers, size + number * held)
    return tuple((name, *pair) for name, pair in sorted(out.items(), key=lambda item: -item[1][1]))


# -- what is said about it -----------------------------------------------------------------------------------------


def _said(architecture: Architecture, found: Found, ranks: Ranks) -> list[str]:
    said = []
    if any(site.weight.role == "router" and site.weight.dtype == "fp32" and site.name.endswith(".weight")
           for site, _ in found):  # fmt: skip
        said.append("router matrices in the model's own format, as the checkpoints of DeepSeek-V3 and GLM-5 hold them")
    if architecture.aliases:
        said.append("the output head is the token table: stored once")
    return [*said, *shared_out(architecture, ranks, dealt(architecture, found), whole_towers(found, ranks.tp))]


def _unmatched(
    architecture: Architecture,
    chooser: Chooser,
    found: Found,
    extra: Found,
) -> list[str]:
    """A warning for entries of the config's lists that name no module of the model; of towers it may lack, nothing."""
    names = [name for site, _ in (*found, *extra) for block in site.blocks or (None,) for name in site.spellings(block)]
    names += [spelled for alias in architecture.aliases for spelled in respell(alias.removesuffix(".weight"), "")]
    lost = chooser.unmatched(names)
    if not architecture.towers:
        lost = [entry for entry in lost if not any(word in entry for word in ELSEWHERE)]
    if not lost:
        return []
    more = f" and {len(lost) - 4} more" if len(lost) > 4 else ""
    return [f"entries of the quantization_config name no module of this model: {', '.join(lost[:4])}{more}"]


ELSEWHERE = ("vision", "visual", "audio", "multi_modal", "mm_projector", "embed_vision", "rotary")


def rule_of_thumb(params: int, name: str, group_size: int | None = None) -> tuple[int, Layout]:
    """Bytes of ``params`` numbers, all in one format: a rule of thumb, for nothing is known of tables and norms.

    Raises: UnsupportedFormatError, InvalidInputError.
    """
    from llmcalc.schemes import named
    from llmcalc.schemes.blocks import BLOCKS
    from llmcalc.schemes.mixes import MIXES

    known = named.find(name)
    layout = BLOCKS[MIXES[known].base] if known in MIXES else named.layout_of(known, "bf16", group_size)
    bits = layout.bits
    return -(-params * bits.numerator // (8 * bits.denominator)), layout
