"""Every measured model of the corpus: parameters, stored buffers, towers and cache bytes, equal to the last one.

The figures were counted by building each model with transformers 5.24 on the meta device and summing the tensors of
the model and of its cache; they are facts, kept in facts.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmcalc import kv_cache, params, read_config
from tests.conftest import config

FACTS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "facts.json").read_text("utf-8"))
CACHES = [(fact, n) for fact in FACTS for n in (128, 8192) if f"cache_{n}" in fact]


def test_corpus_is_whole() -> None:
    assert len(FACTS) == 288
    assert sum(fact["kind"] == "decoder" for fact in FACTS) == 263


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact["slug"])
def test_parameters(fact: dict[str, Any]) -> None:
    count = params(read_config(config(fact["slug"])))

    assert count.total_params == fact["params"]
    assert count.vision_params == fact["vision"]


# Ling-lite was measured as a class whose router has a correction buffer; its own remote class and file have none.
BUFFERED = [fact for fact in FACTS if fact["slug"] != "inclusionai--ling-lite-base"]


@pytest.mark.parametrize("fact", BUFFERED, ids=lambda fact: fact["slug"])
def test_stored_buffers(fact: dict[str, Any]) -> None:
    architecture = read_config(config(fact["slug"]))

    assert sum(p.size for p in architecture.weights if p.weight.role == "buffer") == fact["stored_buffers"]


# Shared blocks have several names for one tensor, and T5's files name their one table up to four times.
NAMED_ONCE = [
    fact for fact in FACTS
    if fact["kind"] == "decoder" and fact["model_type"] not in ("zamba", "zamba2")
]  # fmt: skip


@pytest.mark.parametrize("fact", NAMED_ONCE, ids=lambda fact: fact["slug"])
def test_untied_parameters(fact: dict[str, Any]) -> None:
    assert params(read_config(config(fact["slug"]))).untied_params == fact["untied_params"]


@pytest.mark.parametrize(("fact", "tokens"), CACHES, ids=[f"{fact['slug']}-{n}" for fact, n in CACHES])
def test_cache_of_transformers(fact: dict[str, Any], tokens: int) -> None:
    estimate = kv_cache(read_config(config(fact["slug"])), tokens, cache="bf16", engine="transformers")

    assert estimate.allocated_bytes == fact[f"cache_{tokens}"]


@pytest.mark.parametrize("fact", [f for f in FACTS if "published" in f], ids=lambda fact: fact["slug"])
def test_published_totals(fact: dict[str, Any]) -> None:
    """The total that the checkpoint's own page prints, counted the way that it counts."""
    count = params(read_config(config(fact["slug"])))
    wanted = {
        "ties twice": count.untied_params,
        "ties once, plus stored buffers": count.stored_params - count.mtp_params,
    }.get(fact["published_counts"], count.total_params)

    assert wanted == fact["published"]
