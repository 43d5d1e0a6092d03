"""The reference decoder on the device, with random weights, and a cache that is full of random rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from llmcalc.measure.machine import Machine
from llmcalc.measure.workload import Workload
from reference_model import Cache, Decoder

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@contextmanager
def making(work: Workload, machine: Machine, rank: int = 0) -> Iterator[None]:
    """What is made inside lies on the device, in the run's format, with random numbers of its own."""
    usual = torch.get_default_dtype()
    torch.manual_seed(work.seed + rank)
    try:
        torch.set_default_dtype(DTYPES[work.dtype])
        with torch.device(machine.torch_device):
            yield
    finally:
        torch.set_default_dtype(usual)


def build(work: Workload, machine: Machine, *, merged: bool = True) -> Decoder:
    """The decoder, made where it will run: nothing passes through the host.

    Raises: UnsupportedLayerError for a layer kind that it has not.
    """
    with making(work, machine):
        model = Decoder(work.architecture).eval()
    model.requires_grad_(False)
    if merged:
        model.merge(grouped=machine.supports("grouped") and work.dtype == "bf16")
        machine.release()  # the parts that became one
    return model


def allocate(model: Decoder, work: Workload, tokens: int, batch: int) -> Cache:
    """A cache of that many positions, all random: every row is written, so that it is there to be read."""
    cache = model.allocate(batch, tokens)
    generator = torch.Generator(next(model.parameters()).device).manual_seed(work.seed)
    for tensor in cache.tensors():
        tensor.normal_(0.0, 0.02, generator=generator)
    return cache


def prompt(work: Workload, machine: Machine, batch: int, tokens: int) -> torch.Tensor:
    """Random tokens: [B, T]."""
    generator = torch.Generator().manual_seed(work.seed)
    drawn = torch.randint(0, work.architecture.vocab_size, (batch, tokens), generator=generator)
    return drawn.to(machine.torch_device)


def storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of what the tensors lie in, each storage once."""
    found = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors if one.numel()}
    return sum(found.values())


def stored(model: Decoder) -> int:
    """Bytes of the decoder's parameters and buffers."""
    return storage_bytes([*model.parameters(), *model.buffers()])
