"""What a decode step reads: exact bytes, by hand from published shapes."""

from __future__ import annotations

from typing import Any

import pytest

from llmcalc import flops, load, weights
from llmcalc.arch.base import Scope, Spec, State
from llmcalc.calc.latency import Latency, latency
from llmcalc.calc.rows import read_rows
from llmcalc.calc.weight_shards import Ranks
from llmcalc.hardware.catalogue import describe

DEVICE = describe("h200-sxm-141gb")


def step(name: str, *words: int, **options: Any) -> Latency:
    return latency(load(name).architecture, DEVICE, *words, **options)


def test_llama_3_8b_reads_all_but_its_table() -> None:
    found = step("llama-3-8b", 2048).decode
    assert found.weight_read_bytes == 15_009_849_344
    assert found.embedding_read_bytes == 4096 * 2
    assert found.cache_read_bytes == 2 * 32 * 8 * 128 * 2 * 2048
    assert found.written_bytes == 2 * 32 * 8 * 128 * 2
    assert found.read_bytes == 15_009_849_344 + 8192 + 268_435_456


def test_llama_3_70b_as_published() -> None:
    found = step("llama-3-70b", 8192).decode
    assert found.weight_read_bytes + found.embedding_read_bytes == 139_006_083_072
    assert found.cache_read_bytes == 2_684_354_560


def test_a_tied_table_is_read_once_as_the_head() -> None:
    model = load("gpt2").architecture
    found = latency(model, DEVICE, 10).decode
    # 124,439,808 parameters less 1,024 learned positions, of which one row is read
    size = found.embedding_read_bytes // (2 * 768)
    assert found.weight_read_bytes == size * (124_439_808 - 1024 * 768)


def test_each_sequence_reads_a_row_and_its_own_cache() -> None:
    one, many = step("llama-3-8b", 100).decode, step("llama-3-8b", 100, 7).decode
    assert many.weight_read_bytes == one.weight_read_bytes
    assert many.embedding_read_bytes == 7 * one.embedding_read_bytes
    assert many.cache_read_bytes == 7 * one.cache_read_bytes


def test_experts_that_must_be_touched_and_those_found_at_random() -> None:
    # Mixtral: 8 experts, 2 a token; D(B) = 8 (1 - (3/4)^B): 2, 7.199 and 7.9992 at 1, 8 and 32.
    expert = 32 * 3 * 4096 * 14336 * 2
    for batch, distinct in ((1, 2.0), (8, 7.199), (32, 7.9992)):
        found = step("mixtral-8x7b", 100, batch).decode
        assert (found.likely_read_bytes - found.read_bytes) / expert == pytest.approx(distinct - 2, abs=1e-3)


def test_distinct_experts_of_deepseek_v3() -> None:
    # 256 experts, 8 a token, 58 layers: 8.00, 57.42, 163.31, 222.44, 251.60 of them at 1, 8, 32, 64, 128 tokens.
    one = 58 * 3 * 7168 * 2048  # fp8, block scales beside
    for batch, distinct in ((1, 8.0), (8, 57.42), (32, 163.31), (64, 222.44), (128, 251.60)):
        found = step("deepseek-v3", 100, batch).decode
        assert (found.likely_read_bytes - found.read_bytes) / one == pytest.approx(distinct - 8, rel=1e-3, abs=1e-2)


@pytest.mark.parametrize("n", [0, 1, 8191, 8192, 8193, 16384, 20000])
def test_chunks_are_read_from_their_start(n: int) -> None:
    state = State("keys", (8, 128), Scope("chunked", 8192), "key")
    assert read_rows(Spec(), state, n) == (0 if n == 0 else (n - 1) % 8192 + 1)


def test_windows_stop_growing() -> None:
    small, large = step("gpt-oss-20b", 4096).decode, step("gpt-oss-20b", 8192).decode
    assert large.cache_read_bytes - small.cache_read_bytes == 12 * 2 * 8 * 64 * 2 * 4096


def test_sparse_attention_reads_picked_latents_and_all_index_keys() -> None:
    found = step("deepseek-v3.2", 131_072).decode
    assert found.cache_read_bytes == 61 * (2048 * (512 + 64) * 2 + 131_072 * 128 * 2)


def test_latents_absorbed_or_expanded() -> None:
    absorbed, expanded = (step("deepseek-v3", 1000, mla=form).decode for form in ("absorbed", "expanded"))
    assert absorbed.cache_read_bytes == 61 * 1000 * 576 * 2
    assert expanded.cache_read_bytes == 61 * 1000 * 128 * (128 + 64 + 128) * 2


def test_borrowed_caches_are_read_by_every_consumer() -> None:
    model = load("gemma-4-e2b").architecture
    held = sum(h.calls for h in model.states if not h.state.borrowed and h.state.kind == "key")
    read = sum(h.calls for h in model.states if h.state.kind == "key")
    found = latency(model, DEVICE, 100)
    assert read > held
    per_row = found.decode.cache_read_bytes
    assert per_row == sum(h.calls * 100 * found.reader.sizer.entry(h.state) for h in model.states)


def test_recurrent_state_is_read_and_written() -> None:
    found = step("mamba-2.8b", 1000).decode
    assert found.cache_read_bytes == 0
    assert found.state_read_bytes == found.written_bytes > 0


def test_tensor_parallel_ranks_share_matrices_and_repeat_latents() -> None:
    whole, cut = step("llama-3-70b", 4096).decode, step("llama-3-70b", 4096, ranks=Ranks(8)).decode
    assert cut.cache_read_bytes * 8 == whole.cache_read_bytes
    one, eight = step("deepseek-v3", 4096).decode, step("deepseek-v3", 4096, ranks=Ranks(8)).decode
    assert one.cache_read_bytes == eight.cache_read_bytes


def test_stages_of_a_pipeline_add() -> None:
    one, four = step("llama-3-70b"), step("llama-3-70b", ranks=Ranks(1, 4))
    assert four.decode.read_bytes < one.decode.read_bytes / 3
    cache = DEVICE.cache_bytes() / DEVICE.bandwidth()
    assert four.decode.memory_seconds == pytest.approx(one.decode.memory_seconds - 3 * cache)


@pytest.mark.parametrize("name", ["llama-3-8b", "gpt-oss-120b", "deepseek-v3", "gemma-3-27b", "zamba2-1.2b", "t5-large",
                                  "gemma-4-e2b", "deepseek-v4-flash", "falcon-h1-34b-instruct"])  # fmt: skip
def test_operators_multiply_what_the_count_of_operations_counts(name: str) -> None:
    model = load(name).architecture
    found = latency(model, DEVICE, 3000, 3)
    assert found.decode.flops == flops(model, 3000, 3, phase="decode").forward_flops
    assert sum(sum(op.flops) for op in found.reader.operators(found.decode_pass())) == found.decode.flops


def test_a_block_called_twice_is_read_twice() -> None:
    model = load("zamba2-1.2b").architecture
    found = latency(model, describe("b200-180gb"), 100)
    assert found.reader.repeats == len(model.decoder.calls) - len(model.decoder.layers) > 0
    assert found.decode.weight_read_bytes > weights(model).total_bytes
    # Each time it can find in the cache what the cache holds, and not more than it read before; a recurrent state that
    # stays there is neither read nor written.
    step = found.decode
    saved = step.read_bytes + step.written_bytes - step.spare_bytes - step.moved_bytes
    assert DEVICE.cache_bytes() < saved <= 132_120_576 * (2 + found.reader.repeats)
