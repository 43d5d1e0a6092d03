"""What holds of every engine: it takes no less than the arrays, never less for more tokens, and its parts add up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcalc import kv_cache, read_config
from llmcalc.engines import ENGINES
from llmcalc.errors import LlmcalcError
from tests.properties.strategies import CORPUS, corpus, llamas

PAGED = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")


@st.composite
def windowed(draw: st.DrawFn) -> dict[str, Any]:
    """A small model with full and sliding layers in any mixture."""
    data = draw(llamas())
    layers = data["num_hidden_layers"]
    kinds = st.lists(st.sampled_from(["full_attention", "sliding_attention"]), min_size=layers, max_size=layers)
    return {
        **data,
        "model_type": "gemma3_text",
        "sliding_window": draw(st.integers(2, 300)),
        "layer_types": draw(kinds),
    }


@settings(max_examples=60, deadline=None)
@given(
    data=llamas() | windowed(), lengths=st.lists(st.integers(1, 5000), min_size=1, max_size=5),
    engine=st.sampled_from(PAGED),
)  # fmt: skip
def test_no_less_than_the_arrays(data: dict[str, Any], lengths: list[int], engine: str) -> None:
    found = kv_cache(read_config(data), lengths=lengths, cache="fp16", engine=engine)

    assert found.allocated_bytes is not None
    assert found.allocated_bytes >= found.total_bytes
    assert found.allocation is not None
    assert found.allocation.figure.value == found.allocation.per_device_bytes
    if found.allocation.unused is not None:
        assert found.allocation.unused >= 0


@settings(max_examples=60, deadline=None)
@given(
    data=llamas() | windowed() | corpus(), engine=st.sampled_from(sorted(ENGINES)), tokens=st.integers(1, 40_000),
    more=st.integers(0, 3000), pp=st.integers(1, 3),
)  # fmt: skip
def test_monotone_in_tokens(data: dict[str, Any], engine: str, tokens: int, more: int, pp: int) -> None:
    try:
        architecture = read_config(data)
        few, many = (kv_cache(architecture, n, engine=engine, pp=pp).allocation for n in (tokens, tokens + more))
    except LlmcalcError:
        return
    assert few is not None
    assert many is not None
    if architecture.model_type != "deepseek_v4" or engine == "vllm":  # open windows empty when they are full
        assert few.allocated_bytes <= many.allocated_bytes
    assert few.per_device_bytes <= few.allocated_bytes


@settings(max_examples=40, deadline=None)
@given(data=llamas(), tokens=st.integers(1, 3000), tp=st.sampled_from([1, 2, 4, 8, 16]))
def test_ranks_share_heads(data: dict[str, Any], tokens: int, tp: int) -> None:
    """A rank has its heads, or one of its own: the ranks together never have less than one device alone."""
    heads = data["num_key_value_heads"]
    if heads % tp and tp % heads:
        return
    one = kv_cache(read_config(data), tokens, engine="vllm").allocation
    many = kv_cache(read_config(data), tokens, engine="vllm", tp=tp).allocation

    assert one is not None
    assert many is not None
    assert many.per_device_bytes * max(heads, tp) == one.per_device_bytes * max(heads, tp) // heads * max(
        1, heads // tp
    )


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_the_whole_corpus_is_answered_or_refused(engine: str) -> None:
    import json

    for path in CORPUS[::3]:
        try:
            found = kv_cache(read_config(json.loads(path.read_text("utf-8"))), 1000, 2, engine=engine).allocation
        except LlmcalcError:
            continue
        assert found is not None
        assert sum(part.value for part in found.figure.parts) == found.figure.value == found.allocated_bytes
