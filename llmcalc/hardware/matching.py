"""From the name that a driver reports to a row of the catalogue.

Order of evidence: the exact string; of two rows with one string the one of nearest memory; aliases, longest first and
whole words only (``GB200`` is no ``B200``, ``L40S`` no ``L40``). Slices of a card (MIG, vGPU) and laptop chips are told
apart from the card whose name they carry. What is not known stays so: no row is better than a wrong one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

VENDORS = ("nvidia", "amd", "intel", "google", "aws", "apple")
NEAR = 0.03  # two rows of one name differ by a fifth at least; a driver's reserve and ECC on HBM take less than this
SLICE = re.compile(r"\bMIG (\d+)g\.(\d+)gb(?:\+\w+)*$", re.IGNORECASE)
VGPU = re.compile(r"^(?:GRID|NVIDIA) (\S+)-(\d+)[ABCQ]$")
NAMELESS_NEAR = 0.01
NAMELESS = ("nvidiagraphicsdevice", "graphicsdevice")


class Match(NamedTuple):
    """A row of the catalogue, how it was found, and of which part of it the device is: a MIG or vGPU profile."""

    id: str
    how: str
    profile: str = ""


def folded(name: str) -> str:
    """A name without case, spaces, dashes and vendor words."""
    words = tokens(name)
    return "".join(word for word in words if word not in VENDORS) or "".join(words)


def tokens(name: str) -> list[str]:
    """The words of a name: letters and digits, in lower case."""
    return "".join(char if char.isalnum() else " " for char in name.casefold()).split()


def within(found: int, known: int | None, share: float = NEAR) -> bool:
    """Whether two sizes of memory are the same within a share."""
    return known is not None and abs(found - known) <= share * known


def match(name: str, memory_bytes: int | None = None, compute_capability: str | None = None) -> Match | None:
    """The row that a device's own name stands for; None where that is not known.

    Args: memory_bytes: of the device, tells rows of one name apart. compute_capability: for a nameless device.
    """
    from llmcalc.hardware.catalogue import devices, spellings

    sliced, whole = SLICE.search(name), VGPU.match(name)
    if sliced or whole:
        text = name[: sliced.start()] if sliced else whole.group(1) if whole else name
        found = match(text.strip())
        profile = sliced.group(0)[4:] if sliced else name.rsplit("-", 1)[1]
        return None if found is None else Match(found.id, found.how, profile)
    if folded(name) in NAMELESS:
        alike = [
            d.id
            for d in devices()
            if memory_bytes is not None
            and compute_capability
            and d.compute_capability == compute_capability
            and within(memory_bytes, d.memory_bytes, NAMELESS_NEAR)
        ]
        return Match(alike[0], "compute capability and memory") if len(alike) == 1 else None
    if name.endswith("..."):
        return None  # a table cut it off: the words that tell cards apart may be gone
    exact = [d.id for d in devices() if name in d.device_names]
    if exact:
        return _one(exact, memory_bytes, "its name")
    laptop = "laptop" in tokens(name)
    for key in _parts(name):
        ids = [i for i in spellings().get(key, ()) if ("laptop" in i) == laptop]
        if ids:
            return _one(ids, memory_bytes, "an alias of its name")
    return None


def _one(ids: list[str], memory_bytes: int | None, how: str) -> Match | None:
    """The only row, or of several the one whose memory is nearest and near enough."""
    from llmcalc.hardware.catalogue import device

    if len(ids) == 1:
        return Match(ids[0], how)
    if memory_bytes is None:
        return None
    gaps = sorted((abs(memory_bytes - (device(i).memory_bytes or 0)), i) for i in ids)
    same = [i for gap, i in gaps if gap == gaps[0][0] and within(memory_bytes, device(i).memory_bytes)]
    return Match(same[0], f"{how} and its memory") if len(same) == 1 else None


def _parts(name: str) -> list[str]:
    """Every run of whole words of a name, joined, longest first."""
    words = [word for word in tokens(name) if word not in VENDORS]
    runs = {"".join(words[a:b]) for a in range(len(words)) for b in range(a + 1, len(words) + 1)}
    return sorted(runs, key=lambda run: (-len(run), run))
