"""SGLang's slots, TensorRT-LLM's blocks, llama.cpp's cells: against their logs and their rules."""

from __future__ import annotations

from typing import Any

import pytest

from llmcalc import kv_cache, load, read_config
from llmcalc.engines import sglang
from llmcalc.engines.base import Allocation
from llmcalc.errors import InvalidInputError, UnsupportedFormatError, UnsupportedLayerError

MIB, GIB = 2**20, 2**30


def taken(engine: str, name: str, tokens: int = 4096, batch: int = 1, **options: Any) -> Allocation:
    found = kv_cache(load(name).architecture, tokens, batch, engine=engine, **options).allocation
    assert found is not None
    assert found.figure.value == found.per_device_bytes
    return found


QWEN3_235B = {
    "model_type": "qwen3_moe", "hidden_size": 4096, "head_dim": 128, "num_hidden_layers": 94, "num_attention_heads": 64,
    "num_key_value_heads": 4, "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_experts": 128,
    "num_experts_per_tok": 8, "vocab_size": 151_936, "torch_dtype": "bfloat16",
}  # fmt: skip


def test_sglang_pool_of_qwen3_235b() -> None:
    """Four ranks log "#tokens: 367404, K size: 8.23 GB, V size: 8.23 GB" (vllm#21348): GiB, and a page more."""
    found = kv_cache(read_config(QWEN3_235B), 367_404, engine="sglang", tp=4).allocation

    assert found is not None
    assert found.per_device_bytes == 17_682_419_712
    assert found.log_line_bytes == 17_682_419_712 + 94 * 2 * 128 * 2
    assert f"{found.log_line_bytes / 2 / GIB:.2f}" == "8.23"


def test_sglang_slots_are_tokens() -> None:
    assert taken("sglang", "llama-3-8b", lengths=[18, 31]).slots == 49
    paged = taken("sglang", "llama-3-8b", lengths=[18, 31], block_size=16)
    assert (paged.blocks, paged.slots, paged.unused, paged.reserve_bytes) == (4, 64, 15, 16 * 131_072)


def test_sglang_window_pool_is_a_share() -> None:
    """gpt-oss has a window pool of 0.8 of the slots; Gemma-3 has none: all its layers are full."""
    full, window = taken("sglang", "gpt-oss-20b", 10_000).figure.parts

    assert (full.factors[0].value, window.factors[0].value) == (10_000, 8000)
    gemma = kv_cache(load("gemma-3-27b-it").architecture, 10_000, engine="sglang")
    assert gemma.allocated_bytes == gemma.every_layer_full_bytes
    short = taken("sglang", "gpt-oss-20b", 100).figure.parts
    assert (short[0].factors[0].value, short[1].factors[0].value) == (125, 100)


def test_sglang_states_are_fp32_and_convolutions_are_not() -> None:
    estimate = kv_cache(load("qwen3-next-80b-a3b-instruct").architecture, 4096, 3, engine="sglang")

    assert estimate.allocated_bytes == estimate.total_bytes
    assert estimate.allocation is not None
    assert estimate.allocation.reserve_bytes == 24_576 + 77_266_944 // 1  # a token's slot and a sequence's states


def test_sglang_sparse_latents() -> None:
    assert taken("sglang", "deepseek-v3.2", 64, cache="fp8").allocated_bytes == 64 * 61 * (656 + 132)
    assert taken("sglang", "deepseek-v3.2", 65, cache="bf16").allocated_bytes == 128 * 61 * (1152 + 132)


@pytest.mark.parametrize("name", ["falcon-mamba-7b", "t5-small", "deepseek-v4-flash", "recurrentgemma-9b"])
def test_sglang_refuses(name: str) -> None:
    with pytest.raises(UnsupportedLayerError):
        taken("sglang", name)


def test_sglang_vocabulary() -> None:
    assert sglang.padded_vocab(50_257, 1) == 50_304
    assert sglang.padded_vocab(50_257, 5) == 50_560


def test_tensorrt_llm_log() -> None:
    """The log "Allocated 26.91 GiB for max tokens in paged KV cache (220480)", blocks of 64, is of Llama-3.1-8B."""
    found = taken("tensorrt-llm", "llama-3.1-8b", 220_480, block_size=64)

    assert found.log_line_bytes == 220_480 * 131_072
    assert f"{found.log_line_bytes / GIB:.2f}" == "26.91"
    assert found.blocks == 3445


def test_tensorrt_llm_blocks_of_32_and_no_windows() -> None:
    found = kv_cache(load("gpt-oss-20b").architecture, 1000, engine="tensorrt-llm")

    assert found.allocation is not None
    assert (found.allocation.blocks, found.allocation.unused) == (32, 24)
    assert found.allocated_bytes == 1024 * 24 * 2 * 8 * 64 * 2
    assert "max_attention_window" in found.allocation.warnings[0]
    assert not taken("tensorrt-llm", "llama-3-8b").warnings


@pytest.mark.parametrize("name", ["deepseek-v3.2", "qwen3-next-80b-a3b-instruct", "t5-small", "mamba-2.8b-hf"])
def test_tensorrt_llm_refuses(name: str) -> None:
    with pytest.raises(UnsupportedLayerError):
        taken("tensorrt-llm", name)


def test_llama_cpp_contexts() -> None:
    """Llama-3-8B with n_ctx 8,192: 1 GiB in F16, 544 MiB in q8_0; K and V may differ."""
    assert taken("llama.cpp", "llama-3-8b", 8192).allocated_bytes == GIB
    assert taken("llama.cpp", "llama-3-8b", 8192, cache="q8_0").allocated_bytes == 544 * MIB
    assert taken("llama.cpp", "llama-3-8b", 8192, cache="q8_0:f16").allocated_bytes == (512 + 272) * MIB


def test_llama_cpp_windows() -> None:
    """Gemma-3-27B, n_ctx 32,768: as many cells in full layers, pad256(1,024 + 512) = 1,536 in sliding ones."""
    parts = {part.name: part.factors[0].value for part in taken("llama.cpp", "gemma-3-27b-it", 32_768).figure.parts}

    assert parts["full attention: keys"] == 32_768
    assert parts["sliding attention: keys"] == 1536
    more = taken("llama.cpp", "gemma-3-27b-it", 32_768, batched_tokens=2048)
    assert more.figure.parts[0].factors[0].value == 3072


def test_llama_cpp_streams_are_padded() -> None:
    """A stream a sequence, as long as the longest, in steps of 256 cells."""
    found = taken("llama.cpp", "llama-3-8b", lengths=[18, 300])

    assert (found.slots, found.unused) == (1024, 1024 - 318)
    assert found.allocated_bytes == 1024 * 131_072
    assert found.blocks is None


def test_llama_cpp_states_are_f32() -> None:
    """149.62 MiB a sequence of Qwen3.5-27B: 48 states of 48 x 128 x 128 and 3 x 10,240 columns (llama.cpp#23792)."""
    config = {
        "model_type": "qwen3_5_text", "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 64,
        "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 248_320,
        "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 48,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "dtype": "bfloat16",
    }  # fmt: skip
    found = kv_cache(read_config(config), 256, engine="llama.cpp").allocation

    assert found is not None
    states = [part for part in found.figure.parts if "state" in part.name]
    assert sum(part.value for part in states) == 156_893_184
    assert f"{156_893_184 / MIB:.2f}" == "149.62"


def test_llama_cpp_latents_are_keys_alone() -> None:
    assert taken("llama.cpp", "deepseek-v3", 1024).allocated_bytes == 1024 * 61 * 576 * 2
    assert taken("llama.cpp", "deepseek-v3", 1024, cache="q8_0").allocated_bytes == 1024 * 61 * 18 * 34
    assert taken("llama.cpp", "deepseek-v3.2", 256).allocated_bytes == 256 * 61 * (1152 + 256)


def test_llama_cpp_splits_by_layers() -> None:
    halves = taken("llama.cpp", "llama-3-8b", 256, pp=2)

    assert (halves.per_device_bytes, halves.allocated_bytes) == (16 * MIB, 32 * MIB)
    with pytest.raises(InvalidInputError, match="splits by layers"):
        taken("llama.cpp", "llama-3-8b", tp=2)
    with pytest.raises(InvalidInputError, match="no blocks"):
        taken("llama.cpp", "llama-3-8b", block_size=16)


def test_llama_cpp_formats() -> None:
    with pytest.raises(UnsupportedFormatError, match="no cache in fp8"):
        taken("llama.cpp", "llama-3-8b", cache="fp8")
    assert taken("llama.cpp", "olmo-2-0325-32b", 256).cache_format == "fp16"


@pytest.mark.parametrize("name", ["t5-small", "deepseek-v4-flash", "recurrentgemma-9b", "rwkv-4-169m-pile"])
def test_llama_cpp_refuses(name: str) -> None:
    with pytest.raises(UnsupportedLayerError):
        taken("llama.cpp", name)


def test_transformers_on_ranks_and_stages() -> None:
    whole = taken("transformers", "llama-3-70b", 1000)

    assert taken("transformers", "llama-3-70b", 1000, tp=8).per_device_bytes * 8 == whole.allocated_bytes
    assert taken("transformers", "llama-3-70b", 1000, pp=4).per_device_bytes * 4 == whole.allocated_bytes
    with pytest.raises(InvalidInputError):
        taken("transformers", "llama-3-70b", block_size=16)


def test_no_such_engine() -> None:
    with pytest.raises(InvalidInputError, match="no such engine") as caught:
        kv_cache(load("llama-3-8b").architecture, engine="ollama")
    assert "vllm, sglang, tensorrt-llm, llama.cpp, transformers" in caught.value.hint
