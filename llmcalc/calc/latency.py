"""How fast a step can be at best: a true bound, and the usual estimate of operators one after another.

A bound is the largest of bytes over bandwidth, operations over peak and link bytes over link rate; stages of a
pipeline add. It counts what no implementation can do without: rows (:mod:`llmcalc.calc.rows`), operations
(:mod:`llmcalc.calc.needed`), less what the last-level cache keeps (:mod:`llmcalc.calc.bound`).
Source: the roofline of Williams, Waterman and Patterson, CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import lcm

from llmcalc import engines
from llmcalc.arch.base import Step
from llmcalc.arch.mixing import Counting, LatentForm, ScanForm
from llmcalc.arch.model import Architecture
from llmcalc.calc.bound import Bounds
from llmcalc.calc.links import traffic
from llmcalc.calc.needed import lags, least_work
from llmcalc.calc.operators import busiest_stage, read_by_part
from llmcalc.calc.passes import Pass, Share, products
from llmcalc.calc.reads import Reader
from llmcalc.calc.sizing import Sequences, sequences
from llmcalc.calc.timing import Bound, Timing, longest, request_seconds
from llmcalc.calc.weight_shards import Ranks
from llmcalc.engines.counted import library
from llmcalc.errors import InvalidInputError
from llmcalc.hardware.device import Device, Peak

EXACT_STEPS = 512
MOST_BATCH = 2**20
MOST_PASSES = 4096


@dataclass(frozen=True)
class Latency:
    """Steps of a model on a device; seconds and bytes of one replica's busiest device."""

    architecture: Architecture
    device: Device
    reader: Reader
    sizes: Sequences
    prompt: int
    output: int
    chunk: int | None
    engine: str = "none"
    images: int = 0
    encoder_tokens: int | None = None
    notes: tuple[str, ...] = field(default=())

    @cached_property
    def bounds(self) -> Bounds:
        """What the device can do at best."""
        return Bounds(self.reader, self.device)

    @property
    def peak(self) -> Peak | None:
        """The dense rate that products are estimated at."""
        return self.bounds.peak

    @cached_property
    def decode(self) -> Timing:
        """One step, each sequence on top of what it keeps."""
        return self.at(self.sizes)

    def at(self, sizes: Sequences) -> Timing:
        """One decode step on other sequences."""
        return self.timed(_steps(sizes))

    def timed(self, shares: tuple[Share, ...]) -> Timing:
        """One pass on top of what sequences keep, of one token or of several that are checked together."""
        return self._timing(shares, decode=True)

    @cached_property
    def passes(self) -> tuple[tuple[Timing, int], ...]:
        """The passes of the prompts of all sequences, equal ones counted."""
        number, source = self.sizes.number, self._source
        known = min(self.reader.prefix, self.prompt - 1)
        new = self.prompt - known
        chunk = self.chunk or number * new
        if chunk >= new:
            whole, rest = divmod(number, chunk // new)
            step = Step(new, known, source)
            plan = [(step, chunk // new, whole), (step, rest, 1)]
        else:
            starts = range(known, self.prompt, chunk)
            if len(starts) > MOST_PASSES:
                raise InvalidInputError(f"--max-batched-tokens {chunk}: {len(starts):,} passes of one prompt",
                                        f"at most {MOST_PASSES:,}")  # fmt: skip
            plan = [(Step(min(chunk, self.prompt - past), past, source), 1, number) for past in starts]
        return tuple(
            (self._timing((Share(step, self.images, together),), decode=False), times)
            for step, together, times in plan
            if together and times
        )

    @property
    def _source(self) -> int:
        return self.prompt if self.encoder_tokens is None else self.encoder_tokens

    @property
    def prefill(self) -> Timing:
        """The first pass of the prompts, the only one where they are not cut."""
        return self.passes[0][0]

    @cached_property
    def prefill_seconds(self) -> tuple[float, float | None, float | None]:
        """Seconds of all prompts by memory, compute and links, at the least.

        However prompts are cut and packed, there are as many passes as the tokens need, each of which reads the layers.
        """
        known = min(self.reader.prefix, self.prompt - 1)
        step = Step(self.prompt - known, known, self._source)
        share = Share(step, self.images, self.sizes.number)
        whole = self._timing((share,), decode=False)
        memory = whole.memory_seconds
        further = -(-share.number * step.new // (self.chunk or share.number * step.new)) - 1
        if further:
            run = self._pass((share,), "chunked", decode=False)
            resting = frozenset(depth for depth, lag in lags(self.architecture, run, 0).items() if lag == step.new)
            read = self.reader.again(run, resting)
            repeated = sum(max(0, size - self.bounds.held(size)) for size in read)
            memory += further * repeated / self.device.bandwidth()
        return memory, whole.compute_seconds, whole.link_seconds

    @property
    def prefill_seconds_at_least(self) -> float:
        """All prompts."""
        return longest(*self.prefill_seconds)[0]

    @property
    def prefill_bound(self) -> Bound:
        """What binds them."""
        return longest(*self.prefill_seconds)[1]

    @property
    def prefill_seconds_roofline(self) -> float:
        """All passes of the prompts, as usually estimated."""
        return sum(times * timing.seconds_roofline for timing, times in self.passes)

    @cached_property
    def request_seconds_at_least(self) -> float:
        """Prompt to last token: prefill, and a decode step for every further token, each on a longer context.

        Of more than 512 steps, stretches are priced at their first, shortest context; where layers read chunks, at the
        start of the chunk, and where entries are written once in so many steps, at a step that writes none.
        """
        steps = self.output - 1
        stride = max(1, -(-steps // EXACT_STEPS))
        decode = sum(
            min(stride, steps - done) * self._stretch(self.prompt + done, stride) for done in range(0, steps, stride)
        )
        return request_seconds(self.prefill_seconds_at_least, decode)

    def _stretch(self, tokens: int, stride: int) -> float:
        """Seconds that every step of a stretch takes."""
        if stride == 1:
            return self._grown(tokens).seconds_at_least
        scopes = {held.state.scope for held in self.architecture.states}
        period = lcm(1, *(scope.size for scope in scopes if scope.kind == "chunked"))
        first = tokens // period * period
        lumps = [scope.size for scope in scopes if scope.kind == "compressed" and scope.size > 1]
        while first and any((first + 1) % size == 0 for size in lumps):
            first -= 1
        return self._grown(first).seconds_at_least

    def _grown(self, tokens: int) -> Timing:
        return self.at(sequences(tokens, self.sizes.number, None, self.encoder_tokens, self.images, least=0))

    @cached_property
    def compute_bound_batch(self) -> int | None:
        """The smallest number of sequences whose step computes longer than it moves bytes; None if there is none.

        With the experts that tokens find at random, at the length of the first sequence.
        """
        if self.peak is None:
            return None
        first = self.sizes.groups[0][0]

        def computes(batch: int) -> bool:
            timing = self.at(Sequences(((first, batch),)))
            moved = (timing.likely_read_bytes + timing.written_bytes) / self.device.bandwidth()
            return (timing.compute_seconds or 0.0) >= moved

        high = 1
        while not computes(high):
            high *= 2
            if high > MOST_BATCH:
                return None
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if computes(middle) else (middle, high)
        return high

    # -- one pass --------------------------------------------------------------------------------------------------

    def _timing(self, shares: tuple[Share, ...], *, decode: bool) -> Timing:
        ranks, device = self.reader.ranks, self.device
        run = self._pass(shares, "recurrent" if decode else "chunked", decode=decode)
        operators = self.reader.operators(run)
        moved = self.bounds.moved(operators)
        counted = tuple(products(self.architecture, run))
        work = least_work(self.architecture, run, self.reader.prefix, counted)
        said = traffic(self.architecture, ranks, run)
        link = device.link_bytes_per_second
        memory, compute = sum(moved) / device.bandwidth(), self.bounds.compute_seconds(work)
        sent = said.least / link if link and ranks.tp * ranks.pp > 1 else None
        seconds, bound = longest(memory, compute, sent)
        parts, busiest = read_by_part(operators), max(range(len(moved)), key=lambda stage: moved[stage])
        spare = sum(op.spare[busiest] for op in operators if op.spare)
        return Timing(
            seconds, bound, self.bounds.roofline(operators, said), memory, compute, sent, sum(parts[:4]), *parts,
            moved[busiest], spare, sum(item.value for item in counted), work, said,
        )  # fmt: skip

    @cached_property
    def cache_reads(self) -> tuple[tuple[str, int], ...]:
        """Cache and state that a decode step reads on the busiest device, by layer kind."""
        operators = self.reader.operators(self.decode_pass())
        busiest = busiest_stage(operators)
        found: dict[str, int] = {}
        for op in operators:
            if op.part in ("cache", "state"):
                found[op.branch] = found.get(op.branch, 0) + op.least[busiest]
        return tuple((kind, size) for kind, size in found.items() if size)

    def decode_pass(self) -> Pass:
        """The decode step as a pass."""
        return self._pass(_steps(self.sizes), "recurrent", decode=True)

    def _pass(self, shares: tuple[Share, ...], scan: ScanForm, *, decode: bool) -> Pass:
        form: LatentForm = self.reader.latent if decode else "expanded"
        # A decode step, or one that checks drafted tokens, wants the logits of all its tokens.
        return Pass(shares, Counting("causal", form, scan, library(self.architecture)), "all" if decode else "last")


def _steps(sizes: Sequences) -> tuple[Share, ...]:
    return tuple(Share(Step(1, size.tokens, size.source), size.images, number) for size, number in sizes.groups)


def latency(
    architecture: Architecture,
    device: Device,
    tokens: int = 4096,
    batch: int = 1,
    *,
    prompt: int | None = None,
    output: int = 1,
    weights: str = "config",
    group_size: int | None = None,
    cache: str = "auto",
    ranks: Ranks | None = None,
    mla: LatentForm = "absorbed",
    lengths: Sequence[int] | None = None,
    encoder_tokens: int | None = None,
    image_tokens: int = 0,
    batched_tokens: int | None = None,
    shared_prefix: int = 0,
    engine: str = "none",
) -> Latency:
    """Seconds and bytes of a decode step on ``tokens`` cached positions, of a prompt, and of a whole request.

    Not counted: sampling, launches, activations between products, the host. Batches are of one replica (dp > 1).
    Args: prompt: by default ``tokens``. output: tokens of a request, the first with the prompt. mla: what latent
    attention keeps and reads in decode. batched_tokens: of one pass of prompts, which are cut to it. shared_prefix:
    first tokens that all sequences have in common and that are cached already. engine: whose calibration is wanted.
    Raises: InvalidInputError, UnsupportedError. Source: CACM 52(4), 2009. Checked: tests/latency
    """
    _check(architecture, mla, output, (prompt, batched_tokens), shared_prefix)
    sizes = sequences(tokens, batch, lengths, encoder_tokens, image_tokens)
    device.bandwidth()
    if engine != "none":
        engines.find(engine)
    reader = Reader(architecture, weights, group_size, cache, ranks or Ranks(), mla, shared_prefix)
    first = prompt or max(size.tokens for size, _ in sizes.groups)
    return Latency(
        architecture, device, reader, sizes, max(first, 1), output, batched_tokens, engine, image_tokens, encoder_tokens
    )


def _check(
    architecture: Architecture, mla: LatentForm, output: int, counts: tuple[int | None, ...], prefix: int
) -> None:
    """Raises: InvalidInputError for a model without steps, and for numbers that are too small."""
    if not architecture.decoder.layers:
        raise InvalidInputError(
            f"{architecture.model_type}: an encoder keeps nothing, so there is no step after another"
        )
    if mla == "reexpand":
        raise InvalidInputError("--mla reexpand: what is read depends on the library", "absorbed or expanded")
    if prefix < 0 or min(number for number in (output, *counts) if number is not None) < 1:
        raise InvalidInputError(
            "--prompt, --output and --max-batched-tokens are at least 1, --shared-prefix at least 0"
        )
