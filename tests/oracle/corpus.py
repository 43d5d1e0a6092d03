"""The decoders of the corpus, and which of them the reference decoder covers."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any, cast

import torch
from torch import nn

from llmcalc import kv_cache, read_config
from llmcalc.arch.model import Architecture
from reference_model.block import Block
from reference_model.cache import Formats
from reference_model.decoder import Decoder, Stream
from tests.conftest import ROOT, config

FACTS: list[dict[str, Any]] = json.loads((ROOT / "tests" / "truth" / "facts.json").read_text("utf-8"))
DECODERS = [fact["slug"] for fact in FACTS if fact["kind"] == "decoder"]
LARGE = 400  # experts in all layers, from which on equal blocks are built once and counted by their number


@cache
def architecture(slug: str) -> Architecture:
    """Its architecture."""
    return read_config(config(slug))


def experts(found: Architecture) -> int:
    """Experts in all layers of the decoder."""
    return sum(getattr(ffn, "num_experts", 0) for layer in found.decoder.layers for ffn in layer.ffns)


def one_of_each(found: Architecture) -> tuple[Architecture, list[int]]:
    """The same with one block for each group of equal ones, and how many each stands for."""
    layers = tuple(layer for layer, _ in found.decoder.groups)
    stack = replace(found.decoder, layers=layers, schedule=())
    return replace(found, decoder=stack), [len(members) for _, members in found.decoder.groups]


# What the reference decoder has no module for, and how it says so.
V4 = "model.hc_head"
UNCOVERED = {
    "deepseek-ai--deepseek-v4-flash": V4,
    "nvidia--deepseek-v4-flash-nvfp4": V4,
    "sgl-project--deepseek-v4-flash-fp8": V4,
    "sgl-project--deepseek-v4-pro-fp8": V4,
    "defaults--blt": "around the layers",
    "defaults--jetmoe": "MixtureOfAttentionHeads",
    "defaults--zaya": "around the layers",
}


def parameters(found: Architecture) -> int:
    """Parameters of the reference decoder on the meta device."""
    counts = [1] * len(found.decoder.layers)
    if experts(found) > LARGE:
        found, counts = one_of_each(found)
    with torch.device("meta"):
        model = Decoder(found)

    def size(module: nn.Module) -> int:
        return sum(parameter.numel() for parameter in module.parameters())

    blocks = cast(Stream, model.main).blocks
    whole = size(model) - sum(size(block) for block in blocks)
    return whole + sum(count * size(cast(Block, block)) for count, block in zip(counts, blocks, strict=True))


def estimated(found: Architecture) -> int:
    """Parameters of decoder and encoder by the list of weights."""
    stacks = ("decoder", "encoder")
    return sum(
        placed.size
        for placed in found.weights
        if placed.stack in stacks and placed.weight.role != "buffer" and not found.shares(placed)
    )


def image(found: Architecture) -> int:
    """Positions of an image, for a decoder that has layers that look at one."""
    mixers = (mixer for layer in found.decoder.layers for mixer in layer.mixers)
    return 6 if any(mixer.kind == "cross_attention" for mixer in mixers) else 0


def estimated_cache(found: Architecture, length: int) -> int:
    """Bytes of the estimate in bf16, an image's among them."""
    images = {"image_tokens": image(found)} if image(found) else {}
    return kv_cache(found, length, cache="bf16", engine="none", **images).total_bytes


def cache_bytes(found: Architecture, lengths: list[int]) -> list[tuple[int, int]]:
    """Bytes allocated by the reference decoder on the meta device, and the estimate, after each number of tokens.

    One block of each group is enough: what a call keeps depends on its block alone.
    """
    small, _ = one_of_each(found)
    with torch.device("meta"):
        model = Decoder(small)
    widths = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    formats = Formats(torch.bfloat16, widths[found.dtype], torch.float32)
    calls = [len(depths) for _, depths in found.decoder.call_groups]
    out = []
    for length in lengths:
        cache_ = model.allocate(1, length, formats, image(found))
        sizes = [
            sum(t.numel() * t.element_size() for slot in call if slot is not None
                for part in (slot if isinstance(slot, tuple) else (slot,)) for t in part.tensors())
            for call in cache_.slots
        ]  # fmt: skip
        held = sum(count * size for count, size in zip(calls, sizes, strict=True))
        out.append((held, estimated_cache(found, length)))
    return out


def lengths(found: Architecture) -> list[int]:
    """Below, at and past each window and chunk of a model."""
    sizes = {mixer.scope.size for layer in found.decoder.layers for mixer in layer.mixers
             if getattr(mixer, "scope", None) is not None and mixer.scope.kind in ("sliding", "chunked")}  # fmt: skip
    return sorted({1, 100, 5_000, *(n for w in sizes for n in (w - 1, w, w + 1, 2 * w + 3) if n > 0)})


COVERED = [slug for slug in DECODERS if slug not in UNCOVERED]
