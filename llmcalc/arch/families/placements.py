"""Which layers of a decoder have experts: one rule a family."""

from __future__ import annotations

from collections.abc import Callable

from llmcalc.arch.fields import Fields

Placement = Callable[[Fields, int], list[bool]]


def all_sparse(_fields: Fields, layers: int) -> list[bool]:
    """Every layer has experts."""
    return [True] * layers


def after_first(fields: Fields, layers: int) -> list[bool]:
    """DeepSeek: dense up to ``first_k_dense_replace``, then one in ``moe_layer_freq``, which may be a list of flags."""
    freq = fields.raw("moe_layer_freq")
    if isinstance(freq, list):
        return [bool(flag) for flag in fields.per_layer("moe_layer_freq", layers)]
    usual = DENSE_FIRST.get(fields.model_type, 0)
    first = fields.integer("first_k_dense_replace", "num_dense_layers", null=usual, low=0)
    every = fields.integer("moe_layer_freq", null=1)
    return [index >= first and index % every == 0 for index in range(layers)]


# Dense layers at the start of the classes that have no field for their number.
DENSE_FIRST = {"hy_v3": 1, "glm4_moe_lite": 1, "axk1": 1}


def qwen_step(fields: Fields, layers: int) -> list[bool]:
    """Qwen: layer i where (i + 1) is a multiple of ``decoder_sparse_step`` and i is not in ``mlp_only_layers``."""
    step, dense = fields.integer("decoder_sparse_step", null=1), set(fields.integers("mlp_only_layers") or ())
    return [(index + 1) % step == 0 and index not in dense for index in range(layers)]


def ernie_interval(fields: Fields, layers: int) -> list[bool]:
    """ERNIE: (i + 1) a multiple of ``moe_layer_interval`` between start and end, end -1 meaning the last layer."""
    start, end = (
        fields.integer("moe_layer_start_index", null=0, low=0),
        fields.integer("moe_layer_end_index", null=-1, low=-1),
    )
    every, end = fields.integer("moe_layer_interval", null=1), layers - 1 if end < 0 else end
    return [(index + 1) % every == 0 and start <= index <= end for index in range(layers)]


def llama4_step(fields: Fields, layers: int) -> list[bool]:
    """Llama-4: ``moe_layers``, else every ``interleave_moe_layer_step``-th layer."""
    given = fields.integers("moe_layers")
    step = fields.integer("interleave_moe_layer_step", null=1)
    sparse = set(given if given else range(step - 1, layers, step))
    return [index in sparse for index in range(layers)]


def typed(fields: Fields, layers: int) -> list[bool]:
    """``mlp_layer_types`` where the file gives it, else DeepSeek's rule."""
    types = fields.strings("mlp_layer_types")
    if types is None:
        return after_first(fields, layers)
    if len(types) < layers:
        raise fields.wrong("mlp_layer_types", f"{len(types)} entries", f"one for each of {layers} layers")
    return [kind == "sparse" for kind in types[:layers]]


def flags(fields: Fields, layers: int) -> list[bool]:
    """``is_moe_layer``: a list of flags (EXAONE-MoE)."""
    values = fields.sequence("is_moe_layer")
    if values is None:
        return typed(fields, layers)
    return [bool(value) for value in values[:layers]]
