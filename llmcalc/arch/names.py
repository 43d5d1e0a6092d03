"""How checkpoints spell our weights: which stored tensor holds which of them, under what name and in what shape.

The list of an architecture has one canonical form (separate q, k, v; one tensor an expert and matrix). Files fuse,
stack and transpose: :data:`~llmcalc.arch.spellings.TABLE` says how, a few lines a family, in this notation:

    @ transformer.h                                  the blocks stand under this name
    model.embed_tokens = transformer.wte             a module, or a tensor with its leaf, by its own name
    .q_proj + .k_proj + .v_proj = .qkv               modules of one parent, fused along the outputs
    self_attn. = attn.                               everything inside a module
    a = b | c                                        either is met; a ?= b: the canonical form first, or b
    b'  b[]  b[]'  b[flat]  b[flat]'                 transposed, experts stacked, both, experts along the outputs
    a = -                                            not stored by these files
    b~  b & c                                        in any shape of as many numbers, in two tensors of as many

An expert's number is written ``{}``, as in the list. A stacked tensor named without a leaf is a bare parameter: its
bias is ``b_bias``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from llmcalc.arch.base import Weight
from llmcalc.arch.model import Architecture, Stack
from llmcalc.arch.spellings import EVERY, TABLE

TOWERS = ("vision", "audio", "projector")


class Stored(NamedTuple):
    """A tensor of a checkpoint: its name, its shape, and the weights of our list it holds (templates for experts).

    transposed: a matrix (or each of the stacked ones) lies the other way round. reshaped: only how many numbers it has
    is known. also: further tensors that hold the rest of them.
    """

    name: str
    shape: tuple[int, ...]
    holds: tuple[str, ...]
    transposed: bool = False
    reshaped: bool = False
    also: tuple[str, ...] = ()


class Group(NamedTuple):
    """Weights that are stored together or not at all, in every spelling that is known, the usual one first.

    optional: a tied alias, which files may leave out. apart: a multi-token-prediction head, absent as a whole or there.
    """

    spellings: tuple[tuple[Stored, ...], ...]
    optional: bool = False
    apart: bool = False


class Part(NamedTuple):
    """A weight of the list, its name cut where the rules look at it: ``block.`` + ``local``."""

    block: str
    local: str
    weight: Weight

    @property
    def name(self) -> str:
        """The full name in our list."""
        return self.block + self.local


def stored(architecture: Architecture) -> Iterator[Stored]:
    """Every tensor of the model proper as the family's files usually spell it."""
    for group in groups(architecture):
        if not group.optional and not group.apart:
            yield from group.spellings[0]


def groups(architecture: Architecture, dialect: str = "") -> Iterator[Group]:
    """Every weight of the list in all its spellings, multi-token-prediction heads last.

    Args: dialect: a row of the table other than the family's own (``gguf``).
    """
    family = next((f for f in (architecture.decoder_type, architecture.model_type) if f in TABLE), "")
    rules = rules_of(f"{dialect}:{architecture.decoder_type or architecture.model_type}" if dialect else family)
    for stack in architecture.stacks:
        told = rules_of("tower") if stack.name in TOWERS else rules
        for parts in _places(stack, 0):
            for group in told.spell(parts):
                holds = group.spellings[0][0].holds
                yield group._replace(optional=all(name in architecture.aliases for name in holds))
    depth = len(architecture.decoder.calls)
    for stack in architecture.mtp:
        shift = depth if dialect or stack.prefix == architecture.decoder.prefix else 0
        for parts in _places(stack, shift):
            moved = [_beside(part, depth) for part in parts] if dialect else parts
            yield from (group._replace(apart=True) for group in rules.spell(moved))


def _places(stack: Stack, shift: int) -> Iterator[list[Part]]:
    """The weights outside the blocks, then those of each block."""
    yield [Part("", weight.name, weight) for named in (*stack.stem, *stack.tail) for weight in named.weights()]
    for layer, members in stack.groups:
        weights = [weight for named in layer.leaves() for weight in named.weights()]
        for index in members:
            block = f"{stack.prefix}.{index + shift}."
            yield [Part(block, weight.name, weight) for weight in weights]


def _beside(part: Part, depth: int) -> Part:
    """What a prediction head has beside its block (``mtp.fc``, ``model.layers.61.eh_proj``) in the block's place."""
    match = re.fullmatch(r"(?:mtp|model\.layers\.(\d+))\.(.+)", part.local)
    if part.block or match is None:
        return part
    return Part(f"mtp.{match[1] or depth}.", f"mtp.{match[2]}", part.weight)


# -- rules -------------------------------------------------------------------------------------------------------


class Target(NamedTuple):
    """One way to store the parts of a rule in one tensor."""

    name: str
    transposed: bool = False
    experts: str = ""  # "stacked" or "flat"
    reshaped: bool = False
    also: tuple[str, ...] = ()


class Rule(NamedTuple):
    """A line of the table: canonical parts, how they are stored, whether the canonical form itself comes first."""

    parts: tuple[str, ...]
    targets: tuple[Target, ...]
    own_first: bool

    def match(self, local: str) -> tuple[str, str, str] | None:
        """The stem, the part and the leaf where the rule speaks of this name."""
        module, _, leaf = local.rpartition(".")
        for part in self.parts:
            for name, rest in ((local, ""), (module, leaf)):
                if name == part:
                    return "", part, rest
                if part.startswith(".") and name.endswith(part):
                    return name.removesuffix(part), part, rest
        return None


class Rules(NamedTuple):
    """The lines that speak of a family."""

    block: str
    rules: tuple[Rule, ...]
    containers: tuple[tuple[str, tuple[str, ...]], ...]

    def spell(self, parts: list[Part]) -> Iterator[Group]:
        """The weights of one place, grouped by the rule that stores them together."""
        together: dict[tuple[int, str, str], dict[str, Part]] = {}
        for part in parts:
            for number, rule in enumerate(self.rules):
                found = rule.match(part.local)
                if found:
                    stem, which, leaf = found
                    together.setdefault((number, stem, leaf), {})[which] = part
                    break
            else:
                together[-1, part.local, ""] = {"": part}
        for (number, stem, leaf), members in together.items():
            if number < 0:
                yield Group(tuple(self._own(list(members.values()))))
                continue
            rule = self.rules[number]
            if rule.targets[0].name == "-":
                continue
            ordered = [members[name] for name in rule.parts if name in members]
            yield Group(tuple(self._spellings(rule, ordered, stem, leaf)))

    def _spellings(self, rule: Rule, parts: list[Part], stem: str, leaf: str) -> Iterator[tuple[Stored, ...]]:
        fused = [
            tuple(_store(name, target, parts))
            for target in rule.targets
            for name in self._named(parts[0].block, target, stem, leaf)
        ]
        several = len(rule.parts) > 1
        own = list(self._own(parts, several=several)) if rule.own_first or several else []
        yield from (*own, *fused) if rule.own_first else (*fused, *own)

    def _named(self, block: str, target: Target, stem: str, leaf: str) -> Iterator[str]:
        name, end = target.name, f".{leaf}" if leaf else ""
        if target.experts == "stacked" and not name.endswith(".weight"):
            end = "" if leaf == "weight" else f"_{leaf}"
        name = name.removesuffix(".weight") if leaf else name
        for local in self._contained(stem + name + end):
            yield self._place(block) + local

    def _own(self, parts: list[Part], *, several: bool = False) -> Iterator[tuple[Stored, ...]]:
        """Each part in a tensor of its own: by the rule that speaks of it alone, else under its canonical name."""
        choices = [list(self._alone(part, several=several)) for part in parts]
        for number in range(max(map(len, choices))):
            yield tuple(item for choice in choices for item in choice[min(number, len(choice) - 1)])

    def _alone(self, part: Part, *, several: bool) -> Iterator[tuple[Stored, ...]]:
        for rule in self.rules if several else ():
            found = rule.match(part.local) if len(rule.parts) == 1 else None
            if found:
                yield from self._spellings(rule, [part], found[0], found[2])
                return
        for local in self._contained(part.local):
            yield tuple(_store(self._place(part.block) + local, Target(""), [part]))

    def _contained(self, local: str) -> Iterator[str]:
        for container, names in self.containers:
            if local.startswith(container):
                yield from (name + local.removeprefix(container) for name in names)
                return
        yield local

    def _place(self, block: str) -> str:
        if not block or not self.block:
            return block
        return f"{self.block}.{block.rstrip('.').rpartition('.')[2]}."


def _store(name: str, target: Target, parts: list[Part]) -> Iterator[Stored]:
    """The tensors under one name: one, or one an expert."""
    shapes = [part.weight.shape for part in parts]
    shape = (sum(shape[0] for shape in shapes), *shapes[0][1:]) if shapes[0] else ()
    holds = tuple(part.name for part in parts)
    copies = parts[0].weight.copies
    turned = target.transposed and len(shape) == 2
    shape = shape[::-1] if turned else shape
    if target.experts:
        whole = (copies, *shape) if target.experts == "stacked" else (copies * shape[0], *shape[1:])
        yield Stored(name, whole, holds, turned)
    elif "{}" in name:
        for expert in range(copies):
            yield Stored(name.replace("{}", str(expert)), shape, holds, turned)
    else:
        also = tuple(name.replace(target.name.lstrip("."), more) for more in target.also)
        yield Stored(name, shape, holds, turned, target.reshaped, also)


# -- reading the table -------------------------------------------------------------------------------------------


@cache
def rules_of(family: str) -> Rules:
    """The lines of a family, then those that hold for every one."""
    block, rules, containers = "", [], []
    for line in _lines(family):
        if line.startswith("@"):
            block = line.removeprefix("@").strip()
            continue
        left, mark, right = line.partition("=")
        optional, left = left.endswith("?"), left.rstrip("? ")
        assert mark, line
        names = tuple(name.strip() for name in right.split("|"))
        if left.endswith("."):
            inside = tuple("" if name == "." else name for name in names)
            containers.append((left, (left, *inside) if optional else inside))
        else:
            parts = tuple(name.strip() for name in left.split("+"))
            rules.append(Rule(parts, tuple(map(_target, names)), optional))
    return Rules(block, tuple(rules), tuple(containers))


def _lines(family: str) -> Iterable[str]:
    dialect, _, _ = family.rpartition(":")
    text = f"{TABLE.get(family, '')}\n{TABLE[dialect] if dialect else EVERY}"
    return (line.split("#")[0].strip() for line in text.splitlines() if line.split("#")[0].strip())


def _target(text: str) -> Target:
    first, *more = (name.strip() for name in text.split("&"))
    if more or first.endswith("~"):
        return Target(first.removesuffix("~"), reshaped=True, also=tuple(more))
    transposed, name = first.endswith("'"), first.removesuffix("'")
    for mark, experts in (("[]", "stacked"), ("[flat]", "flat")):
        if name.endswith(mark):
            return Target(name.removesuffix(mark), transposed, experts)
    return Target(name, transposed)
