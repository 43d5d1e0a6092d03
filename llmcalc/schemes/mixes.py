"""llama.cpp's mixes: which tensor is stored in which block type.

A mix is data: its base type, and for some tensors a list of (condition, type), the first that holds decides.
Conditions are of the counter i of the tensor among n of its kind, of g = query heads / key-value heads in the first
layer, and of E experts. Source: llama.cpp ``src/llama-quant.cpp`` (llama_tensor_get_type_impl), November 2026.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

Choice = tuple[tuple[str, str], ...]


class Where(NamedTuple):
    """What conditions speak of."""

    i: int
    n: int
    groups: int
    experts: int


CONDITIONS: Final[dict[str, Callable[[Where], bool]]] = {
    "always": lambda _: True,
    "more": lambda w: w.i < w.n // 8 or w.i >= 7 * w.n // 8 or (w.i - w.n // 8) % 3 == 2,
    "i<2": lambda w: w.i < 2,
    "i<4": lambda w: w.i < 4,
    "i<n/8": lambda w: w.i < w.n // 8,
    "i<n/16": lambda w: w.i < w.n // 16,
    "middle": lambda w: w.n // 8 <= w.i < 7 * w.n // 8,
    "g>=4": lambda w: w.groups >= 4,
    "g>=4 or E>=4": lambda w: w.groups >= 4 or w.experts >= 4,
    "E==8 and more": lambda w: w.experts == 8 and CONDITIONS["more"](w),
}


class Mix(NamedTuple):
    """A mix. ``imatrix``: made with an importance matrix, which its low-bit types require.

    Tensors: ``output`` (or a tied token table), ``embedding`` (untied), ``value`` (and fused qkv), ``down``,
    ``attention_output``, ``query``, ``key``, ``gate_up``, ``experts`` (3-D).
    """

    name: str
    base: str
    output: str = "q6_k"
    embedding: str = ""
    value: Choice = ()
    down: Choice = ()
    attention_output: str = ""
    query: str = ""
    key: str = ""
    gate_up: Choice = ()
    experts: str = ""
    imatrix: bool = False
    eight_output: bool = False


def _always(name: str) -> Choice:
    return (("always", name),)


_V4 = (("g>=4", "q4_k"),)
_LOW_V = {
    "q2_k": (("g>=4 or E>=4", "q4_k"), ("always", "q2_k")),
    "iq3_s": (("g>=4 or E>=4", "q4_k"), ("always", "iq3_s")),
}
_FIRST_DOWN = {name: (("i<n/8", name),) for name in ("q2_k", "iq3_s", "q4_k", "q5_k")}


def _low(name: str, base: str, table: str, first: str, attention_output: str = "") -> Mix:
    """The one and two-bit mixes."""
    return Mix(name, base, "q5_k", table, _LOW_V[first], _FIRST_DOWN[first], attention_output, imatrix=True)


_MIXES: Final = (
    *(Mix(name, name) for name in ("q4_0", "q4_1", "q5_0", "q5_1", "q6_k")),
    Mix("q8_0", "q8_0", "q8_0"),
    Mix("q1_0", "q1_0"),
    Mix("q2_0", "q2_0", embedding="q4_k"),
    Mix("tq1_0", "tq1_0", embedding="q4_k"),
    Mix("tq2_0", "tq2_0", embedding="q4_k"),
    Mix("q2_k", "q2_k", value=(("g>=4", "q4_k"), ("always", "q3_k")), down=_always("q3_k"), attention_output="q3_k",
        eight_output=True),
    Mix("q2_k_s", "q2_k", value=_V4, down=_FIRST_DOWN["q4_k"], imatrix=True),
    Mix("q3_k_s", "q3_k", eight_output=True),
    Mix("q3_k_m", "q3_k", value=(("i<2", "q5_k"), ("always", "q4_k")), down=(("i<n/16", "q5_k"), ("always", "q4_k")),
        attention_output="q4_k", eight_output=True),
    Mix("q3_k_l", "q3_k", value=_always("q5_k"), down=_always("q5_k"), attention_output="q5_k"),
    Mix("q4_k_s", "q4_k", value=(("i<4", "q5_k"),), down=_FIRST_DOWN["q5_k"], eight_output=True),
    Mix("q4_k_m", "q4_k", value=(("more", "q6_k"),), down=(("more", "q6_k"),), eight_output=True),
    Mix("q5_k_s", "q5_k"),
    Mix("q5_k_m", "q5_k", value=(("more", "q6_k"),), down=(("more", "q6_k"),)),
    Mix("iq4_nl", "iq4_nl", value=(("g>=4", "q5_k"),), down=_FIRST_DOWN["q5_k"], eight_output=True),
    Mix("iq4_xs", "iq4_xs", value=(("g>=4", "q5_k"),), down=_FIRST_DOWN["q5_k"], eight_output=True),
    Mix("iq3_m", "iq3_s", value=_always("q4_k"), down=(("i<n/8", "q4_k"), ("E==8 and more", "q4_k")),
        attention_output="q4_k", eight_output=True),
    Mix("iq3_s", "iq3_s", value=_V4, eight_output=True),
    Mix("iq3_xs", "iq3_s", value=_V4, query="iq3_xxs", key="iq3_xxs", gate_up=(("middle", "iq3_xxs"),), imatrix=True,
        eight_output=True),
    Mix("iq3_xxs", "iq3_xxs", "q5_k", "iq3_s", (("g>=4", "q4_k"),), query="iq2_s", key="iq2_s",
        attention_output="iq3_s", imatrix=True, eight_output=True),
    _low("iq2_m", "iq2_s", "iq3_s", "iq3_s", "iq3_s"),
    _low("iq2_s", "iq2_xs", "iq3_s", "iq3_s", "iq3_s"),
    _low("iq2_xs", "iq2_xs", "q2_k", "q2_k"),
    _low("iq2_xxs", "iq2_xxs", "q2_k", "q2_k"),
    _low("iq1_m", "iq1_m", "q2_k", "q2_k", "iq2_xxs"),
    _low("iq1_s", "iq1_s", "q2_k", "q2_k", "iq2_xxs"),
    Mix("mxfp4_moe", "q8_0", "q8_0", experts="mxfp4"),
)  # fmt: skip
MIXES: Final[dict[str, Mix]] = {mix.name: mix for mix in _MIXES}
# With eight experts: the low mixes keep their rule for values and take q4_k for keys, q5_k for the output projection.
LOW: Final = ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m")

# Falcon has rules of its own for three kinds of tensors.
FALCON_DOWN: Final[dict[str, Choice]] = {
    "q3_k_m": (("i<n/16", "q5_k"), ("more", "q4_k"), ("always", "q3_k")),
    "q3_k_l": _always("q4_k"),
    "q4_k_m": (("i<n/16", "q6_k"), ("more", "q5_k"), ("always", "q4_k")),
    "q4_k_s": (),
}
FALCON_OUTPUT: Final = {"q3_k_l": "q4_k"}


def choose(choice: Choice, where: Where) -> str:
    """The type of the first condition that holds; empty where none does."""
    return next((name for condition, name in choice if CONDITIONS[condition](where)), "")
