"""One run, stage by stage: each is guarded, skipped by name when time is out, and followed by what is kept so far."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from llmcalc.errors import LlmcalcError, MeasureError
from llmcalc.measure import predict
from llmcalc.measure.build import build
from llmcalc.measure.calibrate import Calibration, calibrate
from llmcalc.measure.energy import energy
from llmcalc.measure.environment import environment, facts, slowing
from llmcalc.measure.exactness import Check, Launched, checks, launches, tolerance
from llmcalc.measure.extrapolate import Extrapolated, extrapolate
from llmcalc.measure.machine import Machine, MemoryUse, first_line
from llmcalc.measure.need import Need, need, refuse
from llmcalc.measure.outcome import Run, steps_of
from llmcalc.measure.samples import DRIFT, Samples, drift
from llmcalc.measure.steps import Mode, Ready, compile_blocks, decode, prefill
from llmcalc.measure.timing import timed
from llmcalc.measure.workload import Workload
from reference_model import Decoder

LOOK_SECONDS = 0.1
PASSES = 5  # of a prompt at least: one counted, one to warm up, three timed
GRAPH_ERROR = 2e-2


@dataclass
class Session:
    """A workload on a device, and all that was found so far. The budget's clock starts when exactness is settled.

    keep: gets the session after every stage. say: gets a line on what is being done.
    """

    work: Workload
    machine: Machine
    keep: Callable[[Session], None] = lambda _: None
    say: Callable[[str], None] = lambda _: None
    need: Need | None = None
    calibration: Calibration | None = None
    checks: list[Check] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    energy: dict[str, object] | None = None
    states: dict[str, dict[str, object]] = field(default_factory=dict)
    memory: dict[str, int | None] = field(default_factory=dict)
    training: dict[str, object] | None = None
    extrapolated: Extrapolated | None = None
    drift: float | None = None
    skipped: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    environment: dict[str, object] = field(default_factory=dict)
    device: dict[str, object] = field(default_factory=dict)
    _begun: float = 0.0

    @property
    def left(self) -> float:
        """Seconds of the budget that remain."""
        return self.work.budget - (time.perf_counter() - self._begun if self._begun else 0.0)

    def run(self) -> Session:
        """All stages.

        Raises: MeasureError where the run does not fit, before anything is allocated, or where logits are not finite.
        """
        try:
            return self._run()
        except KeyboardInterrupt:
            if self.checks and not any(text.endswith("interrupted") for text in self.errors):
                self.errors.append("between two stages: interrupted")
                self.keep(self)
            raise

    def _run(self) -> Session:
        self.warnings += [*self.machine.warnings, *self.machine.flags, *slowing()]
        self.need = refuse(self.work, self.machine)
        self.environment, self.device = environment(self.machine), facts(self.machine)
        self.states["before"] = dict(self.machine.state())
        base = self.machine.memory()
        self.say(f"building {self.work.depth} layers in {self.work.dtype}")
        model = self._build()
        self.memory = {
            "process_before_bytes": base.process,
            "process_after_weights_bytes": self.machine.memory().process,
        }
        self._stage("exactness", lambda: self._check(model))
        if all(check.ok for check in self.checks) and not self.errors:
            self._timed_stages(model)
        else:
            self.skipped.append(f"every time: what must be equal {'was not checked' if self.errors else 'is not'}")
        self.machine.sync()
        self.states["after"] = dict(self.machine.state())
        self.keep(self)
        return self

    def _build(self) -> Decoder:
        try:
            model = build(self.work, self.machine, merged="train" not in self.work.phases)
            self.machine.sync()
        except RuntimeError as error:  # out of memory is one
            free = self.machine.free_bytes()
            raise MeasureError(
                f"the weights could not be made, with {free:,} bytes free: {first_line(error)}"
            ) from None
        return model

    def _timed_stages(self, model: Decoder) -> None:
        phases, self._begun = self.work.phases, time.perf_counter()
        self._stage("calibration", self._calibrate)
        if "decode" in phases:
            self._stage("decode", lambda: self._decode(model, "eager"))
        if "prefill" in phases:
            self._stage("prefill", lambda: self._prefill(model))
        if "train" in phases:
            self._stage("training", lambda: self._train(model))
        if "decode" in phases:
            if self.machine.supports("graph"):
                self._stage("decode in a graph", lambda: self._decode(model, "graph"))
            if self.work.layers is not None:
                self._stage("a second depth", self._deeper)
            self._stage("energy", lambda: self._energy(model))
            self._stage("the first shape again", lambda: self._again(model))
            if self.work.compiled:
                self._stage("compiled decode", lambda: self._compiled(model))

    def _stage(self, name: str, work: Callable[[], None]) -> None:
        """Do it, unless time is out; a failure is written down and the rest goes on."""
        if self.left <= 0:
            self.skipped.append(f"{name}: the budget of {self.work.budget:g} s is used up")
            return
        self.say(name)
        try:
            work()
        except torch.OutOfMemoryError:
            self._short_of_memory(name, self.work)
        except (MeasureError, KeyboardInterrupt) as error:
            self.errors.append(f"{name}: {first_line(error) if isinstance(error, MeasureError) else 'interrupted'}")
            self.keep(self)
            raise
        except (RuntimeError, NotImplementedError, LlmcalcError, LookupError, ValueError) as error:
            self.errors.append(f"{name}: {first_line(error)}")
        self.keep(self)

    def _short_of_memory(self, name: str, work: Workload) -> None:
        asked = need(work, self.machine)
        self.errors.append(
            f"{name}: out of memory, where {asked.total - asked.spare:,} bytes were predicted; "
            f"{self.machine.free_bytes():,} are free now"
        )

    def _check(self, model: Decoder) -> None:
        self.checks = checks(model, self.work, self.machine)

    def _calibrate(self) -> None:
        self.calibration = calibrate(self.machine, self.work)
        if not self.calibration.beyond_cache:
            self.warnings.append("calibrated on buffers that caches may hold in part: give more --budget or memory")

    def _time(self, ready: Ready, step: Callable[[], object], share: float = 0.25) -> tuple[Samples, MemoryUse]:
        self.machine.reset_peak()
        samples = timed(self.machine, step, limit=max(0.05, self.left * share))
        if not bool(torch.isfinite(ready.logits()).all()):
            raise MeasureError("the logits are not finite: a fast wrong answer is no measurement")
        return samples, self.machine.memory()

    def _decode(self, model: Decoder, mode: Mode) -> None:
        work = self.work
        for tokens, batch in work.shapes():
            try:
                self._shape(model, mode, tokens, batch)
            except torch.OutOfMemoryError:
                self._short_of_memory(f"decode ({mode}, {batch} x {tokens})", replace(work, tokens=tokens, batch=batch))
            except RuntimeError as error:
                self.errors.append(f"decode ({mode}, {batch} x {tokens}): {first_line(error)}")

    def _shape(self, model: Decoder, mode: Mode, tokens: int, batch: int) -> None:
        work, machine, found = self.work, self.machine, self.calibration
        before_bytes = machine.memory().process
        ready = decode(model, work, machine, tokens, batch)
        counted = self._launched(tokens, batch) or launches(model, ready.tokens, ready.cache, tokens)
        # Compiled, what is between two products is part of them.
        count = counted.products if mode == "compiled" else counted.operators
        begun = time.perf_counter()
        step = ready.step if mode == "eager" else self._captured(ready, mode)
        if mode == "compiled":  # compiling is not timing: the budget is not for it
            self._begun += time.perf_counter() - begun
        samples, memory = self._time(ready, step)
        self._look(step, samples)
        own = None if found is None else predict.decode(machine, work, found, mode, count, tokens, batch)
        row = predict.catalogue_decode(machine, work, tokens, batch)
        moved, flops = predict.moved(work, "decode", tokens, batch)
        self.runs.append(
            Run("decode", mode, batch, tokens, samples, own, row, memory, moved, flops, counted, before_bytes)
        )

    def _look(self, step: Callable[[], object], samples: Samples) -> None:
        """Clocks, and what holds them, while work is queued: an idle card says nothing of a busy one."""
        if self.machine.kind == "cuda":
            for _ in range(min(1000, 1 + int(LOOK_SECONDS / samples.median))):
                step()
        self.states["load"] = dict(self.machine.state())
        self.machine.sync()
        if self.states["load"].get("throttled"):
            self.warnings.append("the device holds its clocks back: these are the times of a throttled one")

    def _captured(self, ready: Ready, mode: Mode) -> Callable[[], object]:
        """The step as a graph, once it was held against the eager one from the same token and states."""
        start = ready.remembered()
        with torch.compiler.set_stance("force_eager"):
            ready.step()
        before = ready.logits().float().clone()
        step = self.machine.capture(ready.step) if self.machine.supports("graph") else ready.step
        ready.restore(start)
        step()
        self._agree(before, ready.logits().float(), mode)
        return step

    def _launched(self, tokens: int, batch: int) -> Launched | None:
        """Launches of a step that was counted before: counting one keeps a block from being compiled afterwards."""
        return next((run.launches for run in steps_of(self.runs, tokens, batch)), None)

    def _agree(self, before: torch.Tensor, after: torch.Tensor, mode: str) -> None:
        error = float((after - before).norm() / before.norm())
        limit = max(GRAPH_ERROR, tolerance(self.work))
        self.checks.append(Check(f"{mode} against eager", "relative", 0.0, error, error < limit, limit))

    def _deeper(self) -> None:
        runs = steps_of(self.runs, *self.work.shapes()[0])
        if self.calibration is not None and runs:
            limit = max(0.05, self.left / 4)
            self.extrapolated = extrapolate(self.work, self.machine, self.calibration, runs[-1], limit)
            if self.extrapolated is None:
                self.skipped.append("a second depth: one layer has no half; give --layers 2 or more to extrapolate")

    def _prefill(self, model: Decoder) -> None:
        work, machine = self.work, self.machine
        if self.calibration is not None:
            likely = PASSES * predict.prefill(machine, work, self.calibration, 0).seconds
            if likely > self.left:
                self.skipped.append(f"prefill: {likely:.0f} s of work by the estimate, and {self.left:.0f} s are left")
                return
        before = machine.memory().process
        ready = prefill(model, work, machine)
        count = launches(model, ready.tokens, ready.cache, 0)
        samples, memory = self._time(ready, ready.step)
        own = None if self.calibration is None else predict.prefill(machine, work, self.calibration, count.operators)
        row = predict.catalogue_prefill(machine, work)
        moved, flops = predict.moved(work, "prefill", work.prompt, work.batch)
        self.runs.append(
            Run("prefill", "eager", work.batch, work.prompt, samples, own, row, memory, moved, flops, count, before)
        )

    def _train(self, model: Decoder) -> None:
        from llmcalc.measure.training import train

        self.training = train(model, self.work, self.machine)

    def _again(self, model: Decoder) -> None:
        first = next((run for run in self.runs if run.phase == "decode"), None)
        if first is None:
            self.skipped.append("the first shape again: it did not run")
            return
        ready = decode(model, self.work, self.machine, first.tokens, first.batch)
        samples, _ = self._time(ready, ready.step, 0.5)
        self.drift = drift(first.samples, samples)
        if abs(self.drift) > DRIFT:
            self.warnings.append(
                f"the first shape ran {100 * self.drift:+.1f}% at the end: heat, clocks or a neighbour"
            )

    def _compiled(self, model: Decoder) -> None:
        compile_blocks(model)
        self._decode(model, "compiled")

    def _energy(self, model: Decoder) -> None:
        found = energy(model, self.work, self.machine, self.runs, self.left)
        if isinstance(found, str):
            self.skipped.append(f"energy: {found}")
        else:
            self.energy = found | {"watts_before": self.states["before"].get("power_watts")}
