"""A rank of a full-size model on the meta device, beside what the estimates say of it."""

from __future__ import annotations

from dataclasses import replace

import torch

from llmcalc import Ranks, kv_cache, weights
from llmcalc.arch.model import Architecture
from reference_model import parallel
from reference_model.cache import Cache, Formats
from tests.oracle.corpus import architecture, image, one_of_each

LENGTH = 5000
META = torch.device("meta")


def plain(slug: str) -> Architecture:
    """What the reference decoder builds of it, in fp32."""
    return replace(architecture(slug), dtype="fp32", quantization=None, cache_format=None, towers=(), mtp=())


def built(found: Architecture, tp: int, *, spread: bool = False) -> tuple[int, int]:
    """Bytes of weights and of one sequence on the first rank.

    One block of each kind is built and counted by the number of its like.
    """
    small, counts = one_of_each(found)
    with META:
        shard = parallel.build(small, parallel.Group(tp, spread=spread))
        slots = shard.allocate(1, LENGTH, Formats(), image(found)).slots
    blocks = [sum(4 * t.numel() for t in (*b.parameters(), *b.buffers())) for b in shard.main.blocks]
    ends = sum(4 * t.numel() for t in (*shard.parameters(), *shard.buffers())) - sum(blocks)
    held = ends + sum(count * block for count, block in zip(counts, blocks, strict=True))
    calls = [len(depths) for _, depths in found.decoder.call_groups]
    return held, sum(n * Cache([slot], 1, LENGTH, META).bytes for n, slot in zip(calls, slots, strict=True))


def stated(found: Architecture, tp: int, *, spread: bool = False) -> tuple[int, int | None]:
    """The same by the estimates."""
    images = {"image_tokens": image(found)} if image(found) else {}
    kept = kv_cache(found, LENGTH, tp=tp, encoder_tokens=image(found), **images).per_device_bytes
    return weights(found, ranks=Ranks(tp=tp, ep=tp if spread else 1)).per_device_bytes, kept
