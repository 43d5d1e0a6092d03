"""What stands behind an encoder's layers, by what the class that the file names is for."""

from __future__ import annotations

from typing import Literal, NamedTuple

from llmcalc.arch.base import Norm, Rows
from llmcalc.arch.embedding import Head, Projection
from llmcalc.arch.families.build import labels
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Named

Task = Literal["body", "masked", "pretraining", "sequence", "choice", "next", "token", "answer"]

TASKS: dict[str, Task] = {
    "ForMaskedLM": "masked", "ForPreTraining": "pretraining", "ForSequenceClassification": "sequence",
    "ForMultipleChoice": "choice", "ForNextSentencePrediction": "next", "ForTokenClassification": "token",
    "ForQuestionAnswering": "answer", "Model": "body",
}  # fmt: skip


class Frame(NamedTuple):
    """Sizes that heads need: the layers' width, that of the token table, its rows, and the table's name."""

    fields: Fields
    width: int
    inner: int
    rows: int
    table: str


class Style(NamedTuple):
    """How a family builds its heads.

    pooler: its name in the checkpoint where the bare body has one. classify: what stands before the classifier: the
    ``pooler``, a ``dense`` matrix, or nothing. transform, norm, decoder: the parts of the masked-token head.
    """

    transform: str
    norm: str
    decoder: str
    pooler: str = ""
    classify: Literal["pooler", "dense", "none"] = "pooler"
    dense: str = "classifier.dense"
    bias: bool = True
    norm_bias: bool = True
    pretraining: Literal["sentence", "replaced", "none"] = "none"


def task_of(fields: Fields) -> Task:
    """The task in the name of the class; the masked-token head where no class is named."""
    names = fields.raw("architectures")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else "ForMaskedLM"
    return next((task for ending, task in TASKS.items() if name.endswith(ending)), "masked")


def matrix(name: str, outputs: int, inputs: int, *, bias: bool = True, rows: Rows = "every") -> Named:
    return Named(name, Projection(outputs, inputs, bias, rows=rows))


def sentence(name: str, outputs: int, inputs: int) -> Named:
    """A matrix over one position of a sequence."""
    return matrix(name, outputs, inputs, rows="once")


def masked_head(frame: Frame, style: Style, *, head_bias: bool = True) -> list[Named]:
    """A matrix, a norm and the output matrix over the vocabulary."""
    return [
        matrix(style.transform, frame.inner, frame.width, bias=style.bias),
        Named(style.norm, Norm(frame.inner, "layer", bias=style.norm_bias)),
        Named(style.decoder, Head(frame.rows, frame.inner, head_bias)),
    ]


def pooler(frame: Frame, style: Style) -> list[Named]:
    """The matrix over the first position."""
    return [sentence(style.pooler, frame.width, frame.width)] if style.pooler else []


def tail(frame: Frame, style: Style, *, head_bias: bool = True) -> tuple[Named, ...]:
    """Everything behind the layers."""
    d, out = frame.width, labels(frame.fields)
    match task_of(frame.fields):
        case "body":
            return tuple(pooler(frame, style))
        case "masked":
            return tuple(masked_head(frame, style, head_bias=head_bias))
        case "pretraining" if style.pretraining == "replaced":
            name = "discriminator_predictions"
            return (matrix(f"{name}.dense", d, d), matrix(f"{name}.dense_prediction", 1, d))
        case "pretraining":
            pair = [sentence("cls.seq_relationship", 2, d)] if style.pretraining == "sentence" else []
            return (*pooler(frame, style), *masked_head(frame, style, head_bias=head_bias), *pair)
        case "token":
            return (matrix("classifier", out, d),)
        case "answer":
            return (matrix("qa_outputs", 2, d),)
        case "next":
            return (*pooler(frame, style), sentence("cls.seq_relationship", 2, d))
        case "choice":
            return (*_before(frame, style), sentence("classifier", 1, d))
        case _:
            return (*_before(frame, style), sentence("classifier", out, d))


def _before(frame: Frame, style: Style) -> list[Named]:
    d = frame.width
    match style.classify:
        case "pooler":
            return pooler(frame, style)
        case "dense":
            return [sentence(style.dense, d, d)]
        case _:
            return []
