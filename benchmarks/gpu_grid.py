"""An 8-billion-parameter shape over batches and contexts on a GPU: ``llmcalc measure`` for each, and one table.

    python benchmarks/gpu_grid.py [--model llama-3-8b] [--device cuda] [--budget 25] [--out docs/measured]

Each shape is a process of its own, whose memory nobody used before. Compiled blocks are timed at batch 1 (and wherever
``--compile`` says so); a context at which the cache would not fit is refused by the command, and the exit says so.
``--quick``: batch 1 and 8 at 128 and 4,096. Exits 1 where a shape failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SHAPES = ((1, 128), (1, 4096), (1, 32768), (8, 128), (8, 4096), (8, 32768), (64, 128), (64, 4096))
QUICK = ((1, 128), (1, 4096), (8, 128), (8, 4096))


def measured(args: argparse.Namespace, batch: int, tokens: int) -> dict[str, Any] | None:
    words = [
        "measure", args.model, "--device", args.device, "--weights", args.weights, "--batch", str(batch), "--tokens",
        str(tokens), "--prompt", str(min(tokens, 4096) if batch == 1 else 128), "--budget", str(args.budget), "--json",
        *(["--compile"] if batch == 1 or args.compile else []),
    ]  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "llmcalc", *words], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"{batch} x {tokens}: exit {done.returncode}, see above")
        return None
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def show(document: dict[str, Any]) -> None:
    results = document["results"]
    for name in (*results["errors"], *(f"skipped: {name}" for name in results["skipped"])):
        print(f"  {name}")
    wrong = [row["quantity"] for row in results["estimates"] if row["verdict"] == "differs"]
    print("exact figures:", "all equal" if not wrong else f"differ: {wrong}")
    for row in results["estimates"]:
        if row["quantity"].endswith("_seconds"):
            run = next((run for run in results["runs"] if row["quantity"].startswith(run["phase"]) and all(
                run[name] == row[name] for name in ("mode", "batch", "tokens"))), {})  # fmt: skip
            print(f"  {row['quantity']:16} {row['mode']:9} {row['batch']:3} x {row['tokens']:6,}: "
                  f"{1e3 * row['measured']:9.3f} ms, {row['ratio'] or float('nan'):6.3f} of the estimate, "
                  f"{run.get('of_copy') or float('nan'):.3f} of copy, {row['verdict']}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama-3-8b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--weights", default="bf16")
    parser.add_argument("--budget", type=int, default=25)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found, failed = [], False
    for batch, tokens in QUICK if args.quick else SHAPES:
        document = measured(args, batch, tokens)
        if document is None:
            failed = True
            continue
        failed = failed or bool(document["results"]["errors"])
        found.append(document)
        print(f"{document['results']['device']['name']}, {batch} x {tokens:,}")
        show(document)
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
            name = "".join(c if c.isalnum() else "-" for c in document["results"]["device"]["name"].lower())
            target = args.out / f"{name}-{args.model}.json"
            target.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
