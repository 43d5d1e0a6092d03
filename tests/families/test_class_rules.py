"""Rules that a class has for itself: biases, widths, dense layers, windows; the oracle is the library's own class."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest

from llmcalc import params, read_config
from llmcalc.arch.model import Architecture
from llmcalc.errors import InvalidInputError
from tests.families import library

BIAS, MLP = {"attention_bias": True}, {"mlp_bias": True}
CHANGES: list[tuple[str, dict[str, Any]]] = [
    *((name, BIAS) for name in ("afmoe", "axk1", "doge", "hy_v3", "mimo_v2_flash", "nanochat", "bailing_hybrid")),
    *((name, MLP) for name in ("aria_text", "cwm", "hy_v3", "deepseek_v32", "deepseek_v4", "glm_moe_dsa", "minicpm3")),
    ("ernie4_5_moe", {"use_bias": True}), ("deepseek_v4", {"n_shared_experts": 2}),
    ("axk1", {"first_k_dense_replace": 3}), ("glm4_moe_lite", {}), ("gpt_bigcode", {"multi_query": False}),
    ("bailing_hybrid", {"layer_group_size": 3}), ("t5", {"is_gated_act": True}), ("umt5", {"is_gated_act": False}),
    ("zamba", {"attention_hidden_size": 3712}), ("zamba2", {"attention_head_dim": 80}),
    ("zamba2", {"attention_hidden_size": 2560, "use_shared_attention_adapter": True}),
    ("blt", {"patch_in_forward": False}), ("blt", {"vocab_size": 520}), ("glm4_moe", {}),
    *((name, {"tie_word_embeddings": False}) for name in ("bert", "roberta", "albert", "deberta-v2", "electra")),
]  # fmt: skip


@pytest.mark.parametrize(("model_type", "change"), CHANGES)
def test_switches(model_type: str, change: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = library.derived(library.saved(model_type, {"num_hidden_layers": 54} if model_type == "zamba2" else {}))
        data |= change
        assert params(read_config(copy.deepcopy(data))).total_params == library.parameters(data)


SLIDING = (
    "afmoe beam cohere2 cohere2_moe cwm dots3_note_text exaone4 exaone_moe flint gemma2 gemma3_text gemma4_text "
    "gpt_oss granite_swa granitemoe_swa kolibri1 lara_mini lfm3 mimo_v2_flash ministral modernbert-decoder "
    "muse_glimmer_text muse_spark_text olmo3 qwen2 qwen2_5_omni_text qwen2_5_vl_text qwen2_moe "
    "qwen2_vl_text qwen3 smollm3 vaultgemma"
).split()
WINDOWS = ("sliding_window", "sliding_window_size")


def slides(architecture: Architecture) -> list[bool]:
    return [
        any(getattr(mixer, "scope", None) is not None and mixer.scope.kind == "sliding" for mixer in layer.mixers)
        for layer in architecture.decoder.layers
    ]


@pytest.mark.parametrize("model_type", SLIDING)
def test_which_layers_slide(model_type: str) -> None:
    """The class's own ``layer_types`` of 13 layers, taken out of the file."""
    config_class = library.classes()[0][model_type]
    known = config_class().to_dict()
    sizes: dict[str, Any] = {"num_hidden_layers": 13} | {name: 32 for name in WINDOWS if name in known}
    if "use_sliding_window" in known:
        sizes |= {"use_sliding_window": True, "max_window_layers": 3}
    if model_type == "ministral":
        sizes["head_dim"] = 128
    config = config_class(**sizes)
    data = library.derived(config.to_diff_dict()) | {"model_type": model_type}
    assert slides(read_config(data)) == [kind == "sliding_attention" for kind in config.layer_types]


def test_qwen3_moe_slides_everywhere_or_nowhere() -> None:
    """Its class has a window for the model, no list of layers (modeling_qwen3_moe.py)."""
    data = {
        "model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 4, "head_dim": 16,
        "sliding_window": 8, "max_window_layers": 3, "vocab_size": 100,
    }  # fmt: skip
    assert slides(read_config(data)) == [False] * 6
    assert slides(read_config(data | {"use_sliding_window": True})) == [True] * 6


def test_deepseek_v4_without_rates_follows_its_class_and_says_so() -> None:
    config = library.classes()[0]["deepseek_v4"](num_hidden_layers=9)
    data = library.derived(config.to_diff_dict()) | {"model_type": "deepseek_v4"}
    found = read_config({key: value for key, value in data.items() if key != "compress_ratios"})
    assert any("compress_ratios is not given" in text for text in found.warnings)
    kinds = [layer.mixers[0].indexer is not None for layer in found.decoder.layers]  # type: ignore[attr-defined]
    assert kinds == [kind == "compressed_sparse_attention" for kind in config.layer_types]


@pytest.mark.parametrize(
    ("model_type", "change"),
    [("helium", {"head_dim": 256}), ("xlstm", {"num_blocks": 4}), ("xlstm", {"embedding_dim": 64})],
)
def test_sizes_that_contradict_each_other_are_refused(model_type: str, change: dict[str, Any]) -> None:
    data = library.saved(model_type, {}) | change
    with pytest.raises(InvalidInputError, match=next(iter(change))):
        read_config(data)
