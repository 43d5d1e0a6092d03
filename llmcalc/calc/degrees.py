"""Which ways of spreading a model over devices there are, and why the others are none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from llmcalc.arch.model import Architecture
from llmcalc.calc.cache import kv_cache
from llmcalc.calc.weight_shards import Ranks, dealt, largest_rank, uneven
from llmcalc.calc.weights import Found, check_counted, choose, shares
from llmcalc.errors import LlmcalcError
from llmcalc.schemes.sites import sites


class Choice(NamedTuple):
    """Degrees, and bytes of weights on the fullest device; or the reason why they are none."""

    ranks: Ranks
    weight_bytes: int | None
    reason: str = ""


@dataclass(frozen=True)
class Spreading:
    """A model's weights in a format, ready to be cut in one way after another."""

    architecture: Architecture
    weights: str = "config"
    group_size: int | None = None
    cache: str = "auto"
    engine: str = "none"

    @cached_property
    def found(self) -> Found:
        """Every weight with its layouts."""
        check_counted(self.architecture)
        chooser = choose(self.architecture, self.weights, self.group_size)
        return [(site, shares(chooser, site)) for site in sites(self.architecture)]

    def notes(self, ranks: Ranks) -> list[str]:
        """What is assumed of the cut."""
        return uneven(self.architecture, ranks, dealt(self.architecture, self.found))

    def choice(self, ranks: Ranks) -> Choice:
        """Weights on the fullest device, or what does not divide."""
        try:
            size = largest_rank(self.architecture, self.found, ranks)
            kv_cache(self.architecture, 1, cache=self.cache, engine=self.engine, tp=ranks.tp, pp=ranks.pp)
        except LlmcalcError as error:
            return Choice(ranks, None, error.message)
        return Choice(ranks, size)

    def choices(self, devices: int, dp: int = 1) -> tuple[Choice, ...]:
        """All ways to cut one replica over ``devices / dp`` devices, experts spread (where there are any) or cut."""
        each = devices // dp
        experts = any(site.weight.split == "expert" for site, _ in self.found)
        return tuple(
            self.choice(Ranks(tp, each // tp, ep, dp))
            for tp in range(1, each + 1)
            if each % tp == 0
            for ep in (dict.fromkeys((1, tp * dp)) if experts else (1,))
        )
