"""How tensor and pipeline parallelism cut what a model keeps."""

from __future__ import annotations

from itertools import pairwise

from llmcalc.arch.base import Spec, State
from llmcalc.errors import InvalidInputError

# Fields of layer kinds that count what stays whole on a rank.
WHOLE = {"num_attention_heads": "heads", "num_heads": "heads", "heads": "heads", "num_key_heads": "key heads",
         "num_value_heads": "value heads", "o_groups": "groups of the output"}  # fmt: skip


def check_heads(spec: Spec, tp: int) -> None:
    """Heads of queries, scans and linear attention are shared out whole and never repeated.

    Raises: InvalidInputError where ``tp`` does not divide them. Source: vLLM, ``verify_with_parallel_config`` of
    config/model.py, and the views by ``num_k_heads // tp_size`` of models/qwen3_next.py; reference_model/cuts.py.
    """
    for field, name in WHOLE.items():
        number = getattr(spec, field, 1)
        if number > 1 and number % tp:
            raise InvalidInputError(
                f"--tp {tp} does not divide the {number} {name} of {spec.kind.replace('_', ' ')}",
                f"choose a divisor of {number}",
            )


def rank_row(state: State, tp: int) -> tuple[int, ...]:
    """The shape of a row on one of ``tp`` ranks: its first axis cut, or one entry a rank where ranks are more.

    Raises: InvalidInputError where neither divides the other. Source: vLLM ``config/model.py`` (replicated heads).
    """
    heads = state.row[0]
    if state.replicated or tp == 1:
        return state.row
    if heads % tp == 0:
        return (heads // tp, *state.row[1:])
    if tp % heads == 0:
        return (1, *state.row[1:])
    name = "heads" if len(state.row) > 1 else "channels"
    raise InvalidInputError(
        f"--tp {tp} neither divides the {heads} {name} of {state.name.replace('_', ' ')} nor is a multiple of them",
        f"choose a divisor of {heads}, or a multiple of it (then they are replicated)",
    )


def stages(depth: int, pp: int) -> list[range]:
    """The layers of each pipeline stage; the first ``depth`` mod ``pp`` stages hold one more.

    Raises: InvalidInputError where a stage would be empty.
    """
    if not 1 <= pp <= max(depth, 1):
        raise InvalidInputError(f"--pp {pp}: there are {depth} layers to spread over the stages")
    base, more = divmod(depth, pp)
    bounds = [0]
    for stage in range(pp):
        bounds.append(bounds[-1] + base + (stage < more))
    return [range(low, high) for low, high in pairwise(bounds)]
