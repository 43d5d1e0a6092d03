"""What an engine allocates for the arrays that a model needs.

An engine is a rule from a :class:`Plan` to an :class:`Allocation`; its formats, layer kinds and block sizes are tables
of its module, each with the file of the engine that it is from.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from llmcalc.arch.base import Spec, State, StateDtype
from llmcalc.arch.model import Architecture
from llmcalc.engines.ranks import rank_row
from llmcalc.errors import UnsupportedFormatError, UnsupportedLayerError
from llmcalc.figure import Figure
from llmcalc.formats import CacheFormat, Format, find


class Array(NamedTuple):
    """Rows held by one sequence, the shape of one row and what it is stored in."""

    rows: int
    row: tuple[int, ...]
    dtype: StateDtype


class Lengths(NamedTuple):
    """What one sequence has: retained tokens, encoder positions, image positions."""

    tokens: int
    source: int = 0
    images: int = 0


class Plan(NamedTuple):
    """What an engine is asked to hold: a model, its sequences by length, a cache format and how it is spread.

    cache: the format of the exact arrays; chosen: whether a person named it (``auto`` lets the engine choose).
    block_size, batched_tokens: None for the engine's own. prefix_caching: finished prefixes stay for reuse.
    """

    architecture: Architecture
    groups: tuple[tuple[Lengths, int], ...]
    cache: CacheFormat
    chosen: bool = False
    tp: int = 1
    pp: int = 1
    block_size: int | None = None
    batched_tokens: int | None = None
    prefix_caching: bool = True

    @property
    def sequences(self) -> int:
        """How many sequences."""
        return sum(number for _, number in self.groups)

    def row_bytes(self, state: State, fmt: Format) -> int:
        """Bytes of one row of an array on one tensor-parallel rank."""
        return fmt.array_bytes(rank_row(state, self.tp))

    def format(self, state: State, wide: str = "fp32") -> Format:
        """The format of an array by its own dtype; ``wide``: what states in fp32 are stored in here."""
        if state.dtype == "cache":
            return self.cache.value if state.kind == "value" else self.cache.key
        return find(self.architecture.dtype if state.dtype == "model" else wide)


class Mixer(NamedTuple):
    """All arrays of one kind of layer, and the depths of the layers that keep them."""

    spec: Spec
    kind: str
    states: tuple[State, ...]
    depths: tuple[int, ...]

    @property
    def name(self) -> str:
        """Its kind in words."""
        return self.kind.replace("_", " ")


class StageBytes(NamedTuple):
    """What one device of a pipeline stage takes: for the sequences, held back whatever it serves, and for a block."""

    taken: int
    reserve: int = 0
    block: int | None = None


class Allocation(NamedTuple):
    """What an engine takes for the sequences of a plan.

    allocated_bytes: on all devices of one replica together; per_device_bytes: on the fullest of them.
    blocks: of each device, all its groups; None where nothing is paged. block_bytes: of one, on the fullest device.
    slots: tokens that the blocks of the layers that grow can hold, over all sequences; unused: those left empty.
    reserve_bytes: what the pool holds back on the fullest device whatever it serves, not in the figures above.
    log_line_bytes: what the engine's own log says for this pool, on one device; log_line: which line.
    figure: per_device_bytes with its derivation. cache_format: what it stores keys and values in.
    stages: the same of a device of each pipeline stage.
    """

    allocated_bytes: int
    per_device_bytes: int
    figure: Figure
    blocks: int | None = None
    block_tokens: int | None = None
    block_bytes: int | None = None
    slots: int | None = None
    unused: int | None = None
    reserve_bytes: int = 0
    log_line_bytes: int | None = None
    log_line: str = ""
    cache_format: str = ""
    warnings: tuple[str, ...] = ()
    stages: tuple[StageBytes, ...] = ()


class Part(NamedTuple):
    """A share of a device's memory that is not weights or cache: a range in bytes, what it is, where it is from."""

    name: str
    low_bytes: int
    high_bytes: int
    source: str


class Budget(NamedTuple):
    """What an engine does with a device's memory.

    rule: ``of_total`` (fraction of the memory, everything in it), ``of_free`` (fraction of what loading leaves, the
    cache alone), ``fixed`` (a margin is left). available_bytes: after the rule, before weights and parts.
    """

    rule: str
    fraction: float
    available_bytes: int
    parts: tuple[Part, ...]
    source: str


class Engine(Protocol):
    """A rule from a plan to an allocation."""

    name: str

    def allocate(self, plan: Plan) -> Allocation:
        """What it takes.

        Raises: UnsupportedLayerError, UnsupportedFormatError, InvalidInputError where it does not run that.
        """
        ...


def mixers(architecture: Architecture) -> tuple[Mixer, ...]:
    """The arrays that are held, one entry a kind of layer and spec; borrowed arrays belong to their owners."""
    found: list[tuple[Spec, str, list[State], tuple[int, ...]]] = []
    for held in architecture.states:
        if held.state.borrowed:
            continue
        for spec, _, states, depths in found:
            if (spec is held.spec or spec == held.spec) and depths == held.depths:
                states.append(held.state)
                break
        else:
            found.append((held.spec, held.kind, [held.state], held.depths))
    return tuple(Mixer(spec, kind, tuple(states), tuple(sorted(depths))) for spec, kind, states, depths in found)


def check_kinds(engine: str, mixers: Iterable[Mixer], runs: Iterable[str], scopes: Iterable[str]) -> None:
    """Refuse layer kinds (classes of llmcalc.arch) and ways to keep positions that an engine is not known to run.

    Raises: UnsupportedLayerError.
    """
    known, kept = frozenset(runs), frozenset(scopes)
    for mixer in mixers:
        missing = [state.scope.kind for state in mixer.states if state.scope.kind not in kept]
        if type(mixer.spec).__name__ not in known or missing:
            raise UnsupportedLayerError(
                f"how {engine} keeps {mixer.name} layers ({type(mixer.spec).__name__}) is not known, if it runs them",
                "--engine none gives the exact arrays",
            )


def check_format(engine: str, cache: CacheFormat, known: Iterable[str], *, pairs: bool = False) -> None:
    """Refuse cache formats that an engine does not have.

    Raises: UnsupportedFormatError.
    """
    names = tuple(known)
    wrong = [fmt.name for fmt in cache if fmt.name not in names]
    if wrong:
        raise UnsupportedFormatError(f"{engine} has no cache in {wrong[0]}", f"it has {', '.join(names)}")
    if not pairs and cache.key != cache.value:
        raise UnsupportedFormatError(f"{engine} stores keys and values in one format, not {cache.name}", "name one")


def rounded(value: int, multiple: int) -> int:
    """The next multiple."""
    return -(-value // multiple) * multiple
