"""vLLM's blocks, against its own logs and its own rules."""

from __future__ import annotations

from typing import Any

import pytest

from llmcalc import kv_cache, load, read_config
from llmcalc.engines.base import Allocation
from llmcalc.engines.vllm import padded_vocab
from llmcalc.errors import InvalidInputError, UnsupportedFormatError, UnsupportedLayerError
from tests.conftest import config

GIB = 2**30


def vllm(name: str, tokens: int = 131_072, **options: Any) -> Allocation:
    taken = kv_cache(load(name).architecture, tokens, engine="vllm", **options).allocation
    assert taken is not None
    assert taken.figure.value == taken.per_device_bytes
    return taken


def test_two_sequences_of_18_and_31_take_four_blocks() -> None:
    taken = vllm("llama-3-8b", lengths=[18, 31])

    assert (taken.blocks, taken.block_tokens, taken.slots, taken.unused) == (4, 16, 64, 15)
    assert taken.allocated_bytes == 4 * taken.reserve_bytes == 64 * 131_072


def test_a_block_of_llama_3_70b_on_eight_ranks() -> None:
    taken = vllm("llama-3-70b", 8192, tp=8)

    assert taken.block_bytes == 655_360
    assert (taken.blocks, taken.per_device_bytes, taken.allocated_bytes) == (512, 512 * 655_360, 8 * 512 * 655_360)


@pytest.mark.parametrize(
    ("name", "gib", "blocks"),
    [
        # "reserved for KV Cache is 56.18GiB", "# cuda blocks: 7191": gateway-api-inference-extension#550
        ("llama-2-7b", 56.18, 7191),
        # "reserved for KV Cache is 4.60GiB", "# CUDA blocks: 2356", the size printed with two digits
        ("llama-3.1-8b", 4.602, 2356),
    ],
)
def test_logged_blocks(name: str, gib: float, blocks: int) -> None:
    size = vllm(name, 16).block_bytes
    assert size is not None
    assert int(gib * GIB) // size == blocks


@pytest.mark.parametrize(
    ("name", "tokens", "reserved", "exact", "full"),
    [
        ("gemma-3-27b-it", 131_072, 15_275_130_880, 11_173_625_856, 66_571_993_088),
        ("gemma-3-27b-it", 8192, 4_705_484_800, 1_107_296_256, 4_160_749_568),
        ("gpt-oss-20b", 131_072, 3_426_091_008, 3_224_371_200, 6_442_450_944),
        ("llama-4-scout-17b-16e", 131_072, 8_858_370_048, 7_650_410_496, 25_769_803_776),
        ("qwen3-next-80b-a3b-instruct", 131_072, 3_302_227_968, 3_298_492_416, 12_884_901_888),
        ("deepseek-v3.2", 131_072, 10_266_083_328, 11_257_511_936, 11_257_511_936),
    ],
)
def test_three_numbers(name: str, tokens: int, reserved: int, exact: int, full: int) -> None:
    """Exact arrays, what vLLM reserves with 8,192 tokens in flight, every layer full (14.23, 3.19 and 8.25 GiB)."""
    estimate = kv_cache(load(name).architecture, tokens, engine="vllm")

    assert estimate.allocated_bytes == reserved
    assert estimate.total_bytes == exact
    assert estimate.every_layer_full_bytes == full
    assert estimate.allocation is not None
    assert estimate.allocation.log_line_bytes == reserved


def test_gemma_3_27b_is_one_and_six_groups_of_ten() -> None:
    sliding, full = vllm("gemma-3-27b-it").figure.parts

    assert [factor.value for factor in sliding.factors] == [6, 577, 10, 131_072]
    assert [factor.value for factor in full.factors] == [1, 8192, 10, 131_072]
    assert any("52 layers in 6 groups, 8 layers of padding" in note for note in vllm("gemma-3-27b-it").figure.notes)


def test_tokens_in_flight_and_blocks_may_be_named() -> None:
    few = vllm("gpt-oss-20b", batched_tokens=2048)
    sliding, full = few.figure.parts

    assert sliding.factors[1].value == -(-(127 + 2048) // 16) + 1
    assert full.factors[1].value == 8192
    assert vllm("gpt-oss-20b", block_size=32).blocks == 4096 + -(-(127 + 8192) // 32) + 1


def test_qwen3_next_has_blocks_of_544_tokens() -> None:
    """Its attention page grows until it holds a state of 1,097,728 B; at least four blocks even for one token."""
    with_prefixes, without = (
        vllm("qwen3-next-80b-a3b-instruct", 1),
        vllm("qwen3-next-80b-a3b-instruct", 1, prefix_caching=False),
    )

    assert (without.block_tokens, without.block_bytes, without.blocks) == (544, 12 * 1_114_112, 4)
    assert with_prefixes.blocks == 1 + 3 * 2
    assert any("1,114,112 B in a layer, padded from 1,097,728" in note for note in without.figure.notes)


def hybrid(layers: int, heads: int, kv: int, value_heads: int) -> dict[str, Any]:
    """A Qwen3.5 text model of published sizes."""
    return {
        "model_type": "qwen3_5_text", "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": 256, "vocab_size": 248_320,
        "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": value_heads,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "dtype": "bfloat16",
        "mamba_ssm_dtype": "float32",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "options", "gib", "tokens", "block", "concurrency"),
    [
        # 27B in fp8 on two cards: blocks of 1,568 tokens, 4.99 GiB each (mitchross/talos-argocd-proxmox#1995)
        ((64, 24, 4, 48), {"cache": "fp8", "tp": 2}, 4.99, 131_072, 1568, "2.31"),
        # 35B-A3B in fp8, 5.98 GiB and 6.01 GiB (noonghunna/club-3090#612, #652)
        ((40, 16, 2, 32), {"cache": "fp8"}, 5.98, 131_072, 2096, "4.33"),
        ((40, 16, 2, 32), {"cache": "fp8"}, 6.01, 131_072, 2096, "4.35"),
    ],
)
def test_logged_concurrency(
    sizes: tuple[int, int, int, int], options: dict[str, Any], gib: float, tokens: int, block: int, concurrency: str
) -> None:
    """ "Maximum concurrency for 131,072 tokens per request": blocks of the pool over those of a request."""
    taken = kv_cache(read_config(hybrid(*sizes)), tokens, engine="vllm", **options).allocation

    assert taken is not None
    assert taken.block_tokens == block
    assert taken.block_bytes
    assert taken.blocks
    assert f"{int(gib * GIB) // taken.block_bytes / taken.blocks:.2f}" == concurrency


def test_logged_concurrency_without_prefix_caching() -> None:
    """290,864 tokens are 371 x 784: 1,484 to 1,487 blocks; 33.04 requests of 32,768 tokens are 1,487 (vllm#40691)."""
    taken = kv_cache(read_config(hybrid(64, 24, 4, 48)), 32_768, engine="vllm", prefix_caching=False).allocation

    assert taken is not None
    assert taken.block_tokens == 784
    assert taken.blocks == 45
    assert f"{1487 / taken.blocks:.2f}" == "33.04"
    assert 1487 // 4 * 784 == 290_864


def test_logged_need_of_deepseek_v4() -> None:
    """ "6.66 GiB KV cache is needed" for 30,000 tokens, 16,384 in flight (vllm#44376): 6,800 blocks of that release.

    0.22 gave every block 22 layers of each page; the planning read in November takes the largest group instead.
    """
    taken = vllm("deepseek-v4-flash", 30_000, batched_tokens=16_384)

    assert taken.blocks == 6800
    assert f"{6800 * 22 * (37_440 + 8_640 + 1_728) / GIB:.2f}" == "6.66"


def test_state_dtypes() -> None:
    """The model's dtype by default, the file's in Qwen3.5 and Nemotron-H, fp32 for Kimi's delta rule."""
    names = {
        name: [part.name for part in vllm(name, 4096).figure.parts if "state" in part.name]
        for name in ("falcon-mamba-7b", "qwen3.5-9b", "nvidia-nemotron-3-nano-30b-a3b-bf16")
    }
    assert names["falcon-mamba-7b"] == ["mamba1 state in bf16"]
    assert names["qwen3.5-9b"] == ["linear attention state in fp32"]
    assert names["nvidia-nemotron-3-nano-30b-a3b-bf16"] == ["mamba2 state in fp32"]


def test_sparse_latents() -> None:
    """DeepSeek-V3.2 in fp8: 61 x (656 + 132) = 48,068 B a token, whole on every rank; index keys are fp8 anyway."""
    one, many = vllm("deepseek-v3.2", 64, cache="fp8"), vllm("deepseek-v3.2", 64, cache="fp8", tp=8)

    assert one.per_device_bytes == many.per_device_bytes == 64 * 48_068
    assert many.allocated_bytes == 8 * one.allocated_bytes
    assert one.cache_format == "fp8_ds_mla"
    assert vllm("deepseek-v3.2", 131_072, cache="fp8").allocated_bytes == 6_300_368_896
    plain = vllm("deepseek-v3.2", 64)
    assert plain.per_device_bytes == 64 * 61 * (2 * 576 + 132)
    assert "vLLM 0.11" in plain.warnings[0]
    assert not vllm("deepseek-v3.2", 64, cache="bf16").warnings


def test_plain_latents() -> None:
    taken = vllm("deepseek-v3", 1000, tp=16)

    assert (taken.block_tokens, taken.blocks) == (64, 16)
    assert taken.per_device_bytes == 16 * 64 * 61 * 1152


def test_deepseek_v4_pages() -> None:
    """Records of 584 B, index keys of 132 B, compressor windows in fp32, all rounded to 576 B; five groups packed."""
    taken = vllm("deepseek-v4-flash", 256)
    text = "\n".join(taken.figure.notes)

    for size, content in ((37_440, 37_376), (8_640, 8_448), (1_728, 1_168), (32_832, 32_768), (8_640, 8_192)):
        assert f"{size:,} B in a layer, padded from {content:,}" in text
    assert taken.block_tokens == 256
    assert taken.block_bytes == 21 * (37_440 + 8_640) + 20 * 1_728
    with pytest.raises(UnsupportedFormatError):
        vllm("deepseek-v4-flash", 256, cache="bf16")


def test_windows_of_other_widths_share_pages() -> None:
    """Gemma-4's full layers have a quarter of the heads and twice the width: blocks of 32 against 16 tokens."""
    sliding, full = vllm("gemma-4-31b-it", 32_768).figure.parts

    assert sliding.factors[0].value == 5
    assert "blocks of 16 tokens" in sliding.factors[1].name
    assert "blocks of 32 tokens" in full.factors[1].name


def test_replicated_heads_and_stages() -> None:
    """Qwen3-30B has four K/V heads: eight ranks hold one each; stages hold their own layers."""
    assert vllm("qwen3-30b-a3b", 16, tp=8).block_bytes == vllm("qwen3-30b-a3b", 16, tp=4).block_bytes == 48 * 8192
    staged = vllm("gemma-3-27b-it", 8192, pp=2)
    assert staged.blocks == vllm("gemma-3-27b-it", 8192).blocks
    assert staged.per_device_bytes <= staged.allocated_bytes < 2 * vllm("gemma-3-27b-it", 8192).allocated_bytes


def test_a_window_alone() -> None:
    """Mistral-7B-v0.1 slides in every layer: one group, a block more for the window's start."""
    taken = vllm("mistral-7b-v0.1", 32_768)
    assert taken.blocks == -(-(4095 + 8192) // 16) + 1


@pytest.mark.parametrize("cache", ["q8_0", "mxfp8", "int8", "fp8:bf16", "fp32"])
def test_formats_it_has_not(cache: str) -> None:
    with pytest.raises(UnsupportedFormatError):
        vllm("llama-3-8b", cache=cache)


def test_formats_it_has() -> None:
    """Scales of a head and token are four bytes each for keys and values; fp8 halves without any."""
    assert vllm("llama-3-8b", 16, cache="fp8").block_bytes == 16 * 65_536
    assert vllm("llama-3-8b", 16, cache="fp8_per_token_head").block_bytes == 16 * (65_536 + 32 * 8 * 2 * 4)


@pytest.mark.parametrize("name", ["t5-small", "rwkv-4-169m-pile", "recurrentgemma-9b", "llama-3.2-11b-vision-instruct"])
def test_what_it_does_not_run(name: str) -> None:
    with pytest.raises(UnsupportedLayerError):
        vllm(name)


def test_an_encoder_keeps_nothing() -> None:
    taken = vllm("bert-base-uncased", 512)
    assert (taken.allocated_bytes, taken.blocks, taken.slots) == (0, 0, None)


def test_blocks_need_an_engine() -> None:
    with pytest.raises(InvalidInputError, match="no blocks"):
        kv_cache(load("llama-3-8b").architecture, block_size=16)


def test_vocabulary_padding() -> None:
    assert padded_vocab(128_256, 8) == 128_256
    assert padded_vocab(50_257, 1) == 50_304
    with pytest.raises(UnsupportedLayerError):
        padded_vocab(50_257, 7 * 11)


def test_every_depth_is_in_a_group_once() -> None:
    from llmcalc import read_config
    from llmcalc.engines.base import Lengths, Plan, mixers
    from llmcalc.engines.pages import aligned, groups
    from llmcalc.engines.vllm import pages_of
    from llmcalc.formats import find_cache

    architecture = read_config(config("google--gemma-3-27b-it"))
    plan = Plan(architecture, ((Lengths(1),), 1), find_cache("bf16"))  # type: ignore[arg-type]
    pages = [page for mixer in mixers(architecture) for page in pages_of(plan, mixer, 16)]
    depths = sorted(d for group in groups(aligned(pages, 16)) for _, part in group.pages for d in part)

    assert depths == list(range(62))


def test_cross_attention_of_a_fixed_source() -> None:
    """Whisper: 28 blocks of its own 448 positions, 94 of the encoder's 1,500; 32 layers a block."""
    found = kv_cache(load("whisper-large-v3").architecture, 448, engine="vllm").allocation
    assert found is not None
    assert (found.blocks, found.block_bytes) == (28 + 94, 2 * 32 * 16 * 20 * 64 * 2)
