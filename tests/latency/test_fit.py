"""Whether weights and cache are in a device's memory at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from llmcalc import load
from llmcalc.calc.fit import need
from llmcalc.calc.sizing import sequences
from llmcalc.calc.weight_shards import Ranks
from llmcalc.hardware.catalogue import describe
from llmcalc.hardware.device import Device

LLAMA = load("llama-3-8b").architecture
WEIGHTS, CACHE = 16_060_522_496, 131_072 * 4096


def short_by(device: Device, ranks: Ranks, tokens: int = 4096, batch: int = 1, cache: str = "auto") -> int | None:
    found = need(LLAMA, device, ranks, sequences(tokens, batch, None, None, 0), cache=cache)
    return None if found is None else found.short_by_bytes


def test_what_is_missing_to_the_byte() -> None:
    exactly = describe(memory=WEIGHTS + CACHE)
    assert short_by(exactly, Ranks()) == 0
    assert short_by(describe(memory=WEIGHTS + CACHE - 1), Ranks()) == 1
    assert short_by(exactly, Ranks(), batch=3) == 2 * CACHE
    assert short_by(exactly, Ranks(), tokens=4097) == 131_072
    assert short_by(exactly, Ranks(), cache="fp8", batch=2) == 0
    assert short_by(exactly, Ranks(2), batch=2) == 0
    assert short_by(describe(bandwidth=1e12), Ranks()) is None
    assert short_by(exactly, Ranks(3)) is None  # 3 divides nothing: others say so


def test_lengths_and_a_prefix_that_is_kept_once() -> None:
    device, ranks = describe(memory=1), Ranks()
    found = need(LLAMA, device, ranks, sequences(0, 1, [100, 50, 50], None, 0))
    assert found is not None
    assert (found.weight_bytes, found.cache_bytes) == (WEIGHTS, 200 * 131_072)
    once = need(LLAMA, device, ranks, sequences(0, 1, [100, 50, 50], None, 0), shared_prefix=40)
    assert once is not None
    assert once.cache_bytes == (200 - 2 * 40) * 131_072


SHORT = (
    "it does not fit: weights and cache take 141,107,412,992 + 2,684,354,560 = 143,791,767,552 B on the fullest "
    "device, which has 85,520,809,984 B; the times are those of a device that could hold it"
)


@pytest.mark.parametrize(("words", "told"), [(("--tp", "1"), [SHORT]), (("--tp", "2"), []), (("--weights", "fp8"), [])])
def test_latency_says_what_does_not_fit(
    run: Callable[..., CompletedProcess[str]], words: tuple[str, str], told: list[str]
) -> None:
    done = run("latency", "llama-3-70b", "--gpu", "h100", "--batch", "2", *words, "--json")
    assert [text for text in json.loads(done.stdout)["warnings"] if "does not fit" in text] == told
