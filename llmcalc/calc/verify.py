"""Our list of weights held against the names and shapes in a checkpoint's own headers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Final, NamedTuple

from llmcalc.arch.model import Architecture
from llmcalc.arch.names import Group, Stored, groups
from llmcalc.arch.stored import TYPES
from llmcalc.calc.headers import Header
from llmcalc.calc.inputs import Described, architecture_of
from llmcalc.errors import InvalidInputError


class Tensor(NamedTuple):
    """A tensor by name and shape."""

    name: str
    shape: tuple[int, ...]


class Mismatch(NamedTuple):
    """A tensor that is there in another shape; ``holds``: the names in our list."""

    name: str
    expected: tuple[int, ...]
    found: tuple[int, ...]
    holds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verification:
    """What a checkpoint and our list of its weights disagree about.

    matched: tensors that both have. beside: tensors of the file that no list of weights has and that are known: scales
    and zeros of quantized weights, rotary tables, tied copies. heads: whether multi-token-prediction heads are there.
    holds: for each matched tensor the names of our list that it holds.
    """

    missing: tuple[Tensor, ...]
    unexpected: tuple[Tensor, ...]
    mismatched: tuple[Mismatch, ...]
    matched: int
    beside: tuple[Tensor, ...]
    heads: bool
    holds: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)

    @property
    def agrees(self) -> bool:
        """Whether every tensor is there, in its shape, and none besides."""
        return not (self.missing or self.unexpected or self.mismatched)


def verify(architecture: Architecture | Described, headers: Iterable[Header], dialect: str = "") -> Verification:
    """Hold every weight of the list against a checkpoint's headers; fused, stacked and transposed forms are known.

    Axes of length one are not compared. Packed weights agree by their number of bits. Tied copies may be there or not,
    and so may multi-token-prediction heads, as a whole.
    Args: dialect: ``gguf`` for llama.cpp's names. Checked: tests/verify
    """
    check = _Check(architecture_of(architecture), {header.name: header for header in headers}, dialect)
    for group in check.groups:
        check.hold(group)
    check.settle_ties()
    beside, unexpected = check.rest()
    return Verification(
        tuple(check.missing),
        unexpected,
        tuple(check.mismatched),
        len(check.used),
        beside,
        bool(check.heads),
        check.used,
    )


# A file stacks its experts or names each of them: a config that speaks of many more than there are tensors is wrong.
MOST_NAMES: Final = 2_000_000


def _check_experts(architecture: Architecture, tensors: int) -> None:
    """Refuse a config whose list of names is past all measure beside the file's own.

    Raises: InvalidInputError.
    """
    names = sum(p.blocks * p.weight.copies for p in architecture.weights)
    if names > max(MOST_NAMES, 4 * tensors):
        raise InvalidInputError(f"the config speaks of {names:,} tensors, the headers hold {tensors:,}")


class _Check:
    """One comparison under way."""

    def __init__(self, architecture: Architecture, found: dict[str, Header], dialect: str) -> None:
        self.found = found
        self.ties = architecture.ties
        _check_experts(architecture, len(found))
        self.groups = list(groups(architecture, dialect))
        self.spelled = _Spelled(self.groups, found)
        self.heads = [g for g in self.groups if g.apart and any(self.hits(s) for s in g.spellings)]
        self.missing: list[Tensor] = []
        self.mismatched: list[Mismatch] = []
        self.used: dict[str, tuple[str, ...]] = {}
        self.absent: dict[str, list[Tensor]] = {}
        self.held: set[str] = set()

    def hits(self, spelling: tuple[Stored, ...]) -> int:
        """How many of a spelling's tensors are there."""
        return sum(None not in map(self.spelled.find, (stored.name, *stored.also)) for stored in spelling)

    def hold(self, group: Group) -> None:
        """Compare one group in the spelling that the file has the most of."""
        if group.apart and not self.heads:
            return
        best = max(group.spellings, key=lambda spelling: (self.hits(spelling) == len(spelling), self.hits(spelling)))
        for stored in best:
            names = [name for name in map(self.spelled.find, (stored.name, *stored.also)) if name is not None]
            if len(names) == 1 + len(stored.also):
                self.held.update(stored.holds)
                self._compare(names, stored)
            elif not group.optional:
                missing = Tensor(self.spelled.expected(stored.name), stored.shape)
                self.missing.append(missing)
                for holds in stored.holds:
                    self.absent.setdefault(holds, []).append(missing)

    def _compare(self, names: list[str], stored: Stored) -> None:
        self.used.update(dict.fromkeys(names, stored.holds))
        headers = [self.found[name] for name in names]
        if stored.reshaped:
            same = sum(prod(header.shape) for header in headers) == prod(stored.shape)
        else:
            same = _same(headers[0], stored.shape)
        if not same:
            self.mismatched.append(Mismatch(names[0], stored.shape, headers[0].shape, stored.holds))

    def settle_ties(self) -> None:
        """A tensor that two names share may be stored under either."""
        for alias, source in self.ties:
            if alias in self.held and source in self.absent:
                self.missing = [tensor for tensor in self.missing if tensor not in self.absent[source]]

    def rest(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """What the file has besides: known for what it is, or not."""
        modules = {module_of(name) for name in self.used}
        beside: list[Tensor] = []
        unexpected: list[Tensor] = []
        for header in self.found.values():
            if header.name not in self.used:
                known = _is_side(header.name, modules) or _is_buffer(header)
                (beside if known else unexpected).append(Tensor(header.name, header.shape))
        return tuple(beside), tuple(unexpected)


# -- names -------------------------------------------------------------------------------------------------------

# What a quantized weight is stored under in place of ``.weight`` (or of a bare parameter's name).
_PACKED: Final = ("qweight", "weight_packed")
_BARE: Final = ("_blocks", "_packed")

_SIDE: Final = re.compile(
    r"""(?:\.(?: weight_scale(?:_inv|_2)? | weight_zero_point | weight_shape | weight_g_idx | weight_global_scale
      | (?:input|output|activation|pre_quant|k|v|q|prob)_scale | input_(?:global_scale|zero_point)
      | qzeros | scales? | g_idx | SCB | weight_format
      | weight\.(?:absmax|quant_map|nested_absmax|nested_quant_map|quant_state\.bitsandbytes__\w+) )
    | _(?: scales? | scale_inv | scale_2 | input_scale | weight_scale | zero_points? ) )""",
    re.VERBOSE,
)
_CACHE_SCALE: Final = re.compile(r".*\b(?:self_attn|attention|attn)(?:\.attn)?\.[kvq]_scale")
_BUFFER: Final = re.compile(
    r"""(?:.*\.)?(?: rotary_emb\.(?:inv_freq|cos_cached|sin_cached) | (?:rope|rotary_pos_emb|wpe)\.(?:freqs|inv_freq)
      | position_ids | embeddings\.token_type_ids | masked_bias | final_logits_bias
      | slope_rate | query_decay | key_decay | diagonal_decay
      | rope_freqs\.weight | rope_factors_(?:long|short)\.weight )
    | (?:model\.)?(?:encoder|decoder)\.embed_tokens\.weight""",
    re.VERBOSE,
)
_MASK: Final = re.compile(r"(?:.*\.)?(?:attn|attention|attn\.attention)\.bias")


def module_of(name: str) -> str:
    """The module that a stored tensor belongs to, or the bare parameter."""
    head, _, leaf = name.rpartition(".")
    return head if leaf in ("weight", "bias", *_PACKED) else re.sub("_(?:blocks|packed|bias)$", "", name)


def owner_of(name: str) -> str:
    """The module whose scales, zeros or indices a tensor holds; empty where it is none of these."""
    match = _SIDE.search(name)
    return name[: match.start()] if match and match.end() == len(name) else ""


def _is_side(name: str, modules: set[str]) -> bool:
    return bool(_CACHE_SCALE.fullmatch(name)) or owner_of(name) in modules


def _is_buffer(header: Header) -> bool:
    mask = len(header.shape) == 4 and _MASK.fullmatch(header.name)  # GPT-2's and GPT-NeoX's causal mask
    return bool(mask) or bool(_BUFFER.fullmatch(header.name))


class _Spelled:
    """Looks names up in a file whose root may have another name than the class gives it.

    A base model is saved without its root (``h.0`` for ``transformer.h.0``), a wrapped one under a longer one.
    """

    def __init__(self, groups: list[Group], found: dict[str, Header]) -> None:
        self.found = found
        self.root, self.prefix = self._vote(groups)

    def find(self, name: str) -> str | None:
        """The name under which the file has it, packed or not."""
        for candidate in self._candidates(name):
            for spelled in (candidate, *_packed(candidate)):
                if spelled in self.found:
                    return spelled
        shorter = name.replace("vision_tower.vision_model.", "vision_tower.")  # as transformers 5 saves towers
        return self.find(shorter) if shorter != name else None

    def expected(self, name: str) -> str:
        """The name to report where it is nowhere."""
        return list(self._candidates(name))[-1] if name.startswith(self.root) else name

    def _candidates(self, name: str) -> Iterator[str]:
        yield name
        if self.prefix == self.root:
            return
        if name.startswith(self.root):
            yield self.prefix + name.removeprefix(self.root)
        elif self.prefix:
            yield f"{self.prefix.partition('.')[0]}.{name}"

    def _vote(self, groups: list[Group]) -> tuple[str, str]:
        names = [s.name for g in groups if not (g.optional or g.apart) for s in g.spellings[0][:1]]
        names = [name for name in names if _is_probe(name)]
        roots = Counter(name.partition(".")[0] + "." for name in names)
        if not roots:
            return "", ""
        root = roots.most_common(1)[0][0]
        rests = {name.removeprefix(root) for name in names if name.startswith(root)}
        votes = Counter({root: 0})
        for name in filter(_is_probe, self.found):
            parts = name.split(".")
            for cut in range(min(4, len(parts))):
                if ".".join(parts[cut:]) in rests:
                    votes["".join(f"{part}." for part in parts[:cut])] += 1
        most = max(votes.values())
        return (root, root) if votes[root] == most else (root, votes.most_common(1)[0][0])


def _is_probe(name: str) -> bool:
    """Outside the blocks, or in the first of them: enough to tell the root."""
    number = re.search(r"\d+", name)
    return number is None or number[0] == "0"


def _packed(name: str) -> Iterator[str]:
    if name.endswith(".weight"):
        yield from (f"{name.removesuffix('weight')}{leaf}" for leaf in _PACKED)
    else:
        yield from (f"{name}{ending}" for ending in _BARE)


# -- shapes ------------------------------------------------------------------------------------------------------


def _same(header: Header, expected: tuple[int, ...]) -> bool:
    """The same shape but for axes of one, or as many bits as a packed form of that many weights has."""
    if _long(header.shape) == _long(expected):
        return True
    if header.dtype not in ("U8", "I8", "I32", "U32"):
        return False
    bits, count = prod(header.shape) * TYPES[header.dtype].bits, prod(expected)
    return count > 0 and any(bits == count * width for width in (2, 3, 4, 6, 8))


def _long(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)
