"""The bound: what binds, caches and links, prompts in pieces, whole requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmcalc import load, read_config
from llmcalc.calc.latency import Latency, latency
from llmcalc.calc.links import reductions, traffic
from llmcalc.calc.passes import products
from llmcalc.calc.rates import product_format
from llmcalc.calc.sizing import Sequences, sequences
from llmcalc.calc.timing import longest, per_request
from llmcalc.calc.weight_shards import Ranks
from llmcalc.errors import InvalidInputError, UnsupportedError
from llmcalc.hardware.catalogue import describe
from tests.properties.strategies import CORPUS

LLAMA = load("llama-3-8b").architecture
PLAIN = describe(bandwidth=2e12, peak=1e15)


def test_textbook() -> None:
    assert per_request(0.4, 0.02, 100) == pytest.approx(2.38)
    with pytest.raises(InvalidInputError):
        per_request(0.4, 0.02, 0)


def test_the_bound_is_bytes_over_bandwidth() -> None:
    found = latency(LLAMA, PLAIN, 2048).decode
    assert found.bound == "memory"
    assert found.seconds_at_least == (found.read_bytes + found.written_bytes) / 2e12


def test_a_cache_holds_its_own_size_from_step_to_step() -> None:
    h100 = describe("h100-sxm5-80gb")
    found = latency(LLAMA, h100, 2048).decode
    assert found.moved_bytes == found.read_bytes + found.written_bytes - 52_428_800
    small = latency(load("smollm2-135m").architecture, describe("b200-180gb"), 1).decode
    assert 0 < small.moved_bytes < small.read_bytes


def test_what_binds() -> None:
    assert longest(2.0, 1.0, None) == (2.0, "memory")
    assert longest(1.0, 3.0, 2.0) == (3.0, "compute")
    assert longest(1.0, None, 2.0) == (2.0, "communication")
    assert latency(LLAMA, describe(bandwidth=2e12, peak=1e12), 1, 64).decode.bound == "compute"
    assert latency(LLAMA, describe(bandwidth=2e12, peak=1e15, link=1e3), ranks=Ranks(8)).decode.bound == "communication"


def test_the_batch_at_which_it_computes_longer() -> None:
    found = latency(LLAMA, describe("h100-sxm5-80gb"), 16)
    batch = found.compute_bound_batch
    assert batch is not None
    for number, computes in ((batch - 1, False), (batch, True)):
        step = latency(LLAMA, describe("h100-sxm5-80gb"), 16, number).decode
        moved = (step.likely_read_bytes + step.written_bytes) / 3.35e12
        assert (step.compute_seconds is not None and step.compute_seconds >= moved) is computes
    assert latency(LLAMA, describe("h100-sxm5-80gb"), 8192).compute_bound_batch is None  # the cache alone takes longer


def test_the_roofline_is_never_below_the_bound() -> None:
    for name in (
        "llama-3-8b",
        "gpt-oss-120b",
        "deepseek-v3",
        "gemma-3-27b",
        "zamba2-1.2b",
        "t5-large",
        "llama-4-scout",
    ):
        for ranks in (Ranks(), Ranks(2), Ranks(1, 2)):
            found = latency(load(name).architecture, describe("h100-sxm5-80gb"), 5000, 4, ranks=ranks)
            assert found.decode.seconds_at_least <= found.decode.seconds_roofline
            assert found.prefill_seconds_at_least <= found.prefill_seconds_roofline


def test_sums_over_ranks() -> None:
    assert [reductions(layer) for layer, _ in LLAMA.decoder.call_groups] == [2]
    assert [reductions(layer) for layer, _ in load("falcon-7b").architecture.decoder.call_groups] == [1]
    found = latency(LLAMA, PLAIN, ranks=Ranks(4))
    said = traffic(LLAMA, Ranks(4), found.decode_pass())
    assert (said.reductions, said.least) == (64, 64 * 4096 * 2 * 3 / 4)
    assert traffic(LLAMA, Ranks(), found.decode_pass()).likely == 0


def test_experts_on_other_replicas() -> None:
    model = load("deepseek-v3").architecture
    run = latency(model, PLAIN, ranks=Ranks(1, 1, 8, 8)).decode_pass()
    # 7 (1 - (7/8)^8) of 7 other replicas, there and back, in 58 layers
    assert traffic(model, Ranks(1, 1, 8, 8), run).likely == pytest.approx(58 * 2 * 7 * (1 - (7 / 8) ** 8) * 7168 * 2)


def test_prompts_in_pieces() -> None:
    whole = latency(LLAMA, PLAIN, prompt=4096)
    cut = latency(LLAMA, PLAIN, prompt=4096, batched_tokens=1000)
    assert [times for _, times in whole.passes] == [1]
    assert len(cut.passes) == 5
    head = 2 * 128_256 * 4096
    assert sum(timing.flops for timing, _ in cut.passes) == whole.prefill.flops + 4 * head
    two = latency(LLAMA, PLAIN, 4096, 5, prompt=500, batched_tokens=1000)
    assert [times for _, times in two.passes] == [2, 1]


def one(tokens: int) -> Sequences:
    return sequences(tokens, 1, None, None, 0)


def request(output: int) -> Latency:
    return latency(LLAMA, PLAIN, prompt=100, output=output)


def test_a_request_is_a_prompt_and_steps_on_longer_contexts() -> None:
    assert request(1).request_seconds_at_least == request(1).prefill_seconds_at_least
    steps = [latency(LLAMA, PLAIN, 100 + done).decode.seconds_at_least for done in range(3)]
    assert request(4).request_seconds_at_least == pytest.approx(request(1).prefill_seconds_at_least + sum(steps))
    first = request(1)
    exact = sum(first.at(one(100 + done)).seconds_at_least for done in range(599))
    found = request(600).request_seconds_at_least - request(1).prefill_seconds_at_least
    assert 0.999 * exact < found <= exact


@pytest.mark.parametrize(("layout", "runs"), [("bf16", "bf16"), ("fp8-block 128x128", "fp8"), ("nvfp4", "fp4"),
                                              ("nvfp4a16", "bf16"), ("gptq", "bf16"), ("q4_k", "int8"),
                                              ("iq3_s", "int8"), ("fp32", "tf32")])  # fmt: skip
def test_formats_of_products(layout: str, runs: str) -> None:
    assert product_format(layout, "bf16") == runs


def test_refusals() -> None:
    with pytest.raises(InvalidInputError, match="bandwidth"):
        latency(LLAMA, describe(memory=10**9))
    with pytest.raises(InvalidInputError, match="encoder"):
        latency(load("bert-base-uncased").architecture, PLAIN)
    with pytest.raises(InvalidInputError, match="at least 1"):
        latency(LLAMA, PLAIN, output=0)
    with pytest.raises(InvalidInputError, match="--tp 3"):
        assert latency(LLAMA, PLAIN, ranks=Ranks(3)).decode


def test_long_requests_of_chunked_layers_stay_below_the_sum() -> None:
    model = load("llama-4-scout").architecture
    found = latency(model, PLAIN, prompt=8000, output=601)
    steps = [found.at(one(8000 + done)).seconds_at_least for done in range(600)]
    assert found.request_seconds_at_least - found.prefill_seconds_at_least <= sum(steps)


def test_what_would_take_for_ever_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="passes"):
        assert latency(LLAMA, PLAIN, prompt=10**8, batched_tokens=1).prefill
    with pytest.raises(InvalidInputError, match="no such engine"):
        latency(LLAMA, PLAIN, engine="exllama")


@pytest.mark.parametrize("path", CORPUS[::16], ids=lambda path: path.stem)
def test_every_kind_of_model(path: Path) -> None:
    model = read_config(json.loads(path.read_text("utf-8")))
    if not model.decoder.layers:
        return
    try:
        found = latency(model, describe("h200-sxm-141gb"), 3000, 4, prompt=3000)
        operators = found.reader.operators(found.decode_pass())
    except UnsupportedError:
        return
    assert sum(sum(op.flops) for op in operators) == sum(p.value for p in products(model, found.decode_pass()))
    assert 0 < found.decode.seconds_at_least <= found.decode.seconds_roofline
    assert found.prefill_seconds_at_least <= found.prefill_seconds_roofline * (1 + 1e-12)
