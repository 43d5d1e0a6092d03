"""Capacity: published figures, the memory bar, degrees, devices, changes, users."""

from __future__ import annotations

import pytest

from llmcalc import load
from llmcalc.calc.capacity import Capacity, Limits, capacity
from llmcalc.calc.room import Asked
from llmcalc.calc.users import known_users, users
from llmcalc.calc.weight_shards import Ranks
from llmcalc.errors import InvalidInputError
from llmcalc.hardware.catalogue import describe

GIB = 2**30
LLAMA = load("llama-3-8b").architecture
LARGE = load("llama-3-70b").architecture


def of(pool: int, tokens: int = 4096, block: int | None = 16) -> Capacity:
    return capacity(LLAMA, None, Asked(tokens, cache="bf16", block_size=block), Limits(cache_memory=pool))


def test_vllm_concurrency_line() -> None:
    # vllm-project/vllm#10517: 3.8125 GiB hold 31,232 tokens, 1.56 sequences of 20,000
    found = of(4_093_640_704, 20_000)
    assert (found.pool_tokens, float(found.concurrency or 0)) == (31_232, 1.5616)
    assert found.fits
    assert found.memory is None


def test_four_devices_hold_122_sequences_of_a_70b() -> None:
    # ai-runway/airunway#139: 0.9 of 79.1 GiB on 4 devices
    device = describe(memory=int(79.1 * GIB))
    found = capacity(LARGE, device, Asked(ranks=Ranks(4)), Limits(utilization=0.9, overhead=0))
    assert float(found.concurrency or 0) == pytest.approx(122.7, rel=0.05)


def test_a_negative_budget_is_said() -> None:
    # vllm-project/vllm#13882
    limits = Limits(0.7, None, int(5.20 * GIB), int(1.42 * GIB), int(0.03 * GIB))
    found = capacity(load("qwen2-7b").architecture, describe(memory=8 * GIB), Asked(4096), limits)
    assert not found.fits
    assert found.short_by_bytes == pytest.approx(1_362_309_939, rel=1e-6)
    assert (found.cache_pool_bytes, found.pool_tokens, found.max_sequences, found.max_tokens_per_sequence) == (
        0,
        0,
        0,
        0,
    )


def test_the_bar_adds_up() -> None:
    for engine in ("none", "vllm", "sglang", "tensorrt-llm", "llama.cpp", "transformers"):
        found = capacity(LLAMA, describe("h100-sxm5-80gb"), Asked(4096, 8, engine=engine))
        assert found.memory is not None
        assert sum(found.memory) == describe("h100-sxm5-80gb").memory()
        assert found.figure.value == sum(found.memory[:4])
        assert found.largest_pool_bytes >= found.cache_pool_bytes


def test_a_linear_cache_fills_the_pool_to_the_token() -> None:
    found = of(10 * GIB, 1000, None)
    assert found.max_tokens_per_sequence == 10 * GIB // 131_072
    assert found.max_sequences == 10 * GIB // 131_072_000


def test_latents_are_whole_on_every_rank() -> None:
    model = load("deepseek-v3").architecture
    one = capacity(model, describe("b200-180gb"), Asked(ranks=Ranks(8)))
    two = capacity(model, describe("b200-180gb"), Asked(ranks=Ranks(4, 2)))
    assert one.cache_bytes == 4096 * 61 * 576 * 2
    assert two.stage_caches == (4096 * 31 * 576 * 2, 4096 * 30 * 576 * 2)
    # Three of the first stage's 31 layers have no experts: the second stage is the fuller one, with 30 layers' cache.
    assert two.stage_weights[1] > two.stage_weights[0]
    assert two.cache_bytes == two.stage_caches[1]


def test_degrees_with_their_reasons() -> None:
    found = capacity(LARGE, describe("h100-sxm5-80gb"), Asked(ranks=Ranks(1, 6)))
    ways = {(way.ranks.tp, way.ranks.pp): (way, fits) for way, fits in found.choices}
    assert set(ways) == {(1, 6), (2, 3), (3, 2), (6, 1)}
    assert "--tp 3" in ways[3, 2][0].reason
    assert ways[3, 2][1] is False
    assert ways[2, 3][0].weight_bytes is not None
    with pytest.raises(InvalidInputError, match="--tp 3"):
        assert capacity(LARGE, describe("h100-sxm5-80gb"), Asked(ranks=Ranks(3))).fits


@pytest.mark.parametrize(("name", "gpu", "count"), [("llama-3-70b", "h100-sxm5-80gb", 2), ("llama-3-8b", "l4", 1),
                                                   ("deepseek-v3", "h200-sxm-141gb", 5)])  # fmt: skip
def test_fewest_devices(name: str, gpu: str, count: int) -> None:
    model = load(name).architecture
    found = capacity(model, describe(gpu))
    assert found.min_gpus == count
    ways = [Ranks(tp, count // tp) for tp in range(1, count + 1) if count % tp == 0]
    assert any(found.holds(way) for way in ways)
    fewer = [Ranks(tp, (count - 1) // tp) for tp in range(1, count) if (count - 1) % tp == 0]
    assert not any(found.holds(way) for way in fewer)


def test_what_would_make_it_fit_does() -> None:
    asked = Asked(4096, 400)
    found = capacity(LLAMA, describe("l4"), asked)
    assert not found.fits
    options = {change.option.split()[0]: change.option.split()[1] for change in found.changes}
    assert set(options) == {"--tokens", "--batch", "--gpus"}
    assert capacity(LLAMA, describe("l4"), asked._replace(tokens=int(options["--tokens"]))).fits
    assert not capacity(LLAMA, describe("l4"), asked._replace(tokens=int(options["--tokens"]) + 1)).fits
    assert capacity(LLAMA, describe("l4"), asked._replace(batch=int(options["--batch"]))).fits
    assert not capacity(LLAMA, describe("l4"), asked._replace(batch=int(options["--batch"]) + 1)).fits
    narrow = capacity(LARGE, describe("h100-sxm5-80gb"))
    assert narrow.changes[0].option == "--weights fp8"
    assert capacity(LARGE, describe("h100-sxm5-80gb"), weights="fp8").fits


def test_nothing_grows_without_limit_but_state() -> None:
    found = capacity(load("mamba-2.8b").architecture, describe("l4"))
    assert found.max_tokens_per_sequence is None


def test_refusals() -> None:
    with pytest.raises(InvalidInputError, match="no device"):
        capacity(LLAMA)
    with pytest.raises(InvalidInputError, match="memory"):
        capacity(LLAMA, describe(bandwidth=1e12))
    with pytest.raises(InvalidInputError, match="utilization"):
        assert capacity(LLAMA, describe("l4"), limits=Limits(utilization=1.5)).fits
    with pytest.raises(InvalidInputError, match="max-itl"):
        users(capacity(LLAMA, describe("l4")), describe("l4"), max_itl=-1)


def test_what_never_fits_is_said_at_once() -> None:
    found = capacity(LARGE, describe(memory=GIB), Asked(4096, 100_000))
    assert (found.fits, found.min_gpus) == (False, None)


def test_an_encoder_keeps_nothing() -> None:
    found = capacity(load("bert-base-uncased").architecture, describe("l4"))
    assert (found.fits, found.concurrency, found.max_sequences) == (True, None, None)
    assert known_users(found, describe("l4"), None, None) is None


def test_times_only_where_they_are_known() -> None:
    room = capacity(LLAMA, describe(memory=40 * GIB))
    assert known_users(room, describe(memory=40 * GIB), None, None) is None
    with pytest.raises(InvalidInputError, match="needs a device"):
        known_users(room, None, 0.1, None)
