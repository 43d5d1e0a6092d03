"""Where one architecture of llama.cpp is several families of ours, and what only one family has."""

from __future__ import annotations

from llmcalc.errors import UnsupportedArchitectureError
from llmcalc.sources.gguf_metadata import Fields, Gguf
from llmcalc.sources.gguf_pieces import attention_bias, dense, depth, heads, mlp_bias, plain_experts


def deepseek2(g: Gguf) -> str:
    """V2 has no correction term on its router, V3 has."""
    if not g.number("expert_count", 0):
        return "youtu"
    return "deepseek_v3" if g.has("blk.*.exp_probs_b.bias") or g.has("blk.*.exp_probs_b") else "deepseek_v2"


def llama(g: Gguf) -> str:
    """llama.cpp writes Mixtral, Mistral and their kin as llama."""
    return "mixtral" if g.number("expert_count", 0) else "llama"


def llama_pieces(g: Gguf) -> Fields:
    """Dense or with experts."""
    if g.number("expert_count", 0):
        return heads(g) | plain_experts(g)
    return heads(g) | dense(g) | attention_bias(g) | mlp_bias(g)


def granite_experts(g: Gguf) -> Fields:
    """Granite-4-H, which may have none, and calls them local."""
    if not g.number("expert_count", 0):
        return {"num_local_experts": 0}
    found = plain_experts(g)
    count = found.pop("num_experts")
    return {**found, "num_local_experts": count}


def glm(g: Gguf) -> str:
    """llama.cpp writes both the remote ChatGLM and the library's GLM as chatglm; their lists of weights are equal."""
    del g
    return "glm"


def ernie_layers(g: Gguf) -> Fields:
    """ERNIE-4.5: experts from a first layer on, at a step."""
    sparse = [i for i in range(depth(g)) if f"blk.{i}.ffn_gate_inp.weight" in g.shapes]
    step = sparse[1] - sparse[0] if len(sparse) > 1 else 1
    if not sparse or sparse != [i for i in range(sparse[0], sparse[-1] + 1) if (i + 1) % step == 0]:
        raise UnsupportedArchitectureError(f"{g.where}: {g.arch}: layers with experts at {sparse[:8]}, not at a step")
    return {"moe_layer_start_index": sparse[0], "moe_layer_end_index": sparse[-1], "moe_layer_interval": step}


def falcon(g: Gguf) -> Fields:
    """Falcon: one key/value head, or groups of them behind two norms; no biases."""
    kv = g.number("attention.head_count_kv", g.number("attention.head_count"))
    return {
        "num_kv_heads": kv, "multi_query": kv == 1, "new_decoder_architecture": g.has("blk.*.attn_norm_2.weight"),
        "parallel_attn": not g.has("blk.*.ffn_norm.weight"), "bias": g.has("blk.*.attn_qkv.bias"), "alibi": False,
    }  # fmt: skip
