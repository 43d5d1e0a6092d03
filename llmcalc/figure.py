"""A figure that carries its own formula: what is printed as an explanation is what was multiplied."""

from __future__ import annotations

from math import prod
from typing import NamedTuple


class Factor(NamedTuple):
    """One factor of a product: what it is, how many, and its letter in the formula; a bare number has no name."""

    name: str
    value: int
    symbol: str = ""

    def formal(self) -> str:
        """The factor in the formula: ``L layers``."""
        return f"{self.symbol or 'n'} {self.name}".strip() if not self.symbol.isdigit() else self.symbol

    def concrete(self) -> str:
        """The factor with its number: ``80 layers``."""
        return f"{self.value:,}" if self.symbol.isdigit() else f"{self.value:,} {self.name}".strip()


class Figure(NamedTuple):
    """A value with its unit, and either the factors it is the product of or the parts it is the sum of.

    ``value == prod(factors)`` and ``value == sum(parts)`` hold exactly, by construction: use :func:`product` and
    :func:`total`. Text is made when it is rendered.
    """

    name: str
    value: int
    unit: str
    factors: tuple[Factor, ...] = ()
    parts: tuple[Figure, ...] = ()
    source: str = ""
    notes: tuple[str, ...] = ()

    def formula(self) -> str:
        """The formula in words: factors by name, or the names of the parts."""
        if self.factors:
            return " x ".join(factor.formal() for factor in self.factors)
        return " + ".join(part.name for part in self.parts) or self.name

    def numbers(self) -> str:
        """The same formula with its numbers and its result."""
        if self.factors:
            left = " x ".join(factor.concrete() for factor in self.factors)
        else:
            left = " + ".join(f"{part.value:,}" for part in self.parts)
        result = f"{self.value:,} {self.unit}"
        return f"{left} = {result}" if len(self.parts) > 1 or self.factors else result


def product(name: str, unit: str, factors: tuple[Factor, ...], source: str = "", notes: tuple[str, ...] = ()) -> Figure:
    """The product of named whole numbers."""
    return Figure(name, prod(factor.value for factor in factors), unit, factors, (), source, notes)


def total(name: str, unit: str, parts: tuple[Figure, ...], source: str = "", notes: tuple[str, ...] = ()) -> Figure:
    """The sum of other figures."""
    return Figure(name, sum(part.value for part in parts), unit, (), parts, source, notes)
