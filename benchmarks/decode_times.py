"""Published decode measurements against the bound and the expectation; ``--write`` renews data/calibrations.json.

    python benchmarks/decode_times.py [--write]

Rows: tests/latency/measured.csv, as published. A row speaks for single decode steps where one sequence ran alone, or
where requests generate at least as many tokens as they bring: with more prompt than output, the prefill of some
requests stands among the steps of others. All rows are held against the bound. Contexts are the middle of the run.
That rule, and an overhead that grows with the layers, were settled after a first look at these rows: one overhead
for all models of a device gives a median of 13% where this one gives 6%.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from llmcalc import load
from llmcalc.calc.expected import HELD_OUT, Point, fit, moved, shape
from llmcalc.calc.latency import Latency, latency
from llmcalc.calc.weight_shards import Ranks
from llmcalc.hardware.catalogue import describe

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "tests" / "latency" / "measured.csv"
OUT = ROOT / "llmcalc" / "data" / "calibrations.json"
KNOWN: dict[str, Any] = {}


class Row(NamedTuple):
    source: str
    engine: str
    device: str
    setup: str
    model: str
    weights: str
    seconds: float
    single: bool
    at_least: float
    roofline: float
    point: Point
    size: int
    bandwidth: int
    experts: bool
    given: bool
    shape: str


def estimate(row: dict[str, str], tokens: int) -> Latency:
    model = KNOWN.setdefault(row["model"], load(row["model"]).architecture)
    device = describe(row["device"], bandwidth=float(row["bandwidth"]) if row["bandwidth"] else None)
    ranks = Ranks(int(row["tp"]), 1, int(row["ep"]))
    group = int(row["group_size"]) if row["group_size"] else None
    return latency(model, device, tokens, int(row["batch"]), weights=row["weights"], group_size=group, ranks=ranks)


def seconds_of(row: dict[str, str]) -> float:
    return float(row["value"]) / 1000 if row["unit"].startswith("ms") else 1 / float(row["value"])


def rows() -> Iterator[Row]:
    with ROWS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            before, after = int(row["input_tokens"]), int(row["output_tokens"])
            first, middle = estimate(row, max(before, 1)), estimate(row, before + after // 2)
            size, seconds = moved(middle, middle.decode), seconds_of(row)
            bandwidth = middle.device.bandwidth()
            yield Row(
                row["source"], row["engine"], row["device"], row["setup"], row["model"], row["weights"], seconds,
                int(row["batch"]) == 1 or before <= after, first.decode.seconds_at_least,
                middle.decode.seconds_roofline,
                Point(len(middle.architecture.decoder.calls), size / bandwidth, seconds), size, bandwidth,
                any(item.site.weight.split == "expert" for item in middle.reader.stored), bool(row["bandwidth"]),
                shape(middle.architecture),
            )  # fmt: skip


def error(found: tuple[float, float], row: Row) -> float:
    return (found[0] * row.point.layers + row.point.moving / found[1]) / row.seconds - 1


def grouped(found: list[Row], *names: str) -> dict[tuple[str, ...], list[Row]]:
    out: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in found:
        out[tuple(getattr(row, name) for name in names)].append(row)
    return out


def left_out(found: list[Row]) -> tuple[list[float], int]:
    """Errors on each model of a device and engine, fitted on the others; and the rows that have no others."""
    errors, alone = [], 0
    for group in grouped(found, "engine", "device").values():
        for model in {row.model for row in group}:
            known = fit([row.point for row in group if row.model != model])
            tested = [row for row in group if row.model == model]
            errors += [abs(error(known, row)) for row in tested] if known else []
            alone += 0 if known else len(tested)
    return errors, alone


def held_out(found: list[Row]) -> list[float]:
    """Apple chips with all three formats, fitted on F16 and Q8_0: errors on Q4_0."""
    out = []
    table = [row for row in found if row.engine == "llama.cpp metal" and row.model == "llama-2-7b"]
    for group in grouped(table, "device", "setup").values():
        known = fit([row.point for row in group if row.weights != "q4_0"])
        out += [error(known, row) for row in group if row.weights == "q4_0"] if known else []
    return out


def carried_over(found: list[Row]) -> list[float]:
    """Models with experts: errors of the fit on one device and engine on the rows of every other."""
    groups = grouped([row for row in found if row.experts and not row.given], "device", "engine")
    known = {key: fit([row.point for row in group]) for key, group in groups.items()}
    return [
        error(line, row)
        for key, line in known.items()
        for other, group in groups.items()
        for row in group
        if line is not None and other != key
    ]


def calibration(key: tuple[str, ...], group: list[Row]) -> dict[str, object] | None:
    found = fit([row.point for row in group]) if len(group) > 2 else None  # two rows fit any line
    if found is None:
        return None
    errors = [abs(error(found, row)) for row in group]
    return {
        "device": key[0], "engine": key[1], "overhead_seconds": float(f"{found[0]:.6g}"),
        "efficiency": float(f"{found[1]:.6g}"), "bandwidth_bytes_per_second": group[0].bandwidth, "rows": len(group),
        "residual": round(mean(errors), 4), "worst": round(max(errors), 4),
        "spread": round(max(*errors, HELD_OUT), 4), "bytes_low": min(row.size for row in group),
        "bytes_high": max(row.size for row in group), "models": sorted({row.model for row in group}),
        "dense": any(not row.experts for row in group), "experts": any(row.experts for row in group),
        "sources": sorted({row.source for row in group}), "shapes": sorted({row.shape for row in group}),
    }  # fmt: skip


def main() -> None:
    found = list(rows())
    single = [row for row in found if row.single]
    print(f"{len(found)} rows, {len(single)} of single steps")
    faster = [row for row in found if row.seconds < row.at_least]
    print(f"faster than the bound: {len(faster)}", *faster, sep="\n  ")
    ratios = [row.seconds / row.at_least for row in found]
    print(f"measured over the bound: from {min(ratios):.2f} to {max(ratios):.2f}")
    print("| engine | device | rows | us a layer | efficiency | mean error | largest |\n| - | - | - | - | - | - | - |")
    made = []
    for key, group in sorted(grouped([row for row in single if not row.given], "device", "engine").items()):
        row = calibration(key, group)
        if row is not None:
            made.append(row)
            print(f"| {key[1]} | {key[0]} | {len(group)} | {1e6 * row['overhead_seconds']:.1f} "
                  f"| {row['efficiency']:.3f} | {row['residual']:.1%} | {row['worst']:.1%} |")  # fmt: skip
    errors, alone = left_out(single)
    print(f"one (model, device) group left out: {len(errors)} rows, median {100 * median(errors):.1f}%, "
          f"largest {100 * max(errors):.1f}%; {alone} rows have no other model on their device and engine")  # fmt: skip
    other = carried_over(single)
    print(f"experts, a fit carried over to another family: {len(other)} rows, from {100 * min(other):.0f}% to "
          f"{100 * max(other):.0f}%")  # fmt: skip
    apple = held_out(single)
    print(f"Apple, Q4_0 from F16 and Q8_0: {len(apple)} chips, mean {100 * mean(map(abs, apple)):.1f}%, "
          f"from {100 * min(apple):.1f}% to {100 * max(apple):.1f}%")  # fmt: skip
    if "--write" in sys.argv[1:]:
        note = ("t = layers x overhead_seconds + bytes / (efficiency x bandwidth); least squares of relative errors on "
                "published rows (tests/latency/measured.csv), by benchmarks/decode_times.py")  # fmt: skip
        OUT.write_text(json.dumps({"note": note, "calibrations": made}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
