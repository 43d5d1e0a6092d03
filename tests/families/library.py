"""Models of the library, made on the meta device from the defaults of their classes: what the readers are held to."""

from __future__ import annotations

import copy
import os
from functools import cache
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

LAYERS = 8
DERIVED = ("layer_types", "mlp_layer_types", "layers_block_type")


@cache
def classes() -> tuple[dict[str, Any], tuple[dict[str, Any], ...]]:
    """The library's classes by model_type: those of configs, and of models in the order they are preferred."""
    import transformers
    from transformers.models.auto import modeling_auto as auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    kinds = ("IMAGE_TEXT_TO_TEXT", "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM")
    maps = [getattr(auto, f"MODEL_FOR_{kind}_MAPPING_NAMES") for kind in kinds]
    return CONFIG_MAPPING, (*maps, auto.MODEL_MAPPING_NAMES)


# Blocks that stand inside another model: the library names their classes nowhere.
INSIDE = {
    "deepseek_ocr2_text": "DeepseekOcr2TextModel", "emu3_text_model": "Emu3ForCausalLM",
    "ernie4_5_vl_moe_text": "Ernie4_5_VLMoeTextModel", "granite4_vision_text": "Granite4VisionTextModel",
    "mllama_text_model": "MllamaForCausalLM", "paddleocr_vl_text": "PaddleOCRTextModel",
    "qwen2_5_omni_text": "Qwen2_5OmniThinkerTextModel", "qwen3_omni_moe_text": "Qwen3OmniMoeThinkerTextModel",
    "step3p5": "Step3p7TextModel",
}  # fmt: skip


def model_class(model_type: str) -> Any:
    """The model class of a model_type; None where the library has none."""
    import transformers

    if model_type in INSIDE:
        return getattr(transformers, INSIDE[model_type])
    for names in classes()[1]:
        name = names.get(model_type)
        name = name[0] if isinstance(name, (list, tuple)) else name
        if name and hasattr(transformers, name):
            return getattr(transformers, name)
    return None


def saved(model_type: str, extra: dict[str, Any]) -> dict[str, Any]:
    """The class's default config with a few layers, as the library writes it to a file."""
    config_class = classes()[0][model_type]
    if "num_hidden_layers" not in extra and "num_hidden_layers" in config_class().to_dict():
        extra = {"num_hidden_layers": LAYERS, **extra}
    data: dict[str, Any] = config_class(**copy.deepcopy(extra)).to_diff_dict()
    return data | {"model_type": model_type, "architectures": [model_class(model_type).__name__]}


def derived(data: dict[str, Any]) -> dict[str, Any]:
    """The same without the lists that a class makes itself."""
    return {
        key: derived(value) if isinstance(value, dict) else value for key, value in data.items() if key not in DERIVED
    }


def built(data: dict[str, Any]) -> Any:
    """The model that the library builds of a file."""
    import torch
    import transformers

    config = classes()[0][data["model_type"]].from_dict(copy.deepcopy(data))
    config._attn_implementation = "eager"
    with torch.device("meta"):
        return getattr(transformers, data["architectures"][0])(config)


def built_of(model_type: str, extra: dict[str, Any]) -> Any:
    """The model of a class's defaults."""
    return built(saved(model_type, extra))


def parameters(data: dict[str, Any]) -> int:
    """Its parameters, tied ones once."""
    return sum(parameter.numel() for _, parameter in built(data).named_parameters())


def language(data: dict[str, Any]) -> int:
    """Parameters of the language model in a model with towers."""
    return sum(parameter.numel() for name, parameter in built(data).named_parameters() if _of_text(name))


def _of_text(name: str) -> bool:
    if name.startswith(("model.embed_tokens.", "model.layers.", "model.norm.")):  # Phi-4 has no block of its own
        return True
    return name.startswith("lm_head.") or "language_model." in name or "text_model." in name
