"""The processes that share a model: how they are started, what they sum, gather and copy.

torchrun starts them and says in the environment which each is; torch.distributed joins them, by NCCL between GPUs and
by gloo between CPUs. Nothing here is differentiated. Axes: c of C columns are a rank's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, distributed
from torch.nn import functional

from llmcalc.errors import MeasureError
from reference_model.cuts import Place


@dataclass(frozen=True)
class Group(Place):
    """The ranks that share a model; a single one sums nothing."""

    def sum(self, x: Tensor) -> Tensor:
        """The sum over all ranks, in place: any shape."""
        if self.size > 1:
            x = x.contiguous()
            distributed.all_reduce(x)
        return x

    def gather(self, x: Tensor, whole: int) -> Tensor:
        """Columns of all ranks, side by side; the last has fewer: [..., c] -> [..., C]."""
        if self.size == 1:
            return x
        padded = functional.pad(x, (0, -(-whole // self.size) - x.shape[-1])).contiguous()
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        distributed.all_gather(parts, padded)
        return torch.cat(parts, -1)[..., :whole]

    def copy(self, x: Tensor) -> None:
        """What the first rank has, in place."""
        if self.size > 1:
            distributed.broadcast(x, 0)


@contextmanager
def processes(tp: int, device: str | torch.device = "cpu", *, spread: bool = False) -> Iterator[Group]:
    """The group of the processes that torchrun started; on GPUs each takes the one of its local rank.

    Raises: MeasureError: where they are not ``tp``.
    """
    cuda = torch.device(device).type == "cuda"
    size, rank, local = started(tp)
    if size == 1:
        yield Group(spread=spread)
        return
    if cuda:
        if local >= torch.cuda.device_count():
            raise MeasureError(
                f"process {local} of this machine has no GPU: there are {torch.cuda.device_count()}",
                "start as many processes on a machine as it has GPUs",
            )
        torch.cuda.set_device(local)
    distributed.init_process_group("nccl" if cuda else "gloo", device_id=torch.device("cuda", local) if cuda else None)
    try:
        yield Group(size, rank, spread)
    finally:
        distributed.destroy_process_group()


def started(tp: int) -> tuple[int, int, int]:
    """World size, rank and local rank by torchrun's variables; a process without them is alone.

    Raises: MeasureError: where the world is not ``tp`` processes.
    """
    names = ("WORLD_SIZE", "RANK", "LOCAL_RANK")
    again = f"torchrun --nproc-per-node {tp} -m llmcalc measure MODEL --tp {tp}"
    found = [os.environ.get(name) for name in names]
    if found[0] is None and tp == 1:
        return 1, 0, 0
    missing = [name for name, value in zip(names, found, strict=True) if value is None or not value.isdecimal()]
    if missing:
        raise MeasureError(f"--tp {tp} takes {tp} processes; {', '.join(missing)} is not set by torchrun", again)
    size, rank, local = (int(cast(str, value)) for value in found)
    if size != tp:
        raise MeasureError(f"--tp {tp} takes {tp} processes, and torchrun started {size}", again)
    return size, rank, local
