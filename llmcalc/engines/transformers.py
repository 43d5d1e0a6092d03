"""Hugging Face transformers: grown tensors, no paging; what its classes do differently from the pure count.

Source: transformers 5.24.0, ``cache_utils.py`` and the modeling files named below; measured on the meta device.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import StateDtype
from llmcalc.arch.model import Architecture, Held
from llmcalc.engines.base import Allocation, Array, Lengths, Plan, StageBytes
from llmcalc.engines.ranks import rank_row, stages
from llmcalc.errors import InvalidInputError
from llmcalc.figure import Factor, product, total
from llmcalc.formats import find

SOURCE = "transformers 5.24.0 cache_utils.py and the modeling files"


@dataclass(frozen=True, slots=True)
class Quirk:
    """How a family's cache deviates.

    window: added to a window before the library takes one off. full: windows are kept at full length.
    conv: columns kept beyond kernel - 1. dtypes: arrays stored in another dtype, by name. copies: arrays kept more
    than once, by name, in layers of that kind. heads: keys and values are repeated to every query head.
    unpooled: keys of an indexer are kept for every position, not for every pool: how many times, and what more.
    """

    window: int = 0
    full: bool = False
    conv: int = 1
    dtypes: tuple[tuple[str, StateDtype], ...] = ()
    copies: tuple[tuple[str, str, int], ...] = field(default=())
    repeated_heads: bool = False
    unpooled: tuple[int, int] | None = None


CONVOLVED: tuple[tuple[str, StateDtype], ...] = tuple(
    (f"conv_state_{name}", "fp32") for name in ("k", "v", "attention", "mlp")
)
MODEL_STATE: tuple[tuple[str, StateDtype], ...] = (("recurrent_state", "model"),)
PLAIN = Quirk()
QUIRKS: dict[str, Quirk] = {
    # modeling_falcon.py repeats keys and values before it caches them, in the new architecture only.
    "falcon": Quirk(repeated_heads=True),
    # Their local layers mask, but cache every position.
    "gpt_neo": Quirk(full=True),
    "recurrent_gemma": Quirk(full=True, conv=0),
    # The class counts the query itself in its window, the file does not.
    "mimo_v2_flash": Quirk(window=1),
    "zaya": Quirk(conv=0),
    "minimax": Quirk(dtypes=MODEL_STATE),
    # Its states are made of the dtype of what it computes, whatever inference_state_dtype says.
    "xlstm": Quirk(dtypes=tuple((name, "model") for name in ("matrix_memory", "normaliser", "stabiliser"))),
    # Layers without a compressor keep keys and values as two tensors, though they are equal.
    "deepseek_v4": Quirk(copies=(("keys_values", "sliding_attention", 2),)),
    # Their convolutions run in fp32.
    **dict.fromkeys(("inkling_text", "inkling2_text", "inkling2_loop_text"), Quirk(dtypes=CONVOLVED)),
    # Rotating the index keys makes them fp32.
    "dots3_note_text": Quirk(dtypes=(("index_keys", "fp32"),)),
    # The pools are made anew at every step; GLM keeps the gates and whether the position counts beside the keys.
    "qwen4_exp_text": Quirk(unpooled=(1, 0)),
    "glm5_next_text": Quirk(unpooled=(2, 1)),
}


class TransformersEngine:
    """DynamicCache: sliding and chunked layers keep window - 1 rows, convolutions all kernel columns.

    It stores what the layers compute, so a 16 or 32-bit cache format is the dtype the model runs in.
    """

    name = "transformers"

    def allocate(self, plan: Plan) -> Allocation:
        """The tensors of all sequences, their bytes on each device, and how they come about."""
        if plan.block_size is not None:
            raise InvalidInputError("transformers has no blocks", "leave --block-size out")
        spans = stages(plan.architecture.decoder.depth, plan.pp)
        rows = [(held, *_taken(plan, held)) for held in plan.architecture.states if not held.state.borrowed]
        sizes = [sum(n * size * sum(d in stage for d in held.depths) for held, n, size in rows) for stage in spans]
        fullest = spans[max(range(len(spans)), key=lambda i: sizes[i])]
        parts = tuple(
            product(
                f"{held.kind}: {held.state.name}".replace("_", " "), "B",
                (
                    Factor("layers", sum(depth in fullest for depth in held.depths), "L"),
                    Factor("rows of all sequences", number, _rule(held)),
                    Factor("bytes a row", size, "b"),
                ),
            )
            for held, number, size in rows
        )  # fmt: skip
        notes = ("growing by concatenation holds the old tensors and the new ones at once, for a moment",)
        figure = total("transformers' tensors", "B", parts, SOURCE, notes)
        held = tuple(StageBytes(size) for size in sizes)
        return Allocation(plan.tp * sum(sizes), max(sizes), figure, cache_format=plan.cache.name, stages=held)


def _taken(plan: Plan, held: Held) -> tuple[int, int]:
    """Rows that one call keeps for all sequences, and the bytes of one on a rank."""
    arrays = [(number, array(plan.architecture, held, size)) for size, number in plan.groups]
    _, one = arrays[0]
    if one.dtype == "cache":
        fmt = plan.cache.value if held.state.kind == "value" else plan.cache.key
    else:
        plain = plan.cache.key if plan.cache.key.plain else find(plan.architecture.dtype)
        fmt = plain if one.dtype == "model" else find("fp32")
    row = rank_row(held.state._replace(row=one.row), plan.tp)
    return sum(number * each.rows for number, each in arrays), fmt.array_bytes(row)


def _rule(held: Held) -> str:
    return "min(N, w - 1)" if held.state.scope.kind in ("sliding", "chunked") else "N"


def array(architecture: Architecture, held: Held, lengths: Lengths) -> Array:
    """What one call keeps of one array."""
    quirk = QUIRKS.get(architecture.decoder_type, PLAIN)
    state, row = held.state, held.state.row
    rows = state.scope.rows(lengths.tokens, lengths.source, lengths.images)
    if state.scope.kind in ("sliding", "chunked"):
        rows = lengths.tokens if quirk.full else min(lengths.tokens, state.scope.size + quirk.window - 1)
    if state.kind == "conv":
        row = (*row[:-1], row[-1] + quirk.conv)
    if quirk.unpooled is not None and state.name in ("index_keys", "index_open"):
        rows = lengths.tokens if state.name == "index_keys" else 0
        row = (quirk.unpooled[0] * row[0] + quirk.unpooled[1],)
    spec = held.spec
    if quirk.repeated_heads and isinstance(spec, Attention) and spec.num_key_value_heads > 1:
        row = (spec.num_attention_heads, *row[1:])
    for name, kind, copies in quirk.copies:
        if state.name == name and held.kind == kind:
            row = (copies * row[0], *row[1:])
    return Array(rows, row, dict(quirk.dtypes).get(state.name, state.dtype))
