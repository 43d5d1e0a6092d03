"""Latent attention with an indexer in the families of 2026: AXK2, Hy4, dots3, Mistral-Large-4, GLM-5.3-Flash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from llmcalc.arch.base import FULL, Extra, Norm, Scope, Spec, Weight
from llmcalc.arch.families.build import block, decoder, layer_types, rms, rope
from llmcalc.arch.families.deepseek_v4 import head_site, residual
from llmcalc.arch.families.hybrid import every, named_kinds
from llmcalc.arch.families.kimi_linear import delta
from llmcalc.arch.families.latent import indexer, indexer_kinds, latent
from llmcalc.arch.families.moe import Experts, experts
from llmcalc.arch.families.placements import typed
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.latent import Indexer, LatentAttention
from llmcalc.arch.model import Architecture, Layer, Named
from llmcalc.arch.residual import HyperConnection
from llmcalc.errors import InvalidInputError

TABLE = Experts(shared="count", correction="buffer", fp32_router=True)


def sparse_layers(fields: Fields, count: int, dense: int) -> list[bool]:
    """``mlp_layer_types`` or DeepSeek's own keys, else dense in the first ``dense`` layers."""
    if fields.has("mlp_layer_types") or fields.has("first_k_dense_replace") or fields.has("moe_layer_freq"):
        return typed(fields, count)
    return [index >= dense for index in range(count)]


def feed_forwards(fields: Fields, d: int, sparse: list[bool], table: Experts = TABLE) -> dict[bool, Spec]:
    """The experts and the dense feed-forward, those that there are."""
    ffns: dict[bool, Spec] = {True: experts(fields, table, d)} if any(sparse) else {}
    if not all(sparse):
        act = fields.text("hidden_act", null="silu")
        ffns[False] = FeedForward(d, fields.integer("intermediate_size"), True, act)
    fields.ignore("first_k_dense_replace", "moe_layer_freq", "intermediate_size", "mlp_bias", "num_key_value_heads")
    fields.ignore("swiglu_limit", "layer_types", "index_topk_freq", "index_topk_pattern", "index_skip_topk_offset")
    return ffns


# -- AXK2 ----------------------------------------------------------------------------------------------------------


def axk2(fields: Fields) -> Architecture:
    """AXK2: the query's second matrix makes the output gate too; norms gated at a low rank, both in sparse layers."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    sparse, norm, rank = sparse_layers(fields, count, 1), rms(d, fields), fields.integer("gated_norm_rank")
    ffns = feed_forwards(fields, d, sparse)
    mixer = replace(latent(fields, d, indexer(fields, d), fields.integer("index_topk")), gate="fused")
    before, after = (
        Named(f"{name}.mlp", Extra((Weight("fc1.weight", (rank, d)), Weight("fc2.weight", (d, rank)))))
        for name in ("input_layernorm", "post_attention_layernorm")
    )
    made = {
        flag: block(mixer, ffn, norm, residual=(before, after) if flag else (before,)) for flag, ffn in ffns.items()
    }
    return decoder(fields, [made[flag] for flag in sparse], width=d, final=norm)


# -- Hy4 -----------------------------------------------------------------------------------------------------------


def hy_v4(fields: Fields) -> Architecture:
    """Hy4: gated latent attention with sinks, an indexer in one layer of four, a stream of copies that do not mix."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    sparse, norm, m = sparse_layers(fields, count, 1), rms(d, fields), fields.integer("hc_mult")
    ffns = feed_forwards(fields, d, sparse)
    if fields.has("indexer_types"):
        own = indexer_kinds(fields, count)
    else:
        own = [index == 0 or (index - 1) % 4 == 0 for index in range(count)]
    topk = fields.integer("index_topk")
    mixers = {
        flag: replace(latent(fields, d, indexer(fields, d) if flag else None, topk), gate="elementwise", sinks=True)
        for flag in set(own)
    }
    site: Spec = HyperConnection(d, m, 2 * m, 2)
    sites = (Named("attn_hc", site), Named("ffn_hc", site))
    made: dict[tuple[bool, bool], Layer] = {}
    for key in zip(own, sparse, strict=True):
        if key not in made:
            made[key] = block(mixers[key[0]], ffns[key[1]], norm, residual=sites)
    fields.ignore("hc_magnitude", "learnable_sink_init")
    layers = [made[key] for key in zip(own, sparse, strict=True)]
    return decoder(fields, layers, width=d, final=norm, tail=[Named("model.hc_head", head_site(fields, d))])


# -- dots3 ---------------------------------------------------------------------------------------------------------

SWA = {
    "num_attention_heads": 64, "q_lora_rank": 1024, "kv_lora_rank": 1024, "head_dim": 256, "qk_nope_head_dim": 192,
    "v_head_dim": 128,
}  # fmt: skip


def dots3(fields: Fields) -> Architecture:
    """dots3: latent attention everywhere; sliding layers have sizes of their own, the others an indexer."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    sparse, norm = sparse_layers(fields, count, 1), rms(d, fields)
    width = fields.optional("shared_experts_intermediate_size", "moe_shared_expert_intermediate_size")
    table = TABLE if width is None else TABLE._replace(shared="field", shared_field="shared_experts_intermediate_size")
    ffns = feed_forwards(fields, d, sparse, table)
    kinds = dots3_kinds(fields, count)
    mixers = {kind: dots3_mixer(fields, d, kind) for kind in dict.fromkeys(kinds)}
    made: dict[tuple[str, bool], Layer] = {}
    for key in zip(kinds, sparse, strict=True):
        if key not in made:
            made[key] = block(mixers[key[0]], ffns[key[1]], norm)
    fields.ignore("n_shared_experts", "moe_shared_expert_intermediate_size", "per_layer_config", "head_dim")
    return decoder(fields, [made[key] for key in zip(kinds, sparse, strict=True)], width=d, final=norm)


def dots3_kinds(fields: Fields, count: int) -> list[str]:
    """Sliding, full or picked by an indexer (``indexed``)."""
    types, dsa = layer_types(fields, count), fields.flag("use_dsa", null=True)
    wide = "indexed" if dsa else "full"
    if types is None:
        slides = fields.flag("use_sliding_window", null=True)
        return [wide if not slides or index < 2 or index % 4 == 1 else "sliding" for index in range(count)]
    fields.ignore("use_sliding_window")
    plain = "full" if fields.has("per_layer_config") and not fields.has("use_dsa") else wide
    known = {"sliding_attention": "sliding", "indexed_attention": wide, "full_attention": plain}
    for kind in types:
        if kind not in known:
            raise fields.wrong("layer_types", kind, "one of " + ", ".join(known))
    return [known[kind] for kind in types]


def dots3_mixer(fields: Fields, d: int, kind: str) -> LatentAttention:
    """The attention of one kind of layer: gated per head, a norm on the rotary key."""
    if kind != "sliding":
        pick = indexer(fields, d) if kind == "indexed" else None
        base = latent(fields, d, pick, fields.integer("index_topk") if pick else None)
        return replace(base, gate="per_head", rope_norm=True)
    size = dots3_sizes(fields)
    rotary = size.get("qk_rope_head_dim", size["head_dim"] - size["qk_nope_head_dim"])
    if rotary < 0:
        raise InvalidInputError(f"{fields.where}: swa_head_dim is smaller than swa_qk_nope_head_dim")
    window = fields.optional("sliding_window") or 512
    return LatentAttention(
        d, size["num_attention_heads"], size["q_lora_rank"], size["kv_lora_rank"], size["qk_nope_head_dim"], rotary,
        size["v_head_dim"], Scope("sliding", window), fields.flag("attention_bias"), "per_head", rope_norm=True,
        positions=rope(fields, rotary, "sliding_attention"),
    )  # fmt: skip


def dots3_sizes(fields: Fields) -> dict[str, int]:
    """Sizes of the sliding layers: ``swa_*`` keys, an entry of ``per_layer_config``, or the class's own numbers."""
    listed = fields.mapping("per_layer_config")
    entry = next((value for value in listed.values() if isinstance(value, dict)), {})
    sizes = {
        name: fields.optional(f"swa_{name}")
        or (fields.as_integer(f"per_layer_config.{name}", entry[name], 0) if name in entry else default)
        for name, default in SWA.items()
    }
    given = fields.optional("swa_qk_rope_head_dim", low=0)
    rotary = entry.get("qk_rope_head_dim") if given is None else given
    fields.ignore("swa_num_key_value_heads", "swa_rope_theta")
    return sizes if rotary is None else {**sizes, "qk_rope_head_dim": fields.as_integer("qk_rope_head_dim", rotary, 0)}


# -- Mistral-Large-4 -----------------------------------------------------------------------------------------------


def mistral_large4(fields: Fields) -> Architecture:
    """Mistral-Large-4: no query latent, scaled softmax, every fourth layer without positions, shared latents."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    sparse, norm = sparse_layers(fields, count, fields.integer("first_k_dense_replace", null=1, low=0)), rms(d, fields)
    ffns = feed_forwards(fields, d, sparse, TABLE._replace(correction="none"))
    interval = fields.integer("no_rope_layer_interval", null=4)
    marks = fields.integers("no_rope_layers") or [int((index + 1) % interval != 0) for index in range(count)]
    owners = fields.integers("kv_source_layers") or list(range(count))
    if len(marks) < count or len(owners) < count:
        raise fields.wrong(
            "no_rope_layers", f"{min(len(marks), len(owners))} entries", f"one for each of {count} layers"
        )
    shared = [owner != index for index, owner in enumerate(owners[:count])]
    keys = list(zip(marks, shared, indexer_kinds(fields, count), sparse, strict=False))[:count]
    made: dict[tuple[int, bool, bool, bool], Layer] = {}
    for key in keys:
        if key not in made:
            rotary, borrows, own, is_sparse = key
            mixer = mistral_mixer(fields, d, rotary=bool(rotary), borrows=borrows, own=own)
            made[key] = block(mixer, ffns[is_sparse], norm)
    alpha = Weight("alpha", (fields.integer("qk_rope_head_dim") // 2,), "scalar")
    fields.ignore("head_dim", "qk_head_dim")
    return decoder(
        fields, [made[key] for key in keys], width=d, final=norm, tail=[Named("model.rotary_emb", Extra((alpha,)))]
    )


def mistral_mixer(fields: Fields, d: int, *, rotary: bool, borrows: bool, own: bool) -> LatentAttention:
    """One layer's attention; without positions the rotary channels are plain ones."""
    h, turned = fields.integer("num_attention_heads"), fields.integer("qk_rope_head_dim")
    nope, topk = fields.integer("qk_nope_head_dim"), fields.integer("index_topk")
    pick = Indexer(
        d, d, fields.integer("index_n_heads"), fields.integer("index_head_dim"), topk, query_norm=True
    ) if own else None  # fmt: skip
    scaling = tuple(Weight(f"softmax_scaling.{name}", (h,), "scalar", split="column") for name in ("scale", "bias"))
    return LatentAttention(
        d, h, None, fields.integer("kv_lora_rank"), nope if rotary else nope + turned, turned if rotary else 0,
        fields.integer("v_head_dim"), FULL, fields.flag("attention_bias"), cache="borrowed" if borrows else "own",
        indexer=pick, index_topk=topk, positions=rope(fields, turned) if rotary else None, extra=scaling,
    )  # fmt: skip


# -- GLM-5.3-Flash -------------------------------------------------------------------------------------------------


def glm5_next(fields: Fields) -> Architecture:
    """GLM-5.3-Flash: three delta layers, then latent attention without positions; an indexer over pools of keys."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    sparse, norm = sparse_layers(fields, count, 3), rms(d, fields)
    types, own = layer_types(fields, count), indexer_kinds(fields, count)
    spelled = None if types is None else ["full" if kind == "indexed_attention" else kind for kind in types]
    kinds = every(count, 4, 3) if spelled is None else named_kinds(fields, spelled, ("linear", "full"))
    ffns, sites = feed_forwards(fields, d, sparse), residual(fields, d)
    keys = [(kind, kind == "full" and has, flag) for kind, has, flag in zip(kinds, own, sparse, strict=True)]
    made: dict[tuple[str, bool, bool], Layer] = {}
    for key in keys:
        if key not in made:
            mixer = delta(fields, d) if key[0] == "linear" else pooled(fields, d, own=key[1])
            name = "self_attn" if key[0] == "full" else "linear_attn"
            made[key] = block(mixer, ffns[key[2]], norm, residual=sites, mixer_name=name)
    fields.ignore("hc_sinkhorn_iters", "linear_lower_bound", "index_kpool_always_select_tail", "head_dim")
    # The copies of the stream are averaged before the last norm: nothing is stored.
    final: Norm = norm
    return decoder(fields, [made[key] for key in keys], width=d, final=final)


def pooled(fields: Fields, d: int, *, own: bool) -> LatentAttention:
    """Latent attention whose indexer keeps an entry for ``index_kpool`` positions."""
    pick = replace(indexer(fields, d), pool=fields.integer("index_kpool")) if own else None
    return latent(fields, d, pick, fields.integer("index_topk"))


READERS: dict[str, Callable[[Fields], Architecture]] = {
    "axk2": axk2,
    "hy_v4": hy_v4,
    "hy_v4_vl_text": hy_v4,
    "dots3_note_text": dots3,
    "mistral_large4_text": mistral_large4,
    "glm5_next_text": glm5_next,
}


def read(fields: Fields) -> Architecture:
    """A family by its model_type."""
    return READERS[fields.model_type](fields)
