"""Published decode measurements against the bound and the expectation; ``--write`` renews data/calibrations.json.

    python benchmarks/decode_times.py [--write]

Rows: those that published_rows.py holds against the bound of a step. Of these a row speaks for single decode steps
where one sequence ran alone, or where requests generate at least as many tokens as they bring: with more prompt than
output, the prefill of some requests stands among the steps of others. Contexts are the middle of the run. That rule,
and an overhead that grows with the layers, were settled after a first look at the rows: one overhead for all models of
a device gives a median of 13% where this one gives 6%.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from published_rows import REQUEST, STEP, Published, published

from llmcalc import load
from llmcalc.calc.expected import HELD_OUT, Point, fit, moved, shape
from llmcalc.calc.latency import Latency, latency
from llmcalc.calc.weight_shards import Ranks
from llmcalc.hardware.catalogue import describe

ROOT = Path(__file__).parents[1]
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
    vendor: str
    ranks: int


def estimate(row: Published, tokens: int, output: int = 1) -> Latency:
    model = KNOWN.setdefault(row["model"], load(row["model"]).architecture)
    device = describe(row["device"], bandwidth=float(row["bandwidth"]) if row["bandwidth"] else None)
    ranks = Ranks(int(row["tp"]), 1, int(row["ep"]))
    group = int(row["group_size"]) if row["group_size"] else None
    return latency(model, device, tokens, int(row["batch"]), weights=row["weights"], group_size=group,
                   cache=row["cache"] or "auto", ranks=ranks, output=output)  # fmt: skip


def seconds_of(row: Published) -> float:
    return float(row["value"]) / 1000 if row["unit"].startswith("ms") else 1 / float(row["value"])


def rows() -> Iterator[Row]:
    for row, what in published():
        if what == STEP:
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
                shape(middle.architecture), middle.device.vendor, int(row["tp"]),
            )  # fmt: skip


def error(found: tuple[float, float], row: Row) -> float:
    return (found[0] * row.point.layers + row.point.moving / found[1]) / row.seconds - 1


def grouped(found: list[Row], *names: str) -> dict[tuple[str, ...], list[Row]]:
    out: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in found:
        out[tuple(getattr(row, name) for name in names)].append(row)
    return out


class Tested(NamedTuple):
    """A row whose model and device were held out; on what it was then expected, and the error, None for nothing."""

    row: Row
    basis: str
    error: float | None


def left_out(found: list[Row]) -> list[Tested]:
    """Each row, expected without all rows of its model on its device: by the device's other models, else by what the
    engine reached on the maker's other devices, where it ran a model of that kind there."""
    out = []
    for (device, model), group in grouped(found, "device", "model").items():
        others = [row for row in found if (row.device, row.model) != (device, model) and not row.given]
        for row in group:
            kin = [other for other in others if other.engine == row.engine and other.vendor == row.vendor]
            basis, known = "the device", line([other for other in kin if other.device == device])
            if known is None and any(other.experts == row.experts for other in kin):
                basis, known = "other devices", line(kin)
            out.append(Tested(row, basis if known else "nothing", error(known, row) if known else None))
    return out


def line(found: list[Row]) -> tuple[float, float] | None:
    """The fit; two rows fit any line."""
    return fit([row.point for row in found]) if len(found) > 2 else None


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
    found = line(group)
    if found is None:
        return None
    where = {"device": key[0], "engine": key[1], "bandwidth_bytes_per_second": group[0].bandwidth}
    kinds = {"dense": any(not row.experts for row in group), "experts": any(row.experts for row in group)}
    return where | fitted(found, group) | kinds


def engine_line(key: tuple[str, ...], group: list[Row]) -> dict[str, object] | None:
    """What an engine reached on several devices of a maker; of a kind of model it speaks where two of them ran one."""
    found, devices = line(group), sorted({row.device for row in group})
    several = {name: len({row.device for row in group if row.experts == kind}) > 1
               for name, kind in (("dense", False), ("experts", True))}  # fmt: skip
    if found is None or not any(several.values()):
        return None
    return {"engine": key[0], "vendor": key[1], **fitted(found, group), **several, "devices": devices}


def fitted(found: tuple[float, float], group: list[Row]) -> dict[str, object]:
    """A line, how well it fits, and what it saw."""
    errors = [abs(error(found, row)) for row in group]
    return {
        "overhead_seconds": float(f"{found[0]:.6g}"), "efficiency": float(f"{found[1]:.6g}"), "rows": len(group),
        "residual": round(mean(errors), 4), "worst": round(max(errors), 4),
        "spread": round(max(*errors, HELD_OUT), 4), "bytes_low": min(row.size for row in group),
        "bytes_high": max(row.size for row in group), "models": sorted({row.model for row in group}),
        "sources": sorted({row.source for row in group}), "shapes": sorted({row.shape for row in group}),
        "ranks": max(row.ranks for row in group),
    }  # fmt: skip


class Request(NamedTuple):
    """A rate of whole requests, and the most that their bound allows; tokens a second and device."""

    row: Published
    rate: float
    at_most: float


def requests() -> Iterator[Request]:
    """Rows of whole requests that say how many ran at once and how long they were."""
    for row, what in published():
        if what == REQUEST and row["batch"] and row["input_tokens"] and row["tp"]:
            batch, output = int(row["batch"]), int(row["output_tokens"])
            found = estimate(row, int(row["input_tokens"]), output).request_seconds_at_least
            yield Request(row, float(row["value"]), batch * output / found / int(row["tp"]))


def percent(errors: Sequence[float]) -> str:
    sizes = [100 * abs(error) for error in errors]
    return f"median {median(sizes):.1f}%, from {100 * min(errors):.0f}% to {100 * max(errors):.0f}%"


def tell_bound(found: list[Row]) -> None:
    fates = Counter(what for _, what in published())
    print(f"{fates.total()} rows of decode:")
    print(*(f"  {count}: {what}" for what, count in fates.most_common()), sep="\n")
    faster = [row for row in found if row.seconds < row.at_least]
    ratios = [row.seconds / row.at_least for row in found]
    print(f"faster than the bound of a step: {len(faster)} of {len(found)}", *faster, sep="\n  ")
    print(f"measured over the bound: from {min(ratios):.2f} to {max(ratios):.2f}")
    whole = list(requests())
    faster_requests = [one for one in whole if one.rate > one.at_most]
    print(f"rates of whole requests above their bound: {len(faster_requests)} of {len(whole)} that say their batch",
          *faster_requests, sep="\n  ")  # fmt: skip
    shares = [one.rate / one.at_most for one in whole]
    print(f"share of the bound that they reach: from {min(shares):.2f} to {max(shares):.2f}")


def tell_left_out(single: list[Row]) -> None:
    tested = left_out(single)
    print("one (model, device) pair left out:\n| device | engine | model | rows | expected by | errors |\n"
          "| - | - | - | - | - | - |")  # fmt: skip
    for key in dict.fromkeys((one.row.device, one.row.engine, one.row.model, one.basis) for one in tested):
        errors = [one.error for one in tested if key == (one.row.device, one.row.engine, one.row.model, one.basis)]
        seen = [error for error in errors if error is not None]
        print("|", " | ".join((*key[:3], str(len(errors)), key[3], percent(seen) if seen else "")), "|")
    for basis in ("the device", "other devices"):
        errors = [one.error for one in tested if one.basis == basis and one.error is not None]
        print(f"by {basis}: {len(errors)} rows, {percent(errors)}")
    errors = [one.error for one in tested if one.error is not None]
    print(f"all: {len(errors)} rows, {percent(errors)}; for {len(tested) - len(errors)} nothing is left to fit on: one "
          "model was measured on the device, and the engine ran its kind on no other device of the maker")  # fmt: skip


def made(single: list[Row]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Calibrations of devices, and the lines of engines."""
    own = [row for row in single if not row.given]
    devices = [calibration(key, group) for key, group in sorted(grouped(own, "device", "engine").items())]
    lines = [engine_line(key, group) for key, group in sorted(grouped(own, "engine", "vendor").items())]
    return [row for row in devices if row is not None], [row for row in lines if row is not None]


def main() -> None:
    found = list(rows())
    single = [row for row in found if row.single]
    tell_bound(found)
    print(f"of single steps: {len(single)}")
    print("| engine | device | rows | us a layer | efficiency | mean error | largest |\n| - | - | - | - | - | - | - |")
    devices, engines = made(single)
    for row in (*devices, *engines):
        print(f"| {row['engine']} | {row.get('device') or ', '.join(row['devices'])} | {row['rows']} "
              f"| {1e6 * row['overhead_seconds']:.1f} | {row['efficiency']:.3f} | {row['residual']:.1%} "
              f"| {row['worst']:.1%} |")  # fmt: skip
    tell_left_out(single)
    other = carried_over(single)
    print(f"experts, a fit carried over to another family: {len(other)} rows, {percent(other)}")
    apple = held_out(single)
    print(f"Apple, Q4_0 from F16 and Q8_0: {len(apple)} chips, mean {mean(100 * abs(e) for e in apple):.1f}%, "
          f"{percent(apple)}")  # fmt: skip
    if "--write" in sys.argv[1:]:
        note = ("t = layers x overhead_seconds + bytes / (efficiency x bandwidth); least squares of relative errors on "
                "published rows (tests/latency/measured.csv), by benchmarks/decode_times.py")  # fmt: skip
        document = {"note": note, "calibrations": devices, "engines": engines}
        OUT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
