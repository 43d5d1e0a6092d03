"""Shares of the peak as they were published, under the convention that each publisher used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmcalc import flops, load, mfu, read_config
from llmcalc.arch.model import Architecture
from llmcalc.calc.mfu import Utilization, cost_per_token
from llmcalc.calc.training import Recompute, Trained
from llmcalc.hardware.catalogue import device

PUBLISHED = json.loads((Path(__file__).parents[1] / "golden" / "published_mfu.json").read_text("utf-8"))


def gpt(width: int, layers: int, heads: int, vocab: int = 51200, tokens: int = 2048) -> Architecture:
    data = {"model_type": "gpt2", "n_embd": width, "n_layer": layers, "n_head": heads, "vocab_size": vocab,
            "n_positions": tokens, "torch_dtype": "float16"}  # fmt: skip
    return read_config(data)


def by_convention(architecture: Architecture, rate: float, peak: float, **how: Any) -> dict[str, Utilization]:
    return {row.convention: row for row in mfu(architecture, rate, peak, **how)}


# The benchmark's models have learned positions and biases throughout, which makes them GPT-2s: width, layers, heads.
MPT = {
    "MPT-760m": (1536, 24, 12), "MPT-1b": (2048, 24, 16), "MPT-3b": (2560, 32, 20), "MPT-7b": (4096, 32, 32),
    "MPT-13b": (5120, 40, 40), "MPT-30b": (7168, 48, 56), "MPT-70b": (8192, 80, 64),
}  # fmt: skip


@pytest.mark.parametrize("row", PUBLISHED["llm_foundry"]["rows"], ids=lambda row: f"{row['model']}-{row['tokens']}")
def test_llm_foundry(row: dict[str, Any]) -> None:
    """6 N + 12 L d T of the printed rate within 0.25% of the printed share: rates are printed in whole tokens."""
    architecture = gpt(*MPT[row["model"]], 50368, row["tokens"])
    peak = device({"a100": "a100-sxm4-80gb", "h100": "h100"}[row["device"][:4]]).peak(row["dtype"])
    recompute: Recompute = "full" if row["recompute"] else "none"
    found = by_convention(architecture, row["tokens_per_second"], peak, tokens=row["tokens"], recompute=recompute)

    assert flops(architecture, 1).rough[0].params == row["params"]
    assert 100 * found["palm"].mfu == pytest.approx(row["mfu_percent"], rel=0.0025)
    assert 100 * found["palm"].hfu == pytest.approx(row["hfu_percent"], rel=0.0025)


# Times of an iteration with selective recomputation: arXiv:2205.05198, tables 3 and 5. A100, 312 TFLOP/s.
@pytest.mark.parametrize(
    ("shape", "batch", "gpus", "seconds", "mfu_percent", "hfu_percent"),
    [
        ((6144, 48, 64), 4, 8, 1.10, 41.5, 43.7),
        ((12288, 96, 96), 64, 64, 13.75, 51.4, 52.8),
        ((20480, 105, 128), 280, 280, 37.83, 56.0, 57.0),
        ((25600, 128, 160), 512, 512, 71.49, 56.3, 57.0),
    ],
)
def test_activation_recomputation_paper(
    shape: tuple[int, int, int], batch: int, gpus: int, seconds: float, mfu_percent: float, hfu_percent: float
) -> None:
    """Within 0.3 points: the times are printed with three or four digits."""
    rate = batch * 2048 / seconds
    found = by_convention(gpt(*shape), rate, 312e12, tokens=2048, gpus=gpus, recompute="selective")["megatron_dense"]

    assert 100 * found.mfu == pytest.approx(mfu_percent, abs=0.3)
    assert 100 * found.hfu == pytest.approx(hfu_percent, abs=0.3)


NVIDIA = {
    "Llama-3-8B": "llama-3-8b", "Llama-3-70B": "llama-3-70b", "Llama-2-13B": "llama-2-13b-hf",
    "Nemotron-340B": "nemotron-4-340b-base", "gpt-oss-120b": "gpt-oss-120b", "Qwen3-30B-A3B": "qwen3-30b-a3b",
    "Qwen3-235B-A22B": "qwen3-235b-a22b", "DeepSeek-V3": "deepseek-v3",
}  # fmt: skip
# Rows that no convention reproduces, with published over counted. Llama-3-70B: 2.2% below the causal count, though the
# same table's Llama-3.1-405B is met; gpt-oss-120b in the archive: 17% below its own later row for the same length.
# The LoRA row is met by forward and input gradients of the weights alone, see the test below.
ODD = {("Llama-3-70B", 8192): 0.978, ("gpt-oss-120b", 158.0): 0.831}
RATES = [row for row in PUBLISHED["nvidia"]["rows"] if "LoRA" not in row["model"]]


@pytest.mark.parametrize("row", RATES, ids=lambda row: f"{row['source'][:11]}-{row['model']}-{row['tflops']}")
def test_nvidia(row: dict[str, Any]) -> None:
    """Within 1%: rates are printed with three digits. The convention changed between 2024 and 2026."""
    architecture = gpt(12288, 96, 96) if row["model"] == "GPT3-175B" else load(NVIDIA[row["model"]]).architecture
    rule = "megatron" if row["source"].startswith("Megatron-Bridge") else "megatron_dense"
    counted, _ = cost_per_token(architecture, rule, row["tokens"], "none")  # type: ignore[arg-type]
    odd = ODD.get((row["model"], row["tflops"])) or (
        ODD.get((row["model"], row["tokens"])) if rule == "megatron" else 0
    )

    assert row["tflops"] * 1e12 / row["tokens_per_second"] / counted == pytest.approx(odd or 1, rel=0.01)


def test_nvidia_lora() -> None:
    """Forward and input gradients of frozen weights, without attention and adapters: 735 TFLOP/s at 2,643 tokens/s."""
    step = flops(
        load("llama-3-70b").architecture, 4096, phase="train", trained=Trained(("q_proj", "v_proj"), 16)
    ).training

    assert step is not None
    frozen = sum((1 + t.gradients) * t.product.value for t in step.trainees if t.product.group == "matmul")
    assert frozen / 4096 == pytest.approx(735e12 / 2643, rel=0.01)


def test_nanogpt_notebook() -> None:
    """874,944,921,600 operations a sequence of 1,024; 37.14% of 312 TFLOP/s at 100 sequences in 755 ms."""
    architecture = load("gpt2").architecture
    step = flops(architecture, 1024, phase="train", convention="dense").training

    assert step is not None
    assert step.training_flops == 874_944_921_600
    found = by_convention(architecture, 102_400 / 0.755, 312e12, tokens=1024)
    assert 100 * found["dense"].mfu == pytest.approx(37.14, abs=0.01)


def test_llama_3_405b_is_consistent_with_6nd_alone() -> None:
    """3.8e25 stated for 15.6T tokens: 6 N D meets it, exact counts are 3.94e25 and 4.10e25 (arXiv:2407.21783)."""
    found = by_convention(load("llama-3.1-405b").architecture, 1, 1, tokens=8192)
    run = {name: round(row.model_flops_per_token * 15.6e12 / 1e25, 2) for name, row in found.items()}

    assert (run["6n"], run["causal"], run["dense"]) == (3.8, 3.94, 4.1)


def test_a_published_share_that_was_wrong() -> None:
    """A 70B model, 16,384,000 tokens in 13.5 hours on 16 A100: 2.8%, not 45.5%."""
    (row,) = mfu(None, 16_384_000 / 48_600, 312e12, gpus=16, parameters=70_000_000_000)

    assert row.mfu == pytest.approx(0.028363, rel=0.001)


def test_without_all_parameters_described_there_is_no_rule_of_thumb() -> None:
    kimi = load("kimi-k3").architecture

    assert kimi.uncounted
    assert set(by_convention(kimi, 1, 1)) == {"dense", "causal", "megatron", "megatron_dense"}
