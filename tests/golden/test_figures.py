"""Published figures and worked examples, each with its source."""

from __future__ import annotations

from typing import Any

import pytest

from llmcalc import kv_cache, load, params, read_config
from tests.conftest import config

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "torch_dtype": "bfloat16",
    "tie_word_embeddings": False, "max_position_embeddings": 4096,
}  # fmt: skip


def llama(**changes: object) -> Any:
    return read_config({**LLAMA, **changes})


class TestLlama3:
    """arXiv:2407.21783, table 3, and the safetensors totals of the published repositories."""

    @pytest.mark.parametrize(
        ("name", "total"),
        [("llama-3-8b", 8_030_261_248), ("llama-3-70b", 70_553_706_496), ("llama-3.1-405b", 405_853_388_800)],
    )
    def test_parameters(self, name: str, total: int) -> None:
        assert params(load(name).architecture).total_params == total

    def test_cache_of_one_and_ten_requests(self) -> None:
        model = load("llama-3-70b").architecture

        assert kv_cache(model, 4096).total_bytes == 1_342_177_280
        assert kv_cache(model, 4096).total_bytes == 5 * 2**28
        assert kv_cache(model, 4096, 10).total_bytes == 25 * 2**29

    def test_cache_without_grouping_is_eight_times_as_much(self) -> None:
        grouped = kv_cache(load("llama-3-70b").architecture, 4096).total_bytes
        own = load("llama-3-70b", overrides={"num_key_value_heads": 64}).architecture

        assert kv_cache(own, 4096).total_bytes == 8 * grouped


class TestSharedHeads:
    """Textbook figures: 2 x 32 x 8 x 4096 x 128 x 2."""

    def test_one_conversation(self) -> None:
        estimate = kv_cache(llama(), 4096)

        assert estimate.total_bytes == 536_870_912 == 2 * 32 * 8 * 4096 * 128 * 2
        assert estimate.bytes_per_token == 32 * 4096

    def test_64_conversations(self) -> None:
        assert kv_cache(llama(), 4096, 64).total_bytes == 32 * 2**30

    def test_multi_query_is_one_in_32(self) -> None:
        mha = kv_cache(llama(num_key_value_heads=32), 4096).total_bytes

        assert kv_cache(llama(num_key_value_heads=1), 4096).total_bytes * 32 == mha
        assert kv_cache(llama(num_key_value_heads=8), 4096).total_bytes * 4 == mha


class TestNamedModels:
    def test_qwen3_embedding_is_shared(self) -> None:
        count = params(load("qwen3-0.6b").architecture)

        assert count.total_params == 596_049_920
        assert count.untied_params == 751_632_384
        assert count.embedding_params == 151_936 * 1_024

    def test_gpt2_small(self) -> None:
        count = params(load("gpt2").architecture)
        table = load("gpt2").architecture.decoder.stem[1].spec

        assert count.total_params == 124_439_808
        assert [w.shape for w in table.weights()] == [(1_024, 768)]

    def test_deepseek_v3(self) -> None:
        """arXiv:2412.19437; totals of the repository's safetensors index."""
        model = load("deepseek-v3").architecture
        count = params(model)

        assert count.total_params == 671_026_404_352
        assert count.router_bias_params == 14_848
        assert count.active_params == 37_552_282_624
        assert count.stored_params == 684_489_845_504
        assert kv_cache(model, 1, cache="bf16").bytes_per_token == 70_272

    def test_mixtral(self) -> None:
        count = params(load("mixtral-8x7b").architecture)

        assert count.total_params == 46_702_792_704
        assert count.active_params == 12_879_925_248

    @pytest.mark.parametrize(("name", "total"), [("gpt-oss-120b", 116_829_156_672), ("gpt-oss-20b", 20_914_757_184)])
    def test_gpt_oss(self, name: str, total: int) -> None:
        assert params(load(name).architecture).total_params == total

    @pytest.mark.parametrize(
        ("name", "stored"),
        [
            ("deepseek-v3.2", 685_355_329_792),
            ("deepseek-v4-flash", 290_944_616_402),
            ("glm-5", 753_864_139_008),
            ("glm-5.2", 753_329_940_480),
            ("glm-4.5", 358_337_791_296),
            ("glm-4.5-air", 110_468_824_832),
            ("qwen3-next-80b-a3b", 81_324_862_720),
            ("qwen3.6-27b", 27_781_427_952),
            ("qwen3.6-35b-a3b", 35_951_822_704),
        ],
    )
    def test_stored_totals(self, name: str, stored: int) -> None:
        """Elements of the official repositories: with MTP layers, stored buffers and towers."""
        assert params(load(name).architecture).stored_params == stored


def test_hybrid_grows_in_a_quarter_of_its_layers() -> None:
    """Qwen3.8-27B: 64 layers, three linear then one full; 24 query heads of 256 on a width of 5120, 4 K/V heads."""
    model = load("qwen3.6-27b").architecture
    layers = {row.kind: row for row in kv_cache(model, 4096).layers}

    assert layers["full_attention"].layers == 16
    assert layers["linear_attention"].layers == 48
    assert layers["linear_attention"].bytes_per_token == 0
    assert kv_cache(model, 4096).bytes_per_token == 16 * 2 * 4 * 256 * 2


def test_latents_expand_to_71_times() -> None:
    estimate = kv_cache(load("deepseek-v3").architecture, 65_536, cache="bf16")

    assert estimate.kv_bytes == 4_605_345_792
    assert estimate.mla_expanded_bytes == 327_491_256_320


def test_deepseek_v4_keeps_compressed_entries() -> None:
    """A window once (key and value are one array), an entry for 4 or 128 positions, buffers of the open windows."""
    model = load("deepseek-v4-flash").architecture
    rows = {row.kind: row.bytes for row in kv_cache(model, 5000, cache="bf16").layers}
    window, overlap = 128 * 512 * 2, 4 * (512 + 128) * (2 + 4)

    assert rows["sliding_attention"] == 2 * window
    assert rows["compressed_sparse_attention"] == 21 * (window + 1250 * (512 + 128) * 2 + overlap)
    assert rows["heavily_compressed_attention"] == 20 * (window + 39 * 512 * 2 + (5000 % 128) * 2 * 512 * 2)
    assert kv_cache(model, 5000).bytes_per_token == 6_880


def test_encoder_decoder_keeps_what_it_reads() -> None:
    """T5: 24 layers x 2 x 100 x 1024 x 2 bytes of cross-attention for 100 encoder positions (t5-large)."""
    model = read_config({**config("google-t5--t5-large"), "torch_dtype": "bfloat16"})
    one = kv_cache(model, 10, encoder_tokens=100).total_bytes
    two = kv_cache(model, 10, encoder_tokens=200).total_bytes

    assert two - one == 24 * 2 * 100 * 1024 * 2


def test_shared_block_is_stored_once_and_cached_per_call() -> None:
    model = read_config(config("zyphra--zamba2-1.2b"))
    shared = [row for row in kv_cache(model, 100).layers if "attention" in row.kind]

    assert params(model).total_params == 1_215_064_704
    assert sum(row.layers for row in shared) == 6
