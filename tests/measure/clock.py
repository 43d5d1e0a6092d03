"""Time and memory of a device that is not there: every operator on the processor's tensors is charged to it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from llmcalc.measure.exactness import VIEWS

HUGE = 2**22  # elements above which numbers are not made: only their time is wanted
CAPTURING = "CUDA error: operation not permitted when stream is capturing"


class Clock(TorchDispatchMode):
    """Seconds of host and device; bytes that are held and were at most; how often memory was asked for."""

    def __init__(self, bandwidth: float = 2e7, peak: float = 2e10, launch: float = 2e-5, gap: float = 2e-6) -> None:
        super().__init__()
        self.bandwidth, self.peak, self.launch, self.gap = bandwidth, peak, launch, gap
        self.host = self.device = 1.0
        self.allocations = self.held = self.most = 0
        self.fails_at: Callable[[Any], None] = lambda _: None
        self.slow = 1.0  # what a graph's device time is multiplied by
        self.recorded: list[Any] | None = None

    def now(self) -> float:
        """The host's clock; reading it takes a moment, so that nobody waits for ever."""
        self.host += 1e-7
        return self.host

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func).removeprefix("aten.")
        self.fails_at(name)
        if self.recorded is not None and name.startswith(("_local_scalar_dense", "item", "nonzero")):
            raise RuntimeError(CAPTURING)
        out = self._made(func, name, args, kwargs)
        given = tensors(args, kwargs)
        fresh = [one for one in tensors(out) if not shares(one, given)]
        for one in fresh:
            self._hold(one)
        seconds = self._cost(func, name, args, kwargs, out, given)
        if self.recorded is not None:
            self.recorded.append((func, args, kwargs, out if fresh else None, seconds))
        elif seconds is not None:
            self.host += self.launch
            self.device = max(self.device, self.host) + seconds
        return out

    def _made(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        first = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if name.startswith("randn"):
            return torch.empty(*args, **{k: v for k, v in kwargs.items() if k != "generator"})
        if first is not None and first.numel() > HUGE:
            if name.startswith(("normal_", "fill_", "copy_", "uniform_")):
                return first
            if name.startswith(("mm", "matmul")):
                return first.new_empty(first.shape[0], args[1].shape[1])
            if name.startswith("sum"):
                return first.new_zeros(())
        return func(*args, **kwargs)

    def _hold(self, tensor: torch.Tensor) -> None:
        size = tensor.untyped_storage().nbytes()
        self.allocations += 1
        self.held += size
        self.most = max(self.most, self.held)
        weakref.finalize(tensor.untyped_storage(), self._free, size)

    def _free(self, size: int) -> None:
        self.held -= size

    def _cost(self, func: Any, name: str, args: Any, kwargs: Any, out: Any, given: Any) -> float | None:
        """Seconds on the device; None for another view of the same numbers."""
        if name.startswith(VIEWS):
            return None
        touched = {id(one): one for one in (*given, *tensors(out))}  # what is written in place is among both
        moved = sum(one.numel() * one.itemsize for one in touched.values())
        flops = 0
        if name.startswith(("linear", "matmul")):
            flops = 2 * args[0].numel() * (args[1].shape[0] if name.startswith("linear") else args[1].shape[-1])
        elif name.startswith("embedding"):
            moved = 2 * out.numel() * out.itemsize
        elif func.overloadpacket in flop_registry:
            flops = flop_registry[func.overloadpacket](*args, **kwargs, out_val=out)
        return max(moved / self.bandwidth, flops / self.peak)

    @contextmanager
    def recording(self, into: list[Any]) -> Iterator[None]:
        """Take down what is done in place of charging it."""
        self.recorded = into
        try:
            yield
        finally:
            self.recorded = None

    def replay(self, graph: Any) -> None:
        """Do it again, into the same tensors; the device goes on alone. After three times the time alone goes on."""
        self.host += self.launch
        graph.replays += 1
        took = sum(seconds + self.gap for *_, seconds in graph.recorded if seconds is not None)
        self.device = max(self.device, self.host) + self.slow * took
        if graph.replays > 3:
            return
        with torch.utils._python_dispatch._disable_current_modes(), torch.inference_mode():
            for func, args, kwargs, out, _ in graph.recorded:
                if out is None and not str(func).split(".")[1].endswith("_"):
                    continue  # a view: what it shows has changed by itself
                again = func(*args, **kwargs)
                for old, new in zip(tensors(out), tensors(again), strict=False):
                    old.copy_(new)


def tensors(*values: Any) -> list[torch.Tensor]:
    """Those in arguments or results, lists of them too."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += tensors(*value)
        elif isinstance(value, dict):
            found += tensors(*value.values())
    return found


def shares(tensor: torch.Tensor, given: list[torch.Tensor]) -> bool:
    """Whether it lies where one of the others does."""
    if not tensor.numel():
        return True
    place = tensor.untyped_storage().data_ptr()
    return any(place == other.untyped_storage().data_ptr() for other in given if other.numel())
