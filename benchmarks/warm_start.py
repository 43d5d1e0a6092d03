"""Warm start of ``llmcalc kv-cache`` against a one-verb Typer program that prints one word, in paired runs.

    python benchmarks/warm_start.py [pairs]

Prints medians and the median of the paired ratios; the budget is 1.3 for --json and 1.5 for text.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ONE_VERB = """
import typer

app = typer.Typer()


@app.command()
def word() -> None:
    print("word")


app()
"""


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    llmcalc = shutil.which("llmcalc", path=str(Path(sys.executable).parent)) or "llmcalc"
    verb = [llmcalc, "kv-cache", "llama-3-70b", "--tokens", "4096"]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "one.py")
        script.write_text(ONE_VERB)
        base = [sys.executable, str(script)]
        for name, command, budget in (("--json", [*verb, "--json"], 1.3), ("text", verb, 1.5)):
            seconds(base), seconds(command)
            runs = [(seconds(base), seconds(command)) for _ in range(pairs)]
            ratio = statistics.median(ours / theirs for theirs, ours in runs)
            theirs, ours = (statistics.median(column) for column in zip(*runs, strict=True))
            print(f"{name}: {ours:.3f} s against {theirs:.3f} s; paired ratio {ratio:.2f}, budget {budget}")


if __name__ == "__main__":
    main()
