"""The table of dense layouts: one row of switches a family.

A switch is a value, or the name of the config field that holds it (``"?attention_bias"``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from llmcalc.arch.attention import Gate
from llmcalc.arch.base import Weight
from llmcalc.arch.fields import Fields

Switch = bool | str
Style = Literal["pre", "sandwich", "post", "outer", "parallel", "none"]


class Layout(NamedTuple):
    """The switches of a family. q, k, v, o, mlp: biases. window: the rule that gives each layer its scope.

    refuses: flags that, set, mean a layout nobody describes. inert: keys that this class never looks at.
    """

    qkv: Switch = False
    o: Switch = False
    mlp: Switch = False
    gated: bool = True
    norm: Literal["rms", "layer", "none"] = "rms"
    norm_bias: Switch = True
    norm_offset: bool = False
    final: bool = True
    style: str = "pre"
    parallel_norms: int = 1
    qk_norm: str = "none"
    qk_form: Literal["rms", "layer"] = "rms"
    qk_norm_bias: bool = False
    gate: Gate = "none"
    sinks: bool = False
    window: str = "none"
    positions: Literal["rope", "learned", "alibi", "sinusoidal", "none"] = "rope"
    position_offset: int = 0
    head_bias: Switch = False
    width_factor: int = 0
    inner_norm: bool = False
    square: bool = False
    multi_query: bool = False
    embed_norm: bool = False
    ffn_extra: tuple[Weight, ...] = ()
    attention_extra: Callable[[int, int, int], tuple[Weight, ...]] | None = None
    residual_vectors: tuple[str, ...] = ()
    refuses: tuple[str, ...] = ("add_cross_attention",)
    inert: tuple[str, ...] = ()


def switch(fields: Fields, value: Switch) -> bool:
    """A switch's value, read from the field it names where it names one (``!`` negates)."""
    if isinstance(value, bool):
        return value
    if value.startswith("!"):
        return not fields.flag(value[1:])
    return fields.flag(value.removeprefix("?"))


LLAMA = Layout(qkv="?attention_bias", o="?attention_bias", mlp="?mlp_bias")
QWEN3 = Layout(qkv="?attention_bias", o="?attention_bias", qk_norm="head", window="upper")
CLASSIC = Layout(qkv=True, o=True, mlp=True, gated=False, norm="layer", width_factor=4)
COHERE = Layout(
    qkv="?attention_bias", o="?attention_bias", norm="layer", norm_bias=False, style="parallel",
    qk_norm="?use_qk_norm:per_head", qk_form="layer",
)  # fmt: skip
COHERE2_INERT = (
    "cache_implementation", "layer_switch", "order_of_interleaved_layers", "position_embedding_type",
    "use_embedding_sharing", "use_gated_activation", "use_parallel_block",
)  # fmt: skip
GEMMA = Layout(norm_offset=True, qkv="?attention_bias", o="?attention_bias")

# Apertus' activation has two learned numbers (arXiv:2411.13010); its two constants are stored buffers.
XIELU = (
    Weight("act_fn.alpha_p", (1,), "scalar"), Weight("act_fn.alpha_n", (1,), "scalar"),
    Weight("act_fn.beta", (1,), "buffer"), Weight("act_fn.eps", (1,), "buffer"),
)  # fmt: skip


def doge_mask(_heads: int, kv: int, width: int) -> tuple[Weight, ...]:
    """Doge's dynamic mask: a decay per key/value head and the projection that weighs positions."""
    return (Weight("A", (kv,), "scalar"), Weight("dt_proj.weight", (kv, kv * width), "matmul"))


def differential(_heads: int, _kv: int, width: int) -> tuple[Weight, ...]:
    """DiffLlama's four lambda vectors (arXiv:2410.05258)."""
    return tuple(Weight(f"lambda_{name}", (width,), "scalar") for name in ("q1", "k1", "q2", "k2"))


LAYOUTS: dict[str, Layout] = {
    "llama": LLAMA,
    "mistral": Layout(window="every", inert=("attention_bias",)),
    "ministral": Layout(window="listed"),
    "ministral3": Layout(window="every"),
    "internlm": Layout(qkv="?bias", o="?bias"),
    "internlm2": Layout(qkv="?bias", o="?bias"),
    "internlm3": Layout(qkv="?qkv_bias", o="?bias", mlp="?bias"),
    "baichuan": Layout(),
    "xverse": Layout(inert=("max_tokenizer_truncation",)),
    "orion": Layout(norm="layer"),
    "minicpm": Layout(inert=("dim_model_base",)),
    "cwm": Layout(mlp="?mlp_bias", window="first4"),
    "helium": LLAMA._replace(o=False, square=True),
    "arcee": LLAMA._replace(gated=False),
    "iquestcoder": LLAMA,
    "exaone": Layout(),
    "granite": LLAMA,
    "granite_swa": LLAMA._replace(sinks=True, window="first4"),
    "seed_oss": Layout(qkv="?attention_bias", o="?attention_out_bias", mlp="?mlp_bias"),
    "smollm3": LLAMA._replace(window="smollm3", inert=("max_window_layers",)),
    "hyperclovax": LLAMA._replace(style="?use_post_norm:sandwich"),
    "qwen2": Layout(qkv=True, window="upper", inert=("attention_bias", "is_causal")),
    "qwen3": QWEN3,
    # Nested text blocks under the name of their wrapper.
    "qwen2_vl_text": Layout(qkv=True, window="upper"),
    "qwen2_5_vl_text": Layout(qkv=True, window="upper"),
    "qwen2_5_omni_text": Layout(qkv=True, window="upper"),
    "qwen3_vl_text": QWEN3._replace(window="every"),
    "glm4v_text": Layout(qkv=True, style="sandwich"),
    "gemma": GEMMA,
    "gemma2": GEMMA._replace(style="sandwich", window="alternate"),
    "vaultgemma": GEMMA._replace(window="alternate"),
    "gemma3_text": GEMMA._replace(style="sandwich", qk_norm="head", window="gemma3"),
    "olmo": Layout(norm="none", qkv="?attention_bias", o="?attention_bias"),
    "olmo2": Layout(style="post", qk_norm="full", qkv="?attention_bias", o="?attention_bias"),
    "olmo3": Layout(style="post", qk_norm="full", qkv="?attention_bias", o="?attention_bias", window="period4"),
    "exaone4": Layout(style="post", qk_norm="head", window="exaone4"),
    "apertus": Layout(gated=False, qk_norm="head", qkv="?attention_bias", o="?attention_bias", ffn_extra=XIELU),
    "phi3": Layout(
        window="every",
        inert=("attention_bias", "mlp_bias", "lm_head_bias", "full_attn_mod", "interpolate_factor"),
    ),
    "glm": Layout(qkv="?attention_bias"),
    "glm4": Layout(qkv="?attention_bias", style="sandwich"),
    "hunyuan_v1_dense": Layout(qkv="?attention_bias", o="?attention_bias", qk_norm="head"),
    "nemotron": Layout(
        qkv="?attention_bias", o="?attention_bias", mlp="?mlp_bias", gated=False, norm="layer", norm_offset=True
    ),
    "ernie4_5": Layout(qkv="?use_bias", o="?use_bias", mlp="?use_bias"),
    "bitnet": Layout(qkv="?attention_bias", o="?attention_bias", mlp="?mlp_bias", inner_norm=True),
    "nanochat": Layout(
        norm="none", gated=False, qk_norm="weightless", qkv="?attention_bias", o="?attention_bias"
    ),
    "starcoder2": Layout(
        qkv="?use_bias", o="?use_bias", mlp="?use_bias", gated=False, norm="layer", window="every",
        inert=("mlp_type", "norm_type"),
    ),
    "jais2": Layout(qkv="?attention_bias", o="?attention_bias", mlp="?mlp_bias", gated=False, norm="layer"),
    "phi": CLASSIC._replace(
        inert=("attention_bias", "fused_dense"), style="parallel", head_bias=True, qk_norm="?qk_layernorm:head",
        qk_form="layer", qk_norm_bias=True,
    ),
    "persimmon": CLASSIC._replace(qk_norm="?qk_layernorm:head", qk_form="layer", qk_norm_bias=True),
    "stablelm": Layout(
        qkv="?use_qkv_bias", norm="layer", qk_norm="?qk_layernorm:per_head", qk_form="layer",
        style="?use_parallel_residual:parallel",
    ),
    "cohere": COHERE,
    "cohere2": COHERE._replace(window="period4", inert=COHERE2_INERT),
    "doge": LLAMA._replace(qk_norm="head", attention_extra=doge_mask, refuses=("is_moe",), window="every",
                    inert=("num_experts", "num_experts_per_tok", "keep_window_size"),
                    residual_vectors=("input_residual", "post_attention_residual")),
    "diffllama": LLAMA._replace(attention_extra=differential, inert=("lambda_std_dev",)),
    "gpt2": CLASSIC._replace(positions="learned"),
    "gpt_bigcode": CLASSIC._replace(positions="learned", multi_query=True),
    "gpt_neo": CLASSIC._replace(qkv=False, positions="learned", window="gpt_neo"),
    "openai-gpt": CLASSIC._replace(positions="learned", final=False, style="outer"),
    "gpt_neox": CLASSIC._replace(qkv="?attention_bias", o="?attention_bias", style="?use_parallel_residual:parallel",
        parallel_norms=2,
    ),
    "gptj": CLASSIC._replace(qkv=False, o=False, style="parallel", head_bias=True),
    "codegen": CLASSIC._replace(qkv=False, o=False, style="parallel", head_bias=True),
    "biogpt": CLASSIC._replace(positions="learned", position_offset=2),
    "xglm": CLASSIC._replace(positions="sinusoidal"),
    "ctrl": CLASSIC._replace(positions="sinusoidal", head_bias=True),
    "bloom": CLASSIC._replace(positions="alibi", embed_norm=True),
}  # fmt: skip
