"""Weights over devices: which rank holds which part of a tensor, and the bytes of the fullest rank.

Matrices are cut by outputs (``column``) or inputs (``row``) and stored in their layout piece by piece, so that a cut
which no whole group survives is an error, but for experts whose loaders deal out whole groups (:func:`dealt`); norms,
routers, latent down-projections are on every rank; heads of keys and values are repeated where ranks are more; experts
are spread over ``ep``. A tower that cannot be cut is whole on every rank (:func:`whole_towers`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import Weight
from llmcalc.arch.cca import ConvolvedAttention
from llmcalc.arch.model import Architecture, Stack
from llmcalc.arch.moe import MixtureOfAttentionHeads, MixtureOfExperts
from llmcalc.arch.ssm import Mamba2
from llmcalc.calc.sharding import check_heads, stages
from llmcalc.errors import InvalidInputError, UnsupportedFormatError
from llmcalc.schemes.layouts import Scaled, divide
from llmcalc.schemes.packed import Gptq
from llmcalc.schemes.sites import TOWERS, Site

if TYPE_CHECKING:
    from llmcalc.calc.weights import Share

Cut = tuple[int, ...]
NOTHING: Mapping[str, str] = MappingProxyType({})
# What belongs to the heads of keys and values, and is repeated with them.
KEY_VALUE = re.compile(r"\b([kv]_(proj|norm|sconv)|v_proj_(current|delayed)|qk_norm\.temp)\b")
# Whose experts in mxfp4 are dealt out by whole groups: the model's own loaders in vLLM and SGLang (models/gpt_oss.py)
# give a rank ceil(groups / ranks) of them. The loaders of other models, and those of GPTQ and AWQ, need an even cut.
DEALT = ("gpt_oss",)


class Ranks(NamedTuple):
    """Degrees of tensor, pipeline, expert and data parallelism; ``ep`` divides tp x dp."""

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1

    def check(self) -> None:
        """Raises: InvalidInputError for degrees that do not fit together."""
        if min(self) < 1:
            raise InvalidInputError("--tp, --pp, --ep and --dp are at least 1")
        if self.tp * self.dp % self.ep:
            raise InvalidInputError(f"--ep {self.ep} does not divide tp x dp = {self.tp * self.dp}")

    @property
    def expert_tp(self) -> int:
        """Into how many parts a single expert is cut: what ``ep`` leaves of the ranks it spreads over."""
        return self.tp if self.ep == 1 else self.tp * self.dp // self.ep


def largest_rank(
    architecture: Architecture, found: Sequence[tuple[Site, tuple[Share, ...]]], ranks: Ranks, beside: int = 0
) -> int:
    """Bytes on the rank that holds most: of each pipeline stage its first rank, whose cuts are the largest.

    Embeddings, towers and encoders are on the first stage, what follows the layers on the last, a tied table on both.
    Raises: InvalidInputError where degrees do not divide what they cut.
    """
    ranks.check()
    spans = stages(cut_stack(architecture).depth, ranks.pp)
    sizes = [beside] * len(spans)
    group, whole = dealt(architecture, found), whole_towers(found, ranks.tp)
    for site, parts in found:
        for share in parts:
            one = rank_bytes(site, share, Ranks() if site.stack in whole else ranks, group)
            for index, held in enumerate(held_by_stage(architecture, site, share, spans)):
                sizes[index] += one * held
    return max(sizes)


def cut_stack(architecture: Architecture) -> Stack:
    """The stack that a pipeline cuts: the decoder, or the encoder of a model that is one alone."""
    return architecture.decoder if architecture.decoder.layers else architecture.encoder or architecture.decoder


def held_by_stage(architecture: Architecture, site: Site, share: Share, spans: Sequence[range]) -> list[int]:
    """How many blocks of a share each stage holds."""
    stack = cut_stack(architecture)
    if site.stack != stack.name:
        return [share.number, *[0] * (len(spans) - 1)]
    if not site.blocks:
        return _outside(stack, architecture, site, len(spans))
    held = []
    for span in spans:
        called = {call.block for call in stack.calls if call.depth in span}
        held.append(sum(block in called for block in share.blocks))
    return held


def _outside(stack: Stack, architecture: Architecture, site: Site, count: int) -> list[int]:
    """Stem on the first stage, tail on the last; a table that is also the head on both."""
    tail = {weight.name for named in stack.tail for weight in named.weights()}
    tied = {source for _, source in architecture.ties}
    if count == 1:
        return [1]
    first = 0 if site.name in tail else 1
    last = 1 if site.name in tail or site.name in tied else 0
    return [first, *[0] * (count - 2), last]


def dealt(architecture: Architecture, found: Sequence[tuple[Site, tuple[Share, ...]]]) -> int:
    """Columns of an expert that its loaders keep together when they cut it; 1 where they cut evenly."""
    if architecture.model_type not in DEALT:
        return 1
    layouts = (share.layout for site, parts in found if site.weight.split == "expert" for share in parts)
    return max((one.block for one in layouts if isinstance(one, Scaled) and one.name == "mxfp4"), default=1)


def whole_towers(found: Sequence[tuple[Site, tuple[Share, ...]]], tp: int) -> dict[str, str]:
    """Towers that so many ranks cannot share out, each with the reason: they are whole on every rank.

    Source: vLLM, ``InternParallelAttention`` of models/intern_vit.py, and ``mm_encoder_tp_mode="data"`` for others.
    """
    whole: dict[str, str] = {}
    for site, parts in found:
        if site.stack in TOWERS and site.stack not in whole:
            try:
                for share in parts:
                    rank_bytes(site, share, Ranks(tp))
            except InvalidInputError as error:
                whole[site.stack] = error.message
    return whole


def rank_bytes(site: Site, share: Share, ranks: Ranks, group: int = 1) -> int:
    """Bytes of one block's tensors on the fullest rank. Args: group: what :func:`dealt` says."""
    copies = share.copies
    tp = ranks.tp
    if site.weight.split in ("column", "row"):
        check_heads(site.spec, tp)
    if site.weight.split == "expert":
        copies, tp = -(-copies // ranks.ep), ranks.expert_tp
    try:
        part = _cut(site, tp, group)
        if isinstance(share.layout, Gptq) and part[-1] != site.shape[-1]:
            # Stored alone its last group may be short; of a rank vLLM (quantization/gptq.py) needs whole groups.
            divide(part[-1], share.layout.group or part[-1], f"{share.layout.name} has groups")
        return copies * share.layout.bytes(part)
    except UnsupportedFormatError as error:
        raise InvalidInputError(f"--tp {ranks.tp} cuts {site.name} into pieces: {error.message}", error.hint) from None


def _cut(site: Site, tp: int, group: int) -> Cut:
    """The shape of a site's part on one rank."""
    shapes = [_shape(site, weight, tp, group) for weight in site.weights]
    return (sum(shape[0] for shape in shapes), *shapes[0][1:]) if len(shapes) > 1 else shapes[0]


def _shape(site: Site, weight: Weight, tp: int, group: int) -> Cut:
    shape = weight.shape
    match weight.split:
        case "column":
            return (_rows(site, weight, tp), *shape[1:])
        case "row" if len(shape) == 2:
            return (shape[0], _divided(shape[1], tp, weight))
        case "vocab":
            return (-(-shape[0] // tp), *shape[1:])
        case "expert":
            return _expert(weight, tp, group)
        case _:
            return shape


def _rows(site: Site, weight: Weight, tp: int) -> int:
    """Rows on a rank; of keys and values at least one head."""
    spec, rows = site.spec, weight.shape[0]
    if isinstance(spec, Mamba2) and _leaf(weight) in ("in_proj", "conv1d"):
        return _scan_rows(spec, weight, tp)
    if isinstance(spec, ConvolvedAttention) and "conv_qk" in weight.name:
        _divided(spec.channels // spec.head_dim, tp, weight)
    elif isinstance(spec, MixtureOfAttentionHeads) or (isinstance(spec, Attention) and KEY_VALUE.search(weight.name)):
        heads = spec.num_key_value_heads
        if tp > heads:
            _divided(tp, heads, weight, turned=True)
        else:
            _divided(heads, tp, weight)
        return rows // min(tp, heads)
    return _divided(rows, tp, weight)


def _leaf(weight: Weight) -> str:
    return weight.name.removesuffix(".weight").removesuffix(".bias").rpartition(".")[2]


def _scan_rows(spec: Mamba2, weight: Weight, tp: int) -> int:
    """Rows of Mamba-2's fused matrices on a rank: its heads' channels, and at least one group's B and C."""
    heads, groups = _divided(spec.num_heads, tp, weight), spec.n_groups
    if tp > groups:
        _divided(tp, groups, weight, turned=True)
    held = 1 if tp > groups else _divided(groups, tp, weight)
    rows = heads * spec.head_dim + 2 * held * spec.state_size
    return rows if _leaf(weight) == "conv1d" else rows + heads * (spec.head_dim + 1)


def _expert(weight: Weight, tp: int, group: int) -> Cut:
    """An expert's matrices: down by inputs, the others by outputs; the bias of down is whole."""
    shape, down = weight.shape, "down_proj" in weight.name
    if down:
        return (shape[0], _dealt(shape[1], tp, weight, group)) if len(shape) == 2 else shape
    return (_dealt(shape[0], tp, weight, group), *shape[1:])


def _dealt(whole: int, tp: int, weight: Weight, group: int) -> int:
    """What the first rank gets: as many whole groups as any other, or an even share."""
    if group > 1 and whole % group == 0:
        return -(-whole // group // tp) * group
    return _divided(whole, tp, weight)


def _divided(whole: int, parts: int, weight: Weight, *, turned: bool = False) -> int:
    if whole % parts:
        text = (
            f"--tp {whole} is no multiple of the {parts} heads" if turned else f"--tp {parts} does not divide {whole:,}"
        )
        raise InvalidInputError(f"{text} of {weight.name}", "choose a degree that divides the heads and widths")
    return whole // parts


def shared_out(
    architecture: Architecture, ranks: Ranks, group: int = 1, whole: Mapping[str, str] = NOTHING
) -> list[str]:
    """What is said of a model on several ranks: padding of its vocabulary, how experts are cut, what is not counted.

    Args: group: what :func:`dealt` says. whole: what :func:`whole_towers` says.
    """
    rows, tp = architecture.vocab_size, ranks.tp
    said: list[str] = []
    if ranks == Ranks():
        return said
    if rows % tp:
        each = -(-rows // tp)
        said.append(f"the vocabulary of {rows:,} is padded to {each * tp:,}, {each:,} rows on each of {tp} ranks")
    if ranks.ep > 1 and ranks.expert_tp > 1:
        said.append(f"each expert is cut into {ranks.expert_tp}: {tp * ranks.dp} ranks for --ep {ranks.ep}")
    said += [*uneven(architecture, ranks, group), *repeated(whole)]
    if architecture.mtp:
        said.append("multi-token-prediction heads are not in the bytes of a device")
    return said


def repeated(whole: Mapping[str, str]) -> list[str]:
    """What is said of towers that are not cut."""
    return [
        f"the {name} tower is whole on every device, for {reason} (vLLM: --mm-encoder-tp-mode data)"
        for name, reason in whole.items()
    ]


def uneven(architecture: Architecture, ranks: Ranks, group: int) -> list[str]:
    """What is said where experts are dealt out by whole groups and one rank gets fewer."""
    widths = {spec.moe_intermediate_size for layer in architecture.decoder.layers for spec in layer.ffns
              if isinstance(spec, MixtureOfExperts)}  # fmt: skip
    parts = ranks.expert_tp
    return [
        f"experts of width {width:,} are cut by whole mxfp4 groups of {group}: {-(-width // group // parts)} of "
        f"{width // group} on the fullest of {parts} ranks (the loaders of vLLM and SGLang, models/gpt_oss.py; what "
        "kernels pad is not counted)"
        for width in sorted(widths)
        if group > 1 and width % group == 0 and width // group % parts
    ]
