"""Whether a model and the cache of its sequences are in the memory of a device at all: what speed takes for granted."""

from __future__ import annotations

from typing import NamedTuple

from llmcalc.arch.model import Architecture
from llmcalc.calc.cache import kv_cache
from llmcalc.calc.degrees import Spreading
from llmcalc.calc.room import Asked, shared_bytes
from llmcalc.calc.sizing import Sequences, sequences
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
    try:
        held = Spreading(architecture, weights, group_size, cache).choice(ranks).weight_bytes
        kept = _cache(architecture, ranks, sizes, cache, shared_prefix)
    except LlmcalcError:
        return None
    return None if held is None else Need(held, kept, device.memory_bytes)


def short_by(
    architecture: Architecture,
    device: Device,
    ranks: Ranks,
    weights: str = "config",
    group_size: int | None = None,
    cache: str = "auto",
    tokens: int = 4096,
    batch: int = 1,
) -> int | None:
    """Bytes that are missing on the fullest device for ``batch`` sequences of ``tokens``, 0 where they fit.

    None where it cannot be told, as :func:`need` says.
    """
    found = need(
        architecture, device, ranks, sequences(tokens, batch, None, None, 0), weights=weights, group_size=group_size,
        cache=cache,
    )  # fmt: skip
    return None if found is None else found.short_by_bytes


def _cache(architecture: Architecture, ranks: Ranks, sizes: Sequences, cache: str, prefix: int) -> int:
    if prefix:
        return shared_bytes(architecture, Asked(cache=cache, ranks=ranks, shared_prefix=prefix), sizes)
    kept = 0
    for size, number in sizes.groups:  # of sequences beside a stream, lengths alone do not tell what they keep
        found = kv_cache(
            architecture, size.tokens, number, encoder_tokens=size.source, image_tokens=size.images, cache=cache,
            tp=ranks.tp, pp=ranks.pp,
        )  # fmt: skip
        kept += found.total_bytes if found.per_device_bytes is None else found.per_device_bytes
    return kept
