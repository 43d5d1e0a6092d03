"""The vocabulary of an architecture: stored weights, cached arrays and steps.

Every weight is listed once as a :class:`Weight`, every cached array once as a :class:`State`; every figure of the
toolkit is a sum over one of the two lists. Shapes are checkpoint shapes (``out, in`` for a matrix), sizes are counts
of numbers. Legend of one-letter names: n retained positions, w window, c chunk, r compression rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from llmcalc.arch.mixing import Counting, Term

Role = Literal["matmul", "head", "router", "embedding", "norm", "bias", "conv", "scalar", "buffer"]
Rows = Literal["every", "last", "once", "source", "none"]
Split = Literal["none", "column", "row", "vocab", "expert"]
WeightDtype = Literal["model", "fp32", "int64"]
StateKind = Literal["key", "value", "latent", "index", "cross", "recurrent", "conv", "buffer"]
StateDtype = Literal["cache", "model", "fp32"]
ScopeKind = Literal[
    "full", "sliding", "chunked", "bidirectional", "source", "image", "compressed", "open", "overlap", "fixed"
]


class Weight(NamedTuple):
    """A stored tensor, or ``copies`` equal ones of which one token uses ``active``.

    name: as the checkpoint spells it, relative to its block; ``{}`` stands for the expert's number.
    role: what multiplies it; a ``buffer`` is stored and is no parameter.
    rows: which positions multiply it (``last``: those whose logits are wanted; ``once``: one a sequence).
    split: how tensor parallelism cuts it. dtype: what it is stored in.
    """

    name: str
    shape: tuple[int, ...]
    role: Role = "matmul"
    copies: int = 1
    active: int = 1
    rows: Rows = "every"
    split: Split = "none"
    dtype: WeightDtype = "model"

    @property
    def size(self) -> int:
        """Numbers stored, all copies."""
        return self.copies * prod(self.shape)

    @property
    def active_size(self) -> int:
        """Numbers that one token passes: ``active`` of the copies; a table counts whole."""
        return self.active * prod(self.shape)


class Scope(NamedTuple):
    """Which positions a layer keeps and a query sees.

    ``size``: window w, chunk c, rate r, a fixed count, or the positions seen on either side (bidirectional; 0: all).
    """

    kind: ScopeKind
    size: int = 0

    def rows(self, n: int, source: int = 0, images: int = 0) -> int:
        """Rows held after ``n`` positions (``source`` encoder positions, ``images`` image positions beside)."""
        match self.kind:
            case "full" | "bidirectional":
                return n
            case "sliding" | "chunked":
                return min(n, self.size)
            case "compressed":
                return n // self.size
            case "open":
                return n % self.size
            case "overlap":
                return self.size if n >= self.size else 0
            case "source":
                return source
            case "image":
                return images
            case "fixed":
                return self.size

    @property
    def grows(self) -> bool:
        """Whether the rows grow with n without limit."""
        return self.kind in ("full", "compressed")


FULL = Scope("full")
BIDIRECTIONAL = Scope("bidirectional")
SOURCE = Scope("source")
IMAGE = Scope("image")
ONCE = Scope("fixed", 1)


class State(NamedTuple):
    """An array one sequence keeps between steps: ``scope.rows(n)`` entries of shape ``row``.

    The first axis of ``row`` is the one tensor parallelism cuts (heads, channels, groups) unless ``replicated``.
    The last axis is the contiguous one: block formats of the cache (``q8_0``) cut it into blocks.
    ``dtype``: ``cache`` follows the cache format, ``model`` the model's own dtype.
    A ``borrowed`` array belongs to another layer: it is read here and held there.
    """

    name: str
    row: tuple[int, ...]
    scope: Scope
    kind: StateKind
    dtype: StateDtype = "cache"
    replicated: bool = False
    borrowed: bool = False

    @property
    def is_value(self) -> bool:
        """Whether it holds values, which may have a format of their own; everything else follows the keys."""
        return self.kind == "value" or (self.kind == "cross" and self.name.endswith("values"))

    @property
    def width(self) -> int:
        """Numbers in one entry."""
        return prod(self.row)


class Step(NamedTuple):
    """``new`` tokens on top of ``past`` cached ones, with ``source`` encoder or image positions beside.

    Prefill of n tokens is ``Step(n)``; one decode step on n cached tokens is ``Step(1, n)``.
    """

    new: int
    past: int = 0
    source: int = 0

    def pairs(self, scope: Scope) -> int:
        """Query-key pairs of the step, exact and causal: the sum over its queries of the positions each sees."""
        last = self.past + self.new
        match scope.kind:
            case "bidirectional":
                return _both_ways(scope.size, last) if scope.size else self.new * last
            case "source" | "image":
                return self.new * self.source
            case "fixed":
                return self.new * scope.size
            case _:
                return _seen(scope, last) - _seen(scope, self.past)

    def picked(self, rate: int, limit: int) -> int:
        """Pairs with entries of ``rate`` positions where a query reads at most ``limit`` of those it sees."""
        return _picked(rate, limit, self.past + self.new) - _picked(rate, limit, self.past)


def _picked(rate: int, limit: int, n: int) -> int:
    free = min(n, limit * rate)
    return _seen(Scope("compressed", rate), free) + (n - free) * limit


def _both_ways(half: int, n: int) -> int:
    """Pairs of n positions that lie at most ``half`` apart, in an encoder that sees all n at once."""
    half = min(half, n - 1)
    return n + 2 * half * n - half * (half + 1)


def _seen(scope: Scope, n: int) -> int:
    """Sum over i = 1..n of the positions that query i sees (closed forms)."""
    size = scope.size
    match scope.kind:
        case "sliding":
            head = min(n, size)
            return head * (head + 1) // 2 + (n - head) * size
        case "chunked":
            whole, rest = divmod(n, size)
            return whole * size * (size + 1) // 2 + rest * (rest + 1) // 2
        case "compressed":
            whole, rest = divmod(n, size)
            return size * whole * (whole - 1) // 2 + (rest + 1) * whole
        case _:
            return n * (n + 1) // 2


class Spec:
    """A layer kind: a frozen, slotted dataclass. A kind overrides what differs from "nothing".

    ``part`` is the branch of the parameter tree that its weights belong to; ``source`` says where the kind is defined.
    """

    __slots__ = ()
    part = "other"
    source = ""

    @property
    def kind(self) -> str:
        """The name under which equal layers are grouped and shown."""
        return self.part

    def weights(self) -> Iterator[Weight]:
        """Every stored tensor, once, with shape and role."""
        return iter(())

    def state(self) -> Iterator[State]:
        """Every cached array of one call, once."""
        return iter(())

    def mixing_flops(self, step: Step, counting: Counting) -> Iterator[Term]:
        """Operations of a call on products between activations, by terms; those on weights follow from the list."""
        del step, counting
        return iter(())

    def expanded(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Rows of the keys and the values that a latent stands for; None where nothing is latent."""
        return None

    def describe(self) -> str:
        """The kind read aloud with its sizes, no full stop."""
        return self.kind


def linear(
    name: str,
    outputs: int,
    inputs: int,
    *,
    bias: bool = False,
    split: Split = "column",
    rows: Rows = "every",
    dtype: WeightDtype = "model",
) -> Iterator[Weight]:
    """A matrix ``[outputs, inputs]`` and, if biased, its vector ``[outputs]``."""
    yield Weight(f"{name}.weight", (outputs, inputs), "matmul", rows=rows, split=split, dtype=dtype)
    if bias:
        held = "none" if split == "row" else split
        yield Weight(f"{name}.bias", (outputs,), "bias", rows=rows, split=held, dtype=dtype)


def prefixed(prefix: str, weights: Iterator[Weight]) -> Iterator[Weight]:
    """The same weights under ``prefix.``."""
    return (weight._replace(name=f"{prefix}.{weight.name}") for weight in weights)


@dataclass(frozen=True, slots=True)
class Norm(Spec):
    """A normalisation of ``size`` channels. RMS stores ``size`` numbers, LayerNorm twice that with its bias.

    ``learned`` is false for norms that store nothing (OLMo, nanochat). ``offset``: the weight is stored minus one.
    """

    size: int
    form: Literal["rms", "layer"] = "rms"
    bias: bool = False
    learned: bool = True
    offset: bool = False
    eps: float | None = None
    part = "norms"

    def weights(self) -> Iterator[Weight]:
        if self.learned:
            yield Weight("weight", (self.size,), "norm")
            if self.bias:
                yield Weight("bias", (self.size,), "norm")

    def describe(self) -> str:
        return "RMSNorm" if self.form == "rms" else "LayerNorm"


@dataclass(frozen=True, slots=True)
class Extra(Spec):
    """Weights of a layout that no calculator needs to understand: listed as they are, by name, shape and role.

    per_position: how often they multiply for one position of their stack (the first of two strided convolutions).
    """

    tensors: tuple[Weight, ...]
    part: str = "other"
    per_position: int = 1

    def weights(self) -> Iterator[Weight]:
        return iter(self.tensors)
