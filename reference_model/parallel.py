"""Tensor parallelism: every process holds a share of each layer, and sums and gathers make whole what it computes.

A rank's decoder is the decoder of a smaller architecture (:mod:`reference_model.cuts`) in which the matrices that read
shared-out channels sum their products over all ranks, and tables and heads know which rows of the vocabulary they are.

    with processes(tp, device) as group:
        shard = agree(build(architecture, group))
        logits = shard(tokens)

Axes: B sequences, T tokens, v of V rows of the vocabulary are a rank's. Source: arXiv:1909.08053.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from llmcalc.arch import embedding
from llmcalc.arch.model import Architecture, Layer, Named, Parallel, Stack, Sublayer
from llmcalc.errors import InvalidInputError, UnsupportedLayerError
from reference_model.block import Block, Part
from reference_model.decoder import Decoder, Ends, Stream
from reference_model.load import parameters, read_folder, translated
from reference_model.ranks import Group, processes
from reference_model.shares import cut, found_in, own
from reference_model.spread import Table, fitted

__all__ = ["Group", "Shard", "agree", "build", "load", "processes", "take"]


class Shard(Decoder):
    """A rank's decoder: tokens in, all logits out, a share of the weights and of the cache inside."""

    def __init__(self, architecture: Architecture, group: Group) -> None:
        small, cuts = cut(architecture, group) if group.size > 1 else (architecture, {})
        super().__init__(small)
        self.whole, self.group, self.cuts = architecture, group, cuts
        if group.size > 1:
            join(self.main, architecture.decoder, group)
            if self.encoder is not None and architecture.encoder is not None:
                join(self.encoder, architecture.encoder, group)


def build(architecture: Architecture, group: Group) -> Shard:
    """This rank's decoder, with random weights of its own: :func:`take` or :func:`agree` makes the ranks one model.

    Raises: UnsupportedLayerError: for a kind of layer that cannot be shared out, naming it. InvalidInputError: where
    the ranks do not divide what they share.
    """
    return Shard(architecture, group)


def join(stream: Stream, whole: Stack, group: Group) -> None:
    """Make a stack of smaller layers into a share of a stack: sums after its matrices, a vocabulary in parts."""
    for block, layer in zip(stream.blocks, whole.layers, strict=True):
        _block(cast(Block, block), layer, group)
    for ends, specs in ((stream.stem, whole.stem), (stream.tail, whole.tail)):
        _ends(stream, ends, specs, group)


def _block(block: Block, layer: Layer, group: Group) -> None:
    for part, sublayer in zip(block.parts, layer.sublayers, strict=True):
        _part(cast(Part, part), sublayer, group)


def _part(part: Part, sublayer: Sublayer, group: Group) -> None:
    if isinstance(sublayer.spec, Parallel):
        for branch, inner in zip(part.branches, sublayer.spec.branches, strict=True):
            _part(cast(Part, branch), inner, group)
    elif part.inner is not None:
        part.inner = fitted(part.inner, sublayer.spec, group)


def _ends(stream: Stream, ends: Ends, specs: tuple[Named, ...], group: Group) -> None:
    for index, (_, spec) in enumerate(specs):
        if isinstance(spec, embedding.Embedding) and spec.tokens:
            rows = group.rows(spec.rows, "rows of a vocabulary")
            ends.made[index] = Table(cast(nn.Embedding, ends.made[index]), rows, group)
        elif isinstance(spec, embedding.Head):
            if index + 1 < len(specs):
                raise UnsupportedLayerError("a head before the end of a stack on several ranks")
            stream.gather = lambda x_BTv, whole=spec.rows: group.gather(x_BTv, whole)


# -- weights -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def take(shard: Shard, whole: Decoder | Mapping[str, Tensor]) -> Shard:
    """Fill a rank's decoder with its part of a whole one, or of its tensors by the names of ``load.parameters``.

    Raises: InvalidInputError: where a tensor is missing or has another size.
    """
    tensors = parameters(whole) if isinstance(whole, Decoder) else whole
    for name, place in parameters(shard).items():
        if name not in tensors:
            raise InvalidInputError(f"nothing for {name}")
        part = own(name, tensors[name], shard.cuts)
        if part.shape != place.shape:
            raise InvalidInputError(f"{name}: a share of {list(part.shape)}, and {list(place.shape)} here")
        place.copy_(part)
    return shard


def load(shard: Shard, folder: Path) -> Shard:
    """Fill a rank's decoder from a checkpoint folder, of which every rank reads all."""
    with torch.device("meta"):
        whole = Decoder(shard.whole)
    shapes = {name: tensor.shape for name, tensor in parameters(whole).items()}
    return take(shard, {n: tensor.reshape(shapes[n]) for n, tensor in translated(whole, read_folder(folder))})


@torch.no_grad()
def agree(shard: Shard) -> Shard:
    """Give every rank the first one's numbers of what all of them hold (norms, routers), after random ones.

    A head of keys and values that several ranks hold stays each one's own: the logits are those of a model with more.
    """
    for name, tensor in parameters(shard).items():
        found = found_in(name, shard.cuts)
        if found is None or tensor.dim() <= found.axis:
            shard.group.copy(tensor)
    return shard
