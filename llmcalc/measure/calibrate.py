"""What this device really does: copies, reads, products, launches. Every estimate of time is also made with these."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn import functional

from llmcalc.arch.families import read_config
from llmcalc.measure.build import DTYPES, build
from llmcalc.measure.exactness import launches
from llmcalc.measure.machine import Machine
from llmcalc.measure.samples import Samples
from llmcalc.measure.steps import decode
from llmcalc.measure.timing import timed
from llmcalc.measure.workload import Workload

LEAST, TIMES_CACHE = 256 * 2**20, 4
OPERATIONS = 1000
SMALLEST = {"cpu": 2 * 2**20, "cuda": 128 * 2**20}  # of a matrix: smaller ones would time launches


NARROW = read_config({
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "vocab_size": 64,
    "num_attention_heads": 2, "num_key_value_heads": 1, "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "max_position_embeddings": 64, "tie_word_embeddings": True, "torch_dtype": "float32",
})  # fmt: skip


class Rate(NamedTuple):
    """A calibrated rate and the times behind it. amount: bytes or operations of one step."""

    name: str
    amount: int
    samples: Samples

    @property
    def median(self) -> float:
        """A second, by the middle time."""
        return self.amount / self.samples.median

    @property
    def best(self) -> float:
        """A second, by the shortest time."""
        return self.amount / min(self.samples.seconds)


class Calibration(NamedTuple):
    """Bytes a second of copies (read and written), of sums, and of a vector times rotating matrices; operations a
    second of square products; seconds of a launch, one by one and in a graph.

    beyond_cache: whether the buffers were four times the last-level cache.
    """

    copy: Rate
    read: Rate
    gemv: Rate
    matmul: Rate
    launch_seconds: float
    graph_seconds: float | None
    beyond_cache: bool

    @property
    def bandwidth(self) -> float:
        """What a decode step can read, at best: it is the products over rotating weights that it does."""
        return self.gemv.median

    def document(self) -> dict[str, object]:
        """For the JSON document."""
        rates = {f"{rate.name}_bytes_per_second": rate for rate in (self.copy, self.read, self.gemv)}
        out: dict[str, object] = {
            name: {"value": rate.median, "best": rate.best, "bytes": rate.amount, **rate.samples.summary()}
            for name, rate in rates.items()
        }
        flops = {"value": self.matmul.median, "best": self.matmul.best, "flops": self.matmul.amount}
        out["matmul_flops_per_second"] = {**flops, **self.matmul.samples.summary()}
        return out | {"launch_seconds": self.launch_seconds, "graph_launch_seconds": self.graph_seconds,
                      "beyond_cache": self.beyond_cache}  # fmt: skip


def shape_of(work: Workload) -> tuple[int, int]:
    """The largest matrix that every token multiplies and that stands in a layer: outputs and inputs."""
    shapes = [p.weight.shape for p in work.architecture.weights if p.weight.role == "matmul" and p.path]
    wide = [shape for shape in shapes if len(shape) == 2]
    rows, columns = max(wide, key=lambda shape: shape[0] * shape[1], default=(4096, 4096))
    return int(rows), int(columns)


def size_of(machine: Machine, budget: float) -> tuple[int, bool]:
    """Bytes of a buffer, and whether that is beyond what caches hold; less of it where time or memory is short."""
    wanted = max(LEAST, TIMES_CACHE * machine.cache_bytes())
    have = min(wanted, machine.free_bytes() // 8, int(budget * 28 * 2**20))
    return max(2**22, have), have >= wanted


class Bench(NamedTuple):
    """A calibration that is ready to run again: what it works on is allocated once."""

    name: str
    amount: int
    step: Callable[[], object]

    def run(self, machine: Machine, limit: float, steps: int = 10) -> Rate:
        """Timed now."""
        return Rate(self.name, self.amount, timed(machine, self.step, limit=limit, steps=steps, seconds=0.3))


def gemv(machine: Machine, work: Workload, size: int) -> Bench:
    """A vector through enough copies of the model's largest matrix that none is left in a cache when it comes again."""
    rows, columns = shape_of(work)
    rows = max(rows, SMALLEST[machine.kind] // (columns * DTYPES[work.dtype].itemsize))
    kind, where = DTYPES[work.dtype], machine.torch_device
    each = rows * columns * kind.itemsize
    matrices = [torch.empty(rows, columns, dtype=kind, device=where).normal_(0, 0.02) for _ in range(-(-size // each))]
    vector = torch.randn(1, columns, dtype=kind, device=where)

    def step() -> None:
        for matrix in matrices:
            functional.linear(vector, matrix)

    return Bench("gemv", each * len(matrices), step)


def _copy(machine: Machine, size: int) -> Bench:
    source, target = (torch.ones(size // 8, device=machine.torch_device) for _ in range(2))
    return Bench("copy", 2 * source.nbytes, lambda: target.copy_(source))


def _read(machine: Machine, size: int) -> Bench:
    source = torch.ones(size // 4, device=machine.torch_device)
    return Bench("read", source.nbytes, source.sum)


def _matmul(machine: Machine, work: Workload) -> Bench:
    side = 8192 if machine.kind == "cuda" else 1024 if work.budget >= 30 else 512
    kind = DTYPES[work.dtype]
    a, b = (torch.randn(side, side, dtype=kind, device=machine.torch_device) for _ in range(2))
    return Bench("matmul", 2 * side**3, lambda: a @ b)


def _launch(machine: Machine, limit: float) -> tuple[float, float | None]:
    """Seconds of an operation that does next to nothing: in a decoder so narrow that it does little else than launch,
    and one after another in a graph."""
    narrow = Workload(NARROW, NARROW, "fp32", 16, 1, 16, ("decode",))
    ready = decode(model := build(narrow, machine), narrow, machine, 16, 1)
    count = launches(model, ready.tokens, ready.cache, 16).operators
    alone = timed(machine, ready.step, limit=limit, steps=50, seconds=0.05, warm=0.05).median / count
    if not machine.supports("graph"):
        return alone, None
    number = torch.zeros(1, device=machine.torch_device)

    def each() -> None:
        for _ in range(OPERATIONS):
            number.add_(1.0)

    try:
        graph = machine.capture(each)
    except RuntimeError:  # the decode step's own capture says so
        return alone, None
    return alone, timed(machine, graph, limit=limit, steps=5, seconds=0.05).median / OPERATIONS


@torch.inference_mode()
def calibrate(machine: Machine, work: Workload) -> Calibration:
    """All of them, each with what it works on freed before the next; a third of the budget at most."""
    size, beyond = size_of(machine, work.budget)
    limit = work.budget / 15
    copy = _copy(machine, size).run(machine, limit)
    read = _read(machine, size).run(machine, limit)
    vector = gemv(machine, work, size).run(machine, limit)
    matmul = _matmul(machine, work).run(machine, limit)
    alone, graph = _launch(machine, limit)
    return Calibration(copy, read, vector, matmul, alone, graph, beyond)
