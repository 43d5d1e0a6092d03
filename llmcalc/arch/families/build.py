"""Pieces that family readers share: positions, norms, windows, and the frame of embedding, layers and head."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from llmcalc.arch.base import FULL, Norm, Scope, Spec
from llmcalc.arch.embedding import Embedding, Head
from llmcalc.arch.families import forward
from llmcalc.arch.families.heads import behind
from llmcalc.arch.fields import LARGEST, Fields
from llmcalc.arch.model import Architecture, Call, Layer, Named, Stack, Sublayer
from llmcalc.arch.positions import Rope
from llmcalc.errors import InvalidInputError

NO_DTYPE = "the config names no dtype; 16-bit (bf16) is taken"
DTYPES = {
    "float32": "fp32", "float": "fp32", "fp32": "fp32", "float16": "fp16", "half": "fp16", "fp16": "fp16",
    "bfloat16": "bf16", "bf16": "bf16",
}  # fmt: skip


def rms(size: int, fields: Fields | None = None, *, offset: bool = False) -> Norm:
    """An RMSNorm with the config's epsilon."""
    return Norm(size, "rms", offset=offset, eps=_eps(fields))


def layer_norm(size: int, fields: Fields | None = None, *, bias: bool = True) -> Norm:
    """A LayerNorm with the config's epsilon."""
    return Norm(size, "layer", bias=bias, eps=_eps(fields))


def _eps(fields: Fields | None) -> float | None:
    if fields is None:
        return None
    for name in ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon"):
        value = fields.raw(name)
        if isinstance(value, float):
            return value
    return forward.CLASS_EPS.get(fields.model_type)


def divide(fields: Fields, whole: int, parts: int, what: str) -> int:
    """``whole / parts``, an error naming both fields where it does not divide."""
    if whole % parts:
        raise InvalidInputError(f"{fields.where}: {what}: {whole:,} is not a multiple of {parts:,}")
    return whole // parts


ROUNDED = ("glm4_moe", "glm4v_moe_text", "qwen3_omni_moe_text")  # their own default sizes do not divide


def head_width(fields: Fields, hidden_size: int, heads: int) -> int:
    """``head_dim`` as given or as the class has it, else the width divided by the heads."""
    width = fields.optional("head_dim")
    if width is not None:
        return width
    if fields.model_type in ROUNDED and hidden_size % heads:
        fields.notes.warn(f"{fields.label('head_dim')} is not given: hidden_size / num_attention_heads is rounded down")
        return max(1, hidden_size // heads)
    return divide(fields, hidden_size, heads, "hidden_size / num_attention_heads (head_dim is not given)")


def key_value_heads(fields: Fields, heads: int) -> int:
    """``num_key_value_heads``, null or absent meaning one a query head; it must divide the query heads."""
    kv = fields.integer("num_key_value_heads", null=heads)
    if heads % kv:
        raise InvalidInputError(
            f"{fields.where}: {fields.label('num_key_value_heads')} is {kv}, which does not divide "
            f"num_attention_heads = {heads}"
        )
    return kv


def rope(fields: Fields, head_dim: int, kind: str = "", theta: float | None = None) -> Rope:
    """Rotary positions from ``rope_parameters`` (also per layer kind), or the older separate keys."""
    block = fields.mapping("rope_parameters") or fields.mapping("rope_scaling")
    inner = block.get(kind)
    if isinstance(inner, dict):
        block = inner
    local = forward.maybe(fields, "rope_local_base_freq", "local_rope_theta") if kind == "sliding_attention" else None
    if local is not None and not isinstance(inner, dict):
        block, theta = {}, theta or local
    base = theta or block.get("rope_theta") or fields.raw("rope_theta", "rotary_emb_base") or 10_000.0
    part = block.get("partial_rotary_factor") or fields.raw("partial_rotary_factor", "rotary_pct", "rope_pct") or 1.0
    base, part = finite(fields, "rope_theta", base), finite(fields, "partial_rotary_factor", part)
    lists = {key: value for key, value in block.items() if isinstance(value, list)}  # no scaling has lists in lists
    listed = {k: tuple(values) for k, values in lists.items() if not any(isinstance(v, (list, dict)) for v in values)}
    plain = {key: value for key, value in block.items() if isinstance(value, (str, int, float, bool))} | listed
    for key, value in plain.items():
        if isinstance(value, float):
            finite(fields, f"rope_parameters.{key}", value)
    original = forward.quiet(fields, "original_max_position_embeddings")
    if plain and isinstance(original, int):
        plain.setdefault("original_max_position_embeddings", original)
    kept = [key for key in sorted(plain) if key not in ("rope_theta", "partial_rotary_factor")]
    context = forward.whole(fields, "max_position_embeddings", null=0)
    width = forward.whole(fields, "rotary_dim", null=int(head_dim * part))
    scaling = tuple((key, plain[key]) for key in kept)
    backwards = fields.model_type == "nanochat"
    return Rope(base, width, scaling, forward.interleaved(fields), context or None, backwards)


def finite(fields: Fields, name: str, value: object) -> float:
    """A finite number of reasonable size.

    Raises: InvalidInputError.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < LARGEST:
        raise fields.wrong(name, value, "a finite number")
    return float(value)


# -- which layers see what --------------------------------------------------------------------------------------

SLIDING = ("sliding_attention", "sliding", "hybrid_sliding", "local", "local_attention")
CHUNKED = ("chunked_attention",)
# What transformers 5 allows, the names it renames on loading, and those of remote code.
LAYER_KINDS = (
    "full_attention", *SLIDING, *CHUNKED, "linear_attention", "conv", "mamba", "mamba2", "attention", "global",
    "global_attention", "full", "hybrid", "moe", "mlp", "recurrent", "indexed_attention", "compressed_sparse_attention",
    "heavily_compressed_attention", "minimax_m3_sparse", "reference_sliding_attention", "deepseek_sparse_attention",
    "qwen_sparse_attention", "kda", "mla", "lightning_attention", "shared_attention", "swa", "gdn", "dense", "sparse",
)  # fmt: skip


def layer_types(fields: Fields, layers: int, *more: str) -> list[str] | None:
    """The file's own list of layer kinds, one a layer; None where it gives none."""
    types = fields.strings("layer_types", *more)
    if types is None:
        return None
    if len(types) < layers:
        raise fields.wrong("layer_types", f"a list of {len(types)}", f"one entry for each of {layers} layers")
    for kind in dict.fromkeys(types):
        if kind not in LAYER_KINDS:
            raise fields.wrong("layer_types", kind, f"layer kinds such as {', '.join(LAYER_KINDS[:3])}")
    return types[:layers]


def every_nth_full(layers: int, period: int, *, last: bool = True, last_full: bool = False) -> list[bool]:
    """Which layers are full where one in ``period`` is: the last of each group, or the first."""
    full = [(index + 1) % period == 0 if last else index % period == 0 for index in range(layers)]
    if last_full and full:
        full[-1] = True
    return full


def scopes(
    fields: Fields, full: Sequence[bool], window: int | None, kind: Literal["sliding", "chunked"] = "sliding"
) -> list[Scope]:
    """A scope per layer: full where told so or where there is no window."""
    narrow = Scope(kind, window) if window else FULL
    return [FULL if is_full else narrow for is_full in full]


# -- the frame ---------------------------------------------------------------------------------------------------


def embed(fields: Fields, width: int, name: str = "model.embed_tokens", rows: int | None = None) -> Named:
    """The token table."""
    return Named(name, Embedding(rows or fields.integer("vocab_size"), width))


def table(name: str, rows: int, width: int, offset: int = 0) -> Named:
    """A learned table that is not of tokens (positions, types); ``offset``: the row of position 0."""
    return Named(name, Embedding(rows, width, tokens=False, offset=offset))


def dtype_of(*blocks: Fields | None) -> str:
    """The model's number format: the first block that names one; bf16 as an assumption where none does."""
    for block in blocks:
        if block is None:
            continue
        for key in ("dtype", "torch_dtype"):
            value = block.explicit(key)
            if isinstance(value, str):
                name = DTYPES.get(value.removeprefix("torch."))
                if name:
                    return name
                block.notes.warn(f"{block.label(key)} is {value!r}, not a 16 or 32-bit float; bf16 is taken")
                return "bf16"
    top = blocks[0]
    if top is not None:
        top.notes.dtype_assumed = True
        top.notes.assume(NO_DTYPE)
    return "bf16"


def tied(fields: Fields) -> bool:
    """``tie_word_embeddings`` as given, else as the class implies."""
    return fields.flag("tie_word_embeddings")


def positions_text(layers: Iterable[Layer], stem: Iterable[Named]) -> str:
    """How positions enter, in words, from the specs themselves."""
    found = [
        f"{named.spec.rows:,} learned positions"
        for named in stem
        if isinstance(named.spec, Embedding) and not named.spec.tokens and "position" in named.name
    ]
    for layer in layers:
        for mixer in layer.mixers:
            spec = getattr(mixer, "positions", None)
            if isinstance(spec, Spec) and spec.describe() not in found:
                found.append(spec.describe())
    return "; ".join(found[:3]) or "no positions"


def decoder(
    fields: Fields,
    layers: Sequence[Layer],
    *,
    width: int,
    final: Norm | None,
    prefix: str = "model.layers",
    embedding: Named | None = None,
    stem: Sequence[Named] = (),
    tail: Sequence[Named] = (),
    final_name: str = "model.norm",
    head_bias: bool = False,
    head_rows: int | None = None,
    head_width: int | None = None,
    tie: bool | None = None,
    schedule: Sequence[Call] = (),
    towers: Sequence[Stack] = (),
    mtp: Sequence[Stack] = (),
    encoder: Stack | None = None,
    max_positions: int | None = None,
) -> Architecture:
    """A decoder-only model: token table, layers, final norm, head, tied or not."""
    tokens = embedding or embed(fields, width)
    vocab = tokens.spec.rows if isinstance(tokens.spec, Embedding) else 0
    if isinstance(tokens.spec, Embedding):
        tokens = Named(tokens.name, replace(tokens.spec, scale=forward.embedding_scale(fields, width)))
    layers = forward.scaled_layers(fields, list(layers))
    first = (tokens, *stem)
    last = (*((Named(final_name, final),) if final is not None else ()), *tail)
    scale, cap = forward.head_scale(fields, width), forward.final_softcap(fields)
    end = behind(fields, Head(head_rows or vocab, head_width or width, head_bias, scale, cap))
    tie = end.writes and (tied(fields) if tie is None else tie)
    stack = Stack("decoder", prefix, tuple(layers), first, (*last, *end.parts), tuple(schedule))
    return Architecture(
        model_type=fields.model_type,
        decoder=stack,
        decoder_type=fields.model_type,
        encoder=encoder,
        towers=tuple(towers),
        mtp=tuple(mtp),
        ties=(("lm_head.weight", f"{tokens.name}.weight"),) if tie else (),
        hidden_size=width,
        vocab_size=vocab,
        max_position_embeddings=max_positions or fields.optional("max_position_embeddings"),
        tie_word_embeddings=tie,
        positions=positions_text(layers, first),
        dtype=dtype_of(fields),
        uncounted=end.uncounted,
    )


def block(
    mixer: Spec | None,
    ffn: Spec | None,
    norm: Norm | None,
    *,
    mixer_name: str = "self_attn",
    ffn_name: str = "mlp",
    style: Literal["pre", "sandwich", "post", "outer", "parallel", "none"] = "pre",
    parallel_norms: int = 1,
    residual: Sequence[Named] = (),
    names: tuple[str, str, str, str] = ("", "", "", ""),
) -> Layer:
    """A block of mixer and feed-forward.

    style: ``pre`` a norm before each; ``post`` after each, before the sum (OLMo-2); ``sandwich`` both (Gemma-2);
    ``outer`` after the sum (BERT); ``parallel`` both read the same normed input (GPT-J), with one norm or two.
    """
    defaults = {
        "pre": ("input_layernorm", "", "post_attention_layernorm", ""),
        "outer": ("", "", "", ""),
        "post": ("", "post_attention_layernorm", "", "post_feedforward_layernorm"),
        "sandwich": ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                     "post_feedforward_layernorm"),
        "parallel": ("input_layernorm", "", "post_attention_layernorm" if parallel_norms == 2 else "", ""),
        "none": ("", "", "", ""),
    }[style]  # fmt: skip
    chosen = [given or default for given, default in zip(names, defaults, strict=True)]

    def named(name: str) -> Named | None:
        return Named(name, norm) if name and norm is not None else None

    before, after, before_ffn, after_ffn = (named(name) for name in chosen)
    outer = [named(name) if style == "outer" else None for name in ("attention_norm", "output_norm")]
    sublayers: list[Sublayer] = []
    if mixer is not None:
        sublayers.append(Sublayer(mixer_name, mixer, before, after, outer[0]))
    if ffn is not None:
        sublayers.append(Sublayer(ffn_name, ffn, before_ffn if mixer is not None else before, after_ffn, outer[1]))
    return Layer(tuple(sublayers), tuple(residual), style == "parallel")
