"""What one step of a model reads and writes on each device: weights touched, table rows, caches, recurrent state.

Legend: k experts a token of E, B tokens of a step, n cached positions, w window, c chunk.
Sources: distinct experts of B tokens E (1 - (1 - k/E)^B) for uniform, independent routing (occupancy of k draws without
replacement a token); windows and picks as each layer kind defines them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from llmcalc.arch.base import Spec, State, Weight
from llmcalc.arch.mixing import LatentForm
from llmcalc.arch.model import Architecture, Stack, StackName
from llmcalc.calc.needed import lags
from llmcalc.calc.operators import Operator, Part, Spread, Stored
from llmcalc.calc.passes import Pass, encoder_pass, idle, products
from llmcalc.calc.rows import moves, unscored
from llmcalc.calc.sharding import rank_row, stages
from llmcalc.calc.sizing import RECURRENT, Sizer
from llmcalc.calc.weight_shards import Ranks, dealt, rank_bytes
from llmcalc.calc.weights import Chooser, Share, choose, shares
from llmcalc.formats import find_cache
from llmcalc.schemes.sites import Site, sites

ONE = Ranks()


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
                # Tokens may be equal, so that one row is certain; of a table that is the head, it is read there.
                spare = tuple(max(0, rows - (site.name not in heads)) * item.whole_row * n for n in item.calls)
                yield Operator(site.name, site.branch, "embedding", size, size, none, none, item.calls, (), spare)
                continue
            each = sum(work.get((site.stack, w), 0) for w in site.weights)
            multiplied = weight.role in ("matmul", "head", "router", "conv") and len(weight.shape) > 1
            if weight.role == "buffer" or (multiplied and not each) or (weight.rows == "source" and not fresh):
                continue
            calls = tuple(n if not skipped else self._awake(item, skipped, n) for n in item.calls)
            least, likely, certain = self._read(item, run)
            certain = 0 if unscored(site.spec, site.name, run) else certain
            yield Operator(
                site.name, site.branch, "weights", tuple(least * n for n in calls),
                tuple(likely * n for n in calls), none, tuple(each * n for n in calls), calls,
                tuple(least * max(0, n - once) for n, once in zip(calls, item.blocks, strict=True)),
                tuple((least - certain) * n for n in calls),
            )  # fmt: skip

    def _read(self, item: Stored, run: Pass) -> tuple[int, int, int]:
        """Bytes of one call for a token's experts, for those that tokens find at random, and for the certain ones.

        Where single experts are stored in several ways, a token may find all of its own among the others.
        """
        weight, share = item.site.weight, item.share
        if weight.split != "expert" or weight.copies == 1:
            return item.size, item.size, item.size
        zero = getattr(item.site.spec, "zero_experts", 0)
        tokens = run.tokens * (self.ranks.dp if self.ranks.ep > 1 else 1)
        touched = max(0, weight.active - zero) * share.copies // weight.copies
        local = share.copies / self.ranks.ep
        distinct = local * (1 - (1 - weight.active / (weight.copies + zero)) ** tokens)
        certain = max(0, weight.active - zero - (weight.copies - share.copies))
        least, must = (-(-number // self.ranks.ep) * item.one for number in (touched, certain))
        return least, max(least, round(distinct * item.one)), must

    def again(self, run: Pass, resting: frozenset[int]) -> Spread:
        """Bytes of layers' weights that each further pass of a prompt reads, but for layers whose output is not asked.

        Args: resting: the depths of those.
        """
        out, skipped, calls = [0] * len(self.spans), self._idle(run), self.main.calls
        for item in self.stored:
            site, weight = item.site, item.site.weight
            if site.stack != self.main.name or not site.blocks or weight.role == "buffer" or weight.rows != "every":
                continue
            certain = self._read(item, run)[2]
            for stage, span in enumerate(self.spans):
                held = (c for c in calls if c.depth in span and c.block in item.share.blocks)
                out[stage] += certain * sum(c.depth not in resting and c.block not in skipped for c in held)
        return tuple(out)

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
        late = lags(self.architecture, run)
        for layer, depths in self.architecture.decoder.call_groups:
            if idle(layer, run):
                continue
            for lag in dict.fromkeys(late.get(depth, 0) for depth in depths):
                own = [depth for depth in depths if late.get(depth, 0) == lag]
                calls = tuple(sum(depth in span for depth in own) for span in self.spans)
                for named in layer.leaves():
                    yield from self._mixer(named.spec, calls, run, lag=lag)

    def _mixer(self, spec: Spec, calls: Spread, run: Pass, *, kept: bool = True, lag: int = 0) -> Iterator[Operator]:
        scope = getattr(spec, "scope", None)
        found: dict[Part, tuple[int, int, int, int]] = {}
        borrowed = any(state.borrowed for state in spec.state())
        for state in spec.state() if kept else ():
            part: Part = "state" if state.kind in RECURRENT else "cache"
            moved = moves(spec, state, run, self.entry(spec, state), self.prefix, lag)
            before = found.get(part, (0, 0, 0, 0))
            found[part] = tuple(a + b for a, b in zip(before, moved, strict=True))  # type: ignore[assignment]
        flops = sum(
            share.number * term.value
            for share in run.shares
            for term in spec.mixing_flops(share.step._replace(source=share.beside(scope)), run.counting)
        )
        if flops and not found:
            found["cache"] = (0, 0, 0, 0)
        for index, (part, (read, written, needed, must)) in enumerate(found.items()):
            size = tuple(read * n for n in calls)
            yield Operator(
                spec.kind, spec.kind, part, size, size, tuple(written * n for n in calls),
                tuple((flops if index == 0 else 0) * n for n in calls), calls,
                tuple(needed * n if borrowed else 0 for n in calls),
                tuple((read + written - needed - must) * n for n in calls),
                tuple(min(needed, must) * n if part == "state" else 0 for n in calls),
            )  # fmt: skip

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
