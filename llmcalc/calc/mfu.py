"""A measured training rate as a share of a device's peak, under each convention that people use.

MFU counts the operations that the model needs, HFU those that the hardware does, what is computed again included.
Legend: N parameters that a token passes, L layers, H heads, d head width, T tokens a sequence.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from llmcalc.arch.base import Step
from llmcalc.arch.mixing import Convention, Counting
from llmcalc.arch.model import Architecture
from llmcalc.calc.flops import FlopCount, flops
from llmcalc.calc.inputs import Described, architecture_of
from llmcalc.calc.passes import Pass, Share, products
from llmcalc.calc.training import Recompute
from llmcalc.errors import InvalidInputError

Rule = Literal["6n", "palm", "dense", "causal", "megatron", "megatron_dense"]
RULES: tuple[Rule, ...] = get_args(Rule)
MEANING: dict[str, str] = {
    "6n": "6 N a token, N what a token passes (arXiv:2001.08361)",
    "palm": "6 N + 12 L H d T a token, windows ignored (arXiv:2204.02311, appendix B)",
    "dense": "every product, masked pairs included, logits of all positions",
    "causal": "every product, the pairs that are seen",
    "megatron": "products without routers, half of T x T pairs, prediction heads included (Megatron-LM, training.py)",
    "megatron_dense": "the same with all T x T pairs (arXiv:2205.05198, eq. 7 and 8; NVIDIA's tables until 2024)",
}


class Utilization(NamedTuple):
    """One convention: operations a token, of the model and of the hardware, and their shares of the peak."""

    convention: str
    model_flops_per_token: float
    hardware_flops_per_token: float
    mfu: float
    hfu: float


def mfu(
    architecture: Architecture | Described | None,
    tokens_per_second: float,
    peak_per_second: float,
    *,
    tokens: int = 4096,
    gpus: int = 1,
    recompute: Recompute = "none",
    parameters: int | None = None,
) -> tuple[Utilization, ...]:
    """Shares of the peak that a rate of training reaches, a row a convention.

    Args: tokens_per_second: of all devices together. peak_per_second: dense, of one device, in the dtype of its
    products. tokens: a sequence. parameters: in place of a model, for the rule of thumb alone.
    Raises: InvalidInputError, UnsupportedLayerError. Checked: tests/flops/test_published_mfu.py
    """
    if tokens_per_second <= 0 or peak_per_second <= 0 or gpus < 1:
        raise InvalidInputError("a rate, a peak and a number of devices are above zero")
    architecture = None if architecture is None else architecture_of(architecture)
    if architecture is None:
        costs = {"6n": (6.0 * _known(parameters), _again(6.0 * _known(parameters), recompute))}
    else:
        rules = RULES if flops(architecture, 1).rough else RULES[2:]  # without N there are no rules of thumb
        costs = {rule: cost_per_token(architecture, rule, tokens, recompute) for rule in rules}
    each = tokens_per_second / (peak_per_second * gpus)
    return tuple(Utilization(rule, m, h, m * each, h * each) for rule, (m, h) in costs.items())


def _known(parameters: int | None) -> int:
    if parameters is None:
        raise InvalidInputError("neither a model nor a number of parameters is given", "say MODEL, or --params N")
    return parameters


def cost_per_token(architecture: Architecture, rule: Rule, tokens: int, recompute: Recompute) -> tuple[float, float]:
    """Operations a token of training, of the model and of the hardware."""
    match rule:
        case "6n":
            model = 6.0 * _passed(architecture)
            return model, _again(model, recompute)
        case "palm":
            attention = 3 * _full_attention(architecture, tokens) / tokens
            model = 6.0 * _passed(architecture) + attention
            return model, model + attention / 3 if recompute == "selective" else _again(model, recompute)
        case "dense" | "causal":
            count = flops(architecture, tokens, phase="train", convention=rule, recompute=recompute)
            return _exact(count, tokens)
        case _:
            return _megatron(architecture, tokens, recompute, dense=rule == "megatron_dense")


def _again(model: float, recompute: Recompute) -> float:
    """A full recomputation is one more forward pass, a third of forward and backward."""
    return model * 4 / 3 if recompute == "full" else model


def _passed(architecture: Architecture) -> int:
    rough = flops(architecture, 1).rough
    if not rough:
        raise InvalidInputError(f"{architecture.model_type}: its parameters are not all described, so there is no N")
    return rough[1].params


def _exact(count: FlopCount, tokens: int) -> tuple[float, float]:
    step = count.training
    assert step is not None
    return step.model_flops / tokens, step.training_flops / tokens


def _full_attention(architecture: Architecture, tokens: int) -> int:
    """Scores and values over all T x T pairs in every layer with attention, windows and picks ignored."""
    run = Pass((Share(Step(tokens, 0, tokens)),), Counting("dense"), "last")
    return sum(
        p.value // p.term.amount * tokens * tokens
        for p in products(architecture, run, "attention")
        if p.term is not None and p.term.name == "scores and values"
    )


def _megatron(architecture: Architecture, tokens: int, recompute: Recompute, *, dense: bool) -> tuple[float, float]:
    """NVIDIA's count: no router; T x T / 2 pairs where causal; full recomputation of the layers, not of the head.

    Selective recomputation doubles the attention term, forward and backward, as arXiv:2205.05198, eq. 8, prints it
    (s/3h for s/6h), though attention is computed again forward alone.
    """
    convention: Convention = "dense" if dense else "causal"
    count = flops(architecture, tokens, phase="train", convention=convention)
    routers = sum(p.value for p in count.products if p.weight is not None and p.weight.role == "router")
    attention = sum(p.value for p in count.products if p.group == "attention")
    own = (
        0 if dense else sum(p.value for p in count.products if p.term is not None and _all_seen(p.term.amount, tokens))
    )
    half = own / (tokens + 1)  # from T (T + 1) / 2 pairs to T x T / 2
    forward = sum(p.value for p in count.products) - routers - half + count.mtp_flops
    again = 0.0
    if recompute == "selective":
        again = 3 * (attention - half)
    elif recompute == "full":
        again = sum(p.value for p in count.products if p.layered) - routers - half
    return 3 * forward / tokens, (3 * forward + again) / tokens


def _all_seen(pairs: int, tokens: int) -> bool:
    """Whether a layer's pairs are those of full causal attention."""
    return pairs == tokens * (tokens + 1) // 2
