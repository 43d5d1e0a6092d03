"""Tiny configs of the families whose logits are compared, and what is left out of each to see the comparison fail."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import FULL, Norm
from llmcalc.arch.embedding import Embedding, Head
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.latent import LatentAttention
from llmcalc.arch.linear import DecayAttention, GatedDelta
from llmcalc.arch.moe import MixtureOfExperts
from llmcalc.arch.positions import Alibi, Rope, Sinusoidal
from llmcalc.arch.ssm import Mamba1, Mamba2
from reference_model.shared import ATTENTION, FEED_FORWARD
from tests.oracle.leave_out import Change, but, layers, residual
from tests.oracle.parity import Case

CONFIGS: dict[str, dict[str, object]] = json.loads((Path(__file__).parent / "configs.json").read_text("utf-8"))
# transformers' eager Falcon adds its ALiBi twice, in the mask and in the scores.
KERNELS = {"falcon_alibi": "sdpa"}

NO_SCALING = but(Attention, positions=lambda spec: spec.positions and replace(spec.positions, scaling=()))
NOT_PARTIAL = but(Attention, positions=lambda spec: spec.positions and replace(spec.positions, width=spec.head_dim))
IN_HALVES = but(Attention, positions=lambda spec: spec.positions and replace(spec.positions, interleaved=False))
NO_WINDOW = but(Attention, scope=FULL)
NO_POSITIONS = but(Attention, positions=None)
NO_QK_NORM = but(Attention, qk_norm="none")
NO_OFFSET = but(Norm, offset=False)
PLAIN_SCALE = but(Attention, scale=None)
NO_RENORM = but(MixtureOfExperts, norm_topk_prob=False)
EVERYWHERE = but(Attention, positions=Rope(10_000.0, 16))

WITHOUT: dict[str, dict[str, Change]] = {
    "gpt2": {"tanh GELU": but(FeedForward, activation="gelu"), "positions": but(Embedding, offset=1)},
    "gpt_neo": {"window": NO_WINDOW, "unscaled scores": PLAIN_SCALE},
    "gptj": {"interleaving": IN_HALVES, "partial rotation": NOT_PARTIAL, "parallel block": layers(parallel=False)},
    "gpt_neox": {"partial rotation": NOT_PARTIAL, "parallel block": layers(parallel=False)},
    "opt": {"offset of positions": but(Embedding, offset=0)},
    "bloom": {"ALiBi": NO_POSITIONS, "tanh GELU": but(FeedForward, activation="gelu")},
    "mpt": {"ALiBi": NO_POSITIONS},
    "falcon": {"rotary positions": NO_POSITIONS, "parallel block": layers(parallel=False)},
    "falcon_alibi": {"ALiBi": NO_POSITIONS, "its scaling": but(Attention, positions=Alibi())},
    "llama": {"rope scaling": NO_SCALING},
    "llama_linear": {"rope scaling": NO_SCALING},
    "llama_dynamic": {"rope scaling": NO_SCALING},
    "mistral": {"window": NO_WINDOW},
    "qwen2": {"window": NO_WINDOW, "YaRN": NO_SCALING},
    "qwen3": {"q/k norm": NO_QK_NORM, "YaRN": NO_SCALING},
    "gemma": {"norm offset": NO_OFFSET, "embedding scale": but(Embedding, scale=1.0)},
    "gemma2": {
        "soft cap of scores": but(Attention, softcap=None),
        "soft cap of logits": but(Head, softcap=None),
        "window": NO_WINDOW,
        "norm offset": NO_OFFSET,
        "query scalar": PLAIN_SCALE,
        "embedding scale": but(Embedding, scale=1.0),
    },
    "gemma3": {
        "window": NO_WINDOW,
        "rope scaling": NO_SCALING,
        "q/k norm": NO_QK_NORM,
        "norm offset": NO_OFFSET,
        "local base": but(Attention, positions=lambda spec: replace(spec.positions, theta=1e6)),
        "offset of q/k norm": but(Attention, qk_norm_offset=False),
    },
    "phi": {"partial rotation": NOT_PARTIAL, "q/k norm": NO_QK_NORM, "parallel block": layers(parallel=False)},
    "phi3": {"LongRoPE": NO_SCALING, "window": NO_WINDOW},
    "cohere": {"logit scale": but(Head, scale=1.0), "interleaving": IN_HALVES, "q/k norm": NO_QK_NORM},
    "cohere2": {"layers without positions": EVERYWHERE, "window": NO_WINDOW},
    "starcoder2": {"window": NO_WINDOW},
    "stablelm": {"partial rotation": NOT_PARTIAL},
    "persimmon": {"q/k norm": NO_QK_NORM, "squared ReLU": but(FeedForward, activation="relu")},
    "glm4": {"interleaving": IN_HALVES, "partial rotation": NOT_PARTIAL},
    "olmo": {"clamp": but(Attention, clip=None)},
    "olmo2": {"q/k norm": NO_QK_NORM},
    "olmo3": {"window": NO_WINDOW},
    "exaone4": {"window": NO_WINDOW, "layers without positions": EVERYWHERE},
    "granite": {
        "residual multiplier": layers(residual_scale=1.0),
        "attention multiplier": PLAIN_SCALE,
        "embedding multiplier": but(Embedding, scale=1.0),
        "logits scaling": but(Head, scale=1.0),
    },
    "nemotron": {"norm offset": NO_OFFSET, "squared ReLU": but(FeedForward, activation="relu")},
    "smollm3": {"layers without positions": EVERYWHERE},
    "hunyuan": {"norm after rotation": but(Attention, qk_norm_after_rope=False)},
    "nanochat": {
        "direction of rotation": but(Attention, positions=lambda spec: replace(spec.positions, backwards=False)),
        "soft cap of logits": but(Head, softcap=None),
        "q/k norm": NO_QK_NORM,
    },
    "mixtral": {"window": NO_WINDOW, "renormalised scores": NO_RENORM},
    "qwen2_moe": {
        "gate of the shared expert": but(MixtureOfExperts, shared_gate=False),
        "raw scores": but(MixtureOfExperts, norm_topk_prob=True),
    },
    "qwen3_moe": {"renormalised scores": NO_RENORM, "q/k norm": NO_QK_NORM},
    "olmoe": {"raw scores": but(MixtureOfExperts, norm_topk_prob=True)},
    "granitemoe": {"residual multiplier": layers(residual_scale=1.0), "renormalised scores": NO_RENORM},
    "glm4_moe": {
        "router bias": but(MixtureOfExperts, correction="none"),
        "groups": but(MixtureOfExperts, n_group=1),
        "scaling factor": but(MixtureOfExperts, routed_scaling_factor=1.0),
    },
    "gpt_oss": {
        "sinks": but(Attention, sinks=False),
        "window": NO_WINDOW,
        "YaRN": NO_SCALING,
        "clamped SwiGLU": but(MixtureOfExperts, swiglu_limit=None),
        "router bias": but(MixtureOfExperts, router_bias=False),
        "expert bias": but(MixtureOfExperts, expert_bias=False),
    },
    "llama4": {
        "chunks": NO_WINDOW,
        "temperature": but(Attention, temperature=None),
        "q/k norm": NO_QK_NORM,
        "scores on the input": but(MixtureOfExperts, scale_input=False),
        "interleaving": IN_HALVES,
        "layers without positions": EVERYWHERE,
    },
    "deepseek_v3": {
        "router bias": but(MixtureOfExperts, correction="none"),
        "groups": but(MixtureOfExperts, n_group=1),
        "sigmoid": but(MixtureOfExperts, scoring="softmax"),
        "renormalised scores": NO_RENORM,
        "scaling factor": but(MixtureOfExperts, routed_scaling_factor=1.0),
        "shared expert": but(MixtureOfExperts, shared=None),
        "mscale": but(LatentAttention, scale=None),
        "YaRN": but(LatentAttention, positions=lambda spec: replace(spec.positions, scaling=())),
        "interleaving": but(LatentAttention, positions=lambda spec: replace(spec.positions, interleaved=False)),
    },
    "deepseek_v2": {
        "groups": but(MixtureOfExperts, n_group=1),
        "best of a group": but(MixtureOfExperts, group_score="top2"),
    },
    "deepseek_v32": {"indexer": but(LatentAttention, index_topk=None)},
    "minicpm3": {"residual scale": layers(residual_scale=1.0), "embedding scale": but(Embedding, scale=1.0)},
    "qwen3_next": {
        "partial rotation": NOT_PARTIAL,
        "norm offset": NO_OFFSET,
        "q/k norm": NO_QK_NORM,
        "gate of the shared expert": but(MixtureOfExperts, shared_gate=False),
    },
    "olmo_hybrid": {"negative eigenvalues": but(GatedDelta, negative=False), "q/k norm": NO_QK_NORM},
    "kimi_linear": {
        "router bias": but(MixtureOfExperts, correction="none"),
        "no positions": but(LatentAttention, positions=Rope(10_000.0, 8)),
    },
    "mamba": {"bias of the convolution": but(Mamba1, conv_bias=False)},
    "falcon_mamba": {"norms of dt, b, c": but(Mamba1, weightless_norms=False)},
    "mamba2": {
        "groups of the norm": but(Mamba2, norm_groups=1),
        "bias of the convolution": but(Mamba2, conv_bias=False),
    },
    "jamba": {
        "norms of dt, b, c": but(Mamba1, inner_norms=False),
        "no positions": EVERYWHERE,
        "raw scores": but(MixtureOfExperts, norm_topk_prob=True),
    },
    "bamba": {"groups of the norm": but(Mamba2, norm_groups=1)},
    "granitemoehybrid": {
        "residual multiplier": layers(residual_scale=1.0),
        "attention multiplier": PLAIN_SCALE,
        "embedding multiplier": but(Embedding, scale=1.0),
        "logits scaling": but(Head, scale=1.0),
        "no positions": EVERYWHERE,
    },
    "nemotron_h": {
        "groups of the norm": but(Mamba2, norm_groups=1),
        "no positions": EVERYWHERE,
        "router bias": but(MixtureOfExperts, correction="none"),
        "squared ReLU": but(FeedForward, activation="relu"),
    },
    "lfm2": {"q/k norm": NO_QK_NORM, "rotary positions": NO_POSITIONS},
    "minimax": {"blend of the stream": layers(blend=()), "decay by depth": but(DecayAttention, layers=100)},
    "recurrent_gemma": {"window": NO_WINDOW, "soft cap of logits": but(Head, softcap=None), "norm offset": NO_OFFSET},
    "falcon_h1": {
        "factors of attention": but(Attention, multipliers=(1.0, 1.0, 1.0)),
        "factors of the scan": but(Mamba2, multipliers=(1.0,) * 7),
        "factors of the feed-forward": but(FeedForward, multipliers=(1.0, 1.0)),
    },
    "gemma3n": {
        "window": NO_WINDOW,
        "sparse activation": but(FeedForward, sparsity=0.0),
        "norm of values": but(Attention, v_norm=False),
        "q/k norm": NO_QK_NORM,
    },
    "gemma4": {
        "window": NO_WINDOW,
        "norm of values": but(Attention, v_norm=False),
        "soft cap of logits": but(Head, softcap=None),
        "proportional rotation": NO_SCALING,
    },
    "t5": {"relative bias": NO_POSITIONS, "unscaled scores": PLAIN_SCALE, "scaled logits": but(Head, scale=1.0)},
    "t5_v11": {"relative bias": NO_POSITIONS, "tanh GELU": but(FeedForward, activation="gelu")},
    "umt5": {"relative bias": NO_POSITIONS},
    "xglm": {
        "sinusoids": NO_POSITIONS,
        "offset of positions": but(Attention, positions=Sinusoidal(inclusive=True)),
        "step of its series": but(Attention, positions=Sinusoidal(offset=2)),
        "embedding scale": but(Embedding, scale=1.0),
    },
    "ctrl": {
        "sinusoids": NO_POSITIONS,
        "ReLU": but(FeedForward, activation="gelu"),
        "embedding scale": but(Embedding, scale=1.0),
    },
    # transformers' PhiMoE takes the short factors at every length: both lists are the same here.
    "phimoe": {
        "sparsemixer": but(MixtureOfExperts, scoring="softmax"),
        "threshold of rivals": but(MixtureOfExperts, jitter=0.01),
        "LongRoPE and its mscale": NO_SCALING,
        "window": NO_WINDOW,
    },
    "bitnet": {
        "norm of the heads": but(Attention, extra=()),
        "norm of the feed-forward": but(FeedForward, inner_norm=False),
        "squared ReLU": but(FeedForward, activation="relu"),
    },
    "apertus": {"xIELU": but(FeedForward, activation="silu", extra=()), "q/k norm": NO_QK_NORM},
    "diffllama": {"difference": but(Attention, differential=False, extra=()), "rotary positions": NO_POSITIONS},
    "doge": {
        "weights of the keys": but(Attention, extra=()),
        "dynamic window": but(Attention, dynamic_window=2048),
        "factors of the residual": layers(residual=()),
        "q/k norm": NO_QK_NORM,
    },
    "rwkv": {"mean of the norms": but(Norm, form="rms")},
    "mllama": {
        "gates": layers(residual=()),
        "q/k norm of the image layers": NO_QK_NORM,
        "rope scaling": NO_SCALING,
    },
    "zamba": {"shared block": layers(residual=()), "scale of the scores": PLAIN_SCALE},
    "zamba2": {
        "shared block": layers(residual=()),
        "adapters of the attention": residual(ATTENTION),
        "adapters of the feed-forward": residual(FEED_FORWARD),
        "rotary positions": NO_POSITIONS,
        "groups of the norm": but(Mamba2, norm_groups=1),
        "least time step": but(Mamba2, time_step_limit=(0.0, float("inf"))),
    },
    "codegen": {"partial rotation": NOT_PARTIAL, "parallel block": layers(parallel=False)},
    "ernie4_5": {"interleaving": IN_HALVES, "biases": but(Attention, q_bias=False, k_bias=False)},
    "falcon_new": {"rotary positions": NO_POSITIONS, "parallel block": layers(parallel=False)},
    "gpt_bigcode": {"tanh GELU": but(FeedForward, activation="gelu"), "positions": but(Embedding, offset=1)},
    "seed_oss": {"rotary positions": NO_POSITIONS, "biases": but(Attention, q_bias=False, k_bias=False)},
}
CASES: dict[str, Case] = {
    name: Case(
        config, WITHOUT.get(name, {}), kernel=KERNELS.get(name, "eager"), distinct=name == "doge",
        image=5 if name == "mllama" else 0,
    )
    for name, config in CONFIGS.items()
}  # fmt: skip
