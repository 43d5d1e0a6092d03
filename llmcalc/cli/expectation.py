"""How an expectation is told, wherever one is: its range, and whose measurements it rests on."""

from __future__ import annotations

from llmcalc.calc.expected import Expected


def in_json(likely: Expected) -> dict[str, object]:
    """An expectation with its range and its calibration."""
    row = likely.calibration
    lists = {name: list(value) for name, value in row._asdict().items() if isinstance(value, tuple)}
    return {
        "low": likely.low, "likely": likely.likely, "high": likely.high, "calibration": {**row._asdict(), **lists},
    }  # fmt: skip


def rests_on(likely: Expected) -> str:
    """Its measurements: the engine, how many, of which models, whose, when, and how far they are from their line."""
    row = likely.calibration
    whose = f"{row.origin} on {row.date}" if row.date else row.origin
    return (
        f"from {row.rows} row{'s' * (row.rows != 1)} of {', '.join(row.models)} under {row.engine}, {whose}: "
        f"{'; '.join(row.sources)}; mean error {100 * row.residual:.1f}%"
    )
