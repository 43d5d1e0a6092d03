"""Vision transformers that differ by switches: one row of the table a ``model_type``.

D tower width, p patch, M the width of m x m merged patches. The layouts are those of section 2.7 of layers.md and
were checked against the classes of transformers 5.24.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from llmcalc.arch.attention import QkNorm
from llmcalc.arch.base import Extra, Norm, Weight
from llmcalc.arch.families.build import block, table
from llmcalc.arch.families.layouts import Switch, switch
from llmcalc.arch.families.towers import ends
from llmcalc.arch.families.towers.parts import (
    bounds,
    channels,
    conv_at,
    encoder_attention,
    grid,
    linear_at,
    norm_at,
    pair,
    tensor,
    under,
)
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Layer, Named, Stack


@dataclass(frozen=True, slots=True)
class Vit:
    """The switches of a tower. root, blocks, patch, table: where its checkpoint keeps the parts.

    frames: the patch has a time axis. flat: patches are multiplied as rows, not convolved. class_vector, before, after:
    the names of the token and of the norms outside the blocks, empty where there are none.
    """

    root: str = ""
    blocks: str = "encoder.layers"
    patch: str = "embeddings.patch_embedding"
    table: str = "embeddings.position_embedding"
    width: str = "hidden_size"
    ffn: str = "intermediate_size"
    patch_bias: bool = True
    frames: bool = False
    flat: bool = False
    class_vector: str = ""
    positions: Literal["grid", "num_patches", "num_position_embeddings", "plane", "axes", "none"] = "grid"
    norm: Literal["layer", "rms"] = "layer"
    style: Literal["pre", "sandwich"] = "pre"
    norms: tuple[str, str] = ("layer_norm1", "layer_norm2")
    qkv: Switch = True
    o: Switch = True
    mlp: Switch = True
    gated: bool = False
    qk_norm: QkNorm = "none"
    qk_norm_flag: str = ""
    layer_scale: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    head: bool = False
    end: Literal["", "qwen2", "qwen3", "glm", "llama4"] = ""


SIGLIP = Vit(root="vision_model", after="post_layernorm", head=True)
IDEFICS = Vit(after="post_layernorm")
QWEN2 = Vit(
    blocks="blocks", patch="patch_embed.proj", patch_bias=False, frames=True, width="embed_dim", ffn="",
    positions="none", norms=("norm1", "norm2"), end="qwen2",
)  # fmt: skip
QWEN2_5 = replace(QWEN2, width="hidden_size", ffn="intermediate_size", norm="rms", gated=True)
QWEN3 = replace(
    QWEN2, width="hidden_size", ffn="intermediate_size", patch_bias=True, table="pos_embed",
    positions="num_position_embeddings", end="qwen3",
)  # fmt: skip
GLM = Vit(
    blocks="blocks", patch="patch_embed.proj", frames=True, norm="rms", norms=("norm1", "norm2"), gated=True,
    ffn="out_hidden_size", qkv="?attention_bias", o=False, mlp=False, before="post_conv_layernorm",
    after="post_layernorm", end="glm",
)  # fmt: skip

LAYOUTS: dict[str, Vit] = {
    "siglip_vision_model": SIGLIP,
    "siglip2_vision_model": replace(SIGLIP, flat=True, positions="num_patches"),
    "idefics2_vision": IDEFICS,
    "idefics3_vision": IDEFICS,
    "smolvlm_vision": IDEFICS,
    # The name of the norm before the blocks is misspelt in the checkpoints.
    "clip_vision_model": Vit(
        root="vision_model", patch_bias=False, class_vector="embeddings.class_embedding", before="pre_layrnorm",
        after="post_layernorm",
    ),
    "llama4_vision_model": Vit(
        blocks="model.layers", patch="patch_embedding.linear", patch_bias=False, flat=True,
        class_vector="class_embedding", table="positional_embedding_vlm",
        norms=("input_layernorm", "post_attention_layernorm"), before="layernorm_pre", after="layernorm_post",
        end="llama4",
    ),
    "pixtral": Vit(
        blocks="transformer.layers", patch="patch_conv", patch_bias=False, positions="none", norm="rms",
        norms=("attention_norm", "ffn_norm"), qkv=False, o=False, mlp=False, gated=True, before="ln_pre",
    ),
    "internvl_vision": Vit(
        blocks="encoder.layer", patch="embeddings.patch_embeddings.projection", table="embeddings.position_embeddings",
        class_vector="embeddings.cls_token", norms=("layernorm_before", "layernorm_after"), qkv="?attention_bias",
        qk_norm_flag="use_qk_norm", layer_scale=("lambda_1", "lambda_2"), after="!use_mean_pooling",
    ),
    # Remote code of OpenGVLab's own InternVL files.
    "intern_vit_6b": Vit(
        class_vector="embeddings.class_embedding", norms=("norm1", "norm2"), qkv="?qkv_bias",
        qk_norm_flag="qk_normalization", layer_scale=("ls1", "ls2"),
    ),
    "kimi_k25_vision": Vit(
        blocks="encoder.blocks", patch="patch_embed.proj", table="patch_embed.pos_emb", positions="plane",
        norms=("norm0", "norm1"), after="encoder.final_layernorm",
    ),
    "qwen2_vl_vision": QWEN2,
    "qwen2_5_vl_vision": QWEN2_5,
    "qwen2_5_omni_vision_encoder": QWEN2_5,
    "qwen3_vl_vision": QWEN3,
    "qwen3_vl_moe_vision": QWEN3,
    "qwen3_omni_moe_vision_encoder": QWEN3,
    "qwen3_5_vision": QWEN3,
    "qwen3_5_moe_vision": QWEN3,
    "glm4v_vision": GLM,
    "glm4v_moe_vision": GLM,
    "gemma4_vision": Vit(
        patch="patch_embedder.input_proj", patch_bias=False, flat=True, table="patch_embedder", positions="axes",
        norm="rms", style="sandwich", qkv="?attention_bias", o="?attention_bias", mlp=False, gated=True,
        qk_norm="head",
    ),
}  # fmt: skip


def read(fields: Fields, prefix: str) -> Stack:
    """A vision transformer by its row of the table."""
    row = LAYOUTS[fields.model_type]
    d = fields.integer(row.width, "vt_hidden_size")
    root = under(prefix, row.root)
    layers = (_layer(fields, row, d),) * fields.integer("num_hidden_layers", "depth", "vt_num_hidden_layers")
    stem = [_patches(fields, row, d, root), *_positions(fields, row, d, root)]
    if row.before:
        stem.append(norm_at(under(root, row.before), d, bias=row.norm == "layer"))
    tail = []
    if _after(fields, row):
        tail.append(norm_at(under(root, _after(fields, row)), d, bias=row.norm == "layer"))
    if row.head and fields.flag("vision_use_head"):
        tail += ends.pooling_head(fields, d, under(root, "head"))
    tail += ends.tail(fields, row.end, d, prefix)
    tail += ends.statistics(fields, d, prefix)
    return Stack("vision", under(root, row.blocks), layers, tuple(stem), tuple(tail))


def _after(fields: Fields, row: Vit) -> str:
    if row.after == "!use_mean_pooling":  # InternVL pools or normalises, not both
        return "" if fields.flag("use_mean_pooling") else "layernorm"
    return row.after


def _layer(fields: Fields, row: Vit, d: int) -> Layer:
    rms = row.norm == "rms" or fields.raw("norm_type") == "rms_norm"
    norm = Norm(d, "rms" if rms else "layer", bias=not rms)
    qk_norm = row.qk_norm
    if row.qk_norm_flag and fields.flag(row.qk_norm_flag):
        qk_norm = "full"
    clipped = fields.model_type == "gemma4_vision" and fields.flag("use_clipped_linears")
    attention = encoder_attention(
        fields, d, qkv=switch(fields, row.qkv), o=switch(fields, row.o), qk_norm=qk_norm,
        extra=bounds("q_proj", "k_proj", "v_proj", "o_proj") if clipped else (),
    )  # fmt: skip
    f = fields.integer(row.ffn, f"vt_{row.ffn}") if row.ffn else d * fields.integer("mlp_ratio")
    ffn = FeedForward(
        d, f, row.gated, fields.text("hidden_act", null="gelu"), switch(fields, row.mlp),
        extra=bounds("gate_proj", "up_proj", "down_proj") if clipped else (),
    )  # fmt: skip
    scale = Extra(tuple(Weight(name, (d,), "scalar") for name in row.layer_scale))
    names = ("", "", "", "") if row.style == "sandwich" else (row.norms[0], "", row.norms[1], "")
    return block(
        attention, ffn, norm, style=row.style, names=names, residual=(Named("", scale),) if row.layer_scale else ()
    )


def _patches(fields: Fields, row: Vit, d: int, root: str) -> Named:
    (height, width), name = pair(fields, "patch_size"), under(root, row.patch)
    if row.flat:
        return linear_at(name, d, channels(fields) * height * width, bias=row.patch_bias)
    frames = (fields.integer("temporal_patch_size"),) if row.frames else ()
    return conv_at(name, (d, channels(fields), *frames, height, width), bias=row.patch_bias)


def _positions(fields: Fields, row: Vit, d: int, root: str) -> list[Named]:
    out = [tensor(under(root, row.class_vector), (d,), "embedding")] if row.class_vector else []
    if fields.raw("use_mask_token") is True:
        out.append(tensor(under(root, "embeddings.mask_token"), (1, 1, d), "embedding"))
    name, token = under(root, row.table), 1 if row.class_vector else 0
    if row.positions == "none" or fields.raw("use_absolute_position_embeddings") is False:
        return out
    match row.positions:
        case "grid":
            rows = grid(fields) + token
        case "plane":
            rows = fields.integer("pos_emb_height", "init_pos_emb_height") * fields.integer(
                "pos_emb_width", "init_pos_emb_width"
            )
        case "axes":
            rows = 2 * fields.integer("position_embedding_size")
        case field:
            rows = fields.integer(field)
    return [*out, table(name, rows, d)]
