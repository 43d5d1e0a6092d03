"""Operations of a training step: forward, gradients of inputs and of weights, and what is computed again.

A product y = W x costs as much again for the gradient of x, and as much for that of W; a frozen W has no gradient of
its own, but still passes one on to what is trained below it. Source: arXiv:2205.05198, appendix A; 2106.09685 (LoRA).
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from typing import Literal, NamedTuple

from llmcalc.arch.model import Architecture
from llmcalc.calc.passes import Group, Product, by_kind
from llmcalc.errors import InvalidInputError
from llmcalc.figure import Factor, Figure, product, total

Recompute = Literal["none", "selective", "full"]


class Trained(NamedTuple):
    """What is trained: weights whose name fits a pattern; ``rank``: low-rank adapters beside them instead."""

    patterns: tuple[str, ...] = ("*",)
    rank: int = 0

    @property
    def everything(self) -> bool:
        """Whether every weight is trained itself."""
        return self.patterns == ("*",) and not self.rank

    def fits(self, name: str) -> bool:
        """Whether a weight is meant: its full name, or a part of it between dots."""
        parts = name.split(".")
        return any(fnmatch(name, pattern) or any(fnmatch(part, pattern) for part in parts) for pattern in self.patterns)


ALL = Trained()


class Trainee(NamedTuple):
    """A product with how often its cost comes in a step: forward 1, its input's gradients, its weight's gradient."""

    product: Product
    gradients: int
    adapter: int

    @property
    def value(self) -> int:
        """Forward and backward, an adapter's included."""
        return (1 + self.gradients) * self.product.value + 3 * self.adapter

    @property
    def figure(self) -> Figure:
        """The product with its passes, and its adapter beside it."""
        passes = (Factor("passes (forward and gradients)", 1 + self.gradients, "t"),)
        own = self.product.figure(passes)
        if not self.adapter:
            return own
        beside = product(
            f"adapter of {self.product.name}", "FLOP", (Factor("", 3, "3"), Factor("adapter", self.adapter, "A"))
        )
        return total(self.product.name, "FLOP", (own, beside))


class Training(NamedTuple):
    """Operations of a step, all whole numbers. ``training_flops`` includes what is computed again."""

    trainees: tuple[Trainee, ...]
    recompute_flops: int

    @property
    def adapter_flops(self) -> int:
        """The forward pass of adapters."""
        return sum(trainee.adapter for trainee in self.trainees)

    @property
    def model_flops(self) -> int:
        """Forward and backward, nothing twice."""
        return sum(trainee.value for trainee in self.trainees)

    @property
    def backward_flops(self) -> int:
        """Gradients alone."""
        return self.model_flops - self.adapter_flops - sum(trainee.product.value for trainee in self.trainees)

    @property
    def training_flops(self) -> int:
        """Forward, backward and what is computed again."""
        return self.model_flops + self.recompute_flops

    @property
    def head_flops(self) -> int:
        """The output matrix, forward and backward."""
        weights = ((trainee, trainee.product.weight) for trainee in self.trainees)
        return sum(trainee.value for trainee, weight in weights if weight is not None and weight.role == "head")

    def part(self, group: Group) -> int:
        """Forward and backward of one group."""
        return sum(trainee.value for trainee in self.trainees if trainee.product.group == group)

    @property
    def figure(self) -> Figure:
        """The step, term by term."""
        parts = [*by_kind((trainee.product, trainee.figure) for trainee in self.trainees)]
        if self.recompute_flops:
            parts.append(product("computed again", "FLOP", (Factor("computed again", self.recompute_flops, "R"),)))
        return total("training step", "FLOP", tuple(parts), "arXiv:2205.05198, appendix A")


def training(architecture: Architecture, found: Sequence[Product], trained: Trained, recompute: Recompute) -> Training:
    """The step around a forward pass.

    Gradients of inputs are counted in every product above the lowest block that has something to train, and in the
    whole of that block. ``selective`` computes attention again, ``full`` every layer with its adapters.
    Raises: InvalidInputError where nothing fits.
    """
    lowest = _lowest(architecture, trained)
    trainees, flowing = [], False
    for item in found:
        flowing = flowing or lowest == "input" or (lowest == "layers" and item.layered)
        own = item.weight is not None and trained.fits(item.weight.name)
        adapter = _adapter(item, trained.rank) if own and trained.rank else 0
        gradients = 2 * flowing if item.weight is None else flowing + (own and not trained.rank)
        trainees.append(Trainee(item, gradients, adapter))
    again = {"none": (), "selective": ("attention",), "full": ("matmul", "attention", "scan")}[recompute]
    once_more = sum(
        each.product.value + each.adapter for each in trainees if each.product.layered and each.product.group in again
    )
    return Training(tuple(trainees), once_more)


def _adapter(item: Product, rank: int) -> int:
    """Forward cost of a pair of matrices down to the rank and up again beside a weight: 2 r (out + in)."""
    weight = item.weight
    if weight is None or weight.role != "matmul" or len(weight.shape) != 2:
        return 0
    return 2 * rank * sum(weight.shape) * weight.active * item.calls * item.amount


def _lowest(architecture: Architecture, trained: Trained) -> Literal["input", "layers", "output"]:
    """Where the lowest trained weight stands."""
    stacks = (*((architecture.encoder,) if architecture.encoder else ()), architecture.decoder)
    places: set[str] = set()
    for stack in stacks:
        names = [("input", w.name) for named in stack.stem for w in named.weights() if w.role != "buffer"]
        for layer, _ in stack.groups:
            names += [("layers", w.name) for named in layer.leaves() for w in named.weights() if w.role != "buffer"]
        names += [("output", w.name) for named in stack.tail for w in named.weights() if w.role != "buffer"]
        places |= {place for place, name in names if trained.fits(name)}
    if not places:
        raise InvalidInputError(
            f"no weight's name fits {', '.join(trained.patterns)}", "names are those of llmcalc params --explain"
        )
    if trained.rank:
        places.discard("input")  # an adapter beside a table is not meant by its name
    return "input" if "input" in places else "layers" if "layers" in places else "output"
