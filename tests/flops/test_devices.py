from __future__ import annotations

import json
from importlib.resources import files

import pytest

from llmcalc.errors import InvalidInputError, NotFoundError
from llmcalc.hardware.catalogue import device


@pytest.mark.parametrize(
    "name", ["h100", "H100-SXM", "NVIDIA H100 80GB HBM3", "h100-sxm5-80gb", "nvidia h100 sxm5 80gb"]
)
def test_spellings(name: str) -> None:
    assert device(name).id == "h100-sxm5-80gb"


def test_dense_peaks() -> None:
    h100 = device("h100")

    assert (h100.peak("bf16"), h100.peak("fp8")) == (989_400_000_000_000, 1_978_900_000_000_000)
    assert (h100.memory_bytes, h100.bandwidth_bytes_per_second) == (81559 * 2**20, 3_350_000_000_000)
    assert device("a100-sxm4-80gb").peak("bf16") == 312_000_000_000_000
    assert h100.confidence["peak_bf16"] == "seen"
    assert h100.source
    assert h100.date


def test_a_missing_dtype_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="no dense peak is known for fp8"):
        device("a100-sxm4-80gb").peak("fp8")


def test_an_unknown_device_suggests_near_ones() -> None:
    with pytest.raises(NotFoundError) as caught:
        device("h1000")
    assert "h100" in caught.value.hint


def test_one_name_for_two_devices() -> None:
    with pytest.raises(InvalidInputError, match="2 devices answer"):
        device("NVIDIA GeForce RTX 3080")


def test_never_sparse() -> None:
    """A Hopper's sparse bf16 rate would be 1.98e15."""
    rows = json.loads((files("llmcalc.data") / "devices.json").read_text("utf-8"))["devices"]

    assert len(rows) == 132
    assert max(row["peak_dense_per_second"].get("bf16", 0) for row in rows if row["id"].startswith("h")) < 1e15
    for row in rows:
        assert device(row["id"]).id == row["id"]
        assert all(isinstance(rate, int) and rate > 0 for rate in row["peak_dense_per_second"].values())
