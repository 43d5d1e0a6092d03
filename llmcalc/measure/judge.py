"""How near is near: a band for every quantity, and the row that shows both estimates beside what was measured."""

from __future__ import annotations

from typing import NamedTuple

# measured over predicted, lowest and highest.
BANDS: dict[str, tuple[float, float]] = {
    "copy": (0.80, 0.95), "matmul": (0.60, 0.95), "matmul amd": (0.45, 0.75),
    "decode graph": (0.90, 1.20), "decode graph wide": (0.90, 1.35), "decode eager": (0.70, 1.50),
    "decode cpu": (0.60, 2.00), "decode catalogue": (0.75, 1.60),
    "prefill long": (0.80, 1.30), "prefill": (0.70, 1.80), "prefill cpu": (0.60, 2.00),
}  # fmt: skip
LONG, WIDE = 2048, 8


class Row(NamedTuple):
    """One estimate: by the catalogue, by the measured rates, as measured, and the verdict on the last over the second
    (or the first, where there is no second).

    verdict: ``equal`` or ``differs`` of whole numbers; ``within`` or ``outside`` of a band; ``not judged``.
    """

    quantity: str
    unit: str
    catalogue: float | None
    calibrated: float | None
    measured: float | None
    ratio: float | None
    verdict: str
    binds: str | None = None
    band: tuple[float, float] | None = None
    mode: str | None = None
    batch: int | None = None
    tokens: int | None = None
    note: str = ""

    @property
    def missed(self) -> bool:
        """Whether it says no."""
        return self.verdict in ("differs", "outside")


def same(quantity: str, unit: str, expected: float, found: float) -> Row:
    """Of whole numbers."""
    verdict = "equal" if expected == found else "differs"
    return Row(quantity, unit, expected, None, found, found / expected if expected else None, verdict)


def near(
    quantity: str, unit: str, catalogue: float | None, calibrated: float | None, measured: float, band: str | None,
    **more: object,
) -> Row:  # fmt: skip
    """Of times and rates; without a band, or without an estimate, there is no verdict."""
    base = calibrated if calibrated is not None else catalogue
    ratio = measured / base if base else None
    limits = BANDS[band] if band is not None else None
    verdict = "not judged"
    if limits is not None and ratio is not None:
        verdict = "within" if limits[0] <= ratio <= limits[1] else "outside"
    row = Row(quantity, unit, catalogue, calibrated, measured, ratio, verdict, band=limits)
    return row._replace(**more)  # type: ignore[arg-type]


def decode_band(kind: str, mode: str, batch: int) -> str:
    """Whose name a decode step's band has."""
    if kind == "cpu":
        return "decode cpu"
    if mode == "eager":
        return "decode eager"
    return "decode graph" if batch <= WIDE else "decode graph wide"


def prefill_band(kind: str, tokens: int) -> str:
    """Whose name a prompt's band has."""
    return "prefill cpu" if kind == "cpu" else "prefill long" if tokens >= LONG else "prefill"
