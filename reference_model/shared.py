"""Zamba's shared blocks: stored once, called at many depths beside the Mamba layers, with adapters of each call's own.

A shared block reads the stream beside the embeddings and adds nothing to the stream: the layer called next passes what
comes out through a matrix of its own and adds it to what its Mamba reads. Axes: B sequences, T new tokens, D stream,
I channels that an adapter reads, R rank, O channels that it adds to. Source: arXiv:2405.16712, 2411.15242.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from llmcalc.arch import base
from llmcalc.arch.model import Architecture

FEED_FORWARD = "shared_transformer.feed_forward.gate_up_proj_adapter_list"
ATTENTION = "shared_transformer.self_attn"


def low_rank(tensors: tuple[base.Weight, ...]) -> nn.Sequential:
    """Down to the rank and up again: [..., I] -> [..., O]."""
    down, up = (tensor.shape for tensor in tensors)
    return nn.Sequential(nn.Linear(down[1], down[0], bias=False), nn.Linear(up[1], up[0], bias=False))


class Adapters(nn.Module):
    """What one call adds to the shared block's projections: to gate and up, to q, k and v."""

    def __init__(self, extras: dict[str, base.Extra]) -> None:
        super().__init__()
        self.gate_up = low_rank(extras[FEED_FORWARD].tensors) if FEED_FORWARD in extras else None
        pairs = extras[ATTENTION].tensors if ATTENTION in extras else ()
        self.attention = nn.ModuleDict()
        for index in range(0, len(pairs), 2):
            self.attention[pairs[index].name.partition(".")[0]] = low_rank(pairs[index : index + 2])

    def of(self, part: str, x: Tensor) -> Tensor | None:
        """What is added to q, k or v, if anything: [B, T, I] -> [B, T, O]."""
        name = f"linear_{part}_adapter_list"
        return self.attention[name](x) if name in self.attention else None

    def named(self) -> Iterator[tuple[str, nn.Module]]:
        """Every module under the name that its layer gives it."""
        if self.gate_up is not None:
            yield FEED_FORWARD, self.gate_up
        yield ATTENTION, self.attention


def renamed(architecture: Architecture, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """A Zamba file's tensors, those of shared blocks and adapters also under our names.

    A file has a shared block at the first depth that calls it, with the adapters of every call, numbered; Zamba's heads
    are an axis of bare parameters, and the rows of in_proj are those of x and gate in turn.
    """
    if not architecture.decoder_type.startswith("zamba"):
        return tensors
    stack, out = architecture.decoder, dict(tensors)
    calls = [call for call in stack.calls if call.block != call.depth]
    first: dict[int, int] = {}
    for number, call in enumerate(calls):
        place = f"{stack.prefix}.{first.setdefault(call.block, call.depth)}."
        for name in [name for name in tensors if name.startswith(f"{place}shared_")]:
            local = name.removeprefix(place)
            own = re.sub(rf"_adapter_list\.{number}\.", "_adapter_list.", local)
            if own != local:
                out[f"{stack.prefix}.{call.depth}.{own}"] = tensors[name]
            elif "_adapter_list." not in local:
                out[f"{stack.prefix}.{call.block}.{local}"] = tensors[name]
    if architecture.decoder_type == "zamba":
        for name, tensor in tensors.items():
            out[re.sub(r"\.(x|dt)_proj_(weight|bias)$", r".\1_proj.\2", name)] = tensor
            if name.endswith("in_proj.weight"):
                out[name] = torch.cat([tensor[::2], tensor[1::2]])
    return out
