"""Where the weights of a model stand: each with the blocks that hold it and the names that lists of modules use.

What a family's files fuse, and how they spell a name, is :mod:`llmcalc.arch.names`'s; here are only the further
spellings that lists of modules use: prefixes of wrappers, and a few names that no tensor has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from llmcalc.arch.base import Spec, Weight
from llmcalc.arch.model import Architecture, Named, Stack, StackName, branch_of
from llmcalc.arch.names import Part, Rules, Stored, rules_of
from llmcalc.arch.spellings import TABLE

TEXT: Final = ("decoder", "encoder")
TOWERS: Final = ("vision", "audio", "projector")
BLOCK: Final = "#"

# Spellings that only lists of modules use (pattern, replacement), by family; ``tower`` for towers of any.
FURTHER: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "tower": ((r"\.up_proj", ".fc1"), (r"\.down_proj", ".fc2")),
    "glm_moe_dsa": ((r"\.indexer\.weights_proj", ".indexers_proj"),),
    "deepseek_v4": ((r"^model\.", ""),),
}  # fmt: skip
_PREFIXES: Final = (
    ("model.language_model.", "language_model.model."),
    ("language_model.model.", "model.language_model."),
    ("language_model.model.", "model."),
    ("model.language_model.", "model."),
    ("model.visual.", "visual."),
    ("model.vision_tower.", "vision_tower."),
    ("vision_tower.", "model.vision_tower."),
    ("multi_modal_projector.", "model.multi_modal_projector."),
    ("language_model.lm_head", "lm_head"),
    ("lm_head", "language_model.lm_head"),
)


class Site(NamedTuple):
    """A stored weight: ``weights`` (several where a checkpoint fuses them, rows added), and the blocks holding it.

    names: its module under every spelling, ``#`` for the block's number, 0 for an expert's.
    """

    weights: tuple[Weight, ...]
    stack: StackName
    blocks: tuple[int, ...]
    branch: str
    spec: Spec
    names: tuple[str, ...]
    offset: int = 0

    @property
    def weight(self) -> Weight:
        """The weight, or the first of those that are stored as one."""
        return self.weights[0]

    @property
    def name(self) -> str:
        """Its name in its block, or its whole name outside of blocks."""
        return self.weight.name

    @property
    def module(self) -> str:
        """The name in its block without ``.weight``."""
        return self.name.removesuffix(".weight")

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, rows of fused matrices added."""
        first = self.weight.shape
        return (sum(weight.shape[0] for weight in self.weights), *first[1:]) if len(self.weights) > 1 else first

    @property
    def number(self) -> int:
        """Blocks that hold it."""
        return len(self.blocks) or 1

    @property
    def size(self) -> int:
        """Numbers stored in all its blocks."""
        return self.number * sum(weight.size for weight in self.weights)

    @property
    def matrix(self) -> bool:
        """Whether it is the matrix of a linear module or of a table: what schemes speak of."""
        weight = self.weight
        return len(weight.shape) == 2 and weight.dtype == "model" and weight.name.endswith(".weight")

    def spellings(self, block: int | None, expert: int = 0) -> tuple[str, ...]:
        """The module's full names in one of its blocks."""
        names = self.names if block is None else tuple(n.replace(BLOCK, str(block + self.offset)) for n in self.names)
        return names if not expert else tuple(n.replace("experts.0.", f"experts.{expert}.") for n in names)


def respell(name: str, family: str) -> Iterator[str]:
    """A name, and what else lists of modules call it: further spellings, and all under the prefixes of wrappers."""
    other = name
    for pattern, replacement in FURTHER.get(family, ()):
        other = re.sub(pattern, replacement, other)
    for spelled in dict.fromkeys((name, other)):
        yield spelled
        for old, new in _PREFIXES:
            if spelled.startswith(old):
                yield new + spelled.removeprefix(old)


def sites(architecture: Architecture) -> list[Site]:
    """Every weight of the model proper, tied aliases left out."""
    found = [site for stack in architecture.stacks for site in _of(stack, architecture)]
    return [site for site in found if site.blocks or site.name not in architecture.aliases]


def mtp_sites(architecture: Architecture) -> list[Site]:
    """Every weight of the multi-token-prediction heads."""
    return [site for stack in architecture.mtp for site in _of(stack, architecture)]


def _of(stack: Stack, architecture: Architecture) -> Iterator[Site]:
    family = architecture.decoder_type
    rules = rules_of(family if TABLE.get(family) else architecture.model_type)
    decoder = architecture.decoder
    further = "tower" if stack.name in TOWERS else family
    place = _Place(stack.name, rules, further, offset=0)
    for named in stack.stem:
        yield from place.sites([named], "", ())
    inside = place._replace(offset=len(decoder.calls) if stack.name == "mtp" and stack.prefix == decoder.prefix else 0)
    for layer, members in stack.groups:
        yield from inside.sites(layer.leaves(), f"{stack.prefix}.{BLOCK}.", members)
    for named in stack.tail:
        yield from place.sites([named], "", ())


class _Place(NamedTuple):
    """What the weights of one stack have in common."""

    stack: StackName
    rules: Rules
    further: str
    offset: int

    def sites(self, leaves: list[Named] | tuple[Named, ...], block: str, members: tuple[int, ...]) -> Iterator[Site]:
        """The weights of a block, or of a spec outside the blocks; experts are spelled once."""
        known: dict[str, tuple[Named, Weight]] = {}
        for named in leaves:
            for weight in named.weights():
                known[block + weight.name] = (named, weight)
        parts = [Part(block, weight.name, weight._replace(copies=1)) for _, weight in known.values()]
        for group in self.rules.spell(parts):
            for held in _joined(group.spellings[0]):
                named, first = known[held[0]]
                local = first._replace(name=first.name.removeprefix(f"{named.name}."))
                names = [held[0], *(item.name for way in group.spellings for item in way if held[0] in item.holds)]
                names += held[1:] if len(held) > 1 else ()
                bare = dict.fromkeys(name.removesuffix(".weight").replace("{}", "0") for name in names)
                spelled = dict.fromkeys(one for name in bare for one in respell(name, self.further))
                weights = tuple(known[name][1] for name in held)
                branch = branch_of(named.spec, local)
                yield Site(weights, self.stack, members, branch, named.spec, tuple(spelled), self.offset)


def _joined(spelling: tuple[Stored, ...]) -> Iterator[tuple[str, ...]]:
    """The weights that each tensor of a spelling holds; stacked experts count as tensors of their own."""
    for item in spelling:
        if len(item.holds) > 1 and "{}" not in item.holds[0] and item.holds[0].endswith(".weight"):
            yield item.holds
        else:
            yield from ((name,) for name in item.holds)
