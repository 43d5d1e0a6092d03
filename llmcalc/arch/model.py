"""Layers, stacks of layers, and the architecture they make up.

A calculator never walks the layers by hand: it sums over :attr:`Architecture.weights` and :attr:`Architecture.states`,
which list equal blocks once, with their number. Both are computed when first asked for and kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from llmcalc.arch.base import Spec, State, Weight, prefixed

StackName = Literal["decoder", "encoder", "vision", "audio", "projector", "mtp"]


class Named(NamedTuple):
    """A spec under the name that the checkpoint gives it."""

    name: str
    spec: Spec

    def weights(self) -> Iterator[Weight]:
        """Its weights under its name."""
        return prefixed(self.name, self.spec.weights()) if self.name else self.spec.weights()


class Sublayer(NamedTuple):
    """A mixer or a feed-forward with its norms: ``before`` it, ``after`` it, and ``outer``, after the residual sum."""

    name: str
    spec: Spec
    before: Named | None = None
    after: Named | None = None
    outer: Named | None = None

    def named(self) -> Iterator[Named]:
        """The norms and the spec itself, each under its name."""
        for norm in (self.before, self.after, self.outer):
            if norm is not None:
                yield norm
        yield Named(self.name, self.spec)


@dataclass(frozen=True, slots=True)
class Parallel(Spec):
    """Branches that read the same input and are summed (attention beside a scan, dense beside experts)."""

    branches: tuple[Sublayer, ...]

    @property
    def kind(self) -> str:
        return "+".join(branch.spec.kind for branch in self.branches)

    def describe(self) -> str:
        return "; beside it ".join(branch.spec.describe() for branch in self.branches)


def _leaves(sublayers: tuple[Sublayer, ...]) -> Iterator[Named]:
    for sublayer in sublayers:
        for named in sublayer.named():
            if isinstance(named.spec, Parallel):
                yield from _leaves(named.spec.branches)
            else:
                yield named


FFN_PARTS = ("mlp", "experts")


@dataclass(frozen=True, slots=True)
class Layer:
    """One block: its sublayers in order, and what the residual path itself stores.

    parallel: all sublayers read the same normed input (GPT-J) instead of each other's output.
    residual_scale: multiplies a sublayer's output before the sum (Granite). blend: a pair (a, b) a sublayer, whose
    normed input x and output y then make the stream a x + b y (MiniMax).
    """

    sublayers: tuple[Sublayer, ...]
    residual: tuple[Named, ...] = ()
    parallel: bool = False
    residual_scale: float = 1.0
    blend: tuple[tuple[float, float], ...] = ()

    def leaves(self) -> tuple[Named, ...]:
        """Every spec of the block under its name, parallel branches unfolded."""
        return (*_leaves(self.sublayers), *self.residual)

    @property
    def mixers(self) -> tuple[Spec, ...]:
        """What mixes positions: attention, scans, convolutions."""
        return tuple(n.spec for n in _leaves(self.sublayers) if n.spec.part in ("attention", "mixer"))

    @property
    def ffns(self) -> tuple[Spec, ...]:
        """What works on each position alone."""
        return tuple(n.spec for n in _leaves(self.sublayers) if n.spec.part in FFN_PARTS)

    @property
    def kind(self) -> str:
        """The name of its mixers, or of its feed-forward where it has no mixer."""
        return "+".join(spec.kind for spec in self.mixers) or "+".join(spec.kind for spec in self.ffns) or "none"

    @property
    def ffn_kind(self) -> str:
        """The name of its feed-forward, ``none`` where it has none or nothing else."""
        return ("+".join(spec.kind for spec in self.ffns) if self.mixers else "") or "none"


class Call(NamedTuple):
    """A visit: which of the stack's blocks runs, and at which depth of the model."""

    block: int
    depth: int


class Placed(NamedTuple):
    """A weight with the number of blocks that hold one like it, how often a pass runs it, and its place."""

    weight: Weight
    blocks: int
    calls: int
    stack: StackName
    branch: str
    path: str

    @property
    def size(self) -> int:
        """Numbers stored in all its blocks."""
        return self.blocks * self.weight.size


class Held(NamedTuple):
    """A cached array of one layer, the layer's kind and spec, and how many calls keep one like it."""

    state: State
    calls: int
    kind: str
    spec: Spec
    depths: tuple[int, ...]


def branch_of(spec: Spec, weight: Weight) -> str:
    """The branch of the parameter tree a weight belongs to: its spec's part, a MoE's told apart by name and role."""
    if weight.role == "buffer":
        return "buffers"
    if spec.part == "experts":
        if weight.name.startswith("shared_expert"):
            return "shared_experts"
        return "experts" if "{}" in weight.name else "router" if weight.role == "router" else "experts"
    return spec.part


@dataclass(frozen=True)
class Stack:
    """A stream of tokens through layers: unique blocks and a schedule of calls.

    A block that is called twice is stored once, multiplied twice, and keeps a cache per call.
    """

    name: StackName
    prefix: str
    layers: tuple[Layer, ...]
    stem: tuple[Named, ...] = ()
    tail: tuple[Named, ...] = ()
    schedule: tuple[Call, ...] = ()

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The schedule; by default every block once, in order."""
        return self.schedule or tuple(Call(index, index) for index in range(len(self.layers)))

    @property
    def depth(self) -> int:
        """Layers a token passes, as the config counts them."""
        return max((call.depth for call in self.calls), default=-1) + 1

    @cached_property
    def groups(self) -> tuple[tuple[Layer, tuple[int, ...]], ...]:
        """Equal blocks once, with their indices, in order of first use."""
        members: dict[Layer, list[int]] = {}
        known: dict[int, list[int]] = {}
        for index, layer in enumerate(self.layers):
            if id(layer) not in known:
                known[id(layer)] = members.setdefault(layer, [])
            known[id(layer)].append(index)
        return tuple((layer, tuple(indices)) for layer, indices in members.items())

    @cached_property
    def call_groups(self) -> tuple[tuple[Layer, tuple[int, ...]], ...]:
        """Equal blocks once, with the depths they are called at, in order of first use."""
        depths: dict[int, list[int]] = {}
        for call in self.calls:
            depths.setdefault(call.block, []).append(call.depth)
        return tuple(
            (layer, tuple(depth for index in members for depth in depths.get(index, ())))
            for layer, members in self.groups
        )

    def placed(self) -> Iterator[Placed]:
        """Every weight, equal blocks once."""
        for named in self.stem:
            yield from self._outside(named)
        for (layer, members), (_, depths) in zip(self.groups, self.call_groups, strict=True):
            for named in layer.leaves():
                for weight in named.weights():
                    branch = branch_of(named.spec, weight._replace(name=weight.name.removeprefix(f"{named.name}.")))
                    path = f"{self.prefix}.{members[0]}"
                    yield Placed(weight, len(members), len(depths), self.name, branch, path)
        for named in self.tail:
            yield from self._outside(named)

    def _outside(self, named: Named) -> Iterator[Placed]:
        for weight in named.weights():
            yield Placed(weight, 1, 1, self.name, branch_of(named.spec, weight), "")

    def held(self) -> Iterator[Held]:
        """Every cached array, equal calls once."""
        for layer, depths in self.call_groups:
            for spec in layer.mixers + layer.ffns:
                for state in spec.state():
                    yield Held(state, len(depths), spec.kind, spec, depths)


@dataclass(frozen=True)
class Architecture:
    """What a model is: its stacks, the names its files tie together, and what the reader had to assume.

    model_type: the config's; decoder_type: that of the language model's own block, where they differ.
    ties: pairs (name, the name whose tensor it is). uncounted: parts the config names and no reader describes.
    dtype: the model's own number format; dtype_assumed: the config names none. cache_format: what the config says keys
    and values are stored in, if it does. quantization: its own words on how weights are stored, unread;
    quantized_block: the nested block that says so, empty for the top level, whose words reach the towers too.
    """

    model_type: str
    decoder: Stack
    decoder_type: str = ""
    encoder: Stack | None = None
    towers: tuple[Stack, ...] = ()
    mtp: tuple[Stack, ...] = ()
    ties: tuple[tuple[str, str], ...] = ()
    hidden_size: int = 0
    vocab_size: int = 0
    max_position_embeddings: int | None = None
    tie_word_embeddings: bool = False
    positions: str = "none"
    dtype: str = "bf16"
    dtype_assumed: bool = False
    cache_format: str | None = None
    classes: str = "causal"
    uncounted: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    quantization: Mapping[str, object] | None = field(default=None, compare=False)
    quantized_block: str = ""

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """Every stack that belongs to the model proper; multi-token-prediction heads are apart."""
        return (*((self.encoder,) if self.encoder else ()), self.decoder, *self.towers)

    @cached_property
    def weights(self) -> tuple[Placed, ...]:
        """Every weight of the model proper."""
        return tuple(placed for stack in self.stacks for placed in stack.placed())

    @cached_property
    def states(self) -> tuple[Held, ...]:
        """Every array that one sequence keeps (the decoder's; encoders and towers keep nothing), equal ones once."""
        merged: list[Held] = []
        for held in self.decoder.held():
            for index, known in enumerate(merged):
                if known.state == held.state and known.spec == held.spec:
                    depths = (*known.depths, *held.depths)
                    merged[index] = known._replace(calls=known.calls + held.calls, depths=depths)
                    break
            else:
                merged.append(held)
        return tuple(merged)

    @cached_property
    def aliases(self) -> frozenset[str]:
        """Names whose tensor is another name's."""
        return frozenset(alias for alias, _ in self.ties)

    def shares(self, placed: Placed) -> bool:
        """Whether a placed weight is a tied alias of another one."""
        return not placed.path and placed.weight.name in self.aliases
