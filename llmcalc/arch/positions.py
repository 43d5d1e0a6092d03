"""How positions enter a layer. None of these stores a weight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llmcalc.arch.base import Spec, Weight


@dataclass(frozen=True, slots=True)
class Rope(Spec):
    """Rotary positions (arXiv:2104.09864). ``width``: rotated channels; ``scaling``: the config's own keys.

    interleaved: neighbours make a pair (GPT-J), not the two halves of the head. context: the positions it is made for.
    backwards: turned the other way (nanochat).
    """

    theta: float
    width: int
    scaling: tuple[tuple[str, object], ...] = ()
    interleaved: bool = False
    context: int | None = None
    backwards: bool = False

    def describe(self) -> str:
        text = f"rotary positions, base {self.theta:,.0f}, {self.width} channels"
        scaling = dict(self.scaling)
        form = scaling.get("rope_type") or scaling.get("type")
        if not form or form == "default":
            return text
        factor = scaling.get("factor")
        return f"{text}, {form}" + (f" x {factor:g}" if isinstance(factor, (int, float)) else "")


@dataclass(frozen=True, slots=True)
class Alibi(Spec):
    """Linear biases on the scores, a slope per head, nothing stored (arXiv:2108.12409).

    scaled: the bias is added before the scores are scaled (Falcon). max_bias: MPT's ``alibi_bias_max``.
    """

    scaled: bool = False
    max_bias: float = 8.0

    def describe(self) -> str:
        return "ALiBi positions"


@dataclass(frozen=True, slots=True)
class Sinusoidal(Spec):
    """Fixed sines and cosines; ``rows`` x ``width`` only where a class makes them a parameter.

    For the forward pass alone: offset: added to a position; inclusive: the slowest pair turns by exactly 1/10,000
    (tensor2tensor's, XGLM), not by the step before it.
    """

    rows: int = 0
    width: int = 0
    offset: int = 0
    inclusive: bool = False

    def weights(self) -> Iterator[Weight]:
        if self.rows:
            yield Weight("weight", (self.rows, self.width), "embedding")

    def describe(self) -> str:
        return "sinusoidal positions"


@dataclass(frozen=True, slots=True)
class RelativeBias(Spec):
    """T5's bucketed bias on the scores (arXiv:1910.10683); its table, buckets x heads, stands beside the layers."""

    buckets: int
    heads: int
    max_distance: int

    def describe(self) -> str:
        return f"relative bias in {self.buckets} buckets"


@dataclass(frozen=True, slots=True)
class Disentangled(Spec):
    """DeBERTa's attention to relative distances, ``span`` in either direction (arXiv:2006.03654)."""

    span: int

    def describe(self) -> str:
        return f"relative distances up to {self.span}, attended to"


Positions = Rope | Alibi | Sinusoidal | RelativeBias | Disentangled
