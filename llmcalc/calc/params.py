"""Parameters: how many there are, where they are, and how many one token passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from llmcalc.arch.model import Architecture, Placed
from llmcalc.calc.inputs import Described, architecture_of
from llmcalc.errors import UnsupportedLayerError
from llmcalc.figure import Factor, Figure, product, total

SOURCE = "sum over the stored tensors of every block, each a product of its dimensions"
TEXT = ("encoder", "decoder")


@dataclass(frozen=True, slots=True)
class ParamCount:
    """Parameters by the definitions of the command line; all are counts.

    ``figure`` is ``total_params`` with its derivation; its parts sum exactly. ``active`` the same for one token;
    ``beside`` those of stored and untied numbers and of prediction heads, where they differ.
    """

    total_params: int
    text_params: int
    untied_params: int
    stored_params: int
    active_params: int
    embedding_params: int
    lm_head_params: int
    non_embedding_params: int
    router_bias_params: int
    mtp_params: int
    vision_params: int
    audio_params: int
    figure: Figure
    active: Figure
    beside: tuple[Figure, ...] = ()


def params(architecture: Architecture | Described) -> ParamCount:
    """Count the parameters of an architecture, or of a loaded model.

    Raises: UnsupportedLayerError where the config has a part that no reader describes. Checked: tests/golden
    """
    architecture = architecture_of(architecture)
    if architecture.uncounted:
        raise UnsupportedLayerError(
            f"{architecture.model_type}: {', '.join(architecture.uncounted)} is not described here, so a total would "
            "leave it out",
            "kv-cache and inspect still answer for the language model",
        )
    stored = [p for p in architecture.weights if p.weight.role != "buffer"]
    unique = [p for p in stored if not architecture.shares(p)]
    buffers = [p for p in architecture.weights if p.weight.role == "buffer"]
    extra = [p for stack in architecture.mtp for p in stack.placed()]
    text = [p for p in unique if p.stack in TEXT]
    figure = _tree(unique, "total parameters", lambda p: p.weight.copies)
    active = _tree(text, "active parameters", lambda p: p.weight.active)
    outside = _sum(p for p in unique if p.stack in TEXT and p.weight.role in ("embedding", "head"))
    return ParamCount(
        total_params=figure.value,
        text_params=_sum(text),
        untied_params=_sum(stored),
        stored_params=figure.value + _sum(extra) + _sum(buffers),
        active_params=active.value,
        embedding_params=_sum(p for p in unique if p.weight.role == "embedding" and _is_token_table(p)),
        lm_head_params=_sum(p for p in stored if p.branch == "lm_head"),
        non_embedding_params=figure.value - outside,
        router_bias_params=_sum(p for p in buffers if "correction_bias" in p.weight.name),
        mtp_params=_sum(extra),
        vision_params=_sum(p for p in unique if p.stack in ("vision", "projector")),
        audio_params=_sum(p for p in unique if p.stack == "audio"),
        figure=figure,
        active=active,
        beside=_beside(figure, [p for p in stored if architecture.shares(p)], buffers, extra),
    )  # fmt: skip


def _beside(figure: Figure, shared: list[Placed], buffers: list[Placed], extra: list[Placed]) -> tuple[Figure, ...]:
    """Derivations of what is counted otherwise, each as the total and what comes to it."""
    whole = Figure(figure.name, figure.value, figure.unit)
    heads = _tree(extra, "multi-token-prediction heads", lambda p: p.weight.copies)
    held = _tree(buffers, "stored buffers", lambda p: p.weight.copies)
    tied = _tree(shared, "names that share another's tensor", lambda p: p.weight.copies)
    out = []
    if extra or buffers:
        parts = tuple(part._replace(source="") for part in (heads, held) if part.parts)
        out.append(total("stored parameters", "numbers", (whole, *parts), "what a checkpoint's tensors add up to"))
    if shared:
        out.append(total("untied parameters", "parameters", (whole, tied._replace(source="")), "each name once"))
    return tuple(out)


def _sum(placed: Iterable[Placed]) -> int:
    return sum(p.size for p in placed)


def _is_token_table(placed: Placed) -> bool:
    return placed.stack in TEXT and placed.branch == "embeddings" and placed.weight.split == "vocab"


def _tree(placed: list[Placed], name: str, copies: Callable[[Placed], int]) -> Figure:
    """Stacks, their branches, and in each branch every tensor with its dimensions."""
    stacks: dict[str, dict[str, list[Figure]]] = {}
    for p in placed:
        stacks.setdefault(p.stack, {}).setdefault(p.branch, []).append(_leaf(p, copies(p)))
    parts = []
    for stack, branches in stacks.items():
        inner = tuple(total(branch, "parameters", tuple(leaves)) for branch, leaves in branches.items())
        parts.append(total(stack, "parameters", inner))
    return total(name, "parameters", tuple(parts), SOURCE)


def _leaf(placed: Placed, copies: int) -> Figure:
    """One tensor: blocks that hold it x experts x its dimensions."""
    weight = placed.weight
    factors = [Factor("layers" if placed.blocks > 1 else "layer", placed.blocks, "L")] if placed.path else []
    if "{}" in weight.name:
        factors.append(Factor("experts", copies, "E"))
    names = ("rows", "wide") if weight.role in ("embedding", "head") else ("out", "in")
    if len(weight.shape) != 2:
        names = ("", "")
    dims = [Factor(names[i] if i < 2 else "", size, "abc"[min(i, 2)]) for i, size in enumerate(weight.shape)]
    return product(weight.name, "parameters", (*factors, *dims))
