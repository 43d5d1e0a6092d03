"""A scheme: a default layout for the matrices it covers, and exceptions by role or by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from llmcalc.schemes.layouts import Layout, Plain
from llmcalc.schemes.rules import Names
from llmcalc.schemes.sites import TEXT, Site

FP32: Final = Plain("fp32", 4)
BF16: Final = Plain("bf16", 2)
FP16: Final = Plain("fp16", 2)
INT64: Final = Plain("int64", 8, "whole numbers")
MODEL: Final = {"fp32": FP32, "bf16": BF16, "fp16": FP16}


# The gate of a shared expert is a router of one row; tools that quantize the matrices of layers leave it.
GATES: Final = Names(("shared_expert_gate",), "transformers", listed=False)


class Rule(NamedTuple):
    """Modules of these names are stored so; None: in the model's own format."""

    names: Names
    layout: Layout | None


@dataclass(frozen=True)
class Scheme:
    """Which layout each weight has.

    plain: the model's own format, which everything has that the scheme does not cover. default: the layout of covered
    matrices, None where only ``rules`` name any. rules: exceptions by name, the first that matches decides.
    experts: the layout of routed experts where it differs. head, towers, mtp, blocks_only: what is covered beside the
    matrices of the layers. Embeddings, norms, routers, convolutions and vectors are covered by no scheme unless a rule
    names them. keeps: names of modules that the method leaves alone whatever the config says.
    notes: what was assumed; warnings: what changes a figure.
    """

    name: str
    plain: Layout
    default: Layout | None = None
    rules: tuple[Rule, ...] = ()
    experts: Layout | None = None
    head: bool = False
    towers: bool = False
    mtp: bool = True
    outside: bool = True
    keeps: Names | None = None
    source: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def plain_only(self) -> bool:
        """Whether nothing is quantized."""
        return self.default is None and not self.rules and self.experts is None

    @property
    def numbered(self) -> bool:
        """Whether a rule names single experts."""
        return any(rule.names.numbered for rule in self.rules)

    def layout(self, site: Site, block: int | None, expert: int = 0) -> Layout:
        """The layout of a weight in one of its blocks."""
        own = self.stored(site)
        if self.plain_only or not site.matrix:
            return own
        spellings = site.spellings(block, expert)
        if self.keeps is not None and self.keeps.match(spellings):
            return own
        for rule in self.rules:
            if rule.names.match(spellings):
                return own if rule.layout is None or not self._nameable(site) else rule.layout
        if not self._covers(site):
            return own
        if self.experts is not None and "{}" in site.name:
            return self.experts
        return self.default or own

    def stored(self, site: Site) -> Layout:
        """The layout of what no scheme touches: the model's format, or the tensor's own."""
        weight = site.weight
        if weight.dtype == "int64":
            return INT64
        if weight.dtype == "fp32" and not (weight.role == "router" and weight.name.endswith(".weight")):
            return FP32
        return self.plain

    @staticmethod
    def _nameable(site: Site) -> bool:
        return site.weight.role in ("matmul", "head", "router", "embedding")

    def _covers(self, site: Site) -> bool:
        weight = site.weight
        if weight.role == "head":
            return self.head
        if weight.role != "matmul":
            return False
        if site.stack == "mtp":
            return self.mtp and (self.outside or bool(site.blocks))
        if site.stack in TEXT:
            return self.outside or bool(site.blocks)
        return self.towers

    def unmatched(self, names: Sequence[str]) -> list[str]:
        """Entries of the lists that name nothing here."""
        return [entry for rule in self.rules if rule.names.listed for entry in rule.names.unmatched(names)]


def model_layout(dtype: str) -> Layout:
    """The plain layout of a model's dtype."""
    return MODEL[dtype]


def scale_bytes(dtype: str) -> int:
    """Bytes of a scale that is kept in the model's dtype."""
    return MODEL[dtype].item
