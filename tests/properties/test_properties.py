"""What holds for every model, tried on many."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmcalc import Architecture, LlmcalcError, kv_cache, params, read_config
from llmcalc.arch.base import Scope, Step
from llmcalc.calc.describe import sentence
from llmcalc.cli.kv_cache_report import results
from llmcalc.figure import Figure
from tests.properties.strategies import corpus, llamas, mutated

SLOW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check_sums(figure: Figure) -> None:
    """A figure is the product of its factors or the sum of its parts, all the way down."""
    if figure.parts:
        assert figure.value == sum(part.value for part in figure.parts)
        for part in figure.parts:
            check_sums(part)
    elif figure.factors:
        product = 1
        for factor in figure.factors:
            product *= factor.value
        assert figure.value == product


def compressed(model: Architecture) -> bool:
    return any(held.state.scope.kind in ("open", "overlap", "compressed") for held in model.states)


@SLOW
@given(corpus())
def test_parts_sum_to_the_whole(data: dict[str, Any]) -> None:
    model = read_config(data)
    estimate = kv_cache(model, 1000, 3, cache="bf16")

    check_sums(estimate.figure)
    assert estimate.figure.value == estimate.total_bytes == estimate.kv_bytes + estimate.recurrent_bytes
    assert sum(row.bytes for row in estimate.layers) == estimate.total_bytes
    assert estimate.bytes_per_sequence * 3 == estimate.total_bytes
    if not model.uncounted:
        count = params(model)
        check_sums(count.figure)
        check_sums(count.active)
        assert count.total_params == count.text_params + count.vision_params + count.audio_params
        assert count.active_params <= count.text_params <= count.total_params <= count.stored_params


@SLOW
@given(corpus(), st.integers(1, 20_000), st.integers(0, 5_000))
def test_cache_never_shrinks(data: dict[str, Any], tokens: int, more: int) -> None:
    model = read_config(data)
    if compressed(model):
        return

    assert kv_cache(model, tokens).total_bytes <= kv_cache(model, tokens + more).total_bytes


@SLOW
@given(corpus(), st.integers(1, 20_000))
def test_growth_is_what_it_says(data: dict[str, Any], tokens: int) -> None:
    """Past every window, one token more adds bytes_per_token."""
    model = read_config(data)
    if compressed(model) or any(held.state.scope.kind == "source" for held in model.states):
        return
    past = max((h.state.scope.size for h in model.states if h.state.scope.kind in ("sliding", "chunked")), default=0)
    one, two = kv_cache(model, past + tokens), kv_cache(model, past + tokens + 1)

    assert two.total_bytes - one.total_bytes == one.bytes_per_token


@SLOW
@given(llamas(), st.integers(1, 5_000))
def test_sharing_heads_never_costs(data: dict[str, Any], tokens: int) -> None:
    sizes = [
        kv_cache(read_config({**data, "num_key_value_heads": heads}), tokens).total_bytes
        for heads in (1, data["num_key_value_heads"], data["num_attention_heads"])
    ]

    assert sizes == sorted(sizes)


@SLOW
@given(llamas(), st.lists(st.integers(1, 3_000), min_size=1, max_size=6))
def test_lengths_add_up(data: dict[str, Any], lengths: list[int]) -> None:
    model = read_config(data)
    estimate = kv_cache(model, lengths=lengths)

    assert estimate.bytes_per_sequence == [kv_cache(model, n).total_bytes for n in lengths]
    assert estimate.total_bytes == sum(estimate.bytes_per_sequence)
    assert estimate.bytes_per_token is None


@SLOW
@given(llamas(), st.integers(1, 64), st.integers(1, 8))
def test_ranks_hold_their_share(data: dict[str, Any], tp: int, pp: int) -> None:
    """The largest rank holds at least the mean; all ranks together at least the whole."""
    model = read_config(data)
    try:
        estimate = kv_cache(model, 100, tp=tp, pp=pp)
    except LlmcalcError:
        assert (
            max(tp, data["num_key_value_heads"]) % min(tp, data["num_key_value_heads"])
            or pp > data["num_hidden_layers"]
        )
        return
    rank = estimate.per_device_bytes if estimate.per_device_bytes is not None else estimate.total_bytes

    assert rank * tp * pp >= estimate.total_bytes


@given(
    st.sampled_from(["full", "sliding", "chunked", "compressed"]), st.integers(1, 50), st.integers(0, 200),
    st.integers(0, 200),
)  # fmt: skip
def test_pairs_add_up(kind: Any, size: int, first: int, second: int) -> None:
    """Pairs of a step in one go equal those of its halves, and are what counting finds."""
    scope = Scope(kind, size)
    whole = Step(first + second).pairs(scope)
    seen = {
        "full": lambda i: i,
        "sliding": lambda i: min(i, size),
        "chunked": lambda i: (i - 1) % size + 1,
        "compressed": lambda i: i // size,
    }[kind]

    assert whole == Step(first).pairs(scope) + Step(second, first).pairs(scope)
    assert whole == sum(seen(i) for i in range(1, first + second + 1))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated())
def test_any_config_is_answered_or_refused(data: dict[str, Any]) -> None:
    """An answer or an error with one line; never a traceback, never a negative figure."""
    refused: LlmcalcError | None = None
    try:
        model = read_config(data)
        estimate = kv_cache(model, 1000)
        sentence(model)
        count = params(model)
    except LlmcalcError as error:
        refused = error

    if refused is not None:
        assert refused.message
        assert "\n" not in refused.message
    else:
        assert estimate.total_bytes >= 0
        assert count.total_params >= 0


@SLOW
@given(corpus())
def test_figures_are_strict_json(data: dict[str, Any]) -> None:
    document = results(kv_cache(read_config(data), 77), "none")

    assert json.loads(json.dumps(document, allow_nan=False)) == document


@pytest.mark.parametrize("kind", ["sliding", "chunked"])
def test_windows_stop_growing(kind: Any) -> None:
    scope = Scope(kind, 100)

    assert [scope.rows(n) for n in (0, 99, 100, 101, 10_000)] == [0, 99, 100, 100, 100]
