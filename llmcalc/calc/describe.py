"""An architecture read aloud: a sentence, the pattern of its layers, and one row a kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import Field, is_dataclass
from dataclasses import fields as dataclass_fields
from math import isfinite
from typing import NamedTuple

from llmcalc.arch.base import Scope, Spec
from llmcalc.arch.model import Architecture, Layer, Stack
from llmcalc.arch.positions import Rope
from llmcalc.calc.inputs import Described, architecture_of
from llmcalc.units import words


class KindRow(NamedTuple):
    """Layers of one kind: how many, where, what they are in words, and a block of them."""

    kind: str
    layers: int
    ffn: str
    depths: tuple[int, ...]
    mixer_text: str
    ffn_text: str
    layer: Layer


def kinds(stack: Stack) -> list[KindRow]:
    """One row for each kind of layer, in order of first use."""
    rotates = any(_rotates(spec) for layer, _ in stack.call_groups for spec in layer.mixers)
    rows: dict[tuple[str, str, str, str], tuple[Layer, list[int]]] = {}
    for layer, depths in stack.call_groups:
        rows.setdefault(_words(layer, tell_bare=rotates), (layer, []))[1].extend(depths)
    return [
        KindRow(kind, len(depths), ffn, tuple(sorted(depths)), mixer, feed, layer)
        for (kind, ffn, mixer, feed), (layer, depths) in rows.items()
    ]


WINDOWS = {"sliding": "window", "chunked": "chunk", "compressed": "rate", "fixed": "source_positions"}


def numbers(spec: Spec) -> dict[str, object]:
    """A spec's own fields as JSON: numbers, switches and names under the config's spelling; no tensors."""
    out: dict[str, object] = {"kind": spec.kind}
    own: tuple[Field[object], ...] = dataclass_fields(spec) if is_dataclass(spec) else ()
    for field in own:
        value = getattr(spec, field.name)
        if isinstance(value, Scope):
            out["scope"] = value.kind
            if value.kind in WINDOWS:
                out[WINDOWS[value.kind]] = value.size
        elif isinstance(value, Spec):
            out[field.name] = numbers(value) | {"kind": type(value).__name__.lower()}
        elif value is None or isinstance(value, (bool, int, str)):
            out[field.name] = value
        elif isinstance(value, float):
            out[field.name] = _finite(value)
        elif isinstance(value, tuple) and value and all(isinstance(item, (int, float)) for item in value):
            out[field.name] = [_finite(item) for item in value]
    return out


def _finite(value: float) -> float | None:
    """The number; None for an infinite limit, which JSON cannot write."""
    return value if isfinite(value) else None


def _words(layer: Layer, *, tell_bare: bool) -> tuple[str, str, str, str]:
    mixer = "; ".join(_aloud(spec, tell_bare=tell_bare) for spec in layer.mixers)
    feed = "; beside it ".join(spec.describe() for spec in layer.ffns)
    return layer.kind, layer.ffn_kind, mixer, feed


def _aloud(spec: Spec, *, tell_bare: bool) -> str:
    """A mixer in words; that it has no positions is told where others of its stack rotate theirs."""
    bare = tell_bare and spec.part == "attention" and getattr(spec, "positions", spec) is None
    return (
        f"{spec.describe()}, without positions (NoPE)"
        if bare and not getattr(spec, "cross", False)
        else spec.describe()
    )


def _rotates(spec: Spec) -> bool:
    return isinstance(getattr(spec, "positions", None), Rope)


def pattern(names: Sequence[str]) -> str:
    """A sequence of layer kinds, drawn compactly: ``10 x (5 sliding, full), 2 sliding``."""
    best = _runs(names)
    for period in range(2, min(len(names) // 2, 16) + 1):
        for start in range(min(4, len(names))):
            repeats = 1
            unit = names[start : start + period]
            while names[start + repeats * period : start + (repeats + 1) * period] == unit:
                repeats += 1
            if repeats < 2 or len(set(unit)) < 2:
                continue
            end = start + repeats * period
            drawn = (_runs(names[:start]), f"{repeats} x ({_runs(unit)})", _runs(names[end:]))
            text = ", ".join(part for part in drawn if part)
            if len(text) < len(best):
                best = text
    return best


def _runs(names: Sequence[str]) -> str:
    out: list[tuple[str, int]] = []
    for name in names:
        if out and out[-1][0] == name:
            out[-1] = (name, out[-1][1] + 1)
        else:
            out.append((name, 1))
    return ", ".join(f"{count} {name}" if count > 1 else name for name, count in out)


def layer_pattern(stack: Stack) -> str:
    """The stack's layers as a pattern; the feed-forward is named where layers differ in it."""
    ffns = {layer.ffn_kind for layer, _ in stack.call_groups}
    names = []
    for call in stack.calls:
        layer = stack.layers[call.block]
        kind = layer.kind.replace("_attention", "").replace("_", " ")
        names.append(f"{kind}/{layer.ffn_kind}" if len(ffns) > 1 else kind)
    return pattern(names)


def sentence(architecture: Architecture | Described) -> str:
    """The architecture read aloud: blocks, what mixes positions in them, their feed-forwards, and what is around."""
    architecture = architecture_of(architecture)
    stack = architecture.decoder if architecture.decoder.layers else architecture.encoder or architecture.decoder
    told = [_count(stack), f"a width of {architecture.hidden_size:,}"]
    if architecture.encoder and stack is architecture.decoder:
        told.insert(0, f"an encoder of {_blocks(architecture.encoder.depth)}")
    rows = kinds(stack)
    told += _each([(row.mixer_text, row.layers) for row in rows])
    told += _each([(row.ffn_text, row.layers) for row in rows])
    told.append(architecture.positions)
    told.append(f"a vocabulary of {architecture.vocab_size:,}")
    told.append("the head is the embedding (tied)" if architecture.tie_word_embeddings else "a head of its own")
    if architecture.max_position_embeddings:
        told.append(f"a context of {architecture.max_position_embeddings:,} tokens")
    named = {"vision": "a vision tower", "audio": "an audio tower", "projector": "a projector"}
    told += [named[name] for name in dict.fromkeys(str(tower.name) for tower in architecture.towers)]
    if architecture.mtp:
        told.append("multi-token-prediction heads beside it")
    if stored := quantized(architecture):
        told.append(stored)
    return "; ".join(told) + "."


def _each(texts: list[tuple[str, int]]) -> list[str]:
    """Each text once, with the number of blocks where it is not that of all."""
    blocks: dict[str, int] = {}
    for text, layers in texts:
        blocks[text] = blocks.get(text, 0) + layers
    whole = len(blocks) == 1
    return [text if whole else f"in {_blocks(number)} {text}" for text, number in blocks.items() if text]


def quantized(architecture: Architecture) -> str:
    """How the config says that weights are stored; empty where it says nothing."""
    said = architecture.quantization
    if said is None:
        return ""
    method = next((said[key] for key in ("quant_method", "quant_algo", "quant_type", "fmt") if said.get(key)), None)
    bits = next((said[key] for key in ("bits", "w_bit", "weight_bits") if isinstance(said.get(key), int)), None)
    text = f"weights stored quantized ({words(str(method))})" if method else "weights stored quantized"
    return f"{text} in {bits} bits" if bits else text


def _blocks(number: int) -> str:
    return f"{number} block" if number == 1 else f"{number} blocks"


def _count(stack: Stack) -> str:
    calls, stored = len(stack.calls), len(stack.layers)
    if calls != stored:
        return f"{_blocks(stored)} stored and {calls} run"
    return _blocks(calls)
