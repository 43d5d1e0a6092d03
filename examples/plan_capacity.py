"""How many conversations fit beside the weights? A plan for a few models on one card, as a table.

    python examples/plan_capacity.py --memory 80GiB --tokens 32768 llama-3-8b qwen3-30b-a3b gpt-oss-20b

Weights are taken at two bytes a parameter; what runs beside them (activations, runtime) is what --reserve says.
"""

from __future__ import annotations

import argparse

import llmcalc
from llmcalc.units import parse_size, parse_tokens, show_bytes


def main() -> None:
    """Read the options, print a line a model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--memory", type=parse_size, default=parse_size("80GiB"))
    parser.add_argument("--reserve", type=parse_size, default=parse_size("6GiB"))
    parser.add_argument("--tokens", type=parse_tokens, default=32768)
    options = parser.parse_args()

    memory, reserve = show_bytes(options.memory), show_bytes(options.reserve)
    print(f"{memory} a card, {reserve} kept free, {options.tokens:,} tokens each")
    for name in options.models:
        model = llmcalc.load(name).architecture
        weights = 2 * llmcalc.params(model).total_params
        each = llmcalc.kv_cache(model, options.tokens).bytes_per_sequence
        pool = options.memory - options.reserve - weights
        fit = max(pool, 0) // each
        print(f"{name:24} weights {show_bytes(weights):>12}  a conversation {show_bytes(each):>12}  fit {fit:>5}")


if __name__ == "__main__":
    main()
