"""Training: gradients of inputs and of weights, what is frozen, adapters, and what is computed again."""

from __future__ import annotations

import pytest

from llmcalc import flops, load
from llmcalc.calc.training import ALL, Trained
from llmcalc.errors import InvalidInputError

LLAMA = load("llama-3-8b").architecture
LAYERS, HEAD = 6_979_321_856, 525_336_576  # numbers that a token multiplies


@pytest.mark.parametrize(
    "name", ["llama-3-8b", "deepseek-v3", "qwen3-next-80b-a3b-instruct", "t5-small", "bert-base-uncased"]
)
@pytest.mark.parametrize("convention", ["causal", "dense"])
def test_forward_and_backward_are_three_forwards(name: str, convention: str) -> None:
    count = flops(load(name).architecture, 512, phase="train", convention=convention)  # type: ignore[arg-type]

    assert count.training is not None
    assert count.training.training_flops == 3 * count.forward_flops
    assert count.training.backward_flops == 2 * count.forward_flops
    assert count.training.training_flops == count.matmul_flops + count.attention_flops + count.scan_flops
    assert count.figure.value == count.training.training_flops


def test_recompute() -> None:
    none, some, whole = (
        flops(LLAMA, 1000, phase="train", recompute=how).training
        for how in ("none", "selective", "full")  # type: ignore[arg-type]
    )
    forward = flops(LLAMA, 1000, logits="all")

    assert none is not None
    assert some is not None
    assert whole is not None
    assert none.recompute_flops == 0
    assert some.recompute_flops == forward.attention_flops
    assert whole.recompute_flops == forward.forward_flops - forward.lm_head_flops
    assert whole.training_flops == none.training_flops + whole.recompute_flops
    assert whole.figure.value == whole.training_flops


def test_adapters_have_gradients_and_their_bases_pass_them_on() -> None:
    rank, tokens = 16, 2048
    step = flops(LLAMA, tokens, phase="train", trained=Trained(("q_proj", "v_proj"), rank)).training
    adapters = 32 * rank * (4096 + 4096 + 4096 + 1024)
    attention = flops(LLAMA, tokens).attention_flops

    assert step is not None
    assert step.adapter_flops == 2 * adapters * tokens
    assert step.model_flops == 4 * (LAYERS + HEAD) * tokens + 6 * adapters * tokens + 3 * attention


def test_layers_computed_again_compute_their_adapters_again() -> None:
    trained, forward = Trained(("q_proj", "v_proj"), 16), flops(LLAMA, 1000, logits="all")
    step = flops(LLAMA, 1000, phase="train", trained=trained, recompute="full").training

    assert step is not None
    assert step.recompute_flops == forward.forward_flops - forward.lm_head_flops + step.adapter_flops


def test_a_trained_head_alone() -> None:
    step = flops(LLAMA, 100, phase="train", trained=Trained(("lm_head",))).training

    assert step is not None
    assert step.backward_flops == 2 * HEAD * 100


def test_frozen_experts() -> None:
    mixtral = load("mixtral-8x7b-v0.1").architecture
    whole = flops(mixtral, 256, phase="train", trained=ALL).training
    frozen = flops(mixtral, 256, phase="train", trained=Trained(("*attn*", "lm_head"))).training
    experts = sum(p.value for p in flops(mixtral, 256).products if "experts" in p.name or "gate" in p.name)

    assert whole is not None
    assert frozen is not None
    assert whole.training_flops - frozen.training_flops == experts


def test_nothing_to_train() -> None:
    with pytest.raises(InvalidInputError, match="no weight's name fits q_porj"):
        _ = flops(LLAMA, 100, phase="train", trained=Trained(("q_porj",), 8)).forward_flops


def test_a_whole_run() -> None:
    run = flops(LLAMA, 1000, phase="train", train_tokens=2500)

    assert run.tokens == 2500
    assert run.forward_flops == 2 * flops(LLAMA, 1000, logits="all").forward_flops + (
        flops(LLAMA, 500, logits="all").forward_flops
    )


def test_rules_of_thumb() -> None:
    big = load("llama-3.1-405b").architecture
    run = flops(big, 8192, phase="train", train_tokens=15_600_000_000_000)

    assert run.rough[0].flops == 6 * 405_853_388_800 * 15_600_000_000_000
    assert round(run.rough[1].flops / 1e25, 1) == 3.8
    assert flops(big, 100).rough_2p_flops == 2 * 405_853_388_800 * 100
