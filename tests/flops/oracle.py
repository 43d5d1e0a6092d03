"""Counts a pass of a transformers class on the meta device, and refuses any product that the counter does not know.

Without that refusal a counter says nothing of what it misses: a Mixtral whose experts run through grouped products
loses 85% of its operations, silently.
"""

# ruff: noqa: TID253 - a live oracle needs torch; nothing but tests imports this

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

PRODUCT = re.compile(
    r"(^|_)(mm|bmm|addmm|baddbmm|addbmm|mv|addmv|dot|vdot|matmul|linear|einsum|convolution|attention)(_|$)"
)
MASKS = (
    "create_causal_mask", "create_sliding_window_causal_mask", "create_chunked_causal_mask",
    "create_bidirectional_mask", "create_bidirectional_sliding_window_mask", "create_recurrent_attention_mask",
)  # fmt: skip


class UnregisteredProductError(AssertionError):
    """An operator that multiplies matrices and that the counter has no formula for."""


class Strict(TorchDispatchMode):
    """Refuses operators that look like products and are not counted."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        packet = func._overloadpacket
        if PRODUCT.search(packet.__name__) and packet not in flop_registry:
            raise UnregisteredProductError(f"{packet} is a product that the counter does not know")
        return func(*args, **(kwargs or {}))


def counted(call: Callable[[], Any]) -> tuple[int, Any]:
    """Operations of a call, and what it returns."""
    counter = FlopCounterMode(display=False)
    with counter, Strict():
        out = call()
    return counter.get_total_flops(), out


@contextmanager
def explicit_masks(model: Any, mask: Any) -> Any:
    """Hand every layer the same mask, or none to add: masks made from values cannot be made on the meta device."""
    module = __import__(type(model).__module__, fromlist=["x"])
    patches = [patch.object(module, name, lambda *_, **__: mask) for name in MASKS if hasattr(module, name)]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()


def build(data: dict[str, Any], head: str = "AutoModelForCausalLM", device: str = "meta") -> Any:
    """The class of a config: eager attention, experts through batched products."""
    fields = {key: value for key, value in data.items() if key != "model_type"}
    config = transformers.AutoConfig.for_model(data["model_type"], **fields)
    with torch.device(device):
        model = getattr(transformers, head).from_config(config, attn_implementation="eager", dtype=torch.bfloat16)
    for module in model.modules():
        if hasattr(module, "config"):
            module.config._experts_implementation = "batched_mm"
    return model.eval()


CACHES = ("past_key_values", "cache_params", "state", "cache")


def passes(model: Any, tokens: int, *, masked: bool = False, **beside: Any) -> tuple[int, int | None]:
    """Operations of a prompt, and of one step after it where the class keeps a cache; ``masked``: add a mask."""
    device = next(model.parameters()).device
    ids = torch.zeros((1, tokens), dtype=torch.long, device=device)
    square = torch.zeros((1, 1, tokens, tokens), device=device) if masked else None
    row = torch.zeros((1, 1, 1, tokens + 1), device=device) if masked else None
    with torch.no_grad():
        with explicit_masks(model, square):
            first, out = counted(lambda: model(input_ids=ids, use_cache=True, **beside))
        name = next((name for name in CACHES if getattr(out, name, None) is not None), None)
        if name is None:
            return first, None
        with explicit_masks(model, row):
            kept = {"state" if name == "state" else "cache": getattr(out, name)}
            step, _ = counted(lambda: model(input_ids=ids[:, :1], use_cache=True, **kept))
    return first, step
