"""Projectors: what turns a tower's output into embeddings of the language model, one short function a kind.

D is the tower's width, M that of merged patches, d the language model's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from llmcalc.arch.base import Norm
from llmcalc.arch.families.build import table
from llmcalc.arch.families.towers import mllama
from llmcalc.arch.families.towers.parts import linear_at, norm_at, tensor
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Named


class Joint(NamedTuple):
    """What a projector joins: the wrapper's block, the tower's, the language model's width, and its own name."""

    fields: Fields
    tower: Fields
    width: int
    name: str

    @property
    def inner(self) -> int:
        """The tower's width."""
        return self.tower.integer("hidden_size", "vt_hidden_size")

    def merged(self, name: str) -> int:
        """The width of patches merged by the factor that the wrapper calls ``name``."""
        return self.inner * self.fields.integer(name) ** 2


def _two(joint: Joint, inputs: int, *, bias: bool, middle: int = 0) -> list[Named]:
    return [
        linear_at(f"{joint.name}.linear_1", middle or joint.width, inputs, bias=bias),
        linear_at(f"{joint.name}.linear_2", joint.width, middle or joint.width, bias=bias),
    ]


def _feature_layers(joint: Joint) -> int:
    """How many of the tower's layers are joined side by side."""
    value = joint.fields.raw("vision_feature_layer")
    return max(1, len(value)) if isinstance(value, list) else 1


def llava(joint: Joint) -> list[Named]:
    """Two matrices over one or several of the tower's layers."""
    return _two(
        joint, joint.inner * _feature_layers(joint), bias=joint.fields.flag("multimodal_projector_bias", null=True)
    )


def vipllava(joint: Joint) -> list[Named]:
    """Two matrices after a norm over five of the tower's layers."""
    inputs = joint.inner * _feature_layers(joint)
    return [norm_at(f"{joint.name}.projector_layernorm", inputs), *_two(joint, inputs, bias=True)]


def gemma3(joint: Joint) -> list[Named]:
    """A norm and one bare matrix, stored [D, d]."""
    weight = tensor(f"{joint.name}.mm_input_projection_weight", (joint.inner, joint.width), "matmul")
    return [weight, norm_at(f"{joint.name}.mm_soft_emb_norm", joint.inner, bias=False)]


def gemma3n(joint: Joint) -> list[Named]:
    """A table for hard tokens, two norms and a matrix."""
    inner, name = joint.inner, joint.name
    return [
        table(f"{name}.embedding", joint.tower.integer("vocab_size"), inner),
        norm_at(f"{name}.hard_embedding_norm", inner, bias=False),
        norm_at(f"{name}.soft_embedding_norm", inner, bias=False),
        linear_at(f"{name}.embedding_projection", joint.width, inner, bias=False),
    ]


def gemma4(joint: Joint) -> list[Named]:
    """One matrix after a norm without weights."""
    inner = joint.tower.integer("output_proj_dims", null=0, low=0) or joint.inner
    return [linear_at(f"{joint.name}.embedding_projection", joint.width, inner, bias=False)]


def paligemma(joint: Joint) -> list[Named]:
    """One biased matrix."""
    return [linear_at(f"{joint.name}.linear", joint.fields.integer("projection_dim"), joint.inner)]


def mistral3(joint: Joint) -> list[Named]:
    """A norm, a merger back to the tower's width, two matrices."""
    bias = joint.fields.flag("multimodal_projector_bias")
    merged = joint.merged("spatial_merge_size")
    return [
        Named(f"{joint.name}.norm", Norm(joint.inner)),
        linear_at(f"{joint.name}.patch_merger.merging_layer", joint.inner, merged, bias=False),
        *_two(joint, joint.inner * _feature_layers(joint), bias=bias),
    ]


def internvl(joint: Joint) -> list[Named]:
    """A norm and two matrices over patches shuffled by 1 / ``downsample_ratio``."""
    ratio = joint.fields.number("downsample_ratio", null=0.5)
    if not 0 < ratio <= 1:
        raise joint.fields.wrong("downsample_ratio", ratio, "a ratio between 0 and 1")
    merged = joint.inner * round(1 / ratio) ** 2
    return [norm_at(f"{joint.name}.layer_norm", merged), *_two(joint, merged, bias=True)]


def idefics3(joint: Joint) -> list[Named]:
    """One bare matrix over shuffled patches."""
    return [linear_at(f"{joint.name}.modality_projection.proj", joint.width, joint.merged("scale_factor"), bias=False)]


def lfm2(joint: Joint) -> list[Named]:
    """An optional norm and two matrices through a width of its own."""
    merged = joint.merged("downsample_factor")
    norm = [norm_at(f"{joint.name}.layer_norm", merged)] if joint.fields.flag("projector_use_layernorm") else []
    middle = joint.fields.integer("projector_hidden_size")
    return [*norm, *_two(joint, merged, bias=joint.fields.flag("projector_bias"), middle=middle)]


def gated(joint: Joint) -> list[Named]:
    """Aya Vision (with a norm) and Cohere2 Vision: two matrices, the first one's output halved by a gate."""
    merged, name = joint.merged("downsample_factor"), joint.name
    aya = joint.fields.model_type == "aya_vision"
    middle = joint.fields.integer("alignment_intermediate_size", null=joint.width)
    return [
        *([norm_at(f"{name}.layernorm", merged)] if aya else []),
        linear_at(f"{name}.linear_1", middle, merged),
        linear_at(f"{name}.linear_2", joint.width, middle // 2),
    ]


def aria(joint: Joint) -> list[Named]:
    """Learned queries attend to the patches through two layers of projections, then two bare matrices."""
    d, name, text = joint.inner, joint.name, joint.width
    counts = joint.fields.mapping("projector_patch_to_query_dict") or {"1225": 128, "4900": 256}
    queries = max(joint.fields.as_integer("projector_patch_to_query_dict", count) for count in counts.values())
    cross = f"{name}.cross_attn"
    return [
        tensor(f"{name}.query", (queries, d), "embedding"),
        *(linear_at(f"{cross}.{part}_proj", d, d, bias=False) for part in "qkv"),
        tensor(f"{cross}.multihead_attn.in_proj_weight", (3 * d, d), "matmul"),
        tensor(f"{cross}.multihead_attn.in_proj_bias", (3 * d,), "bias"),
        linear_at(f"{cross}.multihead_attn.out_proj", d, d),
        linear_at(f"{cross}.linear", d, d),
        norm_at(f"{cross}.layer_norm", d),
        norm_at(f"{cross}.layer_norm_kv", d),
        norm_at(f"{name}.layer_norm", d),
        linear_at(f"{name}.feed_forward.linear_in", text, d, bias=False),
        linear_at(f"{name}.feed_forward.linear_out", text, text, bias=False),
    ]


def kimi(joint: Joint) -> list[Named]:
    """A norm and two matrices over merged patches; the factor stands in the tower's block."""
    sizes = joint.tower.integers("merge_kernel_size", low=1) or [2, 2]
    if len(sizes) != 2:
        raise joint.tower.wrong("merge_kernel_size", sizes, "two numbers")
    merged = joint.inner * sizes[0] * sizes[1]
    return [
        norm_at(f"{joint.name}.pre_norm", joint.fields.integer("projection_hidden_size", null=joint.inner)),
        linear_at(f"{joint.name}.proj.0", merged, merged),
        linear_at(f"{joint.name}.proj.2", joint.width, merged),
    ]


def llama4(joint: Joint) -> list[Named]:
    """One bare matrix from the tower's adapter."""
    return [linear_at(f"{joint.name}.linear_1", joint.width, joint.tower.integer("vision_output_dim"), bias=False)]


def llama32(joint: Joint) -> list[Named]:
    """One biased matrix from the joined layers of the tower (mllama)."""
    return [linear_at(joint.name, joint.width, mllama.output_width(joint.tower))]


def qwen2_audio(joint: Joint) -> list[Named]:
    """One biased matrix."""
    return [linear_at(f"{joint.name}.linear", joint.width, joint.inner)]


def voxtral(joint: Joint) -> list[Named]:
    """Two bare matrices over four frames at a time."""
    return _two(joint, joint.tower.integer("intermediate_size"), bias=False)


KINDS: dict[str, Callable[[Joint], list[Named]]] = {
    "llava": llava, "vipllava": vipllava, "gemma3": gemma3, "gemma3n": gemma3n, "gemma4": gemma4,
    "paligemma": paligemma, "mistral3": mistral3, "internvl": internvl, "idefics3": idefics3, "lfm2": lfm2,
    "gated": gated, "aria": aria, "kimi": kimi, "llama4": llama4, "llama32": llama32, "qwen2_audio": qwen2_audio,
    "voxtral": voxtral,
}  # fmt: skip
