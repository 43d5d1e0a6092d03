"""What a sequence keeps between steps, really allocated: rows of positions, rings for windows, fixed states.

Axes: B sequences, T new tokens, N rows allocated, S rows in sight; "..." is the shape of one row.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from llmcalc.arch.base import Scope
from llmcalc.errors import InvalidInputError, UnsupportedLayerError
from reference_model.shared import Adapters

T = TypeVar("T")


@dataclass(frozen=True)
class Formats:
    """Number formats of the three sorts of arrays: keys and values; states in the model's own; states kept wide."""

    cache: torch.dtype = torch.float32
    model: torch.dtype = torch.float32
    wide: torch.dtype = torch.float32

    def of(self, name: str) -> torch.dtype:
        """By a spec's own word: ``cache``, ``model`` or ``fp32``."""
        return {"cache": self.cache, "model": self.model, "fp32": self.wide}[name]


@dataclass
class Flow:
    """Where the new tokens of one pass stand.

    positions_BT: absolute. past_B: tokens held before. new_B: true tokens among the T, which are padded on the right.
    horizon: the whole context that this pass belongs to (what dynamic and long rotary scaling look at).
    source_BSD: encoder states. tables: relative biases by the layer that owns one. kept: keys and values of layers
    whose cache others read. picked: an indexer's choice. per_layer: Gemma's inputs of each layer's own.
    embedded, aside, adapters: what Zamba's shared blocks read, leave for the next layer, and have added to them.
    past: the most tokens held before, known to the host, so that nothing waits for the device. whole: all T are true
    tokens. level: and all sequences hold as many. made: what is the same for many layers (rotations, places, masks).
    """

    positions_BT: Tensor
    past_B: Tensor
    new_B: Tensor
    horizon: int
    past: int
    whole: bool = True
    level: bool = True
    made: dict[Hashable, Any] = field(default_factory=dict)
    source_BSD: Tensor | None = None
    tables: dict[int, Tensor] = field(default_factory=dict)
    kept: dict[int, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict)
    picked_BTS: Tensor | None = None
    per_layer_BTLw: Tensor | None = None
    embedded_BTD: Tensor | None = None
    aside_BTD: Tensor | None = None
    adapters: Adapters | None = None
    depth: int = 0

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What many layers share, made by the first."""
        if key not in self.made:
            self.made[key] = make()
        return cast(T, self.made[key])

    @property
    def valid_BT(self) -> Tensor:
        """Which of the T are true tokens."""
        return torch.arange(self.positions_BT.shape[1], device=self.past_B.device) < self.new_B[:, None]

    @property
    def single(self) -> bool:
        """Whether this is a decode step."""
        return self.new == 1

    @property
    def new(self) -> int:
        """T."""
        return self.positions_BT.shape[1]


class Rows:
    """An array with a row for every retained position; position p lies in row p, or p mod N in a ring.

    The rows of a head lie together in memory: ``data`` [B, N, H, d] is a view of [B, H, N, d], so that a product of a
    head with its rows needs no copy.
    """

    def __init__(
        self, batch: int, row: tuple[int, ...], scope: Scope, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        if scope.kind not in ("full", "sliding", "chunked"):
            raise UnsupportedLayerError(f"a cache of {scope.kind} positions")
        self.rows = capacity if scope.kind == "full" else min(capacity, scope.size)
        self.ring = scope.kind != "full"
        laid = torch.zeros((batch, *row[:-1], self.rows, row[-1]), dtype=dtype, device=device)
        self.data = laid.movedim(-2, 1)

    def held(self, flow: Flow, *, after: bool) -> tuple[Tensor, Tensor]:
        """Rows before or after the new tokens and the position each holds, -1 where none: [B, S, ...], [B, S]."""
        most = min(flow.past + (flow.new if after else 0), self.rows)
        key = ("positions", self.rows, self.ring, after)
        return self.data[:, :most], flow.once(key, lambda: self.places(most, flow, after=after))

    def places(self, most: int, flow: Flow, *, after: bool) -> Tensor:
        """The position in each of the first rows, -1 where none: [B, S]."""
        count_B = flow.past_B + flow.new_B if after else flow.past_B
        slot_S, last_B1 = torch.arange(most, device=count_B.device), count_B[:, None] - 1
        position_BS = last_B1 - (last_B1 - slot_S) % self.rows if self.ring else slot_S.expand(len(count_B), most)
        return torch.where((position_BS <= last_B1) & (position_BS >= 0), position_BS, -1)

    def write(self, new_BT: Tensor, flow: Flow) -> None:
        """Put the true new rows in their places; of more than a ring holds, the last: new [B, T, ...]."""
        needed = flow.past + flow.new if flow.whole else int((flow.past_B + flow.new_B).max())
        if not self.ring and needed > self.rows:
            raise InvalidInputError(f"the cache has room for {self.rows} positions, and {needed} are needed")
        if flow.whole:
            kept = min(flow.new, self.rows)
            b_B1, row_BT = flow.once(("rows", self.rows), lambda: self.target(flow, kept))
            self.data[b_B1, row_BT] = new_BT[:, flow.new - kept :].to(self.data.dtype)
            return
        after_B1 = (flow.past_B + flow.new_B)[:, None]
        kept_BT = flow.valid_BT & (flow.positions_BT >= after_B1 - self.rows)
        b, t = kept_BT.nonzero(as_tuple=True)
        self.data[b, flow.positions_BT[b, t] % max(self.rows, 1)] = new_BT[b, t].to(self.data.dtype)

    def target(self, flow: Flow, kept: int) -> tuple[Tensor, Tensor]:
        """Sequence [B, 1] and row [B, kept] of the last new tokens."""
        positions_BT = flow.positions_BT[:, flow.new - kept :]
        return torch.arange(len(positions_BT), device=positions_BT.device)[:, None], positions_BT % max(self.rows, 1)

    def tensors(self) -> Iterator[Tensor]:
        """What is allocated."""
        yield self.data


def seen(caches: tuple[Rows, ...] | None, news: tuple[Tensor, ...], flow: Flow) -> tuple[tuple[Tensor, ...], Tensor]:
    """Old and new rows that the new tokens may look at, and their positions: each [B, S, ...]; [B, S].

    A decode step writes first and reads what is retained; a longer pass reads the old rows beside its own new ones,
    since a ring may have no room for both, and writes last.
    """
    if caches is not None and flow.single:
        for rows, new in zip(caches, news, strict=True):
            rows.write(new, flow)
        held = [rows.held(flow, after=True) for rows in caches]
        return tuple(data.to(new.dtype) for (data, _), new in zip(held, news, strict=True)), held[0][1]
    fresh_BT = flow.once("fresh", lambda: torch.where(flow.valid_BT, flow.positions_BT, -1))
    if caches is None:
        return news, fresh_BT
    if flow.past == 0:
        for rows, new in zip(caches, news, strict=True):
            rows.write(new, flow)
        return news, fresh_BT
    held = [rows.held(flow, after=False) for rows in caches]
    both = tuple(torch.cat([data.to(new.dtype), new], 1) for (data, _), new in zip(held, news, strict=True))
    for rows, new in zip(caches, news, strict=True):
        rows.write(new, flow)
    return both, torch.cat([held[0][1], fresh_BT], 1)


class Fixed:
    """A state of constant size: [B, ...]."""

    def __init__(self, batch: int, row: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self.data = torch.zeros((batch, *row), dtype=dtype, device=device)

    def tensors(self) -> Iterator[Tensor]:
        """What is allocated."""
        yield self.data


class Source:
    """Keys and values of encoder states, computed in the first pass: [B, S, G, d] each."""

    def __init__(self, batch: int, rows: int, row: tuple[int, ...], width: int, formats: Formats, device: torch.device):
        self.keys, self.values = (
            torch.zeros((batch, rows, row[0], size), dtype=formats.cache, device=device) for size in (row[1], width)
        )
        self.filled = False

    def tensors(self) -> Iterator[Tensor]:
        """What is allocated."""
        yield from (self.keys, self.values)


Slot = tuple[Rows, ...] | tuple[Fixed, ...] | Source


class Cache:
    """Every layer call's slots, and how many tokens each sequence has."""

    def __init__(self, slots: list[list[Slot | None]], batch: int, capacity: int, device: torch.device) -> None:
        self.slots, self.capacity = slots, capacity
        self.lengths_B = torch.zeros(batch, dtype=torch.long, device=device)
        self.longest, self.level = 0, True

    def advance(self, flow: Flow) -> None:
        """Every sequence holds its true new tokens too."""
        self.lengths_B += flow.new_B
        self.level = self.level and flow.whole
        self.longest = self.longest + flow.new if flow.whole else int(self.lengths_B.max())

    def rewind(self, length: int) -> None:
        """Every sequence holds so many tokens, as if it had never held more.

        Recurrent states stay as they are: for measuring steps at one length, not for taking tokens back.
        """
        self.lengths_B.fill_(length)
        self.longest, self.level = length, True

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor that is allocated."""
        for call in self.slots:
            for slot in call:
                if slot is not None:
                    for part in slot if isinstance(slot, tuple) else (slot,):
                        yield from part.tensors()

    @property
    def bytes(self) -> int:
        """Bytes of all of them."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors())
