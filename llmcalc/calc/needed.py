"""Operations that no pass can do without: what is asked of a prompt is its last token and a cache that can go on.

From the last layer down, only positions whose output something reads are counted: the wanted ones, and those that a
layer above looks at or keeps. So the last layer's queries and feed-forward run for one token of a prompt (llama.cpp
drops the others: ``inp_out_ids``), as do all layers that borrow their keys and values (vLLM's
``kv_sharing_fast_prefill``), and layers in windows for the window. Indexers that have nothing to choose do not run.
Legend: m positions of a layer's output that are wanted, w window, c chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from llmcalc.arch.base import Step
from llmcalc.arch.mixing import ScanForm
from llmcalc.arch.model import Architecture, Layer, Named
from llmcalc.calc.passes import MULTIPLIED, Pass, Product, Share, idle, merged, positions, products
from llmcalc.calc.rows import all_picked, unscored

SCORING = ("index scores", "sum over the index heads")


class Work(NamedTuple):
    """Operations of a pass: products with weights and scans, and attention to what is cached."""

    products: int
    attention: int

    @property
    def flops(self) -> int:
        """Both."""
        return self.products + self.attention


def least_work(
    architecture: Architecture, run: Pass, prefix: int = 0, counted: Sequence[Product] | None = None
) -> Work:
    """The fewest operations of a pass, in whichever form of scans and latents takes the fewest.

    Args: prefix: first positions in common; sequences can share the keys and values that its latents expand to.
    counted: the products of the pass, where they are known.
    """
    counted = tuple(products(architecture, run)) if counted is None else counted
    scans: tuple[ScanForm, ...] = (
        ("recurrent", "chunked") if any(item.group == "scan" for item in counted) else (run.counting.scan,)
    )
    found = []
    for scan in scans:
        form = run.counting._replace(scan=scan, latent="expanded" if prefix else run.counting.latent)
        other = run._replace(counting=form)
        found.append(_work(architecture, other, counted if other == run else tuple(products(architecture, other))))
    return min(found, key=lambda work: work.flops)


def lags(architecture: Architecture, run: Pass, wanted: int = 1) -> dict[int, int]:
    """By depth, how many of the first new tokens of each sequence need no output there; the others need all.

    Args: wanted: last tokens whose output is asked for; 0 of a prompt that goes on.
    """
    if run.logits == "all" or len(run.shares) != 1:
        return {}
    step, found = run.shares[0].step, dict[int, int]()
    for call in reversed(architecture.decoder.calls):
        if wanted >= step.new:
            break
        found[call.depth] = max(found.get(call.depth, 0), step.new - wanted)
        layer = architecture.decoder.layers[call.block]
        if not idle(layer, run):
            wanted = _inputs(layer, wanted, step)
    return found


def _inputs(layer: Layer, wanted: int, step: Step) -> int:
    """How many of the last positions a layer must be given, for its outputs and for what it keeps."""
    if any(True for spec in layer.ffns for _ in spec.state()):
        return step.new
    found, end = wanted, step.past + step.new
    for spec in layer.mixers:
        states = tuple(spec.state())
        own = {(state.scope.kind, state.scope.size) for state in states if not state.borrowed}
        kinds = {kind for kind, _ in own}
        if states and (not own or kinds <= {"source", "image"}):
            continue
        if len(own) != 1 or not kinds <= {"sliding", "chunked"}:
            return step.new
        ((kind, size),) = own
        back = size - 1 if kind == "sliding" else (end - wanted) % size
        found = max(found, wanted + back)
    return min(step.new, found)


def _work(architecture: Architecture, run: Pass, counted: Sequence[Product]) -> Work:
    attention = sum(item.value for item in counted if item.group == "attention")
    matrices = sum(item.value for item in counted) - attention
    spared = [_spared(layer, run, lag) for layer, lag in _lagging(architecture, run)]
    spared += [_unscored(layer, len(depths), run) for layer, depths in architecture.decoder.call_groups]
    return Work(matrices - sum(w.products for w in spared), attention - sum(w.attention for w in spared))


def _lagging(architecture: Architecture, run: Pass) -> list[tuple[tuple[Named, ...], int]]:
    """The parts of every call, and of what follows the layers, with the tokens that need no output of it."""
    found, stack = lags(architecture, run), architecture.decoder
    if not found:
        return []
    new = run.shares[0].step.new
    # Of two calls at one depth the first may need more: neither is spared then.
    single = [call for call in stack.calls if sum(other.depth == call.depth for other in stack.calls) == 1]
    out = [(stack.layers[call.block].leaves(), found[call.depth]) for call in single
           if call.depth in found and not idle(stack.layers[call.block], run)]  # fmt: skip
    return [*out, (stack.tail, new - 1)]


def _spared(parts: tuple[Named, ...], run: Pass, lag: int) -> Work:
    """What the first ``lag`` tokens would take."""
    share = run.shares[0]
    step = share.step
    rest = share._replace(step=Step(step.new - lag, step.past + lag, step.source))
    whole, kept = _parts(parts, run, share), _parts(parts, run, rest)
    return Work(whole.products - kept.products, whole.attention - kept.attention)


def _parts(parts: tuple[Named, ...], run: Pass, share: Share) -> Work:
    if share.step.new == 0:
        return Work(0, 0)
    matrices = attention = 0
    one = run._replace(shares=(share,))
    for named in parts:
        spec = named.spec
        scope = getattr(spec, "scope", None)
        for weight in spec.weights():
            multiplied = weight.role in MULTIPLIED and len(weight.shape) > 1 and weight.rows == "every"
            if multiplied and not unscored(spec, weight.name, run):
                count = positions(weight, one, scope, causal=True) * getattr(spec, "per_position", 1)
                matrices += 2 * weight.active * prod(weight.shape) * count
        for term in merged(spec, one, scope):
            if term.name not in SCORING:  # spared by itself, where it is
                attention += term.value * (term.kind == "attention")
                matrices += term.value * (term.kind != "attention")
    return Work(matrices, attention)


def _unscored(layer: Layer, calls: int, run: Pass) -> Work:
    """Scores of an indexer that has nothing to choose, and the products that make its queries."""
    scores = queries = 0
    for named in layer.leaves():
        spec, scope = named.spec, getattr(named.spec, "scope", None)
        if getattr(spec, "indexer", None) is None:
            continue
        for share in run.shares:
            one = run._replace(shares=(share,))
            if all_picked(spec, share.step.past + share.step.new):
                scores += sum(term.value for term in merged(spec, one, scope) if term.name in SCORING)
        if any(unscored(spec, weight.name, run) for weight in spec.weights()):
            weights = (weight for weight in spec.weights() if unscored(spec, weight.name, run))
            queries += sum(2 * prod(w.shape) * positions(w, run, scope, causal=True) for w in weights)
    return Work(calls * queries, calls * scores)
