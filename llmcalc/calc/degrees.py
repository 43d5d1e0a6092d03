"""Which ways of spreading a model over devices there are, and why the others are none."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from llmcalc.arch.model import Architecture
from llmcalc.calc.room import Asked, Holding
from llmcalc.calc.sharding import stages
from llmcalc.calc.weight_shards import (
    Ranks,
    cut_stack,
    dealt,
    held_by_stage,
    rank_bytes,
    repeated,
    uneven,
    whole_towers,
)
from llmcalc.calc.weights import Found, Share, beside_of, check_counted, choose, shares
from llmcalc.errors import LlmcalcError
from llmcalc.schemes.sites import Site, sites

# Weights that every stage holds in the same number: the stack and its blocks, outside of blocks the weight itself.
Key = tuple[str, tuple[int, ...], str]


class Choice(NamedTuple):
    """Degrees, and bytes of weights on the fullest device; or the reason why they are none."""

    ranks: Ranks
    weight_bytes: int | None
    reason: str = ""


@dataclass(frozen=True)
class Spreading:
    """A model's weights in a format, ready to be cut in one way after another; each cut is made once.

    asked: how the cache is kept, which has to be cut too.
    """

    architecture: Architecture
    weights: str = "config"
    group_size: int | None = None
    asked: Asked = field(default_factory=Asked)
    _tensors: dict[tuple[int, int, int, bool], dict[Key, int]] = field(default_factory=dict, compare=False, repr=False)
    _numbers: dict[int, dict[Key, list[int]]] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def found(self) -> Found:
        """Every weight with its layouts."""
        check_counted(self.architecture)
        chooser = choose(self.architecture, self.weights, self.group_size)
        return [(site, shares(chooser, site)) for site in sites(self.architecture)]

    @cached_property
    def group(self) -> int:
        """Columns of an expert that stay together when it is cut."""
        return dealt(self.architecture, self.found)

    def notes(self, ranks: Ranks) -> list[str]:
        """What is assumed of the cut."""
        return [*uneven(self.architecture, ranks, self.group), *repeated(whole_towers(self.found, ranks.tp))]

    @cached_property
    def added(self) -> int:
        """Bytes that a converter adds to every stage."""
        return sum(figure.value for figure in beside_of(choose(self.architecture, self.weights, self.group_size)))

    @property
    def depth(self) -> int:
        """Layers of the stack that a pipeline cuts."""
        return cut_stack(self.architecture).depth

    @cached_property
    def experts(self) -> bool:
        """Whether there are experts to spread."""
        return any(site.weight.split == "expert" for site, _ in self.found)

    def stages(self, ranks: Ranks) -> tuple[int, ...]:
        """Bytes of weights on a device of each pipeline stage, on the first rank of it, whose cuts are the largest.

        Raises: InvalidInputError where degrees do not divide what they cut. Checked: tests/capacity/test_fewest.py
        against :func:`llmcalc.calc.weight_shards.largest_rank`.
        """
        ranks.check()
        numbers = self._held(ranks.pp)
        sizes = [*self._cut(ranks, experts=False).items(), *self._cut(ranks, experts=True).items()]
        return tuple(self.added + sum(size * numbers[key][stage] for key, size in sizes) for stage in range(ranks.pp))

    def check(self, tp: int) -> None:
        """Raises: InvalidInputError where so many ranks divide not even what are no experts."""
        self._cut(Ranks(tp), experts=False)

    def _cut(self, ranks: Ranks, *, experts: bool) -> dict[Key, int]:
        """Bytes of one block's tensors on a rank, those held alike together."""
        cut = (ranks.tp, ranks.ep if experts else 1, ranks.dp if experts else 1, experts)
        if cut not in self._tensors:
            found: dict[Key, int] = {}
            whole = whole_towers(self.found, ranks.tp)
            for site, parts in self.found:
                if (site.weight.split == "expert") == experts:
                    held = Ranks() if site.stack in whole else ranks
                    for share in parts:
                        key = _key(site, share)
                        found[key] = found.get(key, 0) + rank_bytes(site, share, held, self.group)
            self._tensors[cut] = found
        return self._tensors[cut]

    def _held(self, pp: int) -> dict[Key, list[int]]:
        """How many blocks of each key the stages hold."""
        if pp not in self._numbers:
            spans = stages(self.depth, pp)
            found: dict[Key, list[int]] = {}
            for site, parts in self.found:
                for share in parts:
                    key = _key(site, share)
                    if key not in found:
                        found[key] = held_by_stage(self.architecture, site, share, spans)
            self._numbers[pp] = found
        return self._numbers[pp]

    def choice(self, ranks: Ranks) -> Choice:
        """Weights on the fullest device, or what does not divide."""
        try:
            size = max(self.stages(ranks))
            Holding(self.architecture, self.asked._replace(ranks=ranks, shared_prefix=0)).stages(1, 1)
        except LlmcalcError as error:
            return Choice(ranks, None, error.message)
        return Choice(ranks, size)

    def choices(self, devices: int, dp: int = 1) -> tuple[Choice, ...]:
        """All ways to cut one replica over ``devices / dp`` devices, experts cut or spread over as many as divide."""
        each = devices // dp
        return tuple(
            self.choice(Ranks(tp, each // tp, ep, dp)) for tp in divisors(each) for ep in self.expert_degrees(tp * dp)
        )

    def expert_degrees(self, ranks: int) -> tuple[int, ...]:
        """Degrees of expert parallelism that so many ranks have."""
        return divisors(ranks) if self.experts else (1,)


def divisors(number: int) -> tuple[int, ...]:
    """In rising order."""
    return tuple(one for one in range(1, number + 1) if number % one == 0)


def _key(site: Site, share: Share) -> Key:
    return (site.stack, share.blocks, "" if site.blocks else site.name)
