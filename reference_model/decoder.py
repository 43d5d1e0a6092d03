"""The decoder: tokens in, logits out, with a cache or without one.

Axes: B sequences, T new tokens, S positions of a source, D stream, V vocabulary. A stack's ``calls`` say which block
runs at which depth: a block called twice has its weights once and a cache for each call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from llmcalc.arch import base, embedding
from llmcalc.arch.model import Architecture, Named, Stack
from llmcalc.arch.positions import Sinusoidal
from llmcalc.errors import UnsupportedLayerError
from reference_model.attention import Attention
from reference_model.block import Block
from reference_model.cache import Cache, Flow, Formats, Slot
from reference_model.ffn import FeedForward, MixtureOfExperts
from reference_model.norms import Norm, scaled
from reference_model.positions import sinusoids
from reference_model.residual import NORM, TABLE, narrowed, per_layer_inputs, widened

# Matrices that may stand around the layers.
KNOWN = r"\.(project_(in|out)|per_layer_model_projection|altup_projections\.\d+|altup_unembed_projections\.\d+)$"


class Projection(nn.Linear):
    """A matrix on its own."""

    def __init__(self, spec: embedding.Projection) -> None:
        super().__init__(spec.inputs, spec.outputs, spec.bias)


class Ends(nn.Module):
    """What stands before or after the layers, by name and in order."""

    def __init__(self, named: tuple[Named, ...], tied: frozenset[str]) -> None:
        super().__init__()
        self.specs = dict(named)
        self.made = nn.ModuleList()
        for name, spec in named:
            match spec:
                case embedding.Embedding():
                    self.made.append(nn.Embedding(spec.rows, spec.width))
                case embedding.Projection() if name == "score" or re.search(KNOWN, name):
                    self.made.append(Projection(spec))
                case base.Norm():
                    self.made.append(Norm(spec))
                case embedding.Head():
                    head = nn.Linear(spec.width, spec.rows, spec.bias)
                    if f"{name}.weight" in tied:
                        head.register_parameter("weight", None)
                    self.made.append(head)
                case _:
                    raise UnsupportedLayerError(f"{name or type(spec).__name__} around the layers")

    def each(self) -> Iterator[tuple[str, base.Spec, nn.Module]]:
        """Name, spec and module."""
        for (name, spec), made in zip(self.specs.items(), self.made, strict=True):
            yield name, spec, made


class Stream(nn.Module):
    """A stack: its stem, its blocks by their schedule, its tail."""

    def __init__(self, stack: Stack, tied: frozenset[str]) -> None:
        super().__init__()
        depths: dict[int, int] = {}
        for call in stack.calls:
            depths.setdefault(call.block, call.depth)
        self.prefix, self.calls = stack.prefix, stack.calls
        self.stem, self.tail = Ends(stack.stem, tied), Ends(stack.tail, tied)
        self.blocks = nn.ModuleList(Block(layer, depths.get(i, i)) for i, layer in enumerate(stack.layers))
        borrowed = {mixer.spec.cache_source for mixer in self.attentions()}
        for index in range(len(self.blocks)):
            for mixer in self.attentions(index):
                mixer.lends = any(call.block == index and call.depth in borrowed for call in stack.calls)
        specs = [getattr(mixer, "spec", None) for block in self.blocks for mixer in cast(Block, block).mixers()]
        places = [getattr(spec, "positions", None) for spec in specs]
        self.waves = next((place for place in places if isinstance(place, Sinusoidal)), None)
        self.gather: Callable[[Tensor], Tensor] | None = None  # from a rank's share of the vocabulary to all of it

    def attentions(self, block: int | None = None) -> Iterator[Attention]:
        """Those of one block, or of all."""
        for index, one in enumerate(self.blocks):
            if block is None or index == block:
                yield from (mixer for mixer in cast(Block, one).mixers() if isinstance(mixer, Attention))

    def embed(self, tokens_BT: Tensor, flow: Flow, table: nn.Embedding | None) -> Tensor:
        """Rows of the token table, scaled, projected, with positions, normed: [B, T] -> [B, T, D]."""
        ends, scale = {name.rpartition(".")[2]: made for name, _, made in self.stem.each()}, 1.0
        for name, spec, made in self.stem.each():
            if isinstance(spec, embedding.Embedding):
                if "relative_attention_bias" in name:
                    flow.tables[int(name.split(".")[2])] = cast(nn.Embedding, made).weight
                elif spec.tokens and not name.endswith(TABLE):
                    table, scale = cast(nn.Embedding, made), spec.scale
        if table is None:
            raise UnsupportedLayerError("a stack without a token table")
        x = scaled(table(tokens_BT), scale)
        x = ends["project_in"](x) if "project_in" in ends else x
        if self.waves is not None:
            places_BT = flow.positions_BT + self.waves.offset
            x = x + sinusoids(places_BT, x.shape[-1], halves=True, inclusive=self.waves.inclusive).to(x.dtype)
        for name, spec, made in self.stem.each():
            if isinstance(spec, embedding.Embedding) and "position" in name:
                x = x + made(flow.positions_BT + spec.offset)
            elif isinstance(spec, base.Norm) and not name.endswith(NORM):
                x = made(x)
        flow.embedded_BTD = x
        if TABLE in ends:
            flow.per_layer_BTLw = per_layer_inputs(ends, tokens_BT, x)
        copies = [made for name, _, made in self.stem.each() if ".altup_projections." in name]
        return widened(x, copies) if copies else x

    def run(self, x_BTD: Tensor, flow: Flow, slots: list[list[Slot | None]] | None) -> Tensor:
        """Every call in order: [B, T, D] -> [B, T, D]."""
        for index, call in enumerate(self.calls):
            block = cast(Block, self.blocks[call.block])
            flow.depth, flow.adapters = call.depth, None
            if block.shared and index + 1 < len(self.calls):
                owner = cast(Block, self.blocks[self.calls[index + 1].block]).residual
                flow.adapters = owner.adapters if owner is not None else None
            x_BTD = block(x_BTD, flow, slots[index] if slots is not None else [None] * len(block.mixers()))
        return x_BTD

    def finish(self, x_BTD: Tensor, table: nn.Embedding | None) -> Tensor:
        """Last norm, projection and head: [B, T, D] -> [B, T, V], or [B, T, D] where there is no head."""
        copies = [made for name, _, made in self.tail.each() if ".altup_unembed_" in name]
        x_BTD = narrowed(x_BTD, copies) if copies else x_BTD
        for name, spec, made in self.tail.each():
            if ".altup_unembed_" in name:
                continue
            if isinstance(spec, embedding.Head):
                linear_ = cast(nn.Linear, made)
                weight = linear_.weight if linear_.weight is not None else cast(nn.Embedding, table).weight
                x_BTD = scaled(functional.linear(x_BTD, weight, linear_.bias), spec.scale)
                x_BTD = x_BTD if spec.softcap is None else spec.softcap * torch.tanh(x_BTD / spec.softcap)
                x_BTD = x_BTD if self.gather is None else self.gather(x_BTD)
            else:
                x_BTD = made(x_BTD)
        return x_BTD


class Decoder(nn.Module):
    """The model of an architecture's decoder, with its encoder where it has one.

    Towers (vision, audio) and multi-token-prediction heads are not built.
    Raises: UnsupportedLayerError: for a layer kind without a module, naming it.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture
        self.main = Stream(architecture.decoder, architecture.aliases)
        self.encoder = Stream(architecture.encoder, frozenset()) if architecture.encoder is not None else None

    @property
    def table(self) -> nn.Embedding | None:
        """The token table."""
        tables = (m for _, s, m in self.main.stem.each() if isinstance(s, embedding.Embedding) and s.tokens)
        return cast(nn.Embedding, next(tables, None))

    def merge(self, *, grouped: bool = True) -> Decoder:
        """One product where several read the same (q, k and v; gate and up), for inference. grouped: and one of all
        experts, where their sizes allow it; else they run one by one, which waits for the router's choice."""
        for part in self.modules():
            if isinstance(part, Attention | FeedForward):
                part.merge()
            elif isinstance(part, MixtureOfExperts):
                part.merge(grouped=grouped)
        return self

    def allocate(self, batch: int, capacity: int, formats: Formats | None = None, source: int = 0) -> Cache:
        """A cache for ``capacity`` positions a sequence, and ``source`` positions of an encoder."""
        device = next(self.parameters()).device
        kind = next(self.parameters()).dtype
        formats = formats or Formats(kind, kind, torch.float64 if kind == torch.float64 else torch.float32)
        slots: list[list[Slot | None]] = [
            [
                cast(Attention, mixer).allocate(batch, capacity, formats, device, source)
                for mixer in cast(Block, self.main.blocks[call.block]).mixers()
            ]
            for call in self.main.calls
        ]
        return Cache(slots, batch, capacity, device)

    def flow(self, tokens_BT: Tensor, cache: Cache | None, new_B: Tensor | None, horizon: int = 0) -> Flow:
        """Positions of the new tokens, and the length of the whole context."""
        B, T = tokens_BT.shape
        past_B = cache.lengths_B if cache is not None else tokens_BT.new_zeros(B)
        positions_BT = past_B[:, None] + torch.arange(T, device=tokens_BT.device)
        counts_B = new_B if new_B is not None else tokens_BT.new_full((B,), T)
        past, level = (cache.longest, cache.level) if cache is not None else (0, True)
        whole = new_B is None
        horizon = horizon or (cache.capacity if cache is not None else T)
        return Flow(positions_BT, past_B.clone(), counts_B, horizon, past, whole, level and whole)

    def encode(self, tokens_BS: Tensor) -> Tensor:
        """Encoder states: [B, S] -> [B, S, D]."""
        if self.encoder is None:
            raise UnsupportedLayerError("an encoder")
        flow = self.flow(tokens_BS, None, None)
        x_BSD = self.encoder.run(self.encoder.embed(tokens_BS, flow, self.table), flow, None)
        return self.encoder.finish(x_BSD, None)

    def forward(
        self,
        tokens_BT: Tensor,
        cache: Cache | None = None,
        *,
        new_B: Tensor | None = None,
        source_BSD: Tensor | None = None,
        horizon: int = 0,
        last: bool = False,
    ) -> Tensor:
        """Logits of every new token: [B, T] -> [B, T, V]; of each sequence's last place alone ([B, 1, V]): ``last``.

        new_B: true tokens of each sequence, where sequences are padded on the right. The cache, if any, moves on.
        horizon: length of the whole context, where it is neither the cache's nor T (dynamic and long rotary scaling
        choose their frequencies by it, once for a sequence, so that a cached key never changes).
        """
        flow = self.flow(tokens_BT, cache, new_B, horizon)
        flow.source_BSD = source_BSD
        x_BTD = self.main.embed(tokens_BT, flow, None)
        x_BTD = self.main.run(x_BTD, flow, cache.slots if cache is not None else None)
        if cache is not None:
            cache.advance(flow)
        return self.main.finish(x_BTD[:, -1:] if last else x_BTD, self.table)
