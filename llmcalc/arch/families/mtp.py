"""Multi-token-prediction layers as most files hold them: two widths in, three norms, one decoder layer."""

from __future__ import annotations

from llmcalc.arch.base import Norm
from llmcalc.arch.embedding import Embedding, Head, Projection
from llmcalc.arch.fields import Fields
from llmcalc.arch.model import Layer, Named, Stack


def mtp_stack(fields: Fields, d: int, norm: Norm, layer: Layer, count: int, *, tables: bool) -> Stack:
    """``count`` MTP layers around ``layer``; ``tables``: each repeats the embedding and the head."""
    start = fields.integer("num_hidden_layers")
    stem: list[Named] = []
    for index in range(start, start + count):
        prefix = f"model.layers.{index}"
        stem += [Named(f"{prefix}.{name}", norm) for name in ("enorm", "hnorm", "shared_head.norm")]
        stem.append(Named(f"{prefix}.eh_proj", Projection(d, 2 * d)))
        if tables:
            vocab = fields.integer("vocab_size")
            stem.append(Named(f"{prefix}.embed_tokens", Embedding(vocab, d)))
            stem.append(Named(f"{prefix}.shared_head.head", Head(vocab, d)))
    return Stack("mtp", "model.layers", (layer,) * count, tuple(stem))
