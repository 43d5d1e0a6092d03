"""What is run: a model, or its first layers, in a format that the decoder stores; sequences, and a budget of time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from llmcalc.arch.attention import Attention
from llmcalc.arch.model import Architecture, Call, Stack
from llmcalc.errors import InvalidInputError, UnsupportedFormatError, UnsupportedLayerError
from llmcalc.measure.machine import Machine

Phase = Literal["prefill", "decode", "train"]
PLAIN = ("fp32", "bf16", "fp16")
ALIASES = {"f32": "fp32", "f16": "fp16"}
BUDGET = 120.0


@dataclass(frozen=True)
class Workload:
    """Sequences of one model on one device.

    architecture: what is run, cut to ``layers`` where they are given; whole: all of it. dtype: of weights and cache.
    tokens: cached before a decode step. prompt: of a sequence. budget: seconds of timing in all.
    """

    whole: Architecture
    architecture: Architecture
    dtype: str
    tokens: int
    batch: int
    prompt: int
    phases: tuple[Phase, ...]
    layers: int | None = None
    budget: float = BUDGET
    compiled: bool = False
    fitted: bool = False  # a calibration will be made of it, which wants several lengths
    seed: int = 0

    @property
    def depth(self) -> int:
        """Layers that run."""
        return len(self.architecture.decoder.calls)

    def shapes(self) -> list[tuple[int, int]]:
        """(tokens, batch) of the decode steps: the one asked for, and shorter contexts for how time grows with it."""
        parts = (1, 8, 4, 2) if self.fitted else (1, 8)
        return list(dict.fromkeys((max(1, self.tokens // part), self.batch) for part in parts))


def decoder_of(architecture: Architecture) -> Architecture:
    """The language model alone: towers and further heads are not run.

    Raises: UnsupportedLayerError where there is none, or it reads an encoder.
    """
    if not architecture.decoder.layers or architecture.encoder is not None:
        raise UnsupportedLayerError(
            f"{architecture.model_type}: only models that are a decoder alone are measured", "latency estimates others"
        )
    return replace(architecture, towers=(), mtp=(), uncounted=())


def stored_as(architecture: Architecture, dtype: str) -> Architecture:
    """The same model in another format: what is kept in the model's own (columns of a convolution) follows it."""
    return replace(architecture, dtype=dtype, quantization=None)


def cut(architecture: Architecture, layers: int | None) -> Architecture:
    """The model with its first layers only, and the blocks that those call.

    Raises: InvalidInputError where it has fewer.
    """
    stack = architecture.decoder
    if layers is None or layers == len(stack.calls):
        return architecture
    if not 1 <= layers <= len(stack.calls):
        raise InvalidInputError(f"--layers {layers}: this model has {len(stack.calls)}")
    calls = stack.calls[:layers]
    blocks = sorted({call.block for call in calls})
    sources = {s for block in blocks for m in stack.layers[block].mixers
               if isinstance(m, Attention) and (s := m.cache_source) is not None}  # fmt: skip
    if any(source >= layers for source in sources):
        raise InvalidInputError(f"--layers {layers}: a layer among them reads the cache of a later one")
    place = {block: index for index, block in enumerate(blocks)}
    short = Stack(
        stack.name, stack.prefix, tuple(stack.layers[block] for block in blocks), stack.stem, stack.tail,
        tuple(Call(place[call.block], call.depth) for call in calls),
    )  # fmt: skip
    return replace(architecture, decoder=short)


def dtype_of(asked: str, architecture: Architecture, machine: Machine) -> tuple[str, list[str]]:
    """The format of weights and cache, and what has to be said about it.

    Raises: UnsupportedFormatError for a quantized one, which the decoder does not store.
    """
    name = ALIASES.get(asked, asked)
    if name not in (*PLAIN, "config"):
        raise UnsupportedFormatError(f"--weights {asked}: the reference decoder stores {', '.join(PLAIN)}",
                                     "without --weights it is the config's own format")  # fmt: skip
    if name != "config":
        return name, []
    told = []
    found = architecture.dtype
    if architecture.quantization is not None:
        told.append(f"the config's weights are quantized; measured, and estimated beside it, are plain ones in {found}")
    if found not in PLAIN:
        raise UnsupportedFormatError(f"the config's own format is {found}", f"--weights {' or '.join(PLAIN)}")
    if machine.kind == "cpu" and found != "fp32" and not machine.supports("bf16"):
        told.append(f"in fp32, not {found}: this processor has no units for products of 16 bits")
        return "fp32", told
    return found, told
