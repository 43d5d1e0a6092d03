"""Configs that may come in: plausible ones, and any config of the corpus with one field turned into something else."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from tests.conftest import CATALOGUE, DATA

CORPUS = sorted([*CATALOGUE.glob("*--*.json"), *(DATA / "configs").glob("*.json")], key=lambda path: path.name)


@st.composite
def llamas(draw: st.DrawFn) -> dict[str, Any]:
    """A small model of Llama's layout; heads divide."""
    kv = draw(st.integers(1, 8))
    heads = kv * draw(st.integers(1, 8))
    return {
        "model_type": "llama",
        "hidden_size": draw(st.integers(1, 512)),
        "intermediate_size": draw(st.integers(1, 2048)),
        "num_hidden_layers": draw(st.integers(1, 40)),
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": draw(st.integers(1, 256)),
        "vocab_size": draw(st.integers(1, 100_000)),
        "tie_word_embeddings": draw(st.booleans()),
        "torch_dtype": draw(st.sampled_from(["bfloat16", "float16", "float32"])),
    }


def corpus() -> st.SearchStrategy[dict[str, Any]]:
    """A config of the corpus."""
    return st.sampled_from(CORPUS).map(lambda path: json.loads(path.read_text("utf-8")))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """A config of the corpus with one or two of its fields, at any depth, replaced, dropped or doubled."""
    data = draw(corpus())
    for _ in range(draw(st.integers(1, 2))):
        block = data
        nested = [value for value in block.values() if isinstance(value, dict) and value]
        if nested and draw(st.booleans()):
            block = draw(st.sampled_from(nested))
        key = draw(st.sampled_from(sorted(block)))
        if draw(st.integers(0, 3)) == 0:
            del block[key]
        else:
            block[key] = draw(JSON)
        if not data:
            break
    return data
