"""Remote code that engines know: Nemotron-NAS, DeciLM, Grok-1, Step-1, Step-3, PLaMo-3, Rnj-1, LongCat's n-grams.

Their layouts are read off vLLM's model files; no class of the library stands beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import FULL, Scope, Spec
from llmcalc.arch.embedding import Projection
from llmcalc.arch.factored import FactoredAttention
from llmcalc.arch.families import dense, longcat, moe
from llmcalc.arch.families.build import block, decoder, divide, head_width, rms, rope, table
from llmcalc.arch.families.layouts import GEMMA, LLAMA, Layout
from llmcalc.arch.families.moe import Experts, experts
from llmcalc.arch.families.varied import step_sparse
from llmcalc.arch.ffn import FeedForward
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Layer, Named
from llmcalc.errors import InvalidInputError, UnsupportedLayerError

TIED = True  # what transformers 4 took where a file said nothing


# -- Nemotron-NAS, DeciLM ------------------------------------------------------------------------------------------


def deci(fields: Fields) -> Architecture:
    """Llama's layout with heads and widths a layer; either half of a block may be missing."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    h = fields.integer("num_attention_heads")
    width = head_width(fields, d, h)
    made: dict[tuple[int, int], Layer] = {}
    layers = []
    for key in deci_sizes(fields, d, h, count):
        if key not in made:
            made[key] = deci_layer(fields, d, h, width, *key)
        layers.append(made[key])
    fields.ignore("num_key_value_heads", "intermediate_size", "block_configs", "num_key_value_heads_per_layer")
    return decoder(fields, layers, width=d, final=rms(d, fields), tie=fields.flag("tie_word_embeddings"))


def deci_layer(fields: Fields, d: int, h: int, width: int, kv: int, f: int) -> Layer:
    """A block; 0 heads or a width of 0 stand for a half that is missing."""
    norm, bias = rms(d, fields), fields.flag("attention_bias")
    mixer = Attention(
        d, h, kv, width, width, FULL, bias, bias, bias, bias, positions=rope(fields, width)
    ) if kv else None  # fmt: skip
    ffn = FeedForward(d, f, True, fields.text("hidden_act", null="silu"), fields.flag("mlp_bias")) if f else None
    names = ("input_layernorm", "", "post_attention_layernorm", "")
    if mixer is None:
        names = ("post_attention_layernorm", "", "", "")
    return block(mixer, ffn, norm, names=names)


def deci_sizes(fields: Fields, d: int, h: int, count: int) -> list[tuple[int, int]]:
    """Key/value heads and feed-forward width of each layer, 0 where that half is missing."""
    blocks = fields.sequence("block_configs")
    if blocks is None:
        heads = fields.per_layer("num_key_value_heads_per_layer", count, low=1)
        width = fields.integer("intermediate_size")
        return [(checked(fields, h, kv), width) for kv in heads]
    if len(blocks) < count:
        raise fields.wrong("block_configs", f"{len(blocks)} entries", f"one for each of {count} layers")
    return [deci_block(fields, index, blocks[index], d, h) for index in range(count)]


def deci_block(fields: Fields, index: int, value: object, d: int, h: int) -> tuple[int, int]:
    """The sizes of one entry of ``block_configs``."""
    where = f"block_configs.{index}"
    if not isinstance(value, dict):
        raise fields.wrong(where, value, "an object")
    attention, ffn = (half_of(fields, value.get(name), f"{where}.{name}") for name in ("attention", "ffn"))
    for half in (attention, ffn):
        dense.refuse(half, ("replace_with_linear", "sparsify"))
    if attention.has("window_length"):
        raise UnsupportedLayerError(
            f"{fields.where}: {where}.attention.window_length: windows with sinks are not described"
        )
    kv = 0
    if not attention.flag("no_op"):
        given = attention.optional("num_key_value_heads")
        kv = given or divide(fields, h, attention.integer("n_heads_in_group"), "num_attention_heads / n_heads_in_group")
    if ffn.flag("no_op"):
        return checked(fields, h, kv), 0
    given = ffn.optional("intermediate_size")
    return checked(fields, h, kv), given or deci_width(fields, ffn.number("ffn_mult"), d)


def half_of(fields: Fields, value: object, where: str) -> Fields:
    """Fields over one half of a block; nothing given is an empty one."""
    return fields.block(value if isinstance(value, dict) else {}, where, "")


def deci_width(fields: Fields, factor: float, d: int) -> int:
    """Two thirds of the factor times the width, rounded up to 256."""
    if not 0 < factor < 1024:
        raise fields.wrong("ffn_mult", factor, "a positive factor")
    return -(-int(2 * factor * d / 3) // 256) * 256


def checked(fields: Fields, h: int, kv: int) -> int:
    """The key/value heads, an error where they do not divide the query heads."""
    if kv and h % kv:
        raise InvalidInputError(f"{fields.where}: {kv} key/value heads do not divide {h} query heads")
    return kv


# -- rows of switches ----------------------------------------------------------------------------------------------


def grok1(fields: Fields) -> Architecture:
    """Grok-1: a norm on either side of both halves, gated experts of GELU, multipliers on embedding and logits."""
    fields.ignore("attn_output_multiplier", "embedding_multiplier_scale", "output_multiplier_scale",
                  "max_attn_value", "widening_factor", "moe_intermediate_size")  # fmt: skip
    built = moe.build(fields, Layout(style="sandwich"), Experts(width="intermediate_size"))
    return retied(fields, built)


def step1(fields: Fields) -> Architecture:
    """Step-1: Llama's layout with ALiBi, its slopes' distances under a root."""
    fields.ignore("use_alibi_sqrt")
    return retied(fields, dense.build(fields, LLAMA._replace(positions="alibi")))


def rnj1(fields: Fields) -> Architecture:
    """Rnj-1: Gemma-3's layout."""
    return retied(fields, dense.build(fields, GEMMA._replace(style="sandwich", qk_norm="head", window="typed")))


def retied(fields: Fields, built: Architecture) -> Architecture:
    """The same model, its head tied where the file says nothing."""
    if fields.raw("tie_word_embeddings") is not None or built.ties:
        return built
    fields.notes.assume("tie_word_embeddings is not given: tied, as transformers 4 took it")
    names = [named.name for named in built.decoder.tail]
    if "lm_head" not in names:
        return built
    source = f"{built.decoder.stem[0].name}.weight"
    return replace(built, ties=(("lm_head.weight", source),), tie_word_embeddings=TIED)


def plamo3(fields: Fields) -> Architecture:
    """PLaMo-3: norms on either side of both halves and on each head; windows as a list, or all but every n-th layer."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    layout = LLAMA._replace(qkv=False, o=False, mlp=False, style="sandwich", qk_norm="head", norm_offset=True)
    norm, ffn = rms(d, fields, offset=True), dense.feed_forward(fields, layout, d)
    spans = plamo3_scopes(fields, count)
    made = {
        scope: block(dense.attention(fields, layout, d, scope), ffn, norm, style="sandwich", mixer_name="mixer")
        for scope in dict.fromkeys(spans)
    }
    fields.ignore("rope_local_theta", "window_size", "layer_types", "sliding_window", "sliding_window_pattern")
    rows = -(-fields.integer("vocab_size") // 16) * 16
    tie = fields.flag("tie_word_embeddings", null=TIED)
    return decoder(fields, [made[scope] for scope in spans], width=d, final=norm, tie=tie, head_rows=rows)


def plamo3_scopes(fields: Fields, count: int) -> list[Scope]:
    """A window a layer, null where it is full; a single one leaves every ``sliding_window_pattern``-th layer full."""
    given = fields.raw("interleaved_sliding_window", "sliding_window")
    if isinstance(given, list):
        if len(given) < count:
            raise fields.wrong("sliding_window", f"{len(given)} entries", f"one for each of {count} layers")
        sizes = [None if item is None else fields.as_integer("sliding_window", item) for item in given[:count]]
        return [Scope("sliding", size) if size else FULL for size in sizes]
    size, period = fields.optional("sliding_window"), fields.optional("sliding_window_pattern")
    if size is None:
        return [FULL] * count
    if period is None:
        raise fields.wrong("sliding_window_pattern", None, "which layers are full")
    return [FULL if (index + 1) % period == 0 else Scope("sliding", size) for index in range(count)]


# -- Step-3 --------------------------------------------------------------------------------------------------------


def step3(fields: Fields) -> Architecture:
    """Step-3: factored attention with one key/value head; experts beside a shared one after the first layers."""
    d, count = fields.integer("hidden_size"), fields.integer("num_hidden_layers")
    width = fields.integer("head_dim", null=256)
    norm = rms(d, fields)
    mixer = FactoredAttention(
        d, fields.integer("num_attention_heads"), 1, width, width, positions=rope(fields, width),
        query_rank=fields.integer("share_q_dim", null=width),
    )  # fmt: skip
    fields.ignore("num_attention_groups", "num_key_value_heads", "norm_expert_weight", "max_position_embedding",
                  "moe_layers_enum", "rope_theta")  # fmt: skip
    sparse = step_sparse(fields, count) if fields.has("moe_layers_enum") else [index >= 1 for index in range(count)]
    shared = Experts(shared="field", shared_field="share_expert_dim")
    ffns: dict[bool, Spec] = {True: experts(fields, shared, d)} if any(sparse) else {}
    if not all(sparse):
        ffns[False] = FeedForward(d, fields.integer("intermediate_size"), activation="silu")
    made = {flag: block(mixer, ffn, norm) for flag, ffn in ffns.items()}
    return decoder(fields, [made[flag] for flag in sparse], width=d, final=norm)


# -- LongCat with n-grams ------------------------------------------------------------------------------------------


def longcat_ngram(fields: Fields) -> Architecture:
    """LongCat-Flash with hashed n-grams beside the token table: a table and a projection for each size and split."""
    built, d = longcat.read(fields), fields.integer("hidden_size")
    splits, longest = fields.integer("emb_split_num"), fields.integer("emb_neighbor_num", low=2)
    count, base = splits * (longest - 1), fields.integer("ngram_vocab_size_ratio") * fields.integer("vocab_size")
    width = divide(fields, d, count, "hidden_size by the n-gram tables")
    stem: list[Named] = list(built.decoder.stem)
    for index in range(count):
        stem.append(table(f"model.ngram_embeddings.embedders.{index}", base + 2 * index + 1, width))
        stem.append(Named(f"model.ngram_embeddings.post_projs.{index}", Projection(d, width)))
    return replace(built, decoder=replace(built.decoder, stem=tuple(stem)))


READERS: dict[str, Callable[[Fields], Architecture]] = {
    "deci": deci,
    "nemotron-nas": deci,
    "grok-1": grok1,
    "step1": step1,
    "rnj1": rnj1,
    "plamo3": plamo3,
    "step3_text": step3,
    "longcat_flash_ngram": longcat_ngram,
}


def read(fields: Fields) -> Architecture:
    """A family by its model_type."""
    return READERS[fields.model_type](fields)
