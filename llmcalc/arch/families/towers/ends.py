"""What stands at the end of a tower: mergers of m x m patches, pooling heads, stored statistics."""

from __future__ import annotations

from llmcalc.arch.families.towers.parts import conv_at, linear_at, norm_at, tensor
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Named


def tail(fields: Fields, kind: str, d: int, prefix: str) -> list[Named]:
    """The merger of that kind for a tower of width ``d``; nothing for an empty kind."""
    match kind:
        case "qwen2":
            return qwen2(fields, d, f"{prefix}.merger")
        case "qwen3":
            return qwen3(fields, d, f"{prefix}")
        case "glm":
            return glm(fields, d, prefix)
        case "llama4":
            return llama4(fields, f"{prefix}.vision_adapter.mlp")
        case _:
            return []


def _merged(fields: Fields, d: int) -> int:
    return fields.integer("spatial_merge_size") ** 2 * d


def qwen2(fields: Fields, d: int, name: str) -> list[Named]:
    """Qwen2-VL, Qwen2.5-VL: a norm (LayerNorm, then RMS) and two matrices over the merged patches."""
    first = fields.model_type == "qwen2_vl_vision"
    outputs, merged = fields.integer("hidden_size" if first else "out_hidden_size"), _merged(fields, d)
    return [
        norm_at(f"{name}.ln_q", d, bias=first),
        linear_at(f"{name}.mlp.0", merged, merged),
        linear_at(f"{name}.mlp.2", outputs, merged),
    ]


def qwen3(fields: Fields, d: int, prefix: str) -> list[Named]:
    """Qwen3-VL, Qwen3.5: a merger at the end and one for every layer that feeds the decoder directly."""
    outputs, merged = fields.integer("out_hidden_size"), _merged(fields, d)
    places = [("merger", d)]
    places += [
        (f"deepstack_merger_list.{i}", merged) for i, _ in enumerate(fields.integers("deepstack_visual_indexes") or ())
    ]
    out = []
    for name, width in places:
        out += [
            norm_at(f"{prefix}.{name}.norm", width),
            linear_at(f"{prefix}.{name}.linear_fc1", merged, merged),
            linear_at(f"{prefix}.{name}.linear_fc2", outputs, merged),
        ]
    return out


def glm(fields: Fields, d: int, prefix: str) -> list[Named]:
    """GLM-4V: a strided convolution, then a projection with a norm and a gated feed-forward."""
    o, f, m = (
        fields.integer("out_hidden_size"),
        fields.integer("intermediate_size"),
        fields.integer("spatial_merge_size"),
    )
    return [
        conv_at(f"{prefix}.downsample", (o, d, m, m)),
        linear_at(f"{prefix}.merger.proj", o, o, bias=False),
        norm_at(f"{prefix}.merger.post_projection_norm", o),
        linear_at(f"{prefix}.merger.gate_proj", f, o, bias=False),
        linear_at(f"{prefix}.merger.up_proj", f, o, bias=False),
        linear_at(f"{prefix}.merger.down_proj", o, f, bias=False),
    ]


def llama4(fields: Fields, name: str) -> list[Named]:
    """Llama-4: shuffled patches pass two bias-free matrices."""
    f, inner = fields.integer("intermediate_size"), fields.integer("projector_input_dim")
    outer = fields.integer("projector_output_dim")
    return [linear_at(f"{name}.fc1", inner, f, bias=False), linear_at(f"{name}.fc2", outer, outer, bias=False)]


def pooling_head(fields: Fields, d: int, name: str) -> list[Named]:
    """SigLIP's attention pooling: a learned query, attention, a norm and a feed-forward."""
    f = fields.integer("intermediate_size")
    return [
        tensor(f"{name}.probe", (1, 1, d), "embedding"),
        tensor(f"{name}.attention.in_proj_weight", (3 * d, d), "matmul"),
        tensor(f"{name}.attention.in_proj_bias", (3 * d,), "bias"),
        linear_at(f"{name}.attention.out_proj", d, d),
        norm_at(f"{name}.layernorm", d),
        linear_at(f"{name}.mlp.fc1", f, d),
        linear_at(f"{name}.mlp.fc2", d, f),
    ]


def statistics(fields: Fields, d: int, prefix: str) -> list[Named]:
    """Gemma-4's stored mean and deviation of the tower's output."""
    if fields.model_type != "gemma4_vision" or not fields.flag("standardize"):
        return []
    return [tensor(f"{prefix}.{name}", (d,), "buffer") for name in ("std_bias", "std_scale")]
