"""One pass of tokens through a model, product by product: the list that every count of operations sums over.

Legend: P numbers that one position multiplies, N positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Literal, NamedTuple

from llmcalc.arch.base import Scope, Spec, Step, Weight
from llmcalc.arch.mixing import Counting, Term
from llmcalc.arch.model import Architecture, Layer, Stack, StackName
from llmcalc.calc.sizing import Sequences
from llmcalc.engines.base import Lengths
from llmcalc.errors import UnsupportedLayerError
from llmcalc.figure import Factor, Figure, product

Group = Literal["matmul", "attention", "scan"]
Logits = Literal["last", "all"]
MULTIPLIED = ("matmul", "head", "router", "conv")
BESIDE = ("source", "image", "fixed")
OUTSIDE = {"embeddings": "embedding", "lm_head": "head"}


class Run(NamedTuple):
    """A spec that a pass runs: the kind of its layer, its weights that multiply, and how often it runs.

    layer: None outside the layers. index: where it stands among the runs of its stack.
    """

    kind: str
    spec: Spec
    weights: tuple[Weight, ...]
    calls: int
    layer: Layer | None


class Product(NamedTuple):
    """A product of a pass: with a weight (``weight``), or between activations (``term``)."""

    stack: StackName
    kind: str
    group: Group
    name: str
    calls: int
    count: int
    value: int
    weight: Weight | None = None
    term: Term | None = None

    def figure(self, times: tuple[Factor, ...] = ()) -> Figure:
        """The product with its factors; ``times``: what multiplies it beside them."""
        layers = (Factor("calls" if self.calls > 1 else "call", self.calls, "L"),) if self.calls > 1 else ()
        if self.term is not None:
            each = (Factor(name, size, "2" if not name else "") for name, size in self.term.each)
            return product(self.name, "FLOP", (*times, *layers, *each, Factor(self.term.unit, self.count, "N")))
        weight = self.weight or Weight("", ())
        experts = (Factor("experts a token", weight.active, "k"),) if weight.active > 1 else ()
        sizes = tuple(Factor(("out", "in")[i] if i < 2 else "", n, "abc"[min(i, 2)]) for i, n in enumerate(weight.shape))
        factors = (*times, Factor("", 2, "2"), *layers, *experts, *sizes, Factor("positions", self.count, "N"))
        return product(self.name, "FLOP", factors)


class Pass(NamedTuple):
    """What a pass runs on: steps of equal length with their number, and how they are counted."""

    sequences: Sequences
    past: int
    counting: Counting
    logits: Logits

    def steps(self, scope: Scope | None = None) -> Iterator[tuple[Step, int]]:
        """A step for every length, with what the scope looks at beside it."""
        for size, number in self.sequences.groups:
            yield Step(size.tokens, self.past, beside(scope, size)), number


def beside(scope: Scope | None, size: Lengths) -> int:
    """Positions beside the stream that cross-attention of this scope reads."""
    match scope.kind if scope is not None else "":
        case "image":
            return size.images
        case "fixed":
            return scope.size if scope is not None else 0
        case _:
            return size.source


def runs(stack: Stack) -> tuple[Run, ...]:
    """The specs of a stack in order, equal calls once; kept with the stack, which never changes."""
    kept: tuple[Run, ...] | None = vars(stack).get("_runs")
    if kept is None:
        kept = vars(stack)["_runs"] = tuple(_runs(stack))
    return kept


def _runs(stack: Stack) -> Iterator[Run]:
    for named in stack.stem:
        yield Run(OUTSIDE.get(named.spec.part, "input"), named.spec, _multiplied(named.weights()), 1, None)
    for layer, depths in stack.call_groups:
        kind = layer.kind if layer.ffn_kind == "none" else f"{layer.kind}, {layer.ffn_kind}"
        for named in layer.leaves():
            yield Run(kind, named.spec, _multiplied(named.weights()), len(depths), layer)
    for named in stack.tail:
        yield Run(OUTSIDE.get(named.spec.part, "output"), named.spec, _multiplied(named.weights()), 1, None)


def _multiplied(weights: Iterator[Weight]) -> tuple[Weight, ...]:
    return tuple(weight for weight in weights if weight.role in MULTIPLIED and len(weight.shape) > 1)


def products(architecture: Architecture, run: Pass) -> Iterator[Product]:
    """Every product of one forward pass of the model proper; encoders run where nothing is cached yet."""
    if architecture.encoder is not None and run.past == 0:
        yield from stack_products(architecture.encoder, encoder_pass(architecture, run))
    if architecture.decoder.layers:
        yield from stack_products(architecture.decoder, run)


def encoder_pass(architecture: Architecture, run: Pass) -> Pass:
    """The pass of an encoder: over the source, or over the tokens themselves where there is no decoder."""
    if not architecture.decoder.layers:
        return run
    scopes = [spec.scope for layer in architecture.decoder.layers for spec in layer.mixers if hasattr(spec, "scope")]
    scope = next((scope for scope in scopes if scope.kind in BESIDE), None)
    if scope is None:
        raise UnsupportedLayerError(f"{architecture.model_type}: nothing reads the encoder, so its positions are not known")
    groups = tuple((Lengths(beside(scope, size)), number) for size, number in run.sequences.groups)
    return run._replace(sequences=Sequences(groups))


def stack_products(stack: Stack, run: Pass) -> Iterator[Product]:
    """Every product of one pass through a stack."""
    for item in runs(stack):
        if item.layer is not None and _idle(item.layer, run):
            continue
        scope: Scope | None = getattr(item.spec, "scope", None)
        for weight in item.weights:
            count = positions(weight, run, scope)
            value = 2 * item.calls * weight.active * prod(weight.shape) * count
            if value:
                yield Product(stack.name, item.kind, "matmul", weight.name, item.calls, count, value, weight=weight)
        for term in _merged(item.spec, run, scope):
            group: Group = "matmul" if term.kind == "mixing" else term.kind
            value = item.calls * term.value
            if value:
                yield Product(stack.name, item.kind, group, term.name, item.calls, term.count, value, term=term)


def _idle(layer: Layer, run: Pass) -> bool:
    """Whether a layer is passed over: it does nothing but look at images, and there are none (mllama)."""
    scopes = [getattr(spec, "scope", None) for spec in layer.mixers]
    looks = bool(scopes) and all(scope is not None and scope.kind == "image" for scope in scopes)
    return looks and not any(size.images for size, _ in run.sequences.groups)


def positions(weight: Weight, run: Pass, scope: Scope | None) -> int:
    """Positions that multiply a weight, over all sequences."""
    rows = weight.rows
    if rows == "last" and run.logits == "all":
        rows = "every"
    match rows:
        case "every":
            if weight.role == "conv":
                return sum(number * _conv_outputs(weight, step, run.counting) for step, number in run.steps())
            return run.sequences.tokens
        case "last" | "once":
            return sum(number for size, number in run.sequences.groups if size.tokens)
        case "source":
            return sum(number * beside(scope, size) for size, number in run.sequences.groups) if run.past == 0 else 0
        case "none":
            return 0


def _conv_outputs(weight: Weight, step: Step, counting: Counting) -> int:
    """Outputs of a causal convolution: one a token.

    The library pads a prompt by kernel - 1 and drops what is too much, and later convolves a column that it kept
    beside the new ones; a counter of products sees both. Source: transformers 5.24, modeling_lfm2.py (slow_forward).
    """
    if not counting.dense:
        return step.new
    return step.new + (1 if step.past else weight.shape[-1] - 1)


def _merged(spec: Spec, run: Pass, scope: Scope | None) -> Iterator[Term]:
    """A spec's terms, over all sequences."""
    found: dict[tuple[str, tuple[tuple[str, int], ...]], Term] = {}
    for step, number in run.steps(scope):
        for term in spec.mixing_flops(step, run.counting):
            key = (term.name, term.each)
            before = found[key].count if key in found else 0
            found[key] = term._replace(count=before + number * term.count)
    return iter(found.values())
