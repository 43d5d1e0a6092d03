"""What a rank computes beside the whole decoder: run by each of several processes, or in threads that stand for them.

``python -m tests.oracle.ranks FOLDER FAMILY...`` with torchrun's variables: one rank, which writes what it finds.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from llmcalc import read_config
from llmcalc.arch.model import Architecture
from reference_model import parallel
from reference_model.decoder import Decoder
from reference_model.load import parameters
from reference_model.shares import found_in
from reference_model.spread import Row
from tests.oracle.cases import CONFIGS

LENGTH, SOURCE = 12, 6  # tokens, past the windows; positions of an encoder or an image
VOCABULARY = 127  # which no number of ranks divides


def family(name: str, **fields: object) -> Architecture:
    """The small architecture of a family, in fp32."""
    config = {**CONFIGS[name], "vocab_size": VOCABULARY, **fields}
    if name == "zamba2":
        config["hybrid_layer_ids"] = [1, 3, 6]
    return replace(read_config(config), dtype="fp32")


@torch.no_grad()
def whole(found: Architecture) -> Decoder:
    """The decoder with no parameter at its default."""
    torch.manual_seed(0)
    model, generator = Decoder(found).eval(), torch.Generator().manual_seed(1)
    for name, tensor in parameters(model).items():
        if not name.endswith((".beta", ".eps")):
            noise = torch.randn(tensor.shape, generator=generator)
            tensor.copy_(noise * tensor.shape[1] ** -0.5 if tensor.dim() == 2 else tensor + 0.2 * noise)
    return model


def source(model: Decoder, tokens: Tensor) -> Tensor | None:
    """States of an encoder, which reads the first tokens, or of an image."""
    if model.encoder is not None:
        return model.encode(tokens[:, :SOURCE])
    mixers = (mixer for layer in model.architecture.decoder.layers for mixer in layer.mixers)
    if not any(mixer.kind == "cross_attention" for mixer in mixers):
        return None
    return torch.randn(2, SOURCE, model.architecture.hidden_size, generator=torch.Generator().manual_seed(3))


def batch() -> Tensor:
    """Two sequences of random tokens."""
    return torch.randint(0, VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(2))


def logits(model: Decoder) -> Tensor:
    """Of one pass over all tokens."""
    return model(batch(), source_BSD=source(model, batch()))


def relative(found: Tensor, expected: Tensor) -> float:
    """The norm of the difference, relative."""
    return float((found - expected).norm() / expected.norm())


def size_of(tensors: Iterable[Tensor]) -> int:
    """Bytes of all storages, each once."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


class Found(NamedTuple):
    """Relative errors of a pass over all tokens and of cached passes; bytes of weights and of the cache."""

    prefill: float
    decode: float
    weights: int
    cache: int


@torch.no_grad()
def compared(shard: Decoder, model: Decoder) -> Found:
    """A rank's decoder against the whole one: a prompt in two pieces, then token by token."""
    expected, tokens, given = logits(model), batch(), source(shard, batch())
    held = shard.allocate(2, LENGTH, source=SOURCE if given is not None else 0)
    bounds = [(0, 4), (4, 10), (10, 11), (11, 12)]
    pieces = [shard(tokens[:, low:high], held, source_BSD=None if low else given) for low, high in bounds]
    return Found(
        relative(logits(shard), expected), relative(torch.cat(pieces, 1), expected),
        size_of(parameters(shard).values()), size_of(held.tensors()),
    )  # fmt: skip


# -- threads -------------------------------------------------------------------------------------------------------


class Meeting:
    """Where threads wait for each other and leave what they have."""

    def __init__(self, size: int) -> None:
        self.left: list[Tensor | None] = [None] * size
        self.barrier = threading.Barrier(size, timeout=60)

    def all(self, rank: int, x: Tensor) -> list[Tensor]:
        """What every rank has."""
        self.left[rank] = x
        self.barrier.wait()
        found = [part.clone() for part in self.left if part is not None]
        self.barrier.wait()
        return found


@dataclass(frozen=True)
class Threads(parallel.Group):
    """Ranks that are threads of this process."""

    meeting: Meeting = field(default_factory=lambda: Meeting(1))

    def sum(self, x: Tensor) -> Tensor:
        return torch.stack(self.meeting.all(self.rank, x)).sum(0)

    def gather(self, x: Tensor, whole: int) -> Tensor:
        return torch.cat(self.meeting.all(self.rank, x), -1)


def together(found: Architecture, size: int, *, spread: bool = False) -> list[Found]:
    """What each of so many ranks finds."""
    model, meeting = whole(found), Meeting(size)
    out: dict[int, Found] = {}
    errors: list[BaseException] = []

    def work(rank: int) -> None:
        try:
            group = Threads(size, rank, spread, meeting)
            out[rank] = compared(parallel.take(parallel.build(found, group), model), model)
        except BaseException as error:
            errors.append(error)
            meeting.barrier.abort()

    threads = [threading.Thread(target=partial(work, rank)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
    return [out[rank] for rank in range(size)]


# -- processes -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Forgetful(parallel.Group):
    """Leaves one of its sums out."""

    counted: list[int] = field(default_factory=lambda: [0])
    forgotten: int = -1

    def sum(self, x: Tensor) -> Tensor:
        self.counted[0] += 1
        return x if self.counted[0] == self.forgotten + 1 else super().sum(x)


@torch.no_grad()
def left_out(group: parallel.Group) -> list[float]:
    """The error where a sum is left out, for every sum of a pass."""
    errors, model = [], whole(family("qwen2_moe", num_hidden_layers=2))
    expected = logits(model)
    while True:
        forgetful = Forgetful(group.size, group.rank, forgotten=len(errors))
        error = relative(logits(parallel.take(parallel.build(model.architecture, forgetful), model)), expected)
        if forgetful.counted[0] <= len(errors):
            return errors
        errors.append(error)


@torch.no_grad()
def biased_twice(group: parallel.Group) -> float:
    """The error where both ranks add the biases after their sums."""
    model = whole(family("gpt2"))
    shard = parallel.take(parallel.build(model.architecture, group), model)
    for made in shard.modules():
        if isinstance(made, Row):
            made.group = replace(group, rank=0)
    return relative(logits(shard), logits(model))


@torch.no_grad()
def swapped(group: parallel.Group) -> float:
    """The error where queries are those of the other rank's heads."""
    model = whole(family("llama"))
    shard = parallel.take(parallel.build(model.architecture, group), model)
    other = parallel.build(model.architecture, replace(group, rank=1 - group.rank)).cuts
    for name, tensor in parameters(shard).items():
        found = found_in(name, other)
        if "q_proj" in name and found is not None:
            tensor.copy_(found.of(parameters(model)[name]))
    return relative(logits(shard), logits(model))


@torch.no_grad()
def agreed(group: parallel.Group) -> dict[str, list[float]]:
    """A router before and after ranks with random weights of their own agree, and what they then compute."""
    torch.manual_seed(group.rank)
    shard = parallel.build(family("mixtral"), group).eval()
    router = parameters(shard)["model.layers.1.mlp.gate.weight"]
    before = router.flatten().tolist()
    parallel.agree(shard)
    return {"before": before, "after": router.flatten().tolist(), "logits": logits(shard)[0, -1].tolist()}


def halved(group: parallel.Group) -> Found:
    """In bf16, whose sums are bf16 too."""
    model = whole(family("llama"))
    shard = parallel.take(parallel.build(model.architecture, group), model).bfloat16()
    return compared(shard, model.bfloat16())


def main() -> None:
    """One of two ranks."""
    torch.set_num_threads(1)
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    with parallel.processes(2, meet=f"file://{folder / 'store'}") as group:

        def found(name: str, *, spread: bool = False) -> Found:
            model = whole(family(name))
            shard = parallel.build(model.architecture, replace(group, spread=spread))
            return compared(parallel.take(shard, model), model)

        results = {
            "cases": {name: found(name) for name in names},
            "spread": {name: found(name, spread=True) for name in ("mixtral", "gpt_oss", "deepseek_v3")},
            "left out": left_out(group),
            "twice": biased_twice(group),
            "swapped": swapped(group),
            "agreed": agreed(group),
            "bf16": halved(group),
        }
        (folder / f"{group.rank}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
