"""Encoder-decoder models: a stream of the source, a stream of the target that looks at it, one shared token table."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from llmcalc.arch.base import Weight
from llmcalc.arch.embedding import Embedding, Head, Projection
from llmcalc.arch.families.build import dtype_of, labels, positions_text
from llmcalc.arch.families.towers.parts import tensor
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Named, Stack

Task = Literal["generate", "body", "encoder", "classify", "answer"]


def task_of(fields: Fields) -> Task:
    """What the class that the file names is for; generation where it names none."""
    names = fields.raw("architectures")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
    if name.endswith(("EncoderModel", "ForTokenClassification")):
        return "encoder"
    if name.endswith("MTModel"):
        return "generate"
    if name.endswith("ForSequenceClassification"):
        return "classify"
    if name.endswith("ForQuestionAnswering"):
        return "answer"
    return "body" if name.endswith("Model") else "generate"


def own_or(fields: Fields, name: str, general: str) -> int:
    """A count under the name that the class gives it, or under the usual one, which a file must not leave out."""
    value = fields.integer(name) if fields.has(name) else fields.integer(general)
    fields.ignore(general)
    return value


def assemble(
    fields: Fields,
    encoder: Stack,
    decoder: Stack,
    tokens: Named,
    *,
    width: int,
    tie: bool,
    logits_bias: bool = False,
    scale: float = 1.0,
    max_positions: int | None = None,
) -> Architecture:
    """Both stacks and what the named class has behind them. The table stands with the decoder, which reads it last."""
    task = task_of(fields)
    rows = tokens.spec.rows if isinstance(tokens.spec, Embedding) else 0
    head = _head(fields, task, rows, width, scale)
    ties = (("lm_head.weight", f"{tokens.name}.weight"),) if tie and task == "generate" else ()
    if logits_bias and task == "generate":  # a stored buffer of zeros
        head.append(tensor("final_logits_bias", (1, rows), "buffer"))
    if task == "encoder":
        encoder, decoder = replace(encoder, stem=(tokens, *encoder.stem)), Stack("decoder", "", ())
    else:
        decoder = replace(decoder, stem=(tokens, *decoder.stem), tail=(*decoder.tail, *head))
    fields.ignore("tie_word_embeddings", "is_encoder_decoder")
    return Architecture(
        model_type=fields.model_type,
        decoder=decoder,
        encoder=encoder,
        ties=ties,
        hidden_size=width,
        vocab_size=rows,
        max_position_embeddings=max_positions,
        tie_word_embeddings=bool(ties),
        positions=positions_text(decoder.layers or encoder.layers, decoder.stem or encoder.stem),
        dtype=dtype_of(fields),
        classes="encoder" if task == "encoder" else "encoder-decoder",
    )


def _head(fields: Fields, task: Task, rows: int, width: int, scale: float) -> list[Named]:
    if task == "generate":
        return [Named("lm_head", Head(rows, width, scale=scale))]
    out = Projection(labels(fields), width, True)
    if task == "classify":
        name = "classification_head"
        return [Named(f"{name}.dense", Projection(width, width, True)), Named(f"{name}.out_proj", out)]
    return [Named("qa_outputs", out)] if task == "answer" else []


def vector(name: str, size: int) -> Weight:
    """A norm of one vector inside an attention."""
    return Weight(f"{name}.weight", (size,), "norm")
