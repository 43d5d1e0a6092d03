"""What a forward pass needs and no figure depends on: epsilons, scales, caps and how a router scores.

Read quietly: a class default taken here is no assumption of an estimate, since it changes none.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from llmcalc.arch.fields import ABSENT, Fields
from llmcalc.arch.model import Layer
from llmcalc.arch.positions import Sinusoidal

if TYPE_CHECKING:
    from llmcalc.arch.moe import MixtureOfExperts

# Epsilons of the classes whose own is not the usual 1e-6 (RMSNorm) or 1e-5 (LayerNorm); a file's own wins.
CLASS_EPS: dict[str, float] = {
    "mixtral": 1e-5, "gpt_oss": 1e-5, "llama4_text": 1e-5, "phi3": 1e-5, "olmo2": 1e-5, "olmoe": 1e-5, "lfm2": 1e-5,
    "mamba": 1e-5, "mamba2": 1e-5, "falcon_mamba": 1e-5, "nemotron_h": 1e-5, "glm": 1.5625e-7, "glm4": 1.5625e-7,
    "bamba": 1e-5, "falcon_h1": 1e-5, "glm4_moe": 1e-5, "ernie4_5": 1e-5, "ernie4_5_moe": 1e-5, "olmo3": 1e-5,
    "exaone4": 1e-5, "lfm2_moe": 1e-5, "zamba": 1e-5, "zamba2": 1e-5, "dbrx": 1e-5, "minimax": 1e-5, "apertus": 1e-5,
    "glm_moe_dsa": 1e-5, "hunyuan_v1_dense": 1e-5, "hunyuan_v1_moe": 1e-5, "arcee": 1e-5, "bitnet": 1e-5,
    "phimoe": 1e-5, "ctrl": 1e-6, "mllama_text_model": 1e-5, "diffllama": 1e-5,
}  # fmt: skip


def quiet(fields: Fields, *names: str) -> object:
    """The file's value, else the class's, else None; nothing is noted as an assumption."""
    for name in names:
        value = fields.explicit(name)
        if value is not ABSENT:
            return value
    for name in names:
        for key in fields.names(name):
            if key in fields.defaults.values:
                return fields.defaults.values[key]
    return None


def number(fields: Fields, *names: str, null: float) -> float:
    """A finite number, ``null`` where neither the file nor the class has one."""
    value = quiet(fields, *names)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return null
    return float(value)


def maybe(fields: Fields, *names: str) -> float | None:
    """A finite number, or None."""
    value = number(fields, *names, null=math.nan)
    return None if math.isnan(value) else value


def numbers(fields: Fields, name: str, count: int) -> tuple[float, ...]:
    """So many numbers, ones where the file has none."""
    value = quiet(fields, name)
    if isinstance(value, list) and len(value) == count and all(isinstance(x, (int, float)) for x in value):
        return tuple(float(x) for x in value)
    return (1.0,) * count


def whole(fields: Fields, *names: str, null: int) -> int:
    """A whole number."""
    return int(number(fields, *names, null=null))


def flag(fields: Fields, *names: str, null: bool = False) -> bool:
    """True or false."""
    value = quiet(fields, *names)
    return value if isinstance(value, bool) else null


# -- around the layers -------------------------------------------------------------------------------------------

SQRT_EMBEDDING = ("gemma", "gemma2", "gemma3_text", "vaultgemma", "recurrent_gemma", "gemma3n_text", "gemma4_text")


def embedding_scale(fields: Fields, width: int) -> float:
    """What the rows of the token table are multiplied by."""
    if fields.model_type in SQRT_EMBEDDING:
        return math.sqrt(width)
    if fields.model_type in ("minicpm", "minicpm3"):
        return number(fields, "scale_emb", null=1.0)
    if fields.model_type == "ctrl":
        return math.sqrt(width)
    if fields.model_type == "xglm":
        return math.sqrt(width) if flag(fields, "scale_embedding", null=True) else 1.0
    return number(fields, "embedding_multiplier", null=1.0)


def head_scale(fields: Fields, width: int) -> float:
    """What the logits are multiplied by."""
    if fields.model_type.startswith("granite"):
        return 1.0 / number(fields, "logits_scaling", null=1.0)
    if fields.model_type.startswith("cohere"):
        return number(fields, "logit_scale", null=1.0)
    if fields.model_type in ("minicpm", "minicpm3"):
        return number(fields, "dim_model_base", null=width) / width
    return number(fields, "lm_head_multiplier", null=1.0)


def residual_scale(fields: Fields) -> float:
    """What a sublayer's output is multiplied by before it is added to the stream."""
    if fields.model_type in ("minicpm", "minicpm3"):
        depth = number(fields, "num_hidden_layers", null=1.0)
        return number(fields, "scale_depth", null=math.sqrt(depth)) / math.sqrt(depth)
    return number(fields, "residual_multiplier", null=1.0)


def final_softcap(fields: Fields) -> float | None:
    """tanh cap of the logits."""
    cap = 15.0 if fields.model_type == "nanochat" else None
    return maybe(fields, "final_logit_softcapping", "logits_soft_cap") or cap


def scaled_layers(fields: Fields, layers: list[Layer]) -> list[Layer]:
    """The same layers with the residual's factor; equal objects stay one object."""
    factor = residual_scale(fields)
    if factor == 1.0:
        return layers
    made = {id(layer): replace(layer, residual_scale=factor) for layer in layers}
    return [made[id(layer)] for layer in layers]


def attention_scale(fields: Fields) -> float | None:
    """What the scores are multiplied by where it is not one over the root of the head's width."""
    if fields.model_type.startswith("gemma") or fields.model_type == "vaultgemma":
        scalar = number(fields, "query_pre_attn_scalar", null=0.0)
        return 1.0 / math.sqrt(scalar) if scalar > 0 else None
    if fields.model_type.startswith(("granite", "bamba")):
        return maybe(fields, "attention_multiplier")
    if fields.model_type == "gpt_neo":
        return 1.0
    if fields.model_type == "gpt2" and not flag(fields, "scale_attn_weights", null=True):
        return 1.0
    return None


INTERLEAVED = (
    "gptj", "codegen", "cohere", "cohere2", "glm", "glm4", "helium", "llama4_text", "ernie4_5", "ernie4_5_moe",
    "deepseek_v2", "deepseek_v32", "glm_moe_dsa", "chatglm", "axk1", "glm4v_text",
)  # fmt: skip


def interleaved(fields: Fields) -> bool:
    """Whether neighbouring channels are rotated together."""
    return flag(fields, "rope_interleave", null=fields.model_type in INTERLEAVED)


def time_steps(fields: Fields) -> tuple[float, float]:
    """Bounds of Mamba-2's time step."""
    if fields.model_type == "zamba2":
        return number(fields, "time_step_min", null=0.001), math.inf
    value = quiet(fields, "time_step_limit")
    if isinstance(value, list) and len(value) == 2 and all(isinstance(x, (int, float)) for x in value):
        return float(value[0]), float(value[1])
    return 0.0, math.inf


def yarn_scale(fields: Fields, head_dim: int) -> float | None:
    """DeepSeek's softmax scale under YaRN: one over the root of the width, times the square of an mscale."""
    block = fields.mapping("rope_parameters") or fields.mapping("rope_scaling")
    factor, mscale = block.get("factor"), block.get("mscale_all_dim")
    if not (isinstance(factor, (int, float)) and isinstance(mscale, (int, float)) and mscale and 1 < factor < 1e9):
        return None
    if not abs(mscale) < 1e9:
        raise fields.wrong("rope_scaling.mscale_all_dim", mscale, "a number of ordinary size")
    return (0.1 * mscale * math.log(factor) + 1.0) ** 2 / math.sqrt(head_dim)


def position_scale(fields: Fields) -> tuple[float, float, int] | None:
    """Mistral's scale of queries by their position, after Llama-4's."""
    block = fields.mapping("rope_parameters") or fields.mapping("rope_scaling")
    beta, original = block.get("llama_4_scaling_beta"), block.get("original_max_position_embeddings")
    if not isinstance(beta, (int, float)) or not isinstance(original, (int, float)):
        return None
    return float(beta), float(original), 0


AFTER_ROPE = ("hunyuan_v1_dense", "hunyuan_v1_moe", "nanochat")  # q and k are rotated first and normed then


def alibi_max(fields: Fields) -> float:
    """MPT's largest bias stands in a block of its own."""
    block = fields.mapping("attn_config") if fields.model_type == "mpt" else {}
    value = block.get("alibi_bias_max", 8.0)
    return float(value) if isinstance(value, (int, float)) else 8.0


def norm_eps(fields: Fields) -> float | None:
    """The epsilon of norms inside a mixer."""
    return maybe(fields, "rms_norm_eps", "layer_norm_eps", "norm_eps") or CLASS_EPS.get(fields.model_type)


def sinusoidal(fields: Fields) -> Sinusoidal:
    """XGLM counts from two and ends its series at 1/10,000; CTRL does as the paper."""
    return Sinusoidal(offset=2, inclusive=True) if fields.model_type == "xglm" else Sinusoidal()


def dynamic_window(fields: Fields) -> int:
    """Positions that Doge's dynamic mask leaves."""
    return whole(fields, "keep_window_size", null=2048) if fields.model_type == "doge" else 0


def sparsity(fields: Fields, index: int) -> float:
    """Share of a feed-forward's channels that Gemma-3n closes in a layer."""
    values = quiet(fields, "activation_sparsity_pattern")
    values = values if isinstance(values, list) else [values] * (index + 1)
    found = values[index] if index < len(values) else None
    return float(found) if isinstance(found, (int, float)) else 0.0


# -- routing -----------------------------------------------------------------------------------------------------

ALWAYS_NORMED = (
    "mixtral", "gpt_oss", "granitemoe", "granitemoeshared", "granitemoehybrid", "granitemoe_swa", "minimax", "dbrx",
    "minimax_m2", "hunyuan_v1_moe", "ernie4_5_moe", "jetmoe", "gemma4_text", "hy_v3", "arctic", "lara_mini",
    "aria_text",
)  # fmt: skip
SIGMOID = (
    "deepseek_v3", "kimi_k2", "deepseek_v32", "glm_moe_dsa", "glm4_moe_lite", "glm4_moe", "glm4v_moe_text", "dots1",
    "solar_open", "sarvam_moe", "sarvam_mla", "minimax_m2", "nemotron_h", "lfm2_moe", "kimi_linear", "llama4_text",
    "mimo_v2_flash", "exaone_moe", "hy_v3", "afmoe", "axk1", "bailing_moe",
)  # fmt: skip


def routed(fields: Fields, moe: MixtureOfExperts) -> MixtureOfExperts:
    """The same experts with how their router scores, groups, normalises and scales."""
    kind = fields.model_type
    sigmoid = kind in SIGMOID
    spelled = quiet(fields, "scoring_func", "moe_router_activation_func", "score_function")
    if isinstance(spelled, str):
        sigmoid = spelled == "sigmoid"
    grouped = kind != "minimax_m2"
    return replace(
        moe,
        scoring="sparsemixer" if kind == "phimoe" else "sigmoid" if sigmoid else "softmax",
        norm_topk_prob=kind in ALWAYS_NORMED or flag(fields, "norm_topk_prob", "moe_renormalize", "route_norm"),
        routed_scaling_factor=number(fields, "routed_scaling_factor", "route_scale", "router_scaling_factor", null=1.0),
        n_group=whole(fields, "n_group", "num_expert_group", null=1) if grouped else 1,
        topk_group=whole(fields, "topk_group", null=1) if grouped else 1,
        group_score="max" if kind == "deepseek_v2" else "top2",
        scale_input=kind == "llama4_text",
        swiglu_limit=maybe(fields, "swiglu_limit") if kind == "gpt_oss" else None,
        swiglu_alpha=number(fields, "swiglu_alpha", null=1.702),
        jitter=number(fields, "router_jitter_noise", null=0.01) if kind == "phimoe" else 0.0,
    )
