"""The table of published decode measurements, tests/latency/measured.csv, and what is done with each of its rows.

Columns: ``ref`` where it is published, ``run`` what it is called there. cache: how keys and values are stored where it
says so (TensorRT-LLM 0.6.1 builds its engines with ``--fp8_kv_cache``). batch: sequences at once; published_batch:
what the table says instead. Rows of aiconfigurator-core that come from InferenceMAX count them a GPU, while a run's
name has the concurrency that its client asked for: ``c4`` on four GPUs, and InferenceMAX asks for no less than 4.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

ROWS = Path(__file__).parents[1] / "tests" / "latency" / "measured.csv"
Published = dict[str, str]
STEP, REQUEST = "a decode step, held against its bound", "a rate of whole requests: apart"


def fate(row: Published, others: Sequence[Published]) -> str:
    """What is done with a row. The rules look at what a row states, never at how it compares."""
    if row["unit"] == "GB/s achieved":
        return "another figure of a run that is here as a rate of tokens"
    if row["unit"].startswith(("out tok/s", "tok/s/node")):
        return REQUEST
    if not row["device"]:
        return "its device is not in the catalogue"
    if not row["tp"]:
        return "its devices are not known: it counts one, on which the model does not fit"
    if not named(row) and any(named(other) and alike(row, other) for other in others):
        return "the same figure as that of a run whose name tells how experts were spread"
    return STEP


def named(row: Published) -> bool:
    """Whether the run's name tells its degrees."""
    return "_tp" in row["run"]


def alike(row: Published, other: Published) -> bool:
    return all(row[name] == other[name] for name in (
        "engine", "model", "weights", "device", "batch", "input_tokens", "output_tokens", "value"))  # fmt: skip


def published() -> list[tuple[Published, str]]:
    """Every row with its fate."""
    with ROWS.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    return [(row, fate(row, found)) for row in found]
