"""Encoder-decoder models: a stream of the source, a stream of the target that looks at it, one shared token table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from llmcalc.arch.attention import Attention
from llmcalc.arch.base import Extra, Weight
from llmcalc.arch.embedding import Embedding, Head, Projection
from llmcalc.arch.families.build import dtype_of, positions_text
from llmcalc.arch.families.heads import labels
from llmcalc.arch.families.tasks import Task, task_of
from llmcalc.arch.families.towers.parts import tensor
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Architecture, Layer, Named, Stack, Sublayer

KNOWN: tuple[Task, ...] = ("generate", "causal", "body", "encoder", "sequence", "token", "answer")


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
    task = task_of(fields, "generate", KNOWN)
    writes = task in ("generate", "causal")
    rows = tokens.spec.rows if isinstance(tokens.spec, Embedding) else 0
    head = _head(fields, task, Head(rows, width, scale=scale), logits_bias=logits_bias)
    if task == "causal":
        tokens = Named("model.decoder.embed_tokens", tokens.spec)
        decoder = replace(decoder, layers=tuple(alone(layer) for layer in decoder.layers))
    ties = (("lm_head.weight", f"{tokens.name}.weight"),) if tie and writes else ()
    if task in ("encoder", "token"):
        encoder = replace(encoder, stem=(tokens, *encoder.stem), tail=(*encoder.tail, *head))
        decoder = Stack("decoder", "", ())
    else:
        decoder = replace(decoder, stem=(tokens, *decoder.stem), tail=(*decoder.tail, *head))
    fields.ignore("tie_word_embeddings", "is_encoder_decoder")
    return Architecture(
        model_type=fields.model_type,
        decoder=decoder,
        encoder=None if task == "causal" else encoder,
        ties=ties,
        hidden_size=width,
        vocab_size=rows,
        max_position_embeddings=max_positions,
        tie_word_embeddings=bool(ties),
        positions=positions_text(decoder.layers or encoder.layers, decoder.stem or encoder.stem),
        dtype=dtype_of(fields),
        classes="causal" if task == "causal" else "encoder-decoder" if decoder.layers else "encoder",
    )


def alone(layer: Layer) -> Layer:
    """A decoder's layer without an encoder: what looks at the source is stored and never run."""
    return replace(layer, sublayers=tuple(_unread(sublayer) for sublayer in layer.sublayers))


def _unread(sublayer: Sublayer) -> Sublayer:
    if not (isinstance(sublayer.spec, Attention) and sublayer.spec.cross):
        return sublayer

    def still(weights: Iterable[Weight]) -> Extra:
        return Extra(tuple(weight._replace(rows="none") for weight in weights))

    norms = [named and Named(named.name, still(named.spec.weights())) for named in sublayer[2:]]
    return Sublayer(sublayer.name, still(sublayer.spec.weights()), *norms)


def _head(fields: Fields, task: Task, output: Head, *, logits_bias: bool) -> list[Named]:
    rows, width = output.rows, output.width
    if task in ("generate", "causal"):
        buffer = [tensor("final_logits_bias", (1, rows), "buffer")] if logits_bias and task == "generate" else []
        return [Named("lm_head", output), *buffer]
    match task:
        case "sequence":
            name, out = "classification_head", Projection(labels(fields), width, True)
            return [Named(f"{name}.dense", Projection(width, width, True)), Named(f"{name}.out_proj", out)]
        case "token":
            return [Named("classifier", Projection(labels(fields), width, True))]
        case "answer":
            return [Named("qa_outputs", Projection(answers(fields), width, True))]
        case _:
            return []


def answers(fields: Fields) -> int:
    """Rows of an answer's matrix: start and end; T5's classes take them from the labels."""
    return labels(fields) if fields.model_type.endswith("t5") else 2


def vector(name: str, size: int) -> Weight:
    """A norm of one vector inside an attention."""
    return Weight(f"{name}.weight", (size,), "norm")
