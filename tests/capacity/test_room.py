"""Capacity against brute force: grow until it no longer fits, on random mixtures of layers and by engines' rules."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcalc import kv_cache, load, read_config
from llmcalc.arch.base import Scope
from llmcalc.arch.compressed import CompressedAttention, Compressor
from llmcalc.arch.model import Architecture, Layer, Stack
from llmcalc.calc.room import Asked, Holding, most, pool_left, reserves
from llmcalc.calc.weight_shards import Ranks
from llmcalc.engines.budget import budget
from tests.properties.strategies import llamas

KINDS = ("full_attention", "sliding_attention", "chunked_attention")


@st.composite
def hybrids(draw: st.DrawFn) -> Architecture:
    """A small model whose layers keep everything, a window, a chunk, compressed entries, or a recurrent state."""
    data = draw(llamas())
    kinds = draw(st.lists(st.sampled_from(["full_attention", "sliding_attention"]), min_size=1, max_size=6))
    data = {**data, "num_hidden_layers": len(kinds), "layer_types": kinds, "model_type": "gemma3_text",
            "sliding_window": draw(st.integers(2, 60))}  # fmt: skip
    plain = read_config(data)
    layers = list(plain.decoder.layers)
    for index, layer in enumerate(layers):
        choice = draw(st.integers(0, 3))
        if choice == 0:
            layers[index] = swapped(layer, chunked(layer, draw(st.integers(2, 40))))
    mamba = load("mamba-130m").architecture.decoder.layers[0]
    layers += [mamba] * draw(st.integers(0, 2))
    if draw(st.booleans()):
        layers += [compressed(draw(st.sampled_from([2, 4, 8])), draw(st.integers(1, 20)))] * draw(st.integers(1, 2))
    return replace(plain, decoder=Stack("decoder", "layers", tuple(layers)))


def chunked(layer: Layer, size: int) -> Any:
    return replace(layer.mixers[0], scope=Scope("chunked", size))


def swapped(layer: Layer, spec: Any) -> Layer:
    first = next(s for s in layer.sublayers if s.spec is layer.mixers[0])
    return replace(layer, sublayers=tuple(s._replace(spec=spec) if s is first else s for s in layer.sublayers))


def compressed(rate: int, window: int) -> Layer:
    known = load("deepseek-v4-flash").architecture.decoder.layers
    for layer in known:
        spec = layer.mixers[0]
        if isinstance(spec, CompressedAttention) and isinstance(spec.compressor, Compressor) and spec.indexer is None:
            pressed = replace(spec.compressor, rate=rate)
            return swapped(layer, replace(spec, compressor=pressed, sliding_window=window))
    raise AssertionError("no layer of DeepSeek-V4 compresses without an indexer")


def grown(holds: Any, limit: int) -> int:
    """Token by token, or sequence by sequence, until it no longer fits."""
    number = 0
    while number < limit and holds(number + 1):
        number += 1
    return number


@settings(max_examples=40, deadline=None)
@given(model=hybrids(), tokens=st.integers(1, 150), batch=st.integers(1, 4), length=st.integers(1, 150),
       block=st.sampled_from([None, 3, 16]), pp=st.integers(1, 3))  # fmt: skip
def test_the_longest_context_is_that_of_growth(
    model: Architecture, tokens: int, batch: int, length: int, block: int | None, pp: int
) -> None:
    holding = Holding(model, Asked(length, batch, block_size=block, ranks=Ranks(1, min(pp, model.decoder.depth))))
    pool = holding.bytes(tokens, batch)
    found = holding.longest(pool, batch)
    walked = grown(lambda n: holding.bytes(n, batch) <= pool, 2000)
    assert found == walked or (found is None and walked == 2000) or (found is not None and walked == 2000 < found)


@settings(max_examples=40, deadline=None)
@given(model=hybrids(), pool=st.integers(0, 2**27), length=st.integers(1, 150))
def test_the_most_sequences_are_those_of_growth(model: Architecture, pool: int, length: int) -> None:
    holding = Holding(model, Asked(length))
    found = holding.sequences(pool, length)
    assert found == grown(
        lambda n: kv_cache(model, length, n).total_bytes <= pool, 2**20 if found is None else found + 2
    )
    one = kv_cache(model, length).total_bytes
    assert holding.concurrency(pool, length) == Fraction(pool, one)


@settings(max_examples=25, deadline=None)
@given(
    data=llamas(), engine=st.sampled_from(["vllm", "sglang", "tensorrt-llm", "llama.cpp", "transformers"]),
    pool=st.integers(1, 2**26), length=st.integers(1, 700),
)  # fmt: skip
def test_engines_by_their_own_count(data: dict[str, Any], engine: str, pool: int, length: int) -> None:
    model = read_config({**data, "torch_dtype": "float16"})
    holding = Holding(model, Asked(length, engine=engine))
    found = holding.sequences(pool, length)
    assert found is not None
    assert found == 0 or holding.bytes(length, found) <= pool
    assert holding.bytes(length, found + 1) > pool
    share = holding.concurrency(pool, length)
    assert share is not None
    assert found == share.numerator // share.denominator


def test_blocks_of_an_engine() -> None:
    # 18 and 31 tokens in blocks of 16 take 4 blocks; a pool of 4 blocks, one of them held back, holds 3.
    model = load("llama-3-8b").architecture
    block = 16 * 2 * 32 * 8 * 128 * 2
    holding = Holding(model, Asked(18, engine="vllm"))
    assert holding.block_tokens == 16
    assert holding.bytes(18, 1) == 2 * block + block
    assert holding.concurrency(4 * block, 18) == Fraction(3, 2)
    assert holding.longest(4 * block, 1) == 48


def test_most() -> None:
    assert most(lambda n: n <= 12345, 10**9) == 12345
    assert most(lambda _: False, 100) == 0
    assert most(lambda _: True, 100) is None


def test_what_rules_leave() -> None:
    gib = 2**30
    of_total = budget("vllm", 80 * gib)
    assert pool_left(of_total, 10 * gib, gib) == of_total.available_bytes - 11 * gib
    assert pool_left(budget("tensorrt-llm", 80 * gib), 10 * gib, 0) == 63 * gib
    assert pool_left(budget("none", 8 * gib, utilization=0.7), 6 * gib, 0) < 0


def test_reserves_are_options_or_ranges() -> None:
    rule = budget("vllm", 80 * 2**30)
    assert reserves("none", budget("none", 2**30), None, None) == ((0, 0), (0, 0), ())
    assert reserves("vllm", rule, 5, 7)[:2] == ((5, 5), (7, 7))
    seen = reserves("vllm", rule, None, 0)
    assert seen.activations[0] < seen.activations[1]
    assert seen.runtime == (0, 0)
    assert reserves("sglang", budget("sglang", 80 * 2**30), None, None).parts == ()  # it is beside what is left


@pytest.mark.parametrize("tokens", [1000, 4096, 131_072])
def test_compressed_windows_are_walked(tokens: int) -> None:
    model = load("deepseek-v4-flash").architecture
    holding = Holding(model, Asked())
    assert holding.period == 128
    pool = holding.bytes(tokens, 1)
    found = holding.longest(pool, 1)
    assert found is not None
    assert holding.bytes(found + 1, 1) > pool
    assert all(holding.bytes(n, 1) <= pool for n in range(max(1, found - 200), found + 1))
