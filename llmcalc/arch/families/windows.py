"""Which layers slide: one rule a family, by name. A file's own ``layer_types`` wins over every rule."""

from __future__ import annotations

from collections.abc import Callable

from llmcalc.arch.base import FULL, Scope
from llmcalc.arch.families.build import CHUNKED, SLIDING, every_nth_full, layer_types
from llmcalc.arch.fields import Fields
from llmcalc.errors import InvalidInputError


def layer_scopes(fields: Fields, rule: str, layers: int) -> list[Scope]:
    """A scope for each of ``layers`` layers by the family's rule."""
    return RULES[rule](fields, layers)


def none(_fields: Fields, layers: int) -> list[Scope]:
    """Every layer is full."""
    return [FULL] * layers


def every(fields: Fields, layers: int) -> list[Scope]:
    """Every layer slides where there is a window at all (Mistral, Phi-3, Mixtral)."""
    window = fields.optional("sliding_window")
    return [Scope("sliding", window) if window else FULL] * layers


def typed(fields: Fields, layers: int) -> list[Scope]:
    """As ``layer_types`` says; full where it says nothing."""
    types = layer_types(fields, layers)
    return none(fields, layers) if types is None else by_type(fields, types)


def by_type(fields: Fields, types: list[str]) -> list[Scope]:
    """A scope for each entry of a list of layer kinds."""
    window = fields.optional("sliding_window", low=0)
    chunk = fields.optional("attention_chunk_size")
    if window is None and any(kind in SLIDING for kind in types):
        raise InvalidInputError(
            f"{fields.where}: {fields.label('layer_types')} has sliding layers and sliding_window is null or missing",
            "give it with --set sliding_window=N",
        )
    out = []
    for kind in types:
        if kind in SLIDING and window:
            out.append(Scope("sliding", window))
        elif kind in CHUNKED and chunk:
            out.append(Scope("chunked", chunk))
        else:
            out.append(FULL)
    return out


def _with_types(fields: Fields, layers: int, full: list[bool]) -> list[Scope]:
    types = layer_types(fields, layers)
    if types is not None:
        return by_type(fields, types)
    window = fields.optional("sliding_window")
    return [FULL if is_full or not window else Scope("sliding", window) for is_full in full]


def upper(fields: Fields, layers: int) -> list[Scope]:
    """Qwen: nothing slides unless ``use_sliding_window``; then the layers from ``max_window_layers`` up."""
    types = layer_types(fields, layers)
    if types is not None:
        fields.ignore("use_sliding_window", "max_window_layers")
        return by_type(fields, types)
    window, start = fields.optional("sliding_window", low=0), fields.optional("max_window_layers", low=0)
    if not fields.flag("use_sliding_window") or not window:
        return none(fields, layers)
    first = layers if start is None else start
    return [Scope("sliding", window) if index >= first else FULL for index in range(layers)]


def used(fields: Fields, layers: int) -> list[Scope]:
    """Qwen3-MoE: with ``use_sliding_window`` every layer slides."""
    return _switched(fields, layers, [False] * layers)


def lower(fields: Fields, layers: int) -> list[Scope]:
    """Qwen2-MoE: with ``use_sliding_window``, the even layers below ``max_window_layers``."""
    end = fields.optional("max_window_layers", low=0)
    end = layers if end is None else end
    return _switched(fields, layers, [index % 2 == 1 or index >= end for index in range(layers)])


def _switched(fields: Fields, layers: int, full: list[bool]) -> list[Scope]:
    """A rule that ``use_sliding_window`` switches on."""
    if layer_types(fields, layers) is None and not fields.flag("use_sliding_window"):
        fields.ignore("sliding_window", "max_window_layers")
        return none(fields, layers)
    fields.ignore("use_sliding_window", "max_window_layers")
    return _with_types(fields, layers, full)


def listed(fields: Fields, layers: int) -> list[Scope]:
    """As ``layer_types`` says; every layer slides where it says nothing and there is a window (Ministral)."""
    return _with_types(fields, layers, [False] * layers)


def alternate(fields: Fields, layers: int) -> list[Scope]:
    """Even layers slide, odd ones are full (Gemma-2)."""
    return _with_types(fields, layers, every_nth_full(layers, 2))


def gemma3(fields: Fields, layers: int) -> list[Scope]:
    """One in ``sliding_window_pattern`` is full, the last of each group; six by default."""
    period = fields.integer("sliding_window_pattern", "_sliding_window_pattern", null=6)
    return _with_types(fields, layers, every_nth_full(layers, period))


def period4(fields: Fields, layers: int) -> list[Scope]:
    """One in four is full, the last of each group (OLMo-3, Cohere2)."""
    period = fields.integer("sliding_window_pattern", "_sliding_window_pattern", null=4)
    return _with_types(fields, layers, every_nth_full(layers, period))


def exaone4(fields: Fields, layers: int) -> list[Scope]:
    """A pattern as a number or as letters (L sliding, G full), repeated; no window means every layer is full."""
    pattern = fields.raw("sliding_window_pattern")
    if isinstance(pattern, str) and pattern:
        full = [pattern[index % len(pattern)] == "G" for index in range(layers)]
    else:
        full = every_nth_full(layers, fields.integer("sliding_window_pattern", null=4))
    if fields.optional("sliding_window") is None:
        return none(fields, layers)
    return _with_types(fields, layers, full)


def smollm3(fields: Fields, layers: int) -> list[Scope]:
    """With ``use_sliding_window``, the layers without rotary positions slide (every ``no_rope_layer_interval``-th)."""
    types = layer_types(fields, layers)
    window, slides = fields.optional("sliding_window"), fields.flag("use_sliding_window")
    marks = fields.integers("no_rope_layers")
    every_nth = fields.integer("no_rope_layer_interval", null=4)
    if types is not None:
        return by_type(fields, types)
    rotary = [bool(mark) for mark in marks] if marks else [(i + 1) % every_nth != 0 for i in range(layers)]
    if not slides or window is None:
        return none(fields, layers)
    if len(rotary) < layers:
        raise fields.wrong("no_rope_layers", f"{len(rotary)} entries", f"one for each of {layers} layers")
    return [FULL if has_rope else Scope("sliding", window) for has_rope in rotary[:layers]]


SLIDING_TURN = ("cohere2", "exaone4", "exaone_moe", "afmoe")


def turned(fields: Fields, found: list[Scope]) -> list[tuple[Scope, bool]]:
    """Each layer's scope, and whether it is rotary: not the full ones of hybrids, nor SmolLM3's marked ones."""
    if fields.model_type == "smollm3":
        marks = fields.integers("no_rope_layers")
        nth = fields.integer("no_rope_layer_interval", null=4)
        rotary = [bool(mark) for mark in marks] if marks else [(index + 1) % nth != 0 for index in range(len(found))]
        if len(rotary) < len(found):
            raise fields.wrong("no_rope_layers", f"{len(rotary)} entries", f"one for each of {len(found)} layers")
        return list(zip(found, rotary, strict=False))
    hybrid = fields.model_type in SLIDING_TURN and any(scope.kind == "sliding" for scope in found)
    return [(scope, not hybrid or scope.kind == "sliding") for scope in found]


def nth_global(fields: Fields, layers: int) -> list[Scope]:
    """One in ``global_attn_every_n_layers`` is full, the last of each group (AFMoE)."""
    return _with_types(fields, layers, every_nth_full(layers, fields.integer("global_attn_every_n_layers", null=4)))


def first4(fields: Fields, layers: int) -> list[Scope]:
    """One in four is full, the first of each group (CWM, Granite's sliding classes)."""
    return _with_types(fields, layers, every_nth_full(layers, 4, last=False))


def period5(fields: Fields, layers: int) -> list[Scope]:
    """One in five is full, the last of each group (Kolibri)."""
    return _with_types(fields, layers, every_nth_full(layers, 5))


def period6_end(fields: Fields, layers: int) -> list[Scope]:
    """One in six is full, the last of each group, and so is the last layer (Beam)."""
    return _with_types(fields, layers, every_nth_full(layers, 6, last_full=True))


def from_end(fields: Fields, layers: int) -> list[Scope]:
    """One in four is full, counted back from the last layer (Muse)."""
    return _with_types(fields, layers, [(layers - 1 - index) % 4 == 0 for index in range(layers)])


def flint(fields: Fields, layers: int) -> list[Scope]:
    """The first two layers, every fourth from the second on and the last are full (Flint)."""
    full = [index < 2 or index % 4 == 1 or index == layers - 1 for index in range(layers)]
    return _with_types(fields, layers, full)


def third(fields: Fields, layers: int) -> list[Scope]:
    """One in ``global_attn_every_n_layers`` is full, the first of each group (ModernBERT); its window is half."""
    period = fields.integer("global_attn_every_n_layers", null=3)
    fields.ignore("sliding_window")
    types = layer_types(fields, layers)
    full = [index % period == 0 for index in range(layers)] if types is None else [t not in SLIDING for t in types]
    window = fields.integer("local_attention") // 2
    return [FULL if is_full or not window else Scope("sliding", window) for is_full in full]


def gpt_neo(fields: Fields, layers: int) -> list[Scope]:
    """``attention_layers``, or ``attention_types`` as [[kinds], repeats] pairs; local layers see a window."""
    kinds = fields.strings("attention_layers")
    fields.ignore("attention_types")
    if kinds is None:
        kinds = []
        for entry in fields.sequence("attention_types") or []:
            if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], list)):
                raise fields.wrong("attention_types", entry, "[[kinds], repeats]")
            kinds += [str(kind) for kind in entry[0]] * fields.as_integer("attention_types", entry[1])
    if len(kinds) != layers:
        raise fields.wrong("attention_types", f"{len(kinds)} layers", f"{layers} layers")
    window = fields.integer("window_size", null=256)
    return [Scope("sliding", window) if kind == "local" else FULL for kind in kinds]


RULES: dict[str, Callable[[Fields, int], list[Scope]]] = {
    "none": none,
    "every": every,
    "typed": typed,
    "upper": upper,
    "used": used,
    "lower": lower,
    "listed": listed,
    "alternate": alternate,
    "gemma3": gemma3,
    "period4": period4,
    "exaone4": exaone4,
    "gpt_neo": gpt_neo,
    "nth_global": nth_global,
    "smollm3": smollm3,
    "first4": first4,
    "period5": period5,
    "period6_end": period6_end,
    "from_end": from_end,
    "flint": flint,
    "third": third,
}
