"""An architecture read aloud: a sentence, the pattern of its layers, and one row a kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from llmcalc.arch.model import Architecture, Layer, Stack


class KindRow(NamedTuple):
    """Layers of one kind: how many, where, and what they are in words."""

    kind: str
    layers: int
    ffn: str
    depths: tuple[int, ...]
    mixer_text: str
    ffn_text: str


def kinds(stack: Stack) -> list[KindRow]:
    """One row for each kind of layer, in order of first use."""
    rows: dict[tuple[str, str, str, str], list[int]] = {}
    for layer, depths in stack.call_groups:
        rows.setdefault(_words(layer), []).extend(depths)
    return [
        KindRow(kind, len(depths), ffn, tuple(sorted(depths)), mixer, feed)
        for (kind, ffn, mixer, feed), depths in rows.items()
    ]


def _words(layer: Layer) -> tuple[str, str, str, str]:
    mixer = "; ".join(spec.describe() for spec in layer.mixers)
    feed = "; beside it ".join(spec.describe() for spec in layer.ffns)
    return layer.kind, layer.ffn_kind, mixer, feed


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


def sentence(architecture: Architecture) -> str:
    """The architecture read aloud."""
    stack = architecture.decoder if architecture.decoder.layers else architecture.encoder or architecture.decoder
    words = [_count(stack), f"a width of {architecture.hidden_size:,}"]
    if architecture.encoder and stack is architecture.decoder:
        words.insert(0, f"an encoder of {architecture.encoder.depth} blocks")
    told: set[str] = set()
    rows = kinds(stack)
    for row in rows:
        for text in (row.mixer_text, row.ffn_text):
            if text and text not in told:
                told.add(text)
                alike = [r for r in rows if text in (r.mixer_text, r.ffn_text)]
                where = f"in {sum(r.layers for r in alike)} blocks " if len(alike) < len(rows) else ""
                words.append(where + text)
    words.append(architecture.positions)
    words.append(f"a vocabulary of {architecture.vocab_size:,}")
    words.append("the head is the embedding (tied)" if architecture.tie_word_embeddings else "a head of its own")
    if architecture.max_position_embeddings:
        words.append(f"a context of {architecture.max_position_embeddings:,} tokens")
    named = {"vision": "a vision tower", "audio": "an audio tower", "projector": "a projector"}
    words += [named[name] for name in dict.fromkeys(str(tower.name) for tower in architecture.towers)]
    if architecture.mtp:
        words.append("multi-token-prediction heads beside it")
    return "; ".join(words) + "."


def _count(stack: Stack) -> str:
    calls, stored = len(stack.calls), len(stack.layers)
    if calls != stored:
        return f"{stored} blocks stored and {calls} run"
    return f"{calls} blocks" if calls != 1 else "1 block"
