"""Cache estimates a second from Python on a loaded DeepSeek-V3; the budget is 5,000."""

from __future__ import annotations

import time

import llmcalc


def main() -> None:
    model = llmcalc.load("deepseek-v3").architecture
    llmcalc.kv_cache(model, tokens=1)
    best = 0.0
    for _ in range(5):
        start = time.perf_counter()
        for tokens in range(2000):
            llmcalc.kv_cache(model, tokens=tokens)
        best = max(best, 2000 / (time.perf_counter() - start))
    print(f"{best:,.0f} estimates a second")


if __name__ == "__main__":
    main()
