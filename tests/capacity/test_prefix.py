"""Sequences that begin alike: what they keep once, read once, and need not compute."""

from __future__ import annotations

import pytest

from llmcalc import kv_cache, load
from llmcalc.calc.capacity import Limits, capacity
from llmcalc.calc.latency import latency
from llmcalc.calc.room import Asked, Holding
from llmcalc.calc.weight_shards import Ranks
from llmcalc.errors import InvalidInputError
from llmcalc.hardware.catalogue import describe

LLAMA = load("llama-3-8b").architecture
DEVICE = describe(bandwidth=1e12, peak=1e15)


def test_a_prefix_is_kept_once() -> None:
    holding = Holding(LLAMA, Asked(4096, shared_prefix=1024))
    token = 131_072
    assert holding.bytes(4096, 10) == token * (1024 + 10 * 3072)
    assert holding.bytes(4096, 1) == token * 4096
    assert holding.bytes(500, 10) == token * 500
    cut = Holding(LLAMA, Asked(4096, ranks=Ranks(4, 2), shared_prefix=1024))
    assert cut.bytes(4096, 10) == token * (1024 + 10 * 3072) // 8
    blocks = Holding(LLAMA, Asked(4096, block_size=16, shared_prefix=1030))
    assert blocks.bytes(4096, 10) == holding.bytes(4096, 10)


def test_windows_and_states_are_each_sequence_s_own() -> None:
    model = load("gpt-oss-20b").architecture
    holding = Holding(model, Asked(4096, shared_prefix=1024))
    full = 12 * 2 * 8 * 64 * 2
    assert holding.bytes(4096, 3) == kv_cache(model, 4096, 3).total_bytes - 2 * 1024 * full
    mamba = load("mamba-130m").architecture
    assert Holding(mamba, Asked(shared_prefix=99)).bytes(4096, 3) == kv_cache(mamba, 4096, 3).total_bytes


def test_more_sequences_fit() -> None:
    found = capacity(LLAMA, None, Asked(4096, shared_prefix=4000), Limits(cache_memory=2**30))
    assert found.max_sequences == 1 + (8192 - 4096) // 96


def test_a_prefix_is_read_once_and_not_computed() -> None:
    own, alike = (latency(LLAMA, DEVICE, 4096, 8, shared_prefix=n) for n in (0, 1024))
    assert own.decode.cache_read_bytes - alike.decode.cache_read_bytes == 7 * 1024 * 131_072
    assert own.prefill.flops > alike.prefill.flops
    one = latency(LLAMA, DEVICE, 4096, prompt=4096, shared_prefix=1024)
    assert one.prefill.cache_read_bytes == 1024 * 131_072
    assert one.prefill.written_bytes == 3072 * 131_072


def test_engines_are_not_guessed() -> None:
    with pytest.raises(InvalidInputError, match="not described"):
        Holding(LLAMA, Asked(engine="vllm", shared_prefix=10)).bytes(100, 1)
