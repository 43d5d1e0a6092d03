"""Which device to measure, and in words a person can act on why it cannot be had."""

from __future__ import annotations

import os
import re
import warnings
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch

from llmcalc.errors import InvalidInputError, MeasureError, NoGpuError
from llmcalc.hardware.nvml import Nvml
from llmcalc.measure.cpu import CpuMachine
from llmcalc.measure.cuda import CudaMachine
from llmcalc.measure.machine import Machine

ASKED = re.compile(r"auto|cpu|cuda|(cuda:)?\d{1,4}|(GPU|MIG)-[0-9a-f-]+", re.IGNORECASE)
PROCESSOR = "--device cpu measures on the processor"


class _Seen(NamedTuple):
    """What is known before a card is chosen. refused: why NVML is not there. said: what torch warned of."""

    cuda: Any
    nvml: Nvml | None
    refused: MeasureError | None = None
    said: str = ""


def choose(
    asked: str, stack: ExitStack, *, force: bool = False, cuda: Any = None, library: Any = None
) -> tuple[Machine, list[str]]:
    """The device, and warnings about how it was found.

    Args: asked: ``auto``, ``cpu``, ``cuda``, ``cuda:N`` or N, or the start of a UUID. force: take a card that others
    use. stack: keeps NVML open. cuda, library: what stands in place of torch.cuda and of pynvml.
    Raises: NoGpuError, MeasureError, InvalidInputError.
    """
    if not ASKED.fullmatch(asked):
        raise InvalidInputError(
            f"--device {asked}: expected auto, cpu, cuda, cuda:N or the start of a UUID (GPU-…)",
            "llmcalc gpus --local lists the cards of this machine",
        )
    asked = asked.lower()
    if asked == "cpu":
        return CpuMachine(), []
    seen, usable = _look(stack, cuda if cuda is not None else torch.cuda, library)
    if not usable:
        reason, hint = _why(seen)
        if asked != "auto":
            raise NoGpuError(reason, hint)
        return CpuMachine(), [f"measured on the processor: {reason}"]
    found = _card(asked, seen, force)
    found.open()
    told = [] if seen.refused is None else [
        f"no NVML, so no clocks, power, energy or memory of the process: {seen.refused.message}"
    ]  # fmt: skip
    return found, [*told, *(seen.nvml.warnings if seen.nvml else [])]


def _look(stack: ExitStack, cuda: Any, library: Any) -> tuple[_Seen, bool]:
    """NVML's session, if there is one, and whether torch can use a card; its warnings become part of our words."""
    nvml, refused = None, None
    try:
        nvml = stack.enter_context(Nvml(library))
    except MeasureError as error:
        refused = error
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        usable = bool(cuda.is_available() and cuda.device_count())
    return _Seen(cuda, nvml, refused, " ".join(str(one.message).split("\n")[0] for one in said)), usable


def _why(seen: _Seen) -> tuple[str, str]:
    """Why torch can use no card, and what to do."""
    cards = seen.nvml.gpus() if seen.nvml is not None else ()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if seen.refused is not None and "not installed" not in seen.refused.message and not _missing(seen.refused):
        return f"torch can use no GPU: {seen.refused.message}", f"{seen.refused.hint}; {PROCESSOR}"
    if visible is not None and cards and not any(card.visible for card in cards):
        return (
            f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU here ({len(cards)})",
            f"unset it; {PROCESSOR}",
        )
    if not cards:
        hidden = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible!r})"
        return f"there is no NVIDIA GPU here that CUDA shows{hidden}", PROCESSOR
    version = getattr(torch.version, "cuda", None)
    if version is None:
        return (f"this torch is a CPU build, and this machine has {cards[0].name}",
                f"install a CUDA build of torch (https://pytorch.org); {PROCESSOR}")  # fmt: skip
    driver = seen.nvml.driver_version if seen.nvml is not None else None
    reason = seen.said or "the driver may be too old"
    return (f"torch, built for CUDA {version}, can use no GPU, though driver {driver} shows {cards[0].name}: {reason}",
            f"update the driver, or install a torch for its CUDA; {PROCESSOR}")  # fmt: skip


def _missing(error: MeasureError) -> bool:
    """Whether NVML is not there at all: most machines without a card have no driver to complain about."""
    return "library is not found" in error.message


def _card(asked: str, seen: _Seen, force: bool) -> CudaMachine:
    """The card of that index or UUID; of several the first that is idle, never silently a busy one."""
    count = int(seen.cuda.device_count())
    number = asked.removeprefix("cuda").removeprefix(":")
    if number.isdecimal():
        if int(number) >= count:
            last = f" to cuda:{count - 1}" if count > 1 else ""
            raise NoGpuError(f"--device {asked}: CUDA shows {count} (cuda:0{last})", _visible())
        found = CudaMachine(int(number), seen.nvml, seen.cuda)
    else:
        cards = [CudaMachine(index, seen.nvml, seen.cuda) for index in range(count)]
        if asked.startswith(("gpu-", "mig-")):
            found = _starting(asked, cards)
        else:
            found = next((card for card in cards if not card.busy), cards[0])
    if count > 1:
        found.warnings.insert(0, f"one of {count} GPUs: cuda:{found.index}, {found.uuid}, PCI {found.pci}")
    if found.busy and not force:
        used = next(text for text in found.warnings if text.startswith("others use"))
        raise MeasureError(
            f"{found.name} (cuda:{found.index}, {found.uuid}) is in use, and times would be theirs too: {used}",
            "--force measures all the same" + ("; --device names another" if count > 1 else ""),
        )
    return found


def _starting(asked: str, cards: list[CudaMachine]) -> CudaMachine:
    alike = [card for card in cards if (card.uuid or "").lower().startswith(asked)]
    if len(alike) != 1:
        shown = ", ".join(str(card.uuid) for card in cards)
        raise NoGpuError(
            f"--device {asked}: {len(alike) or 'none'} of the GPUs that CUDA shows begin so ({shown})", _visible()
        )
    return alike[0]


def _visible() -> str:
    """What may be hiding others."""
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    told = "llmcalc gpus --local lists the cards of this machine"
    return told if value is None else f"CUDA_VISIBLE_DEVICES={value!r} may hide others; {told}"
