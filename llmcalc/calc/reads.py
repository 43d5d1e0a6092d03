"""What one step of a model reads and writes on each device: weights touched, table rows, caches, recurrent state.

Legend: k experts a token of E, B tokens of a step, n cached positions, w window, c chunk.
Sources: distinct experts of B tokens E (1 - (1 - k/E)^B) for uniform, independent routing (occupancy of k draws without
replacement a token); windows and picks as each layer kind defines them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from llmcalc.arch.base import Spec, State, Weight
from llmcalc.arch.mixing import LatentForm
from llmcalc.arch.model import Architecture, Stack, StackName
from llmcalc.calc.passes import Pass, encoder_pass, idle, products
from llmcalc.calc.rows import picked, read_rows, shared, written_rows
from llmcalc.calc.sharding import rank_row, stages
from llmcalc.calc.sizing import RECURRENT, Sizer
from llmcalc.calc.weight_shards import Ranks, dealt, rank_bytes
from llmcalc.calc.weights import Chooser, Share, choose, shares
from llmcalc.formats import find_cache
from llmcalc.schemes.sites import Site, sites

ONE = Ranks()
Part = Literal["weights", "embedding", "cache", "state"]
Spread = tuple[int, ...]  # one number a pipeline stage


class Operator(NamedTuple):
    """What one product of a step moves and computes, over all its calls, on the busiest rank of each pipeline stage.

    least: bytes that must be read; likely: with the experts that tokens find at random; again: those of ``least`` that
    this step read before (blocks called twice, arrays that layers borrow). flops: of all ranks together.
    """

    name: str
    branch: str
    part: Part
    least: Spread
    likely: Spread
    written: Spread
    flops: Spread
    calls: Spread
    again: Spread = ()


class Stored(NamedTuple):
    """A site's tensors in one layout: bytes of one call on a rank, and of one expert where it has experts."""

    site: Site
    share: Share
    calls: Spread
    blocks: Spread
    size: int
    one: int
    whole_row: int


@dataclass(frozen=True)
class Reader:
    """A model as it is stored and spread: what its steps read follows from the two lists, of weights and of states."""

    architecture: Architecture
    weights: str = "config"
    group_size: int | None = None
    cache: str = "auto"
    ranks: Ranks = ONE
    latent: LatentForm = "absorbed"
    prefix: int = 0  # first positions that all sequences have in common, cached once

    @cached_property
    def spans(self) -> list[range]:
        """The depths of each pipeline stage."""
        return stages(self.main.depth, self.ranks.pp)

    @property
    def main(self) -> Stack:
        """The stack that a pipeline cuts."""
        a = self.architecture
        return a.decoder if a.decoder.layers else a.encoder or a.decoder

    @cached_property
    def sizer(self) -> Sizer:
        """Bytes of cached rows."""
        a = self.architecture
        return Sizer(a, find_cache(self.cache, a.cache_format or a.dtype))

    @cached_property
    def chooser(self) -> Chooser:
        """What gives each weight its layout."""
        return choose(self.architecture, self.weights, self.group_size)

    @cached_property
    def stored(self) -> tuple[Stored, ...]:
        """Every tensor of the stacks that text passes, with the calls of each stage."""
        self.ranks.check()
        return tuple(self._stored(site, share) for site, parts in self._found for share in parts)

    @cached_property
    def _found(self) -> list[tuple[Site, tuple[Share, ...]]]:
        return [
            (site, shares(self.chooser, site))
            for site in sites(self.architecture)
            if site.stack in ("decoder", "encoder")
        ]

    @cached_property
    def group(self) -> int:
        """Columns of an expert that stay together when it is cut."""
        return dealt(self.architecture, self._found)

    def _stored(self, site: Site, share: Share) -> Stored:
        size = rank_bytes(site, share, self.ranks, self.group)
        one = rank_bytes(site, share._replace(copies=1), self.ranks, self.group)
        row = -(-share.layout.bytes(site.shape) // site.shape[0]) if site.weight.role == "embedding" else 0
        calls = self._calls(site, share)
        distinct = self._distinct(share) if site.blocks and site.stack == self.main.name else calls
        return Stored(site, share, calls, distinct, size, one, row)

    def _distinct(self, share: Share) -> Spread:
        """How many of a share's blocks each stage runs at all."""
        return tuple(
            len({call.block for call in self.main.calls if call.depth in span}.intersection(share.blocks))
            for span in self.spans
        )

    def _calls(self, site: Site, share: Share) -> Spread:
        """How often each stage runs the blocks of a share; what stands outside the layers is on the end stages."""
        stack, last = self.main, len(self.spans) - 1
        if site.stack != stack.name:
            return (share.number, *[0] * last)
        if site.blocks:
            return tuple(
                sum(call.block in share.blocks for call in stack.calls if call.depth in span) for span in self.spans
            )
        tail = {weight.name for named in stack.tail for weight in named.weights()}
        place = last if site.name in tail else 0
        return tuple(int(index == place) for index in range(last + 1))

    @cached_property
    def experts(self) -> bool:
        """Whether tokens choose among experts."""
        return any(item.site.weight.split == "expert" for item in self.stored)

    @cached_property
    def repeats(self) -> int:
        """How often a step touches again what it touched before: blocks called twice, arrays that layers borrow."""
        decoder = self.architecture.decoder
        again = len(decoder.calls) - len({call.block for call in decoder.calls})
        return again + sum(held.calls for held in self.architecture.states if held.state.borrowed)

    def operators(self, run: Pass) -> tuple[Operator, ...]:
        """All products of a pass, with what each reads and writes."""
        return (*self._products(run), *self._mixers(run))

    # -- weights ---------------------------------------------------------------------------------------------------

    def _products(self, run: Pass) -> Iterator[Operator]:
        work = {(p.stack, p.weight): p.value // p.calls for p in products(self.architecture, run) if p.weight}
        skipped = self._idle(run)
        fresh = any(share.step.past == 0 for share in run.shares)
        heads = self._tied_heads(work)
        none = (0,) * len(self.spans)
        for item in self.stored:
            site, weight = item.site, item.site.weight
            if site.stack == "encoder" and (self.main.name != "encoder" and not fresh):
                continue
            if site.name in heads and not site.blocks:
                last = tuple(int(i == len(none) - 1) for i in range(len(none)))
                size = tuple(item.size * on for on in last)
                flops = tuple(heads[site.name] * on for on in last)
                yield Operator("head (the token table)", "lm_head", "weights", size, size, none, flops, last)
            if weight.role == "embedding":
                rows = min(site.shape[0], run.tokens * getattr(site.spec, "heads", 1))
                size = tuple(rows * item.whole_row * n for n in item.calls)
                yield Operator(site.name, site.branch, "embedding", size, size, none, none, item.calls)
                continue
            each = sum(work.get((site.stack, w), 0) for w in site.weights)
            multiplied = weight.role in ("matmul", "head", "router", "conv") and len(weight.shape) > 1
            if weight.role == "buffer" or (multiplied and not each):
                continue
            calls = tuple(n if not skipped else self._awake(item, skipped, n) for n in item.calls)
            least, likely = self._read(item, run)
            yield Operator(
                site.name, site.branch, "weights", tuple(least * n for n in calls),
                tuple(likely * n for n in calls), none, tuple(each * n for n in calls), calls,
                tuple(least * max(0, n - once) for n, once in zip(calls, item.blocks, strict=True)),
            )  # fmt: skip

    def _read(self, item: Stored, run: Pass) -> tuple[int, int]:
        """Bytes of one call that must be read, and those of the experts that tokens find at random."""
        weight, share = item.site.weight, item.share
        if weight.split != "expert" or weight.copies == 1:
            return item.size, item.size
        zero = getattr(item.site.spec, "zero_experts", 0)
        tokens = run.tokens * (self.ranks.dp if self.ranks.ep > 1 else 1)
        touched = max(0, weight.active - zero) * share.copies // weight.copies
        local = share.copies / self.ranks.ep
        distinct = local * (1 - (1 - weight.active / (weight.copies + zero)) ** tokens)
        least = -(-touched // self.ranks.ep) * item.one
        return least, max(least, round(distinct * item.one))

    def _tied_heads(self, work: dict[tuple[StackName, Weight], int]) -> dict[str, int]:
        """Tables that are the output head too, with the head's operations: read whole, once, through the head."""
        a = self.architecture
        ties = dict(a.ties)
        return {
            ties[p.weight.name]: work.get((p.stack, p.weight), 0)
            for p in a.weights
            if p.weight.role == "head" and p.stack in ("decoder", "encoder") and a.shares(p)
        }

    def _idle(self, run: Pass) -> frozenset[int]:
        groups = self.architecture.decoder.groups
        return frozenset(block for layer, members in groups if idle(layer, run) for block in members)

    @staticmethod
    def _awake(item: Stored, skipped: frozenset[int], calls: int) -> int:
        blocks = item.site.blocks
        return 0 if item.site.stack == "decoder" and blocks and skipped.issuperset(item.share.blocks) else calls

    # -- caches ----------------------------------------------------------------------------------------------------

    def _mixers(self, run: Pass) -> Iterator[Operator]:
        """The arrays that each layer kind reads and writes, and its products between activations."""
        encoder = self.architecture.encoder
        if encoder is not None and self.main.name != "encoder" and any(share.step.past == 0 for share in run.shares):
            beside = encoder_pass(self.architecture, run)
            first = (1, *[0] * (len(self.spans) - 1))
            for layer, depths in encoder.call_groups:
                for named in layer.leaves():
                    yield from self._mixer(named.spec, tuple(len(depths) * n for n in first), beside, kept=False)
        for layer, depths in self.architecture.decoder.call_groups:
            if idle(layer, run):
                continue
            calls = tuple(sum(depth in span for depth in depths) for span in self.spans)
            for named in layer.leaves():
                yield from self._mixer(named.spec, calls, run)

    def _mixer(self, spec: Spec, calls: Spread, run: Pass, *, kept: bool = True) -> Iterator[Operator]:
        scope = getattr(spec, "scope", None)
        sizes: dict[Part, tuple[int, int]] = {}
        borrowed = any(state.borrowed for state in spec.state())
        for state in spec.state() if kept else ():
            part: Part = "state" if state.kind in RECURRENT else "cache"
            read, write = sizes.get(part, (0, 0))
            entry = self.entry(spec, state)
            for share in run.shares:
                step = share.step
                rows = read_rows(spec, state, step.past, share.beside(state.scope), share.images)
                new = 0 if state.borrowed else written_rows(state, step.new, step.past, share.beside(state.scope))
                common = (share.number - 1) * self._common(spec, state, step.past)
                read, write = read + (share.number * rows - common) * entry, write + share.number * new * entry
            sizes[part] = (read, write)
        flops = sum(
            share.number * term.value
            for share in run.shares
            for term in spec.mixing_flops(share.step._replace(source=share.beside(scope)), run.counting)
        )
        if flops and not sizes:
            sizes["cache"] = (0, 0)
        for index, (part, (read, write)) in enumerate(sizes.items()):
            size = tuple(read * n for n in calls)
            work = tuple((flops if index == 0 else 0) * n for n in calls)
            again = size if borrowed else tuple(0 for _ in calls)
            yield Operator(spec.kind, spec.kind, part, size, size, tuple(write * n for n in calls), work, calls, again)

    def _common(self, spec: Spec, state: State, past: int) -> int:
        """Rows that one read can serve all sequences with: those of a shared prefix, where no query picks its own."""
        if not self.prefix or not shared(state) or picked(spec, state) is not None:
            return 0
        return read_rows(spec, state, min(self.prefix, past))

    def entry(self, spec: Spec, state: State) -> int:
        """Bytes of one row on one rank; of latents that are kept expanded, keys and values of its heads."""
        wide = spec.expanded() if self.latent == "expanded" and state.kind == "latent" else None
        if wide is None:
            return self.sizer.entry(state, rank_row(state, self.ranks.tp))
        if state.name != "latents":
            return 0
        parts = zip(self.sizer.cache, wide, strict=True)
        return sum(
            fmt.array_bytes(rank_row(state._replace(row=row, replicated=False), self.ranks.tp)) for fmt, row in parts
        )
