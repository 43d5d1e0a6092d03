"""Whether a model and the cache of its sequences are in the memory of a device at all: what speed takes for granted."""

from __future__ import annotations

from typing import NamedTuple

from llmcalc.arch.model import Architecture
from llmcalc.calc.degrees import Spreading
from llmcalc.calc.room import Asked, array_stages
from llmcalc.calc.sizing import Sequences
from llmcalc.calc.weight_shards import Ranks
from llmcalc.errors import LlmcalcError
from llmcalc.hardware.device import Device


class Need(NamedTuple):
    """Bytes of weights and of cache on the fullest device, and what a device has; nothing is reserved beside them."""

    weight_bytes: int
    cache_bytes: int
    memory_bytes: int

    @property
    def short_by_bytes(self) -> int:
        """What is missing; 0 where it fits."""
        return max(0, self.weight_bytes + self.cache_bytes - self.memory_bytes)

    def __str__(self) -> str:
        return (
            f"weights and cache take {self.weight_bytes:,} + {self.cache_bytes:,} = "
            f"{self.weight_bytes + self.cache_bytes:,} B on the fullest device, which has {self.memory_bytes:,} B"
        )


def need(
    architecture: Architecture,
    device: Device,
    ranks: Ranks,
    sizes: Sequences,
    *,
    weights: str = "config",
    group_size: int | None = None,
    cache: str = "auto",
    shared_prefix: int = 0,
) -> Need | None:
    """What weights and sequences take of a device; None where its memory is not known or no count is possible.

    Args: sizes: of :func:`llmcalc.calc.sizing.sequences`. Checked: tests/latency/test_fit.py
    """
    if device.memory_bytes is None:
        return None
    asked = Asked(cache=cache, ranks=ranks, shared_prefix=shared_prefix)
    try:
        held = Spreading(architecture, weights, group_size, asked).stages(ranks)
        kept = array_stages(architecture, asked, sizes)
    except LlmcalcError:
        return None
    return max(
        (Need(*pair, device.memory_bytes) for pair in zip(held, kept, strict=True)), key=lambda one: sum(one[:2])
    )
