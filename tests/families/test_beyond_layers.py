"""Layer kinds and remote-code families beyond the measured corpus: structure, published sizes, refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcalc import params, read_config
from llmcalc.arch.base import FULL, Step
from llmcalc.arch.indexed import BlockIndexer
from llmcalc.arch.mixing import Counting
from llmcalc.arch.ngram import primes_from
from llmcalc.errors import InvalidInputError, LlmcalcError, UnsupportedArchitectureError, UnsupportedLayerError
from tests.families.configs import default


def total(config: dict[str, Any]) -> int:
    return params(read_config(config)).total_params


PHI4_FLASH = {
    "model_type": "phi4flash", "vocab_size": 200_064, "hidden_size": 2560, "intermediate_size": 10_240,
    "num_hidden_layers": 32, "num_attention_heads": 40, "num_key_value_heads": 20, "sliding_window": 512,
    "mb_per_layer": 2,
}  # fmt: skip
STEP3 = {
    "model_type": "step3_text", "vocab_size": 128_815, "hidden_size": 7168, "intermediate_size": 18_432,
    "num_hidden_layers": 61, "num_attention_heads": 64, "num_attention_groups": 1, "head_dim": 256,
    "share_q_dim": 2048, "moe_num_experts": 48, "moe_top_k": 3, "moe_intermediate_size": 5120,
    "share_expert_dim": 5120, "moe_layers_enum": ",".join(str(index) for index in range(4, 60)),
    "tie_word_embeddings": False,
}  # fmt: skip
HUNYUAN_LARGE = {
    "model_type": "hunyuan", "vocab_size": 129_024, "hidden_size": 6400, "intermediate_size": 18_304,
    "num_hidden_layers": 64, "num_attention_heads": 80, "num_key_value_heads": 8, "num_experts": 16, "moe_topk": 1,
    "num_shared_expert": 1, "use_cla": True, "cla_share_factor": 2, "use_qk_norm": True, "tie_word_embeddings": True,
    "max_position_embeddings": 131_072, "head_dim": 80,
}  # fmt: skip
LONGCAT_LITE = {
    "model_type": "longcat_flash_ngram", "vocab_size": 131_072, "hidden_size": 3072, "num_layers": 14,
    "num_attention_heads": 32, "ffn_hidden_size": 6144, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256, "moe_topk": 12,
    "zero_expert_num": 128, "expert_ffn_hidden_size": 1024, "ngram_vocab_size_ratio": 78, "emb_neighbor_num": 4,
    "emb_split_num": 4,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        (PHI4_FLASH, 3.85),  # model card of microsoft/Phi-4-mini-flash-reasoning: 3.8B, safetensors 3.85B
        (STEP3, 316),  # model card of stepfun-ai/step3: 316B of language model
        (HUNYUAN_LARGE, 389),  # arXiv:2411.02265
        (LONGCAT_LITE, 68.5),  # arXiv:2601.21204
    ],
)
def test_published_rounded_sizes(config: dict[str, Any], billions: float) -> None:
    """No class of the library stands beside these; the published sizes are rounded."""
    assert total(config) / 1e9 == pytest.approx(billions, rel=2e-3)


def test_neighbours_of_hunyuan_large_share_a_cache() -> None:
    model = read_config(HUNYUAN_LARGE)
    keys = [held for held in model.states if held.state.name == "keys"]

    assert {held.state.borrowed: held.calls for held in keys} == {False: 32, True: 32}


def test_phi4_flash_has_one_growing_cache() -> None:
    model = read_config(PHI4_FLASH)
    grows = [held for held in model.states if held.state.scope.grows and not held.state.borrowed]

    assert [(held.state.name, held.depths) for held in grows] == [("keys", (17,)), ("values", (17,))]
    assert sum(held.calls for held in model.states if held.state.name == "recurrent_state") == 9


def nas(**attention: object) -> dict[str, Any]:
    """Three blocks: whole, without attention, without a feed-forward."""
    blocks = [
        {"attention": {"n_heads_in_group": 8, **attention}, "ffn": {"ffn_mult": 5.25}},
        {"attention": {"no_op": True}, "ffn": {"ffn_mult": 2.625}},
        {"attention": {"n_heads_in_group": 16}, "ffn": {"no_op": True}},
    ]
    sizes = {"vocab_size": 128_256, "hidden_size": 8192, "num_hidden_layers": 3, "num_attention_heads": 64}
    return {"model_type": "nemotron-nas", **sizes, "block_configs": blocks, "tie_word_embeddings": False}


class TestNemotronNas:
    """vLLM model_executor/models/nemotron_nas.py: two thirds of the factor times the width, rounded up to 256."""

    def test_halves_that_are_missing_hold_nothing(self) -> None:
        first, second, third = read_config(nas()).decoder.layers

        assert [len(layer.sublayers) for layer in (first, second, third)] == [2, 1, 1]
        assert "width 28,672" in first.ffns[0].describe()
        assert "width 14,336" in second.ffns[0].describe()
        assert [held.state.row for held in read_config(nas()).states if held.state.name == "keys"] == [
            (8, 128),
            (4, 128),
        ]

    @pytest.mark.parametrize("key", ["replace_with_linear", "sparsify"])
    def test_other_replacements_are_refused(self, key: str) -> None:
        with pytest.raises(UnsupportedLayerError, match=key):
            read_config(nas(**{key: True}))

    def test_heads_must_divide(self) -> None:
        with pytest.raises(InvalidInputError, match="multiple"):
            read_config(nas(n_heads_in_group=7))


@pytest.mark.parametrize(
    "config",
    [
        default("laguna", num_attention_heads_per_layer=[48, 47]),
        default("beam", mlp_layer_types=["dense"]),
        default("minimax_m3_vl_text", sparse_attention_config={"sparse_attention_freq": [1]}),
        default("inkling2_loop_text", loop_layer_index_end=99),
        default("mistral_large4_text", kv_source_layers=[0]),
        default("qwen4_exp_text"),  # its class has no sizes for the indexer
        {**STEP3, "moe_layers_enum": "3,x"},
        {"model_type": "iquest_loopcoder"},
        {"model_type": "openpangu"},
    ],
)
def test_impossible_and_unknown_configs_are_errors(config: dict[str, Any]) -> None:
    with pytest.raises(LlmcalcError):
        read_config(config)


def test_unknown_types_are_refused() -> None:
    with pytest.raises(UnsupportedArchitectureError):
        read_config({"model_type": "k2_horizon"})


def test_primes() -> None:
    assert primes_from(8, 5) == (11, 13, 17, 19, 23)


@given(st.booleans(), st.integers(1, 5), st.integers(1, 9), st.integers(0, 90), st.integers(1, 60))
def test_read_blocks_add_up(pooled: bool, topk: int, block: int, past: int, new: int) -> None:
    """A step is the sum of its tokens, nobody reads more than there is, and few positions are all read."""
    indexer = BlockIndexer(64, 2, 16, topk, block, pooled)
    step = Step(new, past)
    one_by_one = sum(indexer.pairs(Step(1, past + index)) for index in range(new))

    assert indexer.pairs(step) == one_by_one <= step.pairs(FULL)
    if past + new <= topk * block:
        assert indexer.pairs(step) == step.pairs(FULL)


def test_picked_blocks_of_one_query() -> None:
    """MiniMax-M3 reads 15 whole blocks and the open one; Qwen4-Exp its budget and what is open beside it."""
    assert BlockIndexer(64, 4, 128, 16, 128).pairs(Step(1, 128 * 100 + 9)) == 15 * 128 + 10
    assert BlockIndexer(64, 4, 128, 16, 128, pooled=True).pairs(Step(1, 128 * 100 + 9)) == 16 * 128 + 10


def test_dense_counts_of_picked_blocks_are_refused() -> None:
    kinds = ["full_attention"] * 3 + ["minimax_m3_sparse"] * 57
    mixer = read_config(default("minimax_m3_vl_text", layer_types=kinds)).decoder.layers[-1].mixers[0]

    assert [term.value for term in mixer.mixing_flops(Step(1, 0), Counting())] == [2 * 64 * 256, 2 * 4 * 128]
    with pytest.raises(UnsupportedLayerError):
        list(mixer.mixing_flops(Step(1, 0), Counting("dense")))
