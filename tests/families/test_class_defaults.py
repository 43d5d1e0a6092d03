"""Every readable model_type of the library at its class's defaults: the total is what the library builds.

Twice: as the library would save the config, and without the lists of layers that its class makes itself.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from llmcalc import params, read_config
from llmcalc.arch.families import model_types
from llmcalc.errors import UnsupportedLayerError
from tests.families import library
from tests.families.configs import body

pytest.importorskip("torch")
pytest.importorskip("transformers")

# What a class needs beside its defaults, which build no model.
SPARSE = ["dense", *["sparse"] * 7]
TOWER = {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 2, "num_attention_heads": 16}
DEEPSEEK = {"num_experts_per_tok": 4}
ROUTED = {"n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 2}
EXTRA: dict[str, dict[str, Any]] = {
    "aya_vision": {"vision_config": TOWER},
    "deepseek_ocr2": {"text_config": {**DEEPSEEK, "num_hidden_layers": 8, "mlp_layer_types": SPARSE}},
    "deepseek_ocr2_text": {**DEEPSEEK, "mlp_layer_types": SPARSE},
    "deepseek_v2": DEEPSEEK,
    "dory": {"num_hidden_layers": 48},
    "dots1": ROUTED,
    "gemma3n_text": {"num_hidden_layers": 35},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 4, "moe_topk": 2},
    "hunyuan_vl": {"text_config": {"head_dim": 128}},
    "hunyuan_vl_text": {"head_dim": 128},
    "inkling2_loop_text": {"num_hidden_layers": 24},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"] * 2},
    "mllama_text_model": {"num_hidden_layers": 40},
    "ministral": {"head_dim": 128},
    "nemotron": {"head_dim": 64, "num_key_value_heads": 8},
    "zamba2": {"num_hidden_layers": 54},
}

# Remote code, or other names of classes: the library has no class of that name.
REMOTE = frozenset(
    """
    arctic baichuan bailing_moe bailing_moe_linear chatglm deci ernie4_5_moe_vl gla grok-1 internlm internlm2
    internvl_chat kimi_k2 kimi_k3 longcat_flash_ngram minicpm nemotron-nas openelm orion phi4flash phi4mm plamo3 qwen
    retnet rnj1 rwkv7 step1 step3_text step3_vl telechat telechat2 xverse
    """.split()
)


# Classes that make no list of layers themselves.
LISTED = frozenset({"deepseek_ocr2", "deepseek_ocr2_text", "lfm2_moe", "nemotron_h", "nemotron_h_omni"})

# What the library builds no model of, and why.
UNBUILT = {
    "dbrx": "its class reads a rope_theta that its own block of attention does not have",
    "emu3": "its class needs a map of the vocabulary",
    "fast_vlm": "its tower is timm's",
    "gemma3n": "its tower is timm's",
    "perception_lm": "its tower is timm's",
    "granite4_vision": "its class needs a list of layers that feed the tower's features in",
    "qwen2_5_omni": "no class of a whole model in the library's tables; the thinker is tested",
    "qwen3_omni_moe": "no class of a whole model in the library's tables; the thinker is tested",
    "qwen4_exp": "its indexer has no default sizes",
    "qwen4_exp_text": "its indexer has no default sizes",
    "voxtral_realtime_text": "its class is not exported; it is tested inside voxtral_realtime",
}

# LongCat's identity experts multiply nothing; the library makes the first of two matrices of each of them.
IDENTITY = {"longcat_flash": 28 * 256 * 2 * 2048 * 6144}


def totals(data: dict[str, Any]) -> tuple[int, int]:
    """Our total and the library's; of the language model alone where a tower is not described."""
    architecture = read_config(data)
    extra = IDENTITY.get(architecture.model_type, 0)
    if not architecture.uncounted:
        return params(architecture).total_params + extra, library.parameters(data)
    with pytest.raises(UnsupportedLayerError, match="not described"):
        params(architecture)
    return body(architecture), library.language(data)


@pytest.mark.parametrize("model_type", [name for name in model_types() if name not in REMOTE and name not in UNBUILT])
def test_total(model_type: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = library.saved(model_type, EXTRA.get(model_type, {}))
        ours, theirs = totals(data)
        assert ours == theirs
        short = library.derived(data)
        if short != data and model_type not in LISTED:
            ours, theirs = totals(short)
            assert ours == theirs


@pytest.mark.parametrize("model_type", sorted(REMOTE))
def test_remote_classes_are_not_the_librarys(model_type: str) -> None:
    assert model_type not in library.classes()[0]


@pytest.mark.parametrize("model_type", sorted(UNBUILT))
def test_what_the_library_does_not_build(model_type: str) -> None:
    reasons = (AttributeError, ImportError, TypeError, ValueError)
    with warnings.catch_warnings(), pytest.raises(reasons):
        library.built_of(model_type, EXTRA.get(model_type, {}))
