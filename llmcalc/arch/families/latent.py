"""Decoders with multi-head latent attention: DeepSeek V2 to V3.2, Kimi K2, GLM-5, MiniCPM3, Mistral 4, LongCat ..."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from llmcalc.arch.base import Norm, Spec
from llmcalc.arch.families import forward
from llmcalc.arch.families.build import block, decoder, divide, rms, rope
from llmcalc.arch.families.layouts import Switch, switch
from llmcalc.arch.families.moe import Experts, experts
from llmcalc.arch.families.mtp import mtp_stack
from llmcalc.arch.families.placements import Placement, after_first, typed
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.latent import Indexer, LatentAttention
from llmcalc.arch.model import Architecture, Layer, Stack


@dataclass(frozen=True, slots=True)
class LatentFamily:
    """The switches of a family. placement: which layers are sparse; None where none is. mtp: what its MTP heads add."""

    placement: Placement | None = after_first
    correction: Literal["none", "buffer"] = "buffer"
    indexed: bool = False
    post_moe_norm: bool = False
    mlp_bias: Switch = False


FAMILIES: dict[str, LatentFamily] = {
    "deepseek_v2": LatentFamily(correction="none", mlp_bias="?mlp_bias"),
    "deepseek_v3": LatentFamily(),
    "kimi_k2": LatentFamily(),
    "deepseek_v32": LatentFamily(typed, indexed=True),
    "glm_moe_dsa": LatentFamily(typed, indexed=True),
    "glm4_moe_lite": LatentFamily(typed),
    "mistral4": LatentFamily(correction="none"),
    "sarvam_mla": LatentFamily(),
    "axk1": LatentFamily(typed, post_moe_norm=True),
    "minicpm3": LatentFamily(None, mlp_bias="?mlp_bias"),
    "youtu": LatentFamily(None),
}


def latent(fields: Fields, d: int, indexer: Indexer | None = None, topk: int | None = None) -> LatentAttention:
    """The family's latent attention; ``v_head_dim`` null or absent means the width over the heads (MiniCPM3)."""
    h = fields.integer("num_attention_heads")
    values = fields.optional("v_head_dim")
    rotary = fields.integer("qk_rope_head_dim", low=0)
    fields.ignore("qk_head_dim", "head_dim", "num_key_value_heads")
    return LatentAttention(
        d, h, fields.optional("q_lora_rank", low=0) or None, fields.integer("kv_lora_rank"),
        fields.integer("qk_nope_head_dim", low=0), rotary,
        values or divide(fields, d, h, "v_head_dim = hidden_size / num_attention_heads"),
        bias=fields.flag("attention_bias"), indexer=indexer, index_topk=topk, positions=rope(fields, rotary),
        scale=forward.yarn_scale(fields, fields.integer("qk_nope_head_dim", low=0) + rotary),
        temperature=forward.position_scale(fields),
    )  # fmt: skip


def indexer_kinds(fields: Fields, layers: int) -> list[bool]:
    """Which layers have an indexer of their own; the others share the one before (GLM-5.2, Hy4)."""
    kinds = fields.strings("indexer_types")
    if kinds is not None:
        if len(kinds) < layers:
            raise fields.wrong("indexer_types", f"{len(kinds)} entries", f"one for each of {layers} layers")
        return [kind == "full" for kind in kinds[:layers]]
    pattern = fields.raw("index_topk_pattern")
    if isinstance(pattern, (str, list)) and len(pattern) >= layers:
        return [mark in ("F", "full") for mark in pattern[:layers]]
    every, offset = fields.integer("index_topk_freq", null=1), fields.integer("index_skip_topk_offset", null=2, low=0)
    return [max(index - offset + 1, 0) % every == 0 for index in range(layers)]


def indexer(fields: Fields, d: int) -> Indexer:
    """DeepSeek's lightning indexer; its queries come from the query latent."""
    return Indexer(
        d, fields.integer("q_lora_rank"), fields.integer("index_n_heads"), fields.integer("index_head_dim"),
        fields.integer("index_topk"),
    )  # fmt: skip


def read(fields: Fields) -> Architecture:
    """A latent-attention decoder by its row of the table."""
    family = FAMILIES[fields.model_type]
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    norm = rms(d, fields)
    if family.placement is None:
        sparse = [False] * count
    else:
        sparse = family.placement(fields, count)
        if fields.optional("num_experts", low=0) in (0, None):
            sparse = [False] * count
    mark_inert(fields, family, sparse)
    own = indexer_kinds(fields, count) if family.indexed else [False] * count
    maker = Maker(fields, family, d, norm)
    layers = [maker.layer(is_sparse, has_index) for is_sparse, has_index in zip(sparse, own, strict=True)]
    return decoder(fields, layers, width=d, final=norm, mtp=mtp_heads(fields, maker))


def mark_inert(fields: Fields, family: LatentFamily, sparse: list[bool]) -> None:
    """Keys that the lists above stand for, or that this class never looks at."""
    fields.ignore("first_k_dense_replace", "moe_layer_freq", "moe_router_dtype", "dim_model_base", "mlp_bias")
    if family.indexed:
        fields.ignore("layer_types", "index_share_for_mtp_iteration", "index_topk_freq", "index_topk_pattern")
        fields.ignore("index_skip_topk_offset")
    if all(sparse):
        fields.ignore("intermediate_size")


class Maker:
    """Makes a family's layers, equal ones once."""

    def __init__(self, fields: Fields, family: LatentFamily, d: int, norm: Norm) -> None:
        self.fields, self.family, self.d, self.norm = fields, family, d, norm
        self.made: dict[tuple[bool, bool], Layer] = {}

    def layer(self, sparse: bool, indexed: bool) -> Layer:
        """A layer with experts or dense, with an indexer of its own or another's."""
        key = (sparse, indexed)
        if key not in self.made:
            topk = self.fields.integer("index_topk") if self.family.indexed else None
            mixer = latent(self.fields, self.d, indexer(self.fields, self.d) if indexed else None, topk)
            names = ("", "", "", "post_mlp_layernorm" if sparse and self.family.post_moe_norm else "")
            self.made[key] = block(mixer, self.ffn(sparse), self.norm, names=names)
        return self.made[key]

    def ffn(self, sparse: bool) -> Spec:
        """The feed-forward of a dense or a sparse layer."""
        if sparse:
            table = Experts(
                shared="count", correction=self.family.correction, fp32_router=True, shared_bias=self.family.mlp_bias
            )
            return experts(self.fields, table, self.d)
        act = self.fields.text("hidden_act", null="silu")
        return FeedForward(
            self.d, self.fields.integer("intermediate_size"), True, act, switch(self.fields, self.family.mlp_bias)
        )


# Which checkpoints repeat the embedding and the head in their MTP layer (layers.md's published totals):
# DeepSeek-V3 and V3.2 and GLM-4.5 and 4.7 both; the others store neither.
REPEATS_TABLES = ("deepseek_v3", "deepseek_v32")


def mtp_heads(fields: Fields, maker: Maker) -> tuple[Stack, ...]:
    """Multi-token-prediction layers: a projection of two widths, three norms and a full decoder layer each."""
    given = fields.has("num_nextn_predict_layers", "num_mtp_layers")
    count = fields.integer("num_nextn_predict_layers", "num_mtp_layers", low=0) if given else 0
    if not count:
        return ()
    tables = fields.model_type in REPEATS_TABLES
    return (mtp_stack(fields, maker.d, maker.norm, maker.layer(True, maker.family.indexed), count, tables=tables),)
