"""The processes that share a model: how they are started, what they sum, gather and copy.

torchrun starts them and says in the environment which each is; torch.distributed joins them, by NCCL between GPUs and
by gloo between CPUs. Nothing here is differentiated. Axes: c of C columns are a rank's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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
def processes(
    tp: int, device: str | torch.device = "cpu", *, spread: bool = False, meet: str = "env://"
) -> Iterator[Group]:
    """The group of the processes that torchrun started; on GPUs ``cuda`` is then each one's own, by its local rank.

    meet: where they find each other, in torch's words. Raises: MeasureError: where they are not ``tp``.
    """
    size, rank, local = started(tp, (*NAMES, *(ADDRESS if meet == "env://" else ())))
    if size == 1:
        yield Group(spread=spread)
        return
    cuda = torch.device(device).type == "cuda"
    if cuda and local >= torch.cuda.device_count():
        raise MeasureError(
            f"process {local} of this machine has no GPU of its own: there are {torch.cuda.device_count()}",
            "start as many processes on a machine as it has GPUs",
        )
    if cuda:
        torch.cuda.set_device(local)
    own = torch.device("cuda", local) if cuda else None
    distributed.init_process_group("nccl" if cuda else "gloo", meet, world_size=size, rank=rank, device_id=own)
    try:
        yield Group(size, rank, spread)
    finally:
        distributed.destroy_process_group()


NAMES, ADDRESS = ("WORLD_SIZE", "RANK", "LOCAL_RANK"), ("MASTER_ADDR", "MASTER_PORT")


def started(tp: int, names: tuple[str, ...] = NAMES) -> tuple[int, int, int]:
    """World size, rank and local rank by torchrun's variables; a process without any is alone.

    Raises: MeasureError: where the world is not ``tp`` processes, or a variable is not set.
    """
    again = f"torchrun --nproc-per-node {tp} -m llmcalc measure MODEL --tp {tp}"
    found = {name: os.environ[name] for name in names if os.environ.get(name)}
    if tp == 1 and "WORLD_SIZE" not in found:
        return 1, 0, 0
    if len(found) < len(names):
        missing = ", ".join(name for name in names if name not in found)
        raise MeasureError(f"--tp {tp} needs {tp} processes, and torchrun did not start this one: no {missing}", again)
    size, rank, local = (int(found[name]) if found[name].isdecimal() else -1 for name in NAMES)
    if size != tp:
        raise MeasureError(f"--tp {tp} needs as many processes, and WORLD_SIZE is {found['WORLD_SIZE']}", again)
    if not 0 <= rank < size or local < 0:
        raise MeasureError(f"RANK {found['RANK']}, LOCAL_RANK {found['LOCAL_RANK']} of {size} processes", again)
    return size, rank, local
