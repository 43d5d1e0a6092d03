"""One decode step and one prompt as calls without a wait: eager, as a CUDA graph, with compiled blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch

from llmcalc.measure.build import allocate, prompt
from llmcalc.measure.machine import Machine
from llmcalc.measure.workload import Workload
from reference_model import Cache, Decoder
from reference_model.cache import Fixed

Mode = Literal["eager", "graph", "compiled"]
Step = Callable[[], object]


class Ready(NamedTuple):
    """A step that can be repeated at one length, the logits it leaves, and its cache."""

    step: Step
    logits: Callable[[], torch.Tensor]
    cache: Cache
    tokens: torch.Tensor

    def moving(self) -> list[torch.Tensor]:
        """What a step leaves changed for the next one: its token and recurrent states; rows of positions are written
        again."""
        slots = [slot for call in self.cache.slots for slot in call if isinstance(slot, tuple)]
        return [self.tokens, *(part.data for slot in slots for part in slot if isinstance(part, Fixed))]

    def remembered(self) -> list[torch.Tensor]:
        """A copy of it."""
        return [tensor.clone() for tensor in self.moving()]

    @torch.inference_mode()
    def restore(self, kept: list[torch.Tensor]) -> None:
        """Back to such a copy."""
        for tensor, old in zip(self.moving(), kept, strict=True):
            tensor.copy_(old)


@torch.inference_mode()
def decode(model: Decoder, work: Workload, machine: Machine, tokens: int, batch: int) -> Ready:
    """A step on ``tokens`` cached positions: the same row is written each time, the next token stays on the device."""
    cache = allocate(model, work, tokens + 1, batch)
    token_B1, kept = prompt(work, machine, batch, 1), {}

    def step() -> None:
        with torch.inference_mode():
            cache.rewind(tokens)
            kept["logits"] = model(token_B1, cache)
            token_B1.copy_(kept["logits"].argmax(-1))

    return Ready(step, lambda: kept["logits"], cache, token_B1)


@torch.inference_mode()
def prefill(model: Decoder, work: Workload, machine: Machine) -> Ready:
    """A prompt into an empty cache, with the logits of its last position and the token they name."""
    cache = allocate(model, work, work.prompt, work.batch)
    tokens_BT, kept = prompt(work, machine, work.batch, work.prompt), {}

    def step() -> None:
        with torch.inference_mode():
            cache.rewind(0)
            kept["logits"] = model(tokens_BT, cache, last=True)
            kept["token"] = kept["logits"].argmax(-1)

    return Ready(step, lambda: kept["logits"], cache, tokens_BT)


def compile_blocks(model: Decoder) -> None:
    """Compile every block; equal ones share what was made, so that depth costs nothing.

    Matrix times vector reaches the bandwidth only with tuned tiles (torch/_inductor/decomposition.py).
    """
    import torch._inductor.config as inductor

    inductor.coordinate_descent_tuning = True
    for block in model.main.blocks:
        block.compile(dynamic=False)
