"""The bound is one: it counts what no implementation can do without, by hand and by brute force."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcalc import flops, load, read_config
from llmcalc.arch.base import Scope, State, Step
from llmcalc.arch.mixing import Counting
from llmcalc.arch.model import Architecture, Layer
from llmcalc.calc.latency import Latency, latency
from llmcalc.calc.links import traffic
from llmcalc.calc.needed import lags, least_work
from llmcalc.calc.passes import Pass, Share
from llmcalc.calc.rows import kept_bytes
from llmcalc.calc.sizing import sequences
from llmcalc.calc.weight_shards import Ranks
from llmcalc.errors import UnsupportedError
from llmcalc.hardware.catalogue import describe
from tests.capacity.test_room import hybrids
from tests.properties.strategies import CORPUS, llamas

PLAIN = describe(bandwidth=1e12, peak=1e15)  # no cache: every byte that must move is seen
FULL = st.integers(0, 5000)


def step(name: str, n: int = 4096, batch: int = 1, **options: object) -> Latency:
    found = latency(load(name).architecture, PLAIN, max(n, 1), batch, **options)  # type: ignore[arg-type]
    return found if n else at(found, n, batch)


def at(found: Latency, n: int, batch: int = 1) -> Latency:
    """The same on other contexts, none at all among them, which a first step is on."""
    return replace(found, sizes=sequences(n, batch, None, None, 0, least=0))


# -- a decode step, by hand ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "window"), [(0, 0), (1, 1), (126, 126), (127, 127), (128, 127), (129, 127), (5000, 127)])
def test_a_window_holds_the_tokens_own_position(n: int, window: int) -> None:
    """gpt-oss-20b: 12 layers in a window of 128, 12 that see all; a row is 2 x 8 heads x 64 x 2 B."""
    found = step("gpt-oss-20b", n).decode
    row = 2 * 8 * 64 * 2
    assert found.cache_read_bytes == 12 * row * (n + min(n, 128))
    cache = 12 * row * (n + window) + 24 * row
    assert found.moved_bytes == found.weight_read_bytes + found.embedding_read_bytes + cache


@pytest.mark.parametrize(
    ("n", "read", "needed", "kept"),
    [(0, 0, 0, 1), (1, 1, 1, 1), (8191, 8191, 8191, 0), (8192, 8192, 0, 1), (8193, 1, 1, 1), (16384, 8192, 0, 1)],
)
def test_a_chunk_begins_anew(n: int, read: int, needed: int, kept: int) -> None:
    """Llama-4 Scout: 36 layers in chunks of 8,192, 12 that see all; what ends a chunk is never read again."""
    found = step("llama-4-scout", n).decode
    row = 2 * 8 * 128 * 2
    assert found.cache_read_bytes == row * (12 * n + 36 * read)
    cache = row * (12 * n + 36 * needed + 12 + 36 * kept)
    assert found.moved_bytes == found.weight_read_bytes + found.embedding_read_bytes + cache


def test_full_attention_spares_nothing() -> None:
    found = step("llama-3-8b", 4096).decode
    assert found.spare_bytes == 0
    assert found.seconds_at_least == (found.read_bytes + found.written_bytes) / 1e12


@pytest.mark.parametrize(("n", "latents", "keys"), [(2047, 2047, 0), (2048, 2047, 2048), (9000, 2047, 9000)])
def test_picks_may_hold_the_token_itself(n: int, latents: int, keys: int) -> None:
    """DeepSeek-V3.2 picks 2,048 positions; up to there its index keys and their queries are not needed."""
    found = step("deepseek-v3.2", n)
    moves = [op for op in found.reader.operators(found.decode_pass()) if op.part == "cache"]
    needed = sum(op.least[0] + op.written[0] - op.spare[0] for op in moves) - sum(op.written[0] for op in moves)
    assert needed == 61 * (latents * 576 * 2 + keys * 128 * 2)
    assert found.decode.cache_read_bytes == 61 * (min(n, 2048) * 576 * 2 + n * 128 * 2)
    assert (found.decode.work.flops < found.decode.flops) is (n < 2048)


def test_equal_tokens_need_one_row_of_a_table() -> None:
    one, many = step("llama-3-8b", 100).decode, step("llama-3-8b", 100, 7).decode
    assert many.embedding_read_bytes == 7 * 8192
    assert many.spare_bytes == 6 * 8192
    assert one.spare_bytes == 0
    tied = step("llama-3.2-1b", 100).decode
    assert tied.spare_bytes == tied.embedding_read_bytes == 2048 * 2  # the head reads the whole table


def test_a_prefix_is_read_once_by_sequences_of_any_length() -> None:
    found = step("llama-3-8b", lengths=[1000, 1500, 1500], shared_prefix=800).decode
    cache = 131_072 * (1000 + 1500 + 1500 - 2 * 800)
    assert found.moved_bytes - found.weight_read_bytes - 8192 - 3 * 131_072 == cache


def test_a_convolution_moves_on_in_place() -> None:
    state = State("conv", (1, 10, 3), Scope("fixed", 1), "conv", "model")
    assert [kept_bytes(state, Step(new), 0, 60) for new in (1, 2, 3, 9)] == [20, 40, 60, 60]


def test_a_state_that_a_cache_holds_is_neither_read_nor_written() -> None:
    found = latency(load("mamba-130m").architecture, describe("b200-180gb"), 100).decode
    plain = step("mamba-130m", 100).decode
    assert plain.moved_bytes - found.moved_bytes > 132_120_576


def test_biases_of_cross_attention_are_read_with_the_prompt() -> None:
    found = step("whisper-large-v3", 100)
    names = [op.name for op in found.reader.operators(found.decode_pass()) if op.part == "weights"]
    assert not [name for name in names if "encoder_attn.k_proj" in name or "encoder_attn.v_proj" in name]


# -- operations ----------------------------------------------------------------------------------------------------


def test_the_last_layer_runs_for_the_last_token() -> None:
    """Llama-3-8B: of its last layer all but one token's products and pairs are left out."""
    model = load("llama-3-8b").architecture
    found = latency(model, PLAIN, prompt=1000).prefill
    layer = 2 * (4096 * (4096 + 1024) * 2 + 3 * 4096 * 14336)
    assert found.flops == flops(model, 1000).forward_flops
    assert found.work.products == found.flops - 32 * 4 * 4096 * 500_500 - 999 * layer
    assert found.work.attention == 4 * 4096 * (31 * 500_500 + 1000)


def test_layers_that_borrow_run_for_the_last_token() -> None:
    """Gemma-4 E2B: the last 20 of 35 layers own no keys and values; layer 14 below them needs every position."""
    model = load("gemma-4-e2b").architecture
    run = Pass((Share(Step(4096)),), Counting(), "last")
    found = lags(model, run)
    assert found == dict.fromkeys(range(14, 35), 4095)
    assert least_work(model, run).flops < flops(model, 4096).forward_flops // 3


def test_windows_need_what_the_windows_above_look_at() -> None:
    """Gemma-3 27B: layers 60 and 61 in windows of 1,024 on top of layer 59, which sees all."""
    run = Pass((Share(Step(5000)),), Counting(), "last")
    assert lags(load("gemma-3-27b").architecture, run) == {61: 4999, 60: 5000 - 1024, 59: 5000 - 2047}


def test_checked_drafts_want_every_output() -> None:
    found = step("llama-3-8b", 100)
    checked = found.timed((Share(Step(5, 100)),))
    assert checked.work.flops == checked.flops
    head = 2 * 128_256 * 4096
    assert checked.flops == flops(found.architecture, 100, phase="decode", new=5, logits="all").forward_flops
    assert checked.flops > 5 * head


def test_rates_that_implementations_reach() -> None:
    """llama.cpp sums in fp16 on GeForce; attention to an fp8 cache runs in fp8."""
    model = load("llama-3-8b").architecture
    gamer = latency(model, describe("rtx-4090"), prompt=4096)
    assert gamer.bounds.product_rate == 330_300_000_000_000
    assert gamer.peak is not None
    assert gamer.peak.per_second == 165_150_000_000_000
    h100 = latency(model, describe("h100-sxm5-80gb"), prompt=4096, cache="fp8")
    assert (h100.bounds.product_rate, h100.bounds.attention_rate) == (989_400_000_000_000, 1_978_900_000_000_000)
    work = h100.prefill.work
    assert h100.prefill.compute_seconds == work.products / 989.4e12 + work.attention / 1978.9e12


def test_outputs_that_nothing_reads_are_not_sent() -> None:
    """Llama-3-8B on two ranks: 62 sums for every token, two for the last; one hand-over between two stages."""
    model = load("llama-3-8b").architecture
    run = Pass((Share(Step(100), 0, 3),), Counting(), "last")
    assert traffic(model, Ranks(2), run).least == 3 * (62 * 100 + 2) * 4096 * 2 / 2
    assert traffic(model, Ranks(1, 2), run).least == 3 * 100 * 4096 * 2


# -- prompts in pieces ---------------------------------------------------------------------------------------------


def test_prompts_are_packed_into_as_few_passes_as_their_tokens_need() -> None:
    """Five prompts of 600 in passes of 1,000: three passes, the last of which alone asks for the head."""
    slow = describe(bandwidth=1e12, peak=1e18)
    found = latency(load("llama-3-8b").architecture, slow, 600, 5, prompt=600, batched_tokens=1000)
    layer = 2 * (4096 * (4096 + 1024) * 2 + 3 * 4096 * 14336 + 2 * 4096)
    head = 2 * (128_256 * 4096 + 4096)
    cache = 5 * 600 * 131_072
    assert found.prefill_seconds[0] == pytest.approx((32 * layer + head + 8192 + cache + 2 * 31 * layer) / 1e12)
    assert len(found.passes) == 1
    assert found.passes[0][1] == 5
    assert found.prefill_seconds_at_least <= sum(times * timing.seconds_at_least for timing, times in found.passes)


@pytest.mark.parametrize("name", ["llama-3-8b", "gpt-oss-20b", "llama-4-scout", "deepseek-v3.2", "gemma-4-e2b",
                                  "zamba2-1.2b", "qwen3-next-80b-a3b", "deepseek-v4-flash", "t5-large"])  # fmt: skip
@pytest.mark.parametrize("ranks", [Ranks(), Ranks(1, 2)])
def test_pieces_never_beat_the_bound(name: str, ranks: Ranks) -> None:
    for device in (PLAIN, describe("h200-sxm-141gb")):
        found = latency(load(name).architecture, device, 100, 2, prompt=1500, batched_tokens=500, ranks=ranks)
        assert found.prefill_seconds_at_least <= sum(times * timing.seconds_at_least for timing, times in found.passes)
        assert found.prefill_seconds_at_least <= found.prefill_seconds_roofline


# -- properties ----------------------------------------------------------------------------------------------------


def brute(kind: str, size: int, query: int) -> set[int]:
    """Positions that a query sees, by the definition of its mask."""
    seen = range(query + 1)
    if kind == "sliding":
        return {p for p in seen if query - p < size}
    if kind == "chunked":
        return {p for p in seen if p // size == query // size}
    return set(seen)


@settings(max_examples=30, deadline=None)
@given(model=hybrids(), n=st.integers(0, 200))
def test_rows_are_those_of_the_mask(model: Architecture, n: int) -> None:
    """Keys and values of full, windowed and chunked layers: those that the next token sees, less its own."""
    found = at(latency(model, PLAIN), n)
    entry = found.reader.entry
    want = kept = 0
    for held in model.states:
        scope = held.state.scope
        if held.state.kind in ("key", "value") and "compressed" not in held.kind:
            seen = brute(scope.kind, scope.size, n) - {n}
            want += held.calls * len(seen) * entry(held.spec, held.state)
            kept += held.calls * (n in brute(scope.kind, scope.size, n + 1)) * entry(held.spec, held.state)
    operators = [op for op in found.reader.operators(found.decode_pass()) if op.part == "cache"]
    plain = [op for op in operators if "compressed" not in op.name]
    assert sum(op.least[0] + op.written[0] - op.spare[0] for op in plain) == want + kept


@settings(max_examples=30, deadline=None)
@given(model=hybrids(), new=st.integers(1, 120), past=st.integers(0, 120))
def test_operations_are_at_most_those_of_the_wanted_outputs(model: Architecture, new: int, past: int) -> None:
    """Backwards through the layers with sets of positions, from the last token and the rows that the next one sees."""
    run = Pass((Share(Step(new, past)),), Counting(), "last")
    end, found = past + new, lags(model, run)
    wanted = {end - 1}
    for depth in reversed(range(model.decoder.depth)):
        layer = model.decoder.layers[depth]
        assert {p for p in wanted if p >= past} <= set(range(past + found.get(depth, 0), end))
        wanted = wanted | looked_at(layer, wanted, end)
    whole = flops(model, new, phase="prefill", past=past).forward_flops
    assert least_work(model, run).flops <= whole


def looked_at(layer: Layer, wanted: set[int], end: int) -> set[int]:
    out: set[int] = set()
    for spec in layer.mixers:
        for state in spec.state():
            scope = state.scope
            if scope.kind not in ("full", "sliding", "chunked"):
                return set(range(end))
            for query in (*wanted, end):
                out |= brute(scope.kind, scope.size, query)
    return {p for p in out if p < end}


@settings(max_examples=30, deadline=None)
@given(model=hybrids(), n=FULL, batch=st.integers(1, 5), prompt=st.integers(1, 300), device=st.booleans())
def test_the_bound_is_at_most_the_roofline(model: Architecture, n: int, batch: int, prompt: int, device: bool) -> None:
    one = latency(model, PLAIN if device else describe("rtx-4090"), 1, batch, prompt=prompt, batched_tokens=100)
    found = at(one, n, batch)
    decode = found.decode
    assert decode.seconds_at_least <= decode.seconds_roofline * (1 + 1e-12)
    assert found.prefill_seconds_at_least <= found.prefill_seconds_roofline * (1 + 1e-12)
    assert decode.spare_bytes >= 0
    assert decode.moved_bytes <= decode.read_bytes + decode.written_bytes
    assert decode.work.flops <= decode.flops


@settings(max_examples=30, deadline=None)
@given(data=llamas(), n=FULL, more=st.integers(0, 3000))
def test_longer_is_slower_where_all_is_seen(data: dict[str, object], n: int, more: int) -> None:
    model = read_config({**data, "sliding_window": None, "layer_types": None, "use_sliding_window": False})
    if any(held.state.scope.kind != "full" for held in model.states):
        return
    found = latency(model, PLAIN)
    short, long = at(found, n).decode, at(found, n + more).decode
    assert short.moved_bytes <= long.moved_bytes
    assert short.work.flops <= long.work.flops


@pytest.mark.parametrize("path", CORPUS[::9], ids=lambda path: path.stem)
def test_of_every_kind_of_model(path: Path) -> None:
    model = read_config(json.loads(path.read_text("utf-8")))
    if not model.decoder.layers:
        return
    for tokens, batch in ((0, 1), (1, 1), (127, 3), (3000, 2)):
        try:
            found = at(latency(model, PLAIN, prompt=max(1, tokens)), tokens, batch)
            operators = found.reader.operators(found.decode_pass())
        except UnsupportedError:
            return
        for op in operators:
            assert all(0 <= spare <= a + b for spare, a, b in zip(op.spare or (0,), op.least, op.written, strict=False))
        assert 0 < found.decode.work.flops <= found.decode.flops * (1 + 1e-9)
        assert 0 < found.prefill.work.flops <= found.prefill.flops


@pytest.mark.parametrize("name", ["llama-4-scout", "deepseek-v4-flash", "gpt-oss-20b"])
def test_long_requests_stay_below_the_sum_of_their_steps(name: str) -> None:
    found = latency(load(name).architecture, PLAIN, prompt=7900, output=601)
    steps = sum(found._grown(7900 + done).seconds_at_least for done in range(600))
    assert found.request_seconds_at_least - found.prefill_seconds_at_least <= steps * (1 + 1e-12)
