"""One pass of tokens through a model, product by product: the list that every count of operations sums over.

Legend: P numbers that one position multiplies, N positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Literal, NamedTuple

from llmcalc.arch.base import Scope, Spec, Step, Weight
from llmcalc.arch.mixing import Counting, Term
from llmcalc.arch.model import Architecture, Layer, Stack, StackName
from llmcalc.errors import UnsupportedLayerError
from llmcalc.figure import Factor, Figure, product, total

Group = Literal["matmul", "attention", "scan"]
Logits = Literal["last", "all"]
MULTIPLIED = ("matmul", "head", "router", "conv")
BESIDE = ("source", "image", "fixed")
OUTSIDE = {"embeddings": "embedding", "lm_head": "head"}


class Run(NamedTuple):
    """A spec that a pass runs: the kind of its layer, its weights that multiply, and how often it runs.

    layer: None outside the layers.
    """

    kind: str
    spec: Spec
    weights: tuple[Weight, ...]
    calls: int
    layer: Layer | None


class Product(NamedTuple):
    """A product of a pass: with a weight (``weight``), or between activations (``term``); ``layered``: in a layer."""

    stack: StackName
    kind: str
    group: Group
    name: str
    calls: int
    amount: int
    value: int
    layered: bool
    weight: Weight | None = None
    term: Term | None = None

    def figure(self, times: tuple[Factor, ...] = ()) -> Figure:
        """The product with its factors; ``times``: what multiplies it beside them."""
        layers = (Factor("calls", self.calls, "L"),) if self.calls > 1 else ()
        if self.term is not None:
            each = (Factor(name, size, "2" if not name else "") for name, size in self.term.each)
            return product(
                self.name, "FLOP", (*times, *layers, *each, Factor(self.term.unit, self.amount, "N")), self.term.source
            )
        weight = self.weight or Weight("", ())
        experts = (Factor("experts a token", weight.active, "k"),) if weight.active > 1 else ()
        sizes = tuple(
            Factor(("out", "in")[i] if i < 2 else "", n, "abc"[min(i, 2)]) for i, n in enumerate(weight.shape)
        )
        factors = (*times, Factor("", 2, "2"), *layers, *experts, *sizes, Factor("positions", self.amount, "N"))
        return product(self.name, "FLOP", factors)


def by_kind(figures: Iterable[tuple[Product, Figure]]) -> tuple[Figure, ...]:
    """Figures of products, together for each stack and kind of layer."""
    kinds: dict[tuple[str, str], list[Figure]] = {}
    for item, figure in figures:
        kinds.setdefault((item.stack, item.kind), []).append(figure)
    return tuple(
        total(f"{stack}: {kind}".replace("_", " "), "FLOP", tuple(own)) for (stack, kind), own in kinds.items()
    )


class Share(NamedTuple):
    """Sequences that take the same step, ``number`` of them, with image positions beside."""

    step: Step
    images: int = 0
    number: int = 1

    def beside(self, scope: Scope | None) -> int:
        """Positions beside the stream that cross-attention of this scope reads."""
        match scope.kind if scope is not None else "":
            case "image":
                return self.images
            case "fixed":
                return scope.size if scope is not None else 0
            case _:
                return self.step.source


class Pass(NamedTuple):
    """What a pass runs on, and how it is counted."""

    shares: tuple[Share, ...]
    counting: Counting
    logits: Logits

    @property
    def tokens(self) -> int:
        """New tokens of all sequences."""
        return sum(share.number * share.step.new for share in self.shares)


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


def products(architecture: Architecture, run: Pass, part: str = "") -> Iterator[Product]:
    """Every product of one forward pass of the model proper; encoders run where nothing is cached yet.

    part: of specs of that part alone.
    """
    if architecture.encoder is not None:
        yield from stack_products(architecture.encoder, encoder_pass(architecture, run), part)
    if architecture.decoder.layers:
        yield from stack_products(architecture.decoder, run, part)


def encoder_pass(architecture: Architecture, run: Pass) -> Pass:
    """The pass of an encoder: over the source, or over the tokens themselves where there is no decoder."""
    if not architecture.decoder.layers:
        return run
    scopes = [spec.scope for layer in architecture.decoder.layers for spec in layer.mixers if hasattr(spec, "scope")]
    scope = next((scope for scope in scopes if scope.kind in BESIDE), None)
    if scope is None:
        raise UnsupportedLayerError(f"{architecture.model_type}: nothing reads the encoder, so its steps are not known")
    fresh = [share for share in run.shares if share.step.past == 0]
    return run._replace(shares=tuple(Share(Step(share.beside(scope)), 0, share.number) for share in fresh))


def stack_products(stack: Stack, run: Pass, part: str = "") -> Iterator[Product]:
    """Every product of one pass through a stack."""
    for item in runs(stack):
        inside = item.layer is not None
        if (part and item.spec.part != part) or (item.layer is not None and idle(item.layer, run)):
            continue
        scope: Scope | None = getattr(item.spec, "scope", None)
        for weight in item.weights:
            count = positions(weight, run, scope, causal=stack.name != "encoder") * getattr(
                item.spec, "per_position", 1
            )
            value = 2 * item.calls * weight.active * prod(weight.shape) * count
            if value:
                yield Product(stack.name, item.kind, "matmul", weight.name, item.calls, count, value, inside, weight)
        for term in merged(item.spec, run, scope):
            group: Group = "matmul" if term.kind == "mixing" else term.kind
            value = item.calls * term.value
            if value:
                yield Product(
                    stack.name, item.kind, group, term.name, item.calls, term.amount, value, inside, None, term
                )


def idle(layer: Layer, run: Pass) -> bool:
    """Whether a layer is passed over: it does nothing but look at images, and there are none (mllama)."""
    scopes = [getattr(spec, "scope", None) for spec in layer.mixers]
    looks = bool(scopes) and all(scope is not None and scope.kind == "image" for scope in scopes)
    return looks and not any(share.images for share in run.shares)


def positions(weight: Weight, run: Pass, scope: Scope | None, *, causal: bool) -> int:
    """Positions that multiply a weight, over all sequences; ``causal``: convolutions see what is before them alone."""
    return sum(share.number * _positions(weight, share, run, scope, causal=causal) for share in run.shares)


def _positions(weight: Weight, share: Share, run: Pass, scope: Scope | None, *, causal: bool) -> int:
    step, counting = share.step, run.counting
    rows = "every" if weight.rows == "last" and run.logits == "all" else weight.rows
    match rows:
        case "every":
            if weight.role == "conv" and causal:
                return _conv_outputs(weight, step, counting)
            again = counting.dense and weight.name.endswith(counting.library.recomputes)
            return step.new + step.past if again else step.new
        case "last" | "once":
            return min(1, step.new)
        case "source":
            return 0 if step.past else share.beside(scope)
        case "none":
            return 0


def _conv_outputs(weight: Weight, step: Step, counting: Counting) -> int:
    """Outputs of a causal convolution: one a token.

    The library pads a prompt by kernel - 1 and drops what is too much, and later convolves a column that it kept
    beside the new ones; a counter of products sees both. Source: transformers 5.24, modeling_lfm2.py (slow_forward).
    """
    if not counting.dense:
        return step.new
    return step.new + (counting.library.conv_again if step.past else weight.shape[-1] - 1)


def merged(spec: Spec, run: Pass, scope: Scope | None) -> Iterator[Term]:
    """A spec's terms, over all sequences."""
    found: dict[tuple[str, tuple[tuple[str, int], ...]], Term] = {}
    for share in run.shares:
        for term in spec.mixing_flops(share.step._replace(source=share.beside(scope)), run.counting):
            key = (term.name, term.each)
            before = found[key].amount if key in found else 0
            found[key] = term._replace(amount=before + share.number * term.amount)
    return iter(found.values())
