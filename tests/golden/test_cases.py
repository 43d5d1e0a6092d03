"""Figures that engines printed and people argued about in public; each row names the thread it is from.

Two of the collection are not here, because their own source contradicts them:
``KV-15`` leaves ``sliding_window`` out of a Mistral config and expects full attention, but the class default is 4,096
(transformers configuration_mistral.py); ``KV-36`` leaves the index keys out of a GLM-5 cache that holds them.
Both right values are in ``test_defaults_decide``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmcalc import kv_cache, params, read_config

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "cases.json").read_text("utf-8"))
OPTIONS = {"tokens": int, "batch": int, "tp": int, "cache": str, "engine": str}


def answer(case: dict[str, Any]) -> dict[str, Any]:
    architecture = read_config(case["config"])
    verb, *words = case["args"]
    if verb == "params":
        count = params(architecture)
        return {name: getattr(count, name) for name in ("total_params", "active_params", "text_params")}
    options = {key[2:]: OPTIONS[key[2:]](value) for key, value in zip(words[::2], words[1::2], strict=True)}
    return kv_cache(architecture, **options)._asdict()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_public_case(case: dict[str, Any]) -> None:
    results = answer(case)

    for want in case["expect"]:
        got = results[want["path"].removeprefix("results.")]
        if "eq" in want:
            assert type(got) is type(want["eq"])
            assert got == want["eq"]
        else:
            value, tolerance = want["rel"]  # the source itself is rounded
            assert abs(got - value) <= tolerance * value


MISTRAL = {
    "model_type": "mistral", "vocab_size": 32768, "hidden_size": 6144, "intermediate_size": 16384,
    "num_hidden_layers": 56, "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def test_defaults_decide() -> None:
    """A silent Mistral config slides by 4,096, and says so; null means full."""
    silent = read_config(MISTRAL)
    full = read_config({**MISTRAL, "sliding_window": None})

    assert kv_cache(silent, 49152, cache="q8_0").kv_bytes == 56 * 4096 * 2 * 8 * 136
    assert any("sliding_window is not given: 4,096" in text for text in silent.warnings)
    assert kv_cache(full, 49152, cache="q8_0").kv_bytes == 5_989_466_112


def test_index_keys_are_cache() -> None:
    """GLM-5 keeps an index key of 128 beside the 576 of its latent, in each of 78 layers."""
    from llmcalc import load

    estimate = kv_cache(load("glm-5").architecture, 202_752, cache="bf16")

    assert estimate.kv_bytes == 78 * (512 + 64 + 128) * 2 * 202_752
