"""What stands behind a decoder's layers, by what the class that the file names is for."""

from __future__ import annotations

from typing import NamedTuple

from llmcalc.arch.embedding import Head, Projection
from llmcalc.arch.families.tasks import Task, class_name, task_of
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Named

KNOWN: tuple[Task, ...] = (
    "causal", "generate", "masked", "body", "encoder", "sequence", "token", "answer", "double", "reward",
)  # fmt: skip


class Behind(NamedTuple):
    """What stands behind the last norm: the parts, whether one of them is the output matrix, what is not described."""

    parts: tuple[Named, ...]
    writes: bool = False
    uncounted: tuple[str, ...] = ()


def behind(fields: Fields, output: Head) -> Behind:
    """The output matrix, or a classifier's, or nothing."""
    width = output.width
    match task_of(fields, "causal", KNOWN):
        case "body" | "encoder":
            return Behind(())
        case "sequence":
            return Behind((Named("score", Projection(labels(fields), width)),))
        case "token":
            biased = fields.flag("token_classification_bias", null=True)
            return Behind((Named("score", Projection(labels(fields), width, biased)),))
        case "answer":
            return Behind((Named("qa_outputs", Projection(2, width, True)),))
        case "double":
            choice = Named("multiple_choice_head.summary", Projection(1, width, True, rows="once"))
            return Behind((Named("lm_head", output), choice), writes=True)
        case "reward":
            return reward(class_name(fields), width)
        case _:
            return Behind((Named("lm_head", output),), writes=True)


# Remote code of Qwen2.5-Math's reward models: rows of the second of two matrices.
TWO_MATRICES = {"Qwen2ForRewardModel": 1, "Qwen2ForProcessRewardModel": 2}


def reward(name: str, width: int) -> Behind:
    """A reward model's head; a class that nobody describes leaves it uncounted."""
    if name in TWO_MATRICES:
        first, last = Projection(width, width, True), Projection(TWO_MATRICES[name], width, True)
        return Behind((Named("score.0", first), Named("score.2", last)))
    if name == "InternLM2ForRewardModel":
        return Behind((Named("v_head", Projection(1, width)),))
    return Behind((), uncounted=(f"the head of {name}",))


def labels(fields: Fields) -> int:
    """Rows of a classifier: ``num_labels``, else the labels named in ``id2label``, else two."""
    named = fields.raw("id2label")
    count = len(named) if isinstance(named, dict) else 2
    return fields.integer("num_labels", null=count)
