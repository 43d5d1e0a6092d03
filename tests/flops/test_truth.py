"""Every measured pass of the corpus, equal to the last operation: prefill and one decode step.

Counted with torch.utils.flop_counter over transformers 5.24 on the meta device: eager attention, masked pairs
multiplied, logits of all positions, experts through batched products, cached latents expanded again at each step.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmcalc import flops, read_config
from llmcalc.calc.flops import FlopCount
from tests.conftest import config

FACTS: dict[str, dict[str, Any]] = json.loads((Path(__file__).parents[1] / "golden" / "flops.json").read_text("utf-8"))
# Measured without the output matrix: the class around the language model does not run without an image.
HEADLESS = ("google--gemma-4-e4b-it", "nvidia--gemma-4-31b-it-nvfp4")
# What the count of the class is not the cost of: every expert multiplied (Llama-4), convolutions padded in ways of
# their own (Zaya), and steps whose cache was handed over under its old name, so that columns are padded again (Mamba)
# or a token to a whole block (Mamba-2): test_oracle.py counts these with their cache, and finds one token's cost.
ALL_EXPERTS = tuple(slug for slug, fact in FACTS.items() if "moe_all_experts_computed" in fact.get("doubt", ()))
PREFILL = [slug for slug in FACTS if slug not in (*ALL_EXPERTS, "defaults--zaya")]
OLD_NAME = ("defaults--mamba2", "state-spaces--mamba-130m-hf", "state-spaces--mamba-2.8b-hf", "tiiuae--falcon-mamba-7b")
DECODE = [slug for slug in PREFILL if FACTS[slug]["decode"] and slug not in OLD_NAME]


def measured(count: FlopCount, slug: str) -> int:
    return count.forward_flops - (count.lm_head_flops if slug in HEADLESS else 0)


def test_corpus_is_whole() -> None:
    sure = [fact for fact in FACTS.values() if not fact.get("doubt")]
    assert len(FACTS) == 282
    assert len(ALL_EXPERTS) == 4
    assert (len(sure), sum(fact["decode"] is not None for fact in sure)) == (216, 206)


@pytest.mark.parametrize("slug", PREFILL)
def test_prefill(slug: str) -> None:
    fact = FACTS[slug]
    count = flops(read_config(config(slug)), fact["tokens"], convention="dense", logits="all")

    assert measured(count, slug) == fact["prefill"]


@pytest.mark.parametrize("slug", DECODE)
def test_decode(slug: str) -> None:
    fact = FACTS[slug]
    count = flops(read_config(config(slug)), phase="decode", past=fact["tokens"], encoder_tokens=fact["tokens"],
                  convention="dense", mla="reexpand")  # fmt: skip

    assert measured(count, slug) == fact["decode"]


@pytest.mark.parametrize(
    ("slug", "prefill", "decode"),
    [
        ("meta-llama--meta-llama-3-8b", 32_938_104_193_024, 16_083_582_976),
        ("qwen--qwen3-0.6b", 3_403_224_711_168, 1_661_960_192),
        ("mistralai--mixtral-8x7b-v0.1", 54_417_235_640_320, 26_571_440_128),
    ],
)
def test_named_figures(slug: str, prefill: int, decode: int) -> None:
    architecture = read_config(config(slug))

    assert flops(architecture, 2048, convention="dense", logits="all").forward_flops == prefill
    assert flops(architecture, phase="decode", past=2048, convention="dense").forward_flops == decode


def test_llama_4_multiplies_the_experts_of_a_token_alone() -> None:
    count = flops(read_config(config("meta-llama--llama-4-scout-17b-16e")), 2048, convention="dense", logits="all")

    assert count.forward_flops * 6 < FACTS["meta-llama--llama-4-scout-17b-16e"]["prefill"]
