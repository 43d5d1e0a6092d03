"""What capacity answers against growth: models and small hybrids, every engine and cut, the options beside."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcalc import load
from llmcalc.arch.model import Architecture
from llmcalc.calc.capacity import Capacity, Limits, capacity
from llmcalc.calc.room import Asked
from llmcalc.calc.weight_shards import Ranks
from llmcalc.errors import LlmcalcError
from llmcalc.hardware.catalogue import describe
from tests.capacity.test_room import hybrids

ENGINES = ("none", "vllm", "sglang", "tensorrt-llm", "llama.cpp", "transformers")
# Windows, chunks, states beside attention, latents, index keys, compressed windows, fixed sources, nothing that grows.
MODELS = (
    "llama-3-8b", "gemma-3-27b", "gpt-oss-20b", "llama-4-scout", "qwen3-next-80b-a3b", "zamba2-1.2b", "mamba-130m",
    "deepseek-v3", "deepseek-v3.2", "deepseek-v4-flash", "whisper-large-v3", "t5-base", "bert-base-uncased",
)  # fmt: skip


def maybe(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from((None, *values))


@st.composite
def asks(draw: st.DrawFn) -> Asked:
    ranks = Ranks(draw(st.sampled_from((1, 2, 4, 8))), draw(st.integers(1, 4)), 1, draw(st.integers(1, 2)))
    return Asked(
        draw(st.integers(1, 300) | st.integers(1, 200_000)), draw(st.sampled_from((1, 2, 40))),
        draw(st.sampled_from(("auto", "bf16", "fp8"))), draw(st.sampled_from(ENGINES)), ranks, draw(maybe(16, 64)),
        draw(maybe(512)), draw(maybe(77)), draw(st.sampled_from((0, 1601))), draw(st.sampled_from((0, 50, 3000))),
    )  # fmt: skip


@st.composite
def rooms(draw: st.DrawFn, models: st.SearchStrategy[Architecture], sizes: st.SearchStrategy[int]) -> Capacity | None:
    """None for what an engine refuses."""
    size = draw(sizes)
    limits = Limits(
        draw(maybe(0.5, 1.0)), None, draw(maybe(size // 3)), draw(maybe(0, size // 9)), draw(maybe(0, 1000))
    )
    given_pool = draw(st.integers(0, 3)) == 0
    device = None if given_pool else describe(memory=size)
    try:
        room = capacity(draw(models), device, draw(asks()), Limits(cache_memory=size) if given_pool else limits)
        return room if room.fits in (True, False) else None
    except LlmcalcError:
        return None


def holds(room: Capacity, tokens: int, batch: int) -> bool:
    """The same, asked for as many and as long."""
    return replace(room, asked=room.asked._replace(tokens=tokens, batch=batch)).fits


def check(room: Capacity, step: int) -> None:
    """Every answer against what one more, or ``step`` more or less, would do."""
    asked, most, longest = room.asked, room.max_sequences, room.max_tokens_per_sequence
    assert room.fits == (room.short_by_bytes == 0)
    assert room.short_by_bytes == max(0, room.cache_bytes - room.left)
    if room.memory is not None:
        assert room.device is not None
        assert sum(room.memory) == room.device.memory()
    if most is None:
        assert not room.holding.keeps or holds(room, asked.tokens, 2**31)
    else:
        assert room.concurrency is not None
        assert (most, asked.batch <= most) == (room.concurrency.numerator // room.concurrency.denominator, room.fits)
        assert most == 0 or (holds(room, asked.tokens, most) and holds(room, asked.tokens, max(1, most - step)))
        assert not holds(room, asked.tokens, most + 1)
        assert not holds(room, asked.tokens, most + step)
        block = room.holding.block_tokens
        assert (room.pool_tokens or 0) >= most * asked.tokens // block * block
        assert (room.pool_tokens or 0) < (most + 1) * asked.tokens
    if longest is None:
        assert not room.holding.keeps or holds(room, 2**30, asked.batch)
    else:
        assert longest == 0 or (holds(room, longest, asked.batch) and holds(room, max(1, longest - step), asked.batch))
        assert not holds(room, longest + 1, asked.batch)
        # The open windows of compressed attention empty again: growth ends before a length that would fit once more.
        assert room.holding.period > 1 or not holds(room, longest + step, asked.batch)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), step=st.integers(1, 3000))
def test_models_by_every_engine(data: st.DataObject, step: int) -> None:
    models = st.sampled_from(MODELS).map(lambda name: load(name).architecture)
    room = data.draw(rooms(models, st.integers(10**7, 2 * 10**11)))
    if room is not None:
        check(room, step)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), step=st.integers(1, 300))
def test_small_hybrids_over_stages(data: st.DataObject, step: int) -> None:
    room = data.draw(rooms(hybrids(), st.integers(10**4, 10**8)))
    if room is not None:
        check(room, step)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_is_reached(engine: str) -> None:
    room = capacity(
        load("llama-3-8b").architecture, describe("h100-sxm5-80gb"), Asked(ranks=Ranks(1, 3), engine=engine)
    )
    assert room.fits
    check(room, 17)


def test_each_stage_has_its_own_room() -> None:
    """DeepSeek-V3: the first of two stages keeps 31 layers of cache, the second has more experts in its 30."""
    data = load("deepseek-v3").architecture
    room = capacity(data, describe(memory=400 * 10**9), Asked(4096, 100, ranks=Ranks(1, 2)))
    one = sum(max(pair) for pair in (room.stage_weights, room.stage_caches))
    assert room.weight_bytes + room.cache_bytes < one
    tight = capacity(data, describe(memory=room.weight_bytes + room.cache_bytes), room.asked)
    assert tight.fits
    assert not capacity(data, describe(memory=room.weight_bytes + room.cache_bytes - 1), room.asked).fits
