"""What stands behind an encoder's layers, by what the class that the file names is for."""

from __future__ import annotations

from typing import Literal, NamedTuple

from llmcalc.arch.base import Norm, Rows
from llmcalc.arch.embedding import Head, Projection
from llmcalc.arch.families.heads import labels
from llmcalc.arch.families.tasks import Task, task_of
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Named

KNOWN: tuple[Task, ...] = (
    "body", "masked", "causal", "pretraining", "sequence", "choice", "next", "token", "answer",
)  # fmt: skip


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
    ``pooler`` or a ``dense`` matrix. transform, norm, decoder: the parts of the masked-token head.
    """

    transform: str
    norm: str
    decoder: str
    pooler: str = ""
    classify: Literal["pooler", "dense"] = "pooler"
    dense: str = "classifier.dense"
    bias: bool = True
    norm_bias: bool = True
    pretraining: Literal["sentence", "replaced", "none"] = "none"


def encoder_task(fields: Fields) -> Task:
    """The task in the name of the class; the masked-token head where no class is named."""
    return task_of(fields, "masked", KNOWN)


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
    match encoder_task(frame.fields):
        case "body":
            return tuple(pooler(frame, style))
        case "masked" | "causal":
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
            return (matrix("qa_outputs", out, d),)
        case "next":
            return (*pooler(frame, style), sentence("cls.seq_relationship", 2, d))
        case "choice":
            return (*_before(frame, style), sentence("classifier", 1, d))
        case _:
            return (*_before(frame, style), sentence("classifier", out, d))


def _before(frame: Frame, style: Style) -> list[Named]:
    d = frame.width
    return pooler(frame, style) if style.classify == "pooler" else [sentence(style.dense, d, d)]
