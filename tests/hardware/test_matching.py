"""From a driver's name to a row: longest first, whole words, memory where two share a name, else no row."""

from __future__ import annotations

import pytest

from llmcalc.hardware.catalogue import device, devices
from llmcalc.hardware.matching import match

MIB, GIB = 2**20, 2**30
ALIKE = {"jetson-orin-nano-8gb", "jetson-orin-nano-super"}  # one name, one size of memory


@pytest.mark.parametrize("identity", [d.id for d in devices() if d.device_names and d.id not in ALIKE])
def test_every_name_finds_its_row(identity: str) -> None:
    d = device(identity)
    for name in d.device_names:
        found = match(name, d.memory_bytes)
        assert found is not None
        assert found.id == identity


@pytest.mark.parametrize(
    ("name", "memory", "identity"),
    [
        ("NVIDIA GH200 480GB", 97871 * MIB, "gh200-96gb"),
        ("NVIDIA H200 141GB", None, "h200-sxm-141gb"),
        ("NVIDIA H20", None, "h20-96gb"),
        ("NVIDIA L4", None, "l4"),
        ("NVIDIA L40", None, "l40"),
        ("NVIDIA L40S", None, "l40s"),
        ("NVIDIA A10", None, "a10"),
        ("NVIDIA A10G", None, "a10g"),
        ("NVIDIA B200", None, "b200-180gb"),
        ("NVIDIA GB200 NVL", None, "gb200-186gb"),
        ("NVIDIA GeForce RTX 3080", 10240 * MIB, "rtx-3080-10gb"),
        ("NVIDIA GeForce RTX 3080", 12288 * MIB, "rtx-3080-12gb"),
        ("NVIDIA GeForce RTX 4060 Ti", 16380 * MIB, "rtx-4060-ti-16gb"),
        ("AMD Instinct MI300X OAM", None, "mi300x"),
        ("NVIDIA Graphics Device", 95830 * MIB, "h100-nvl-94gb"),
    ],
)
def test_names(name: str, memory: int | None, identity: str) -> None:
    found = match(name, memory, "9.0")
    assert found is not None
    assert (found.id, found.profile) == (identity, "")


@pytest.mark.parametrize(
    ("name", "memory"),
    [
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16376 * MIB),  # another chip under the same name
        ("NVIDIA GeForce RTX 3080", None),  # two cards, and nothing to tell them apart
        ("NVIDIA GeForce RTX 3080", 20 * GIB),
        ("Orin", 8 * GIB),
        ("NVIDIA Graphics Device", 97871 * MIB),  # an H20 and a GH200 have as much
        ("NVIDIA Graphics Device", None),
        ("NVIDIA RTX PRO 6000 Blac...", None),  # cut off by a table
        ("Tesla P100-PCIE-16GB", 16 * GIB),
        ("", None),
    ],
)
def test_no_row(name: str, memory: int | None) -> None:
    assert match(name, memory, "9.0") is None


@pytest.mark.parametrize(
    ("name", "identity", "profile"),
    [
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "a100-sxm4-80gb", "3g.40gb"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", "h100-sxm5-80gb", "1g.10gb+me"),
        ("NVIDIA A10-24Q", "a10", "24Q"),
    ],
)
def test_slices(name: str, identity: str, profile: str) -> None:
    found = match(name)
    assert found is not None
    assert (found.id, found.profile) == (identity, profile)
