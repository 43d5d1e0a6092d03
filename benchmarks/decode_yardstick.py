"""Is the reference decoder fast enough to be a yardstick? Decode beside the read rate of a vector times matrices.

    python benchmarks/decode_yardstick.py [--pairs 11] [--out docs/measured] [NAME[:LAYERS] ...]

Each pair is one pass of the calibration (a vector through rotating copies of the model's largest matrix) and one decode
step, one right after the other, so that what else happens on the machine happens to both. Beside them, in the same
round, transformers decodes the same shape in the same format, where it has the class. Then ``llmcalc measure`` itself
runs, and its document is kept with these figures.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import torch

from llmcalc.loading import load
from llmcalc.measure import calibrate, predict
from llmcalc.measure.build import build
from llmcalc.measure.environment import environment, facts
from llmcalc.measure.run import Asked, workload
from llmcalc.measure.steps import decode
from llmcalc.sources import resolve

DEFAULT = (
    "tinyllama-1.1b", "mixtral-8x7b:2", "granite-3.0-1b-a400m", "minicpm3-4b:16", "gemma-3-1b",
    "qwen3.5-9b:4", "granite-4.0-h-micro:12", "zamba2-1.2b",
)  # fmt: skip
TOKENS, WARM = 256, 3


def seconds(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def library(name: str, layers: int | None, dtype: torch.dtype) -> Callable[[], object] | None:
    """A decode step of transformers' own class on a context of TOKENS, None where it has none of this config."""
    import transformers

    raw: dict[str, Any] = dict(resolve(name).data)
    if layers is not None:
        raw["num_hidden_layers"] = layers
    try:
        config = transformers.AutoConfig.for_model(raw.pop("model_type"), **raw)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    except Exception as error:  # whatever it is that this config lacks for it
        print(f"  transformers: {error}"[:200])
        return None
    state: dict[str, Any] = {}
    with torch.inference_mode():
        out = model(torch.randint(0, config.vocab_size, (1, TOKENS)), use_cache=True, logits_to_keep=1)
    state["past"], state["token"] = out.past_key_values, out.logits.argmax(-1)

    def step() -> None:
        with torch.inference_mode():
            found = model(state["token"], past_key_values=state["past"], use_cache=True, logits_to_keep=1)
            state["past"], state["token"] = found.past_key_values, found.logits.argmax(-1)

    return step


def pairs(name: str, layers: int | None, number: int) -> dict[str, object]:
    """Medians over the rounds, and every round."""
    with ExitStack() as stack:
        from llmcalc.measure.choose import choose

        machine, _ = choose("cpu", stack)
        asked = Asked("cpu", ("decode",), layers, TOKENS, weights="fp32")
        work, _ = workload(load(name).architecture, asked, machine)
        model = build(work, machine)
        step = decode(model, work, machine, TOKENS, 1).step
        size = max(calibrate.LEAST, calibrate.TIMES_CACHE * machine.cache_bytes())
        with torch.inference_mode():
            bench = calibrate.gemv(machine, work, size)
        moved, _ = predict.moved(work, "decode", TOKENS, 1)

        room = machine.free_bytes() > 1.2 * sum(p.nbytes for p in model.parameters()) + 2**31
        other = library(name, layers, torch.float32) if room else None
        for _ in range(WARM):
            bench.step()
            step()
            if other:
                other()
        rounds = []
        for _ in range(number):
            gemv, own = bench.amount / seconds(bench.step), seconds(step)
            theirs = seconds(other) if other else None
            rounds.append((gemv, moved / own, own, theirs))
        ratios = [rate / gemv for gemv, rate, _, _ in rounds]
        beside = [theirs / own for _, _, own, theirs in rounds if theirs is not None]
        return {
            "model": name, "layers": work.depth, "of_layers": len(work.whole.decoder.calls), "dtype": work.dtype,
            "tokens": TOKENS, "weight_bytes": sum(p.numel() * p.element_size() for p in model.parameters()),
            "moved_bytes": moved, "gemv_bytes": bench.amount, "pairs": number,
            "gemv_bytes_per_second": median(gemv for gemv, *_ in rounds),
            "decode_bytes_per_second": median(rate for _, rate, *_ in rounds),
            "decode_seconds": median(own for _, _, own, _ in rounds),
            "decode_over_gemv": median(ratios), "decode_over_gemv_each": ratios,
            "transformers_seconds": median(theirs for *_, theirs in rounds if theirs) if beside else None,
            "transformers_over_decode": median(beside) if beside else None, "transformers_over_decode_each": beside,
            "device": facts(machine), "environment": environment(machine),
        }  # fmt: skip


def table(name: str, layers: int | None, budget: float) -> dict[str, Any]:
    """What ``llmcalc measure`` finds, in a process of its own, whose memory nobody used before."""
    words = ["measure", name, "--device", "cpu", "--weights", "fp32", "--tokens", str(TOKENS), "--json",
             "--budget", str(int(budget)), *(["--layers", str(layers)] if layers else [])]  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "llmcalc", *words], check=True, stdout=subprocess.PIPE, text=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=DEFAULT)
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--budget", type=float, default=120.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    for word in args.names:
        name, _, part = word.partition(":")
        layers = int(part) if part else None
        found = pairs(name, layers, args.pairs)
        gc.collect()
        print(
            f"{name}: decode at {found['decode_over_gemv']:.3f} of the vector product's rate; transformers takes "
            f"{found['transformers_over_decode'] or float('nan'):.2f} times as long"
        )
        measured = table(name, layers, args.budget)
        gc.collect()
        for row in measured["results"]["estimates"]:
            print(f"  {row['quantity']:42} {row['measured']!s:>22} {row['ratio']!s:>20} {row['verdict']}")
        if args.out:
            args.out.mkdir(parents=True, exist_ok=True)
            target = args.out / f"cpu-{name}{'-' + part if part else ''}.json"
            target.write_text(json.dumps({"yardstick": found, "measure": measured}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
