"""Attention with keys and values per head: MHA, GQA, MQA, with windows, gates, sinks and shared caches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from llmcalc.arch.base import FULL, Scope, Spec, State, Step, Weight, linear
from llmcalc.arch.mixing import Counting, Term, softmax_attention
from llmcalc.arch.positions import Disentangled, Positions
from llmcalc.errors import UnsupportedLayerError

QkNorm = Literal["none", "head", "full", "per_head", "weightless", "keys"]
Gate = Literal["none", "fused", "elementwise", "per_head"]
Cache = Literal["own", "borrowed", "tied", "single", "none"]

SCOPE_NAMES = {
    "full": "full_attention",
    "sliding": "sliding_attention",
    "chunked": "chunked_attention",
    "bidirectional": "bidirectional_attention",
    "compressed": "patch_attention",
    "source": "cross_attention",
    "image": "cross_attention",
    "fixed": "cross_attention",
}


@dataclass(frozen=True, slots=True)
class Attention(Spec):
    """Scaled dot-product attention; fusions of its matrices (``c_attn``, ``qkv_proj``) do not change the list.

    qk_norm: ``head`` norms of head_dim, ``full`` of all heads together, ``per_head`` a vector a head,
    ``weightless``, ``keys`` on keys alone. gate: on the output, ``fused`` doubles q_proj.
    cache: ``own``; ``borrowed`` reads another layer's (no k, v weights); ``tied`` takes v from k's projection and
    keeps both; ``single`` keeps one array for both; ``none`` keeps nothing (encoders).
    cross: keys and values come from encoder or image states of width ``source_size``.
    extra: further tensors of a family, listed as they are. differential: heads in pairs, each map on both their values.
    For the forward pass alone: clip clamps q, k, v; v_norm is weightless; temperature (scale, floor, first) multiplies
    queries by 1 + scale x log(1 + floor((position + first) / floor)) (Llama-4); multipliers: of input, keys and output
    (Falcon-H1); dynamic_window: keys that Doge's mask leaves. Source: arXiv:1706.03762, 1911.02150, 2305.13245.
    """

    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    v_head_dim: int
    scope: Scope = FULL
    q_bias: bool = False
    k_bias: bool = False
    v_bias: bool = False
    o_bias: bool = False
    qk_norm: QkNorm = "none"
    qk_norm_form: Literal["rms", "layer"] = "rms"
    qk_norm_bias: bool = False
    sinks: bool = False
    gate: Gate = "none"
    cache: Cache = "own"
    cache_source: int | None = None
    positions: Positions | None = None
    softcap: float | None = None
    scale: float | None = None
    output_size: int = 0
    source_size: int = 0
    extra: tuple[Weight, ...] = ()
    qk_norm_eps: float | None = None
    qk_norm_offset: bool = False
    qk_norm_after_rope: bool = False
    v_norm: bool = False
    clip: float | None = None
    temperature: tuple[float, float, int] | None = None
    multipliers: tuple[float, float, float] = (1.0, 1.0, 1.0)
    differential: bool = False
    dynamic_window: int = 0
    part = "attention"
    source = "arXiv:1706.03762; shared key/value heads arXiv:1911.02150, 2305.13245"

    @property
    def kind(self) -> str:
        return SCOPE_NAMES[self.scope.kind]

    @property
    def cross(self) -> bool:
        """Whether keys and values come from beside the stream."""
        return self.scope.kind in ("source", "image", "fixed")

    def weights(self) -> Iterator[Weight]:
        d, q_width = self.hidden_size, self.num_attention_heads * self.head_dim
        rows = 2 * q_width if self.gate == "fused" else q_width
        yield from linear("q_proj", rows, d, bias=self.q_bias)
        if self.cache != "borrowed":
            yield from self._key_value_weights()
        out = self.num_attention_heads * self.v_head_dim
        yield from linear("o_proj", self.output_size or d, out, bias=self.o_bias, split="row")
        yield from self._norm_weights()
        if self.gate == "elementwise":
            yield from linear("gate_proj", out, d)
        if self.gate == "per_head":
            yield from linear("gate_proj", self.num_attention_heads, d)
        if self.sinks:
            yield Weight("sinks", (self.num_attention_heads,), "scalar", split="column")
        yield from self.extra

    def _key_value_weights(self) -> Iterator[Weight]:
        inputs = self.source_size or self.hidden_size
        rows: Literal["source", "every"] = "source" if self.cross else "every"
        keys, values = self.num_key_value_heads * self.head_dim, self.num_key_value_heads * self.v_head_dim
        yield from linear("k_proj", keys, inputs, bias=self.k_bias, rows=rows)
        if self.cache not in ("tied", "single"):
            yield from linear("v_proj", values, inputs, bias=self.v_bias, rows=rows)

    def _norm_weights(self) -> Iterator[Weight]:
        h, kv, width = self.num_attention_heads, self.num_key_value_heads, self.head_dim
        shapes: dict[QkNorm, tuple[tuple[int, ...], tuple[int, ...]]] = {
            "head": ((width,), (width,)),
            "full": ((h * width,), (kv * width,)),
            "per_head": ((h, width), (kv, width)),
            "keys": ((), (width,)),
        }
        queries, keys = shapes.get(self.qk_norm, ((), ()))
        shared = self.qk_norm in ("head", "keys")
        for name, shape, held in (("q_norm", queries, True), ("k_norm", keys, self.cache != "borrowed")):
            if shape and held:
                yield Weight(f"{name}.weight", shape, "norm", split="none" if shared else "column")
                if self.qk_norm_bias:
                    yield Weight(f"{name}.bias", shape, "norm", split="none" if shared else "column")

    def state(self) -> Iterator[State]:
        if self.cache == "none":
            return
        borrowed, kv = self.cache == "borrowed", self.num_key_value_heads
        names = ("cross_keys", "cross_values") if self.cross else ("keys", "values")
        yield State(names[0], (kv, self.head_dim), self.scope, "cross" if self.cross else "key", borrowed=borrowed)
        if self.cache != "single":
            kind: Literal["cross", "value"] = "cross" if self.cross else "value"
            yield State(names[1], (kv, self.v_head_dim), self.scope, kind, borrowed=borrowed)

    def mixing_flops(self, step: Step, counting: Counting) -> Iterator[Term]:
        if self.scope.kind == "compressed":
            raise UnsupportedLayerError(
                f"{self.kind}: how many patches there are depends on the bytes, so its operations are not known"
            )
        if isinstance(self.positions, Disentangled):
            raise UnsupportedLayerError("attention to relative distances (DeBERTa): its operations are not described")
        keys, values = self.head_dim, self.v_head_dim
        if self.differential:  # the library makes the scores once for either half of the values
            keys, values = (2 if counting.dense else 1) * keys, 2 * values
        yield softmax_attention(counting.pairs(step, self.scope), self.num_attention_heads, keys, values)

    def describe(self) -> str:
        h, kv, width = self.num_attention_heads, self.num_key_value_heads, self.head_dim
        size = f"{width}" if width == self.v_head_dim else f"{width} (values {self.v_head_dim})"
        if kv == h:
            heads = f"{h} heads of {size}, each with its own keys and values"
        elif kv == 1:
            heads = f"{h} query heads of {size} share a single key/value head"
        else:
            heads = f"{h} query heads of {size} share {kv} key/value heads"
        seen = {
            "sliding": f" in a window of {self.scope.size:,}",
            "chunked": f" in chunks of {self.scope.size:,}",
            "source": " over the encoder's output",
            "image": " over image positions",
            "fixed": f" over {self.scope.size:,} encoder positions",
            "bidirectional": " in both directions",
        }.get(self.scope.kind, "")
        shared = ", with another layer's cache" if self.cache == "borrowed" else ""
        return heads + seen + shared
