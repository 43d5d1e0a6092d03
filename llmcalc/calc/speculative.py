"""Speculative decoding: a small model drafts tokens, the large one checks them all in one step.

Legend: a the chance that a drafted token is accepted, K drafted tokens, t and d seconds of a step of either model.
Source: arXiv:2211.17192, equation 1 and theorem 3.8 (independent acceptances of one rate).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from llmcalc.arch.base import Step
from llmcalc.arch.model import Architecture
from llmcalc.calc.latency import Latency
from llmcalc.calc.passes import Share
from llmcalc.calc.reads import Reader
from llmcalc.errors import InvalidInputError


class Speculation(NamedTuple):
    """Tokens of a round, seconds of its parts by the roofline, and how much faster tokens come; below 1 they do not."""

    tokens_per_round: float
    draft_seconds: float
    check_seconds: float
    seconds_per_token: float
    speed_up: float


def accepted(acceptance: float, drafted: int) -> float:
    """Expected tokens of a round, the model's own token included: (1 - a^(K+1)) / (1 - a).

    Raises: InvalidInputError.
    """
    if not 0 <= acceptance <= 1 or drafted < 1:
        raise InvalidInputError("--acceptance is a chance from 0 to 1, --draft-tokens at least 1")
    if acceptance == 1:
        return float(drafted + 1)
    return float((1 - acceptance ** (drafted + 1)) / (1 - acceptance))


def residual(draft: Sequence[float], target: Sequence[float]) -> tuple[list[float], list[float]]:
    """The chance that each token of a draft is accepted, min(1, p/q), and what is drawn from where it is not.

    Draft [.8, .2] for [.6, .4]: accepted .75 and 1, else the second. Raises: InvalidInputError.
    """
    if len(draft) != len(target) or not draft or min(*draft, *target) < 0:
        raise InvalidInputError("two distributions over the same tokens are needed")
    chances = [min(1.0, p / q) if q else 1.0 for q, p in zip(draft, target, strict=True)]
    left = [max(0.0, p - q) for q, p in zip(draft, target, strict=True)]
    return chances, [value / sum(left) for value in left] if sum(left) else left


def speculate(found: Latency, draft: Architecture, acceptance: float, drafted: int) -> Speculation:
    """What drafting with another model on the same devices does to the time of a token, by the roofline of both.

    The check reads the weights once for K + 1 positions (with experts, those that as many tokens find); the draft model
    takes K steps. Its weights and cache, and what is thrown away, take memory that ``capacity`` does not know of.
    Raises: InvalidInputError. Checked: tests/latency
    """
    tokens = accepted(acceptance, drafted)
    shares = tuple(
        Share(Step(drafted + 1, size.tokens, size.source), size.images, number) for size, number in found.sizes.groups
    )
    check = found.timed(shares).seconds_roofline
    reader = Reader(draft, "config", None, "auto", found.reader.ranks, "absorbed", found.reader.prefix)
    small = replace(found, architecture=draft, reader=reader)
    steps = drafted * small.decode.seconds_roofline
    each = (check + steps) / tokens
    return Speculation(tokens, steps, check, each, found.decode.seconds_roofline / each)
