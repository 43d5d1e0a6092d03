"""Which device to measure, and in words a person can act on why it cannot be had."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from typing import Any

import torch

from llmcalc.errors import InvalidInputError, MeasureError, NoGpuError
from llmcalc.hardware.nvml import Nvml
from llmcalc.measure.cpu import CpuMachine
from llmcalc.measure.cuda import CudaMachine
from llmcalc.measure.machine import Machine

ASKED = re.compile(r"auto|cpu|cuda(:\d+)?|(GPU|MIG)-[0-9a-fA-F-]+")


def choose(
    asked: str, stack: ExitStack, *, force: bool = False, cuda: Any = None, library: Any = None
) -> tuple[Machine, list[str]]:
    """The device, and warnings about how it was found.

    Args: asked: ``auto``, ``cpu``, ``cuda``, ``cuda:N``, or the start of a UUID. force: take a card that others use.
    stack: keeps NVML open. cuda, library: what stands in place of torch.cuda and of pynvml.
    Raises: NoGpuError, MeasureError, InvalidInputError.
    """
    if not ASKED.fullmatch(asked):
        raise InvalidInputError(f"--device {asked}: expected auto, cpu, cuda, cuda:N or GPU-uuid")
    if asked == "cpu":
        return CpuMachine(), []
    torch_cuda: Any = cuda if cuda is not None else torch.cuda
    nvml, told = _nvml(stack, library)
    if not torch_cuda.is_available() or not torch_cuda.device_count():
        reason, hint = _why(torch_cuda, nvml)
        if asked != "auto":
            raise NoGpuError(reason, hint)
        return CpuMachine(), [f"measured on the processor: {reason}"]
    found = _card(asked, nvml, torch_cuda, force)
    found.open()
    return found, [*told, *(nvml.warnings if nvml else [])]


def _nvml(stack: ExitStack, library: Any) -> tuple[Nvml | None, list[str]]:
    """An open session; without one the run goes on and says what will be missing."""
    try:
        return stack.enter_context(Nvml(library)), []
    except MeasureError as error:
        return None, [f"no NVML, so no clocks, power, energy or memory of the process: {error.message}"]


def _why(cuda: Any, nvml: Nvml | None) -> tuple[str, str]:
    cards = nvml.gpus() if nvml is not None else ()
    visible, hint = os.environ.get("CUDA_VISIBLE_DEVICES"), "--device cpu measures on the processor"
    if visible is not None and not any(card.visible for card in cards):
        return f"no GPU is visible: CUDA_VISIBLE_DEVICES={visible!r} hides them", hint
    if not cards:
        return "there is no NVIDIA GPU here that CUDA shows", hint
    version = getattr(torch.version, "cuda", None)
    if version is None and cuda is torch.cuda:
        return (f"this torch is a CPU build, and this machine has {cards[0].name}",
                "install a CUDA build of torch (https://pytorch.org), or --device cpu")  # fmt: skip
    driver = nvml.driver_version if nvml is not None else None
    return (f"torch finds no usable GPU, though the driver ({driver}) shows {cards[0].name}: the driver may be too old "
            f"for CUDA {version}", "update the driver, or install a torch for its CUDA; or --device cpu")  # fmt: skip


def _card(asked: str, nvml: Nvml | None, cuda: Any, force: bool) -> CudaMachine:
    """The card of that index or UUID; of several the first that is idle, never silently a busy one."""
    count = int(cuda.device_count())
    if asked.startswith("cuda:"):
        index = int(asked[5:])
        if index >= count:
            raise NoGpuError(f"--device {asked}: CUDA shows {count} (cuda:0 to cuda:{count - 1})")
        found = CudaMachine(index, nvml, cuda)
    elif asked.startswith(("GPU-", "MIG-")):
        alike = [card for card in (CudaMachine(i, nvml, cuda) for i in range(count))
                 if (card.uuid or "").lower().startswith(asked.lower())]  # fmt: skip
        if len(alike) != 1:
            raise NoGpuError(f"--device {asked}: {len(alike)} of the {count} devices that CUDA shows begin so",
                             "llmcalc gpus --local lists them")  # fmt: skip
        found = alike[0]
    else:
        cards = [CudaMachine(index, nvml, cuda) for index in range(count)]
        found = next((card for card in cards if not card.shared), cards[0])
        if count > 1:
            found.warnings.append(f"one of {count} devices: {found.torch_device}, {found.uuid}")
    if found.shared and not force:
        raise MeasureError(f"{found.name} is in use: {found.warnings[-1]}", "--force measures beside them")
    return found
