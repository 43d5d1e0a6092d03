"""From what was asked to a session that has run: the device, the part of the model, its format."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple, cast

from llmcalc.arch.embedding import Embedding
from llmcalc.arch.model import Architecture
from llmcalc.measure.choose import choose
from llmcalc.measure.machine import Machine
from llmcalc.measure.session import Session
from llmcalc.measure.workload import Phase, Workload, cut, decoder_of, dtype_of, stored_as


class Asked(NamedTuple):
    """What a person typed."""

    device: str = "auto"
    phases: tuple[str, ...] = ("decode", "prefill")
    layers: int | None = None
    tokens: int = 1024
    batch: int = 1
    prompt: int = 1024
    weights: str = "config"
    budget: float = 120.0
    compiled: bool = False
    force: bool = False
    fitted: bool = False


def workload(architecture: Architecture, asked: Asked, machine: Machine) -> tuple[Workload, list[str]]:
    """What will run on the device, and what has to be said about it.

    Raises: UnsupportedError, InvalidInputError.
    """
    whole = decoder_of(architecture)
    dtype, told = dtype_of(asked.weights, whole, machine)
    whole = stored_as(whole, dtype)
    limit, rows = whole.max_position_embeddings, _rows(whole)
    if rows is not None and max(asked.tokens + 1, asked.prompt) > rows:
        asked = asked._replace(tokens=min(asked.tokens, rows - 1), prompt=min(asked.prompt, rows))
        told.append(f"positions are learned, {rows:,} of them: measured on {asked.tokens:,} tokens and the next one")
    longest = max(asked.tokens + 1, asked.prompt)
    if limit is not None and longest > limit:
        told.append(f"{longest:,} positions are past the {limit:,} that the config names (max_position_embeddings)")
    layers = None if asked.layers == len(whole.decoder.calls) else asked.layers
    work = Workload(
        whole, cut(whole, layers), dtype, asked.tokens, asked.batch, asked.prompt,
        cast(tuple[Phase, ...], asked.phases), layers, asked.budget, asked.compiled,
        asked.fitted,
    )  # fmt: skip
    return work, told


def _rows(architecture: Architecture) -> int | None:
    """How many positions a table of them holds; None where positions are computed."""
    tables = [named.spec for named in architecture.decoder.stem if "position" in named.name]
    found = [table.rows - table.offset for table in tables if isinstance(table, Embedding) and not table.tokens]
    return min(found, default=None)


def run(
    architecture: Architecture,
    asked: Asked,
    stack: ExitStack,
    *,
    machine: Machine | None = None,
    keep: Callable[[Session], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> Session:
    """Measure.

    Args: stack: keeps NVML open. machine: in place of the one that is asked for. keep, say: as in a session.
    Raises: MeasureError, UnsupportedError, InvalidInputError.
    """
    told: list[str] = []
    if machine is None:
        machine, told = choose(asked.device, stack, force=asked.force)
    work, more = workload(architecture, asked, machine)
    session = Session(work, machine, keep, say)
    session.warnings += [*told, *more]
    return session.run()
