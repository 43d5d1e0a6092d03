"""A step of training: its operations by torch's counter, and the memory it keeps and peaks at."""

from __future__ import annotations

import torch
from torch.nn import functional

from llmcalc.calc.flops import flops
from llmcalc.measure.build import prompt, storage_bytes, stored
from llmcalc.measure.exactness import attends, counted
from llmcalc.measure.machine import Machine
from llmcalc.measure.workload import Workload
from reference_model import Decoder


def train(model: Decoder, work: Workload, machine: Machine) -> dict[str, object]:
    """One forward pass, one backward pass, one step of AdamW, on random tokens.

    Returns: bytes of weights, gradients and optimizer as stored (steady), the peak of the device or process, and the
    operations of forward and backward beside the estimate's.
    """
    model.requires_grad_(True).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = prompt(work, machine, work.batch, work.prompt + 1)
    machine.reset_peak()

    def step() -> None:
        logits = model(tokens[:, :-1]).float()
        functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()  # type: ignore[no-untyped-call]

    found = counted(step)
    optimizer.step()
    machine.sync()
    gradients = storage_bytes([p.grad for p in model.parameters() if p.grad is not None])
    states = storage_bytes([value for state in optimizer.state.values() for value in state.values()
                            if isinstance(value, torch.Tensor) and value.dim()])  # fmt: skip
    memory = machine.memory()
    dense, causal = (
        flops(work.architecture, work.prompt, batch=work.batch, phase="train", convention=convention, scan="recurrent")
        for convention in ("dense", "causal")
    )
    products = (dense if attends(work) else causal).matmul_flops  # as in a prompt: convolutions are not padded here
    model.requires_grad_(False).eval()
    steady = stored(model) + gradients + states
    peak = memory.peak_allocated if memory.peak_allocated is not None else memory.peak_process
    return {
        "weights_bytes": stored(model), "gradients_bytes": gradients, "optimizer_bytes": states, "steady_bytes": steady,
        "peak_bytes": None if peak is None else max(peak, steady), "training_flops": found,
        "estimated_training_flops": products + dense.attention_flops + dense.scan_flops,
    }  # fmt: skip
