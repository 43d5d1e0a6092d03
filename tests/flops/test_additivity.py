"""Operations of a text are those of its head and of its tail after it, however it is cut: for every layer kind.

Under causal counting, logits of all positions, scans token by token, and one form of latent attention.
"""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcalc import flops, read_config
from llmcalc.arch.mixing import LatentForm
from llmcalc.arch.model import Architecture
from tests.conftest import config
from tests.flops.test_layer_kinds import KIMI, MAMBA2, MINIMAX

SLUGS = (
    "meta-llama--meta-llama-3-8b", "openai--gpt-oss-120b", "google--gemma-3-27b-it", "defaults--gemma3n-text",
    "google--gemma-4-e4b-it", "meta-llama--llama-4-scout-17b-16e", "mistralai--mixtral-8x7b-v0.1",
    "deepseek-ai--deepseek-v3", "deepseek-ai--deepseek-v3.2", "deepseek-ai--deepseek-v4-flash", "defaults--jetmoe",
    "qwen--qwen3-next-80b-a3b-instruct", "state-spaces--mamba-130m-hf", "nvidia--nemotron-h-8b-base-8k",
    "liquidai--lfm2-8b-a1b", "defaults--recurrent-gemma", "rwkv--rwkv-4-169m-pile", "defaults--zaya",
    "zyphra--zamba2-1.2b", "google-t5--t5-small", "facebook--bart-base", "meta-llama--llama-3.2-11b-vision-instruct",
    "defaults--diffllama", "defaults--doge", "tiiuae--falcon-h1-34b-instruct", "moonshotai--kimi-k3",
)  # fmt: skip
SMALL = {"hidden_size": 128, "num_hidden_layers": 2, "num_heads": 2, "vocab_size": 100, "torch_dtype": "bfloat16"}
WRITTEN = {
    "mamba2": MAMBA2, "minimax": MINIMAX, "kimi": KIMI, "retnet": {"model_type": "retnet", **SMALL},
    "gla": {"model_type": "gla", **SMALL}, "rwkv7": {"model_type": "rwkv7", "head_dim": 64, **SMALL},
    "xlstm": {"model_type": "xlstm", "embedding_dim": 128, **SMALL},
}  # fmt: skip


@cache
def architecture(name: str) -> Architecture:
    return read_config(dict(WRITTEN[name]) if name in WRITTEN else config(name))


@pytest.mark.parametrize("form", ["absorbed", "expanded"])
@pytest.mark.parametrize("name", [*SLUGS, *WRITTEN])
@given(head=st.integers(1, 9000), tail=st.integers(1, 9000))
@settings(max_examples=12, deadline=None)
def test_a_text_in_two_pieces(name: str, form: LatentForm, head: int, tail: int) -> None:
    model = architecture(name)

    def count(tokens: int, past: int) -> int:
        return flops(model, tokens, past=past, logits="all", mla=form, scan="recurrent", encoder_tokens=77,
                     image_tokens=5).forward_flops  # fmt: skip

    assert count(head, 0) + count(tail, head) == count(head + tail, 0)


@given(tokens=st.integers(1, 3000), batch=st.integers(1, 9), name=st.sampled_from((*SLUGS, *WRITTEN)))
@settings(max_examples=80, deadline=None)
def test_parts_and_sequences_sum_to_the_whole(tokens: int, batch: int, name: str) -> None:
    one, many = flops(architecture(name), tokens), flops(architecture(name), tokens, batch)
    mixed = flops(architecture(name), lengths=[tokens, 1, tokens + 3])

    assert one.forward_flops == one.matmul_flops + one.attention_flops + one.scan_flops
    assert one.forward_flops == one.figure.value == sum(part.value for part in one.figure.parts)
    assert one.forward_flops == sum(row.flops for row in one.kinds)
    assert many.forward_flops == batch * one.forward_flops
    assert mixed.forward_flops == sum(flops(architecture(name), n).forward_flops for n in (tokens, 1, tokens + 3))


@given(tokens=st.integers(1, 20000), name=st.sampled_from(SLUGS))
@settings(max_examples=60, deadline=None)
def test_masked_pairs_are_never_fewer(tokens: int, name: str) -> None:
    count = flops(architecture(name), tokens)

    assert count.attention_dense_flops is not None
    assert count.attention_flops <= count.attention_dense_flops or "index" in str(count.products)
