"""The catalogue's facts, and devices described by hand."""

from __future__ import annotations

import pytest

from llmcalc.errors import InvalidInputError, NotFoundError
from llmcalc.hardware.catalogue import describe, device, devices


def test_every_row_is_whole() -> None:
    found = devices()

    assert len(found) == len({d.id for d in found}) == 132
    for d in found:
        assert d.source
        assert d.date == "2026-11"
        assert d.bandwidth_bytes_per_second
        assert set(d.confidence.values()) <= {"seen", "derived", "memory"}
        for name in ("memory_bytes", "bandwidth_bytes_per_second", "l2_bytes", "link_bytes_per_second"):
            value = getattr(d, name)
            assert value is None or (isinstance(value, int) and value > 0)
        assert all(f"peak_{dtype}" in d.confidence for dtype in d.peak_dense_per_second)


@pytest.mark.parametrize(
    ("name", "mib", "bandwidth", "bf16", "fp8", "link"),
    [
        ("h100", 81559, 3350, 989.4, 1978.9, 450),
        ("h200", 143771, 4800, 989.4, 1978.9, 450),
        ("a100-sxm4-80gb", 81920, 2039, 312, None, 300),
        ("l40s", 46068, 864, 362, 733, None),
        ("b200", 183359, 8000, 2250, 4500, 900),
        ("rtx-4090", 24564, 1008, 165.15, 330.3, None),
    ],
)
def test_rates(name: str, mib: int, bandwidth: float, bf16: float, fp8: float | None, link: int | None) -> None:
    """Data sheets by way of the sources named in each row; dense, accumulated in fp32, links one way."""
    d = device(name)

    assert (d.memory_bytes, d.nvml_total_mib) == (mib * 2**20, mib)
    assert d.bandwidth_bytes_per_second == bandwidth * 10**9
    assert d.peak("bf16") == round(bf16 * 10**12)
    assert d.peak_dense_per_second.get("fp8") == (None if fp8 is None else round(fp8 * 10**12))
    assert d.link_bytes_per_second == (None if link is None else link * 10**9)


def test_accumulation_is_kept_apart() -> None:
    """GeForce halves tensor rates with fp32 accumulation: 165 and 330 TFLOP/s on the RTX 4090."""
    for name in ("rtx-4090", "rtx-5090"):
        d = device(name)
        assert d.peak_fp16_accumulate_per_second["fp16"] == pytest.approx(
            2 * d.peak("fp16"), rel=1e-3
        )  # data-sheet digits
    assert not device("h100").peak_fp16_accumulate_per_second


def test_tensor_rate_over_units_and_clock() -> None:
    """512 operations a unit and cycle on GeForce, 2,048 on the A100, 4,096 on Hopper; sparse figures are twice that."""
    for name, each in (("rtx-4090", 512), ("a100-sxm4-80gb", 2048), ("h100", 4096)):
        d = device(name)
        assert d.units
        assert d.boost_mhz
        assert d.peak("bf16") / (d.units * d.boost_mhz * 10**6) == pytest.approx(each, rel=0.02)  # rounded clocks


def test_a_fallback_is_said() -> None:
    a100, h100 = device("a100-sxm4-80gb"), device("h100")

    assert h100.peak_or_fallback("fp8").note == ""
    assert a100.peak_or_fallback("fp8")[:2] == (a100.peak("bf16"), "bf16")
    assert "no fp8 units" in a100.peak_or_fallback("fp8").note
    with pytest.raises(InvalidInputError):
        h100.peak_or_fallback("fp64")


def test_described_by_hand() -> None:
    hand = describe(memory=32 * 10**9, bandwidth=1e12, peak=100e12, link=50e9)

    assert (hand.memory(), hand.bandwidth(), hand.link_bytes_per_second) == (32 * 10**9, 10**12, 50 * 10**9)
    assert hand.peak("bf16") == hand.peak("int4") == 100 * 10**12
    assert hand.given == ("memory", "bandwidth", "peak", "link")
    assert describe(bandwidth=1e12).memory_bytes is None
    with pytest.raises(InvalidInputError, match="its memory is not known"):
        describe(bandwidth=1e12).memory()


def test_one_figure_over_the_catalogue() -> None:
    card = describe("rtx-4090", memory=20 * 2**30)

    assert (card.memory_bytes, card.bandwidth_bytes_per_second) == (20 * 2**30, 1008 * 10**9)
    assert card.peak("bf16") == device("rtx-4090").peak("bf16")
    assert card.given == ("memory",)


@pytest.mark.parametrize(
    "said", [{}, {"memory": 0}, {"bandwidth": -1.0}, {"peak": float("nan")}, {"link": float("inf")}]
)
def test_nothing_described(said: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError):
        describe(**said)  # type: ignore[arg-type]


def test_unknown_names() -> None:
    with pytest.raises(NotFoundError):
        describe("h1000", memory=1)
    assert device("NVIDIA GeForce RTX 3080", 12 * 2**30).id == "rtx-3080-12gb"
    with pytest.raises(InvalidInputError, match="2 devices"):
        device("NVIDIA GeForce RTX 3080")
