"""Pieces of a config.json, each read from a GGUF file's metadata and the shapes in its list of tensors.

What neither holds and llama.cpp hard-codes is named here. Source: llama.cpp ``conversion/`` and ``src/models/``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from llmcalc.arch.fields import MOST_LAYERS
from llmcalc.errors import MalformedConfigError, UnsupportedArchitectureError
from llmcalc.sources.gguf_metadata import Fields, Gguf

# -- what every model has -------------------------------------------------------------------------------------------


def sizes(g: Gguf) -> Fields:
    """Width, depth, vocabulary; the layers that only predict further tokens are no layers of the model."""
    table = g.first("token_embd.weight")
    if table is None or len(table) != 2:
        raise MalformedConfigError(f"{g.where}: token_embd.weight is not in the list of tensors")
    width, layers, extra = g.number("embedding_length"), g.number("block_count"), g.number("nextn_predict_layers", 0)
    if layers > MOST_LAYERS:
        raise MalformedConfigError(
            f"{g.where}: {g.arch}.block_count is {layers:,}, at most {MOST_LAYERS:,} are possible"
        )
    if table[1] != width or extra >= layers:
        raise MalformedConfigError(
            f"{g.where}: {g.arch}.embedding_length is {width:,}, block_count {layers:,}, nextn_predict_layers {extra}; "
            f"the token table is {table[0]:,} x {table[1]:,}"
        )
    return {
        "hidden_size": width, "num_hidden_layers": layers - extra, "vocab_size": table[0],
        "max_position_embeddings": g.number("context_length", 0) or None,
        "tie_word_embeddings": not g.has("output.weight"), "dtype": _dtype(g),
        "num_nextn_predict_layers": extra or None,
    }  # fmt: skip


def _dtype(g: Gguf) -> str:
    """llama.cpp keeps keys and values in 16 bits whatever the weights are; 32-bit weights alone say otherwise."""
    if g.dtypes == {"F32"}:
        return "float32"
    return "bfloat16" if "BF16" in g.dtypes else "float16"


def rotary(g: Gguf) -> Fields:
    """The base of rotary positions, their share of a head and how they are stretched."""
    base, kind, width = g.real("rope.freq_base"), g.value("rope.scaling.type"), g.number("rope.dimension_count", 0)
    block: Fields = {"rope_theta": base, "rope_type": kind if isinstance(kind, str) and kind != "none" else None}
    if g.real("rope.scaling.factor") is not None:
        block["factor"] = g.real("rope.scaling.factor")
    head = g.number("attention.key_length", 0)
    if width and head and width < head:
        block["partial_rotary_factor"] = width / head
    return {"rope_parameters": {k: v for k, v in block.items() if v is not None}}


def epsilon(g: Gguf) -> Fields:
    """The constant of the norms."""
    rms, layer = g.real("attention.layer_norm_rms_epsilon"), g.real("attention.layer_norm_epsilon")
    return {"rms_norm_eps": rms, "layer_norm_eps": layer}


# Fields in which null says something: no window, rather than the class's own.
NULLS: Final = ("sliding_window", "max_window_layers")

COMMON: Final[tuple[Callable[[Gguf], Fields], ...]] = (sizes, rotary, epsilon)

# -- pieces -----------------------------------------------------------------------------------------------------------


def heads(g: Gguf) -> Fields:
    """Query heads, key/value heads and their width."""
    count = g.number("attention.head_count")
    width = g.number("attention.key_length", 0)
    if not width:
        if not count or g.number("embedding_length") % count:
            raise MalformedConfigError(
                f"{g.where}: {g.arch}.attention.head_count is {count}, which gives no head width"
            )
        width = g.number("embedding_length") // count
    rows = g.rows("blk.*.attn_k.weight")
    kv = rows // width if rows else g.number("attention.head_count_kv", count) or count
    if g.number("attention.value_length", width) != width:
        raise UnsupportedArchitectureError(f"{g.where}: {g.arch} with values of another width than keys is not known")
    return {"num_attention_heads": count, "num_key_value_heads": kv, "head_dim": width}


def old_heads(g: Gguf) -> Fields:
    """The same for classes that know no other head width than width / heads."""
    found = heads(g)
    del found["head_dim"]
    return found


def dense(g: Gguf) -> Fields:
    """The width of the feed-forward: from its tensor, as some converters write a constant, else from the metadata."""
    down = g.first("blk.*.ffn_down.weight")
    return {"intermediate_size": down[1] if down and len(down) == 2 else g.number("feed_forward_length", 0) or None}


def widths(g: Gguf) -> Fields:
    """The width of each layer's feed-forward."""
    return {"intermediate_size": g.numbers("feed_forward_length")}


def experts(g: Gguf) -> Fields:
    """How many experts, how many of them a token passes, and their width, the inputs of their last matrix."""
    down = g.first("blk.*.ffn_down_exps.weight")
    return {
        "num_experts": g.number("expert_count"), "num_experts_per_tok": g.number("expert_used_count"),
        "moe_intermediate_size": down[2] if down and len(down) == 3 else g.number("expert_feed_forward_length"),
    }  # fmt: skip


def plain_experts(g: Gguf) -> Fields:
    """Experts whose width is the only one the class knows."""
    found = experts(g)
    width = found.pop("moe_intermediate_size")
    return {**found, "intermediate_size": width}


def shared_count(g: Gguf) -> Fields:
    """Shared experts as a multiple of one's width; some converters leave the count out."""
    rows, width = g.rows("blk.*.ffn_up_shexp.weight") or 0, experts(g)["moe_intermediate_size"]
    assert isinstance(width, int)
    return {"n_shared_experts": ratio(g, rows, width) if rows else 0}


def ratio(g: Gguf, whole: int, part: int) -> int:
    """A width as a multiple of another. Raises: MalformedConfigError where it is none."""
    if not part or whole % part:
        raise MalformedConfigError(f"{g.where}: {g.arch}: a width of {whole:,} is not a multiple of {part:,}")
    return whole // part


def shared_width(name: str) -> Callable[[Gguf], Fields]:
    """A shared expert of a width of its own, under the class's name for it."""

    def piece(g: Gguf) -> Fields:
        return {name: g.rows("blk.*.ffn_up_shexp.weight") or 0}

    return piece


def leading(name: str) -> Callable[[Gguf], Fields]:
    """The first layers have no experts, under the class's name for how many."""

    def piece(g: Gguf) -> Fields:
        return {name: g.number("leading_dense_block_count", 0)}

    return piece


def sparse_by_tensors(g: Gguf) -> Fields:
    """Which layers have experts, as the tensors say."""
    sparse = [f"blk.{index}.ffn_gate_inp.weight" in g.shapes for index in range(depth(g))]
    return {"mlp_layer_types": ["sparse" if has else "dense" for has in sparse]}


def depth(g: Gguf) -> int:
    """Layers of the model, without those that only predict further tokens."""
    return min(g.number("block_count"), MOST_LAYERS) - g.number("nextn_predict_layers", 0)


def flag(name: str, tensor: str) -> Callable[[Gguf], Fields]:
    """A switch that is on where a tensor is there."""

    def piece(g: Gguf) -> Fields:
        return {name: g.has(tensor)}

    return piece


attention_bias = flag("attention_bias", "blk.*.attn_q.bias")
mlp_bias = flag("mlp_bias", "blk.*.ffn_up.bias")


def constant(**values: object) -> Callable[[Gguf], Fields]:
    """What the architecture fixes."""

    def piece(_g: Gguf) -> Fields:
        return dict(values)

    return piece


def window(g: Gguf) -> Fields:
    """A window, and which layers it holds for where the file says so."""
    size = g.number("attention.sliding_window", 0)
    pattern = g.value("attention.sliding_window_pattern")
    fields: Fields = {"sliding_window": size or None}
    if isinstance(pattern, tuple):
        kinds = ["sliding_attention" if slides else "full_attention" for slides in pattern[: depth(g)]]
        fields["layer_types"] = kinds if size else ["full_attention"] * len(kinds)
    elif type(pattern) is int and size and pattern > 0:
        fields["layer_types"] = [
            "full_attention" if (index + 1) % pattern == 0 else "sliding_attention" for index in range(depth(g))
        ]
    return fields


def window_every(period: int, default: int = 0) -> Callable[[Gguf], Fields]:
    """One layer in ``period`` is full, the last of each group, as llama.cpp has it where the file is silent."""

    def piece(g: Gguf) -> Fields:
        found = window(g)
        size = found["sliding_window"] or (default if g.value("attention.sliding_window") is None else 0)
        found["sliding_window"] = size or None
        if "layer_types" not in found:
            found["layer_types"] = [
                "full_attention" if not size or (index + 1) % period == 0 else "sliding_attention"
                for index in range(depth(g))
            ]
        return found

    return piece


def chunks(g: Gguf) -> Fields:
    """Llama-4: chunks of 8,192 in three layers of four, which no file states; a window of 0 switches them off."""
    off = g.value("attention.sliding_window") == 0
    kinds = ["full_attention" if off or (i + 1) % 4 == 0 else "chunked_attention" for i in range(depth(g))]
    return {
        "attention_chunk_size": 8192, "layer_types": kinds, "intermediate_size": g.number("expert_feed_forward_length"),
        "num_experts": g.number("expert_count"), "num_experts_per_tok": g.number("expert_used_count"),
        "intermediate_size_mlp": g.number("feed_forward_length"),
        "moe_layers": [i for i in range(depth(g)) if f"blk.{i}.ffn_gate_inp.weight" in g.shapes],
    }  # fmt: skip


def latent(g: Gguf) -> Fields:
    """MLA: files of 2025 and later state the heads' own widths apart, as they store latent attention as MQA."""
    rotated, rank = g.number("rope.dimension_count"), g.number("attention.kv_lora_rank")
    keys = g.number("attention.key_length_mla", 0) or g.number("attention.key_length")
    count = g.number("attention.head_count")
    values = g.number("attention.value_length_mla", 0) or g.number("attention.value_length", 0)
    down = g.rows("blk.*.attn_kv_b.weight")
    if down and count:
        values = down // count - (keys - rotated)
    if keys <= rotated or values <= 0:
        raise MalformedConfigError(f"{g.where}: {g.arch}: keys of {keys}, {rotated} of them rotary, values of {values}")
    return {
        "num_attention_heads": count, "q_lora_rank": g.number("attention.q_lora_rank", 0) or None, "kv_lora_rank": rank,
        "qk_nope_head_dim": keys - rotated, "qk_rope_head_dim": rotated, "v_head_dim": values,
        "intermediate_size": g.number("feed_forward_length"),
    }  # fmt: skip


def indexer(g: Gguf) -> Fields:
    """DeepSeek's lightning indexer; layers without one share the one before."""
    owns = [f"blk.{index}.indexer.attn_k.weight" in g.shapes for index in range(depth(g))]
    return {
        "index_n_heads": g.number("attention.indexer.head_count"), "index_topk": g.number("attention.indexer.top_k"),
        "index_head_dim": g.number("attention.indexer.key_length"),
        "indexer_types": ["full" if has else "shared" for has in owns],
    }  # fmt: skip


def maybe_experts(g: Gguf) -> Fields:
    """The fields of experts where there are any."""
    if not g.number("expert_count", 0):
        return {}
    return experts(g) | shared_count(g) | leading("first_k_dense_replace")(g)


full = constant(sliding_window=None, use_sliding_window=False, max_window_layers=None)


DENSE: Final = (heads, dense)
SPARSE: Final = (heads, dense, experts)
GLM: Final = (*SPARSE, shared_count, leading("first_k_dense_replace"), attention_bias)


def qk_norm(g: Gguf) -> Fields:
    """Whether queries and keys are normed."""
    return {"use_qk_norm": g.has("blk.*.attn_q_norm.weight")}
