"""Towers: the vision and audio encoders beside a language model, one short reader a kind.

Their layers are made of the same specs as a decoder's; they attend in both directions and keep no cache.
"""

from __future__ import annotations

from importlib import import_module

from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Stack

READERS: dict[str, str] = {
    **dict.fromkeys(
        (
            "siglip_vision_model", "siglip2_vision_model", "idefics2_vision", "idefics3_vision", "smolvlm_vision",
            "clip_vision_model", "pixtral", "internvl_vision", "intern_vit_6b", "kimi_k25_vision",
            "llama4_vision_model", "qwen2_vl_vision", "qwen2_5_vl_vision", "qwen2_5_omni_vision_encoder",
            "qwen3_vl_vision",
            "qwen3_vl_moe_vision", "qwen3_omni_moe_vision_encoder", "qwen3_5_vision", "qwen3_5_moe_vision",
            "glm4v_vision", "glm4v_moe_vision", "gemma4_vision",
        ),
        "vit",
    ),
    "mllama_vision_model": "mllama",
    "qwen2_audio_encoder": "audio",
    "qwen2_5_omni_audio_encoder": "audio",
    "voxtral_encoder": "audio",
    "gemma3n_audio": "conformer",
    "gemma4_audio": "conformer",
}  # fmt: skip


def tower(fields: Fields, prefix: str) -> Stack | None:
    """The stack behind a tower's block, its weights under ``prefix``; None for a kind nobody describes."""
    module = READERS.get(fields.model_type)
    if module is None:
        return None
    stack: Stack = import_module(f"llmcalc.arch.families.towers.{module}").read(fields, prefix)
    return stack
