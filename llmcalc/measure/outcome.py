"""What one shape took in one mode, beside what the estimates say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmcalc.hardware.device import Device
from llmcalc.measure import predict
from llmcalc.measure.calibrate import Calibration
from llmcalc.measure.exactness import Launched
from llmcalc.measure.machine import MemoryUse
from llmcalc.measure.samples import Samples


@dataclass
class Run:
    """One shape in one mode: its times, what the estimates say, and the memory it took."""

    phase: str
    mode: str
    batch: int
    tokens: int
    samples: Samples
    calibrated: predict.Predicted | None
    catalogue: predict.Predicted | None
    memory: MemoryUse
    moved: int  # bytes read and written, by the estimate
    flops: int
    launches: Launched
    before: int | None = None  # bytes of the process before its cache was made

    def document(self, rates: Calibration | None = None, device: Device | None = None) -> dict[str, object]:
        """For JSON; seconds and bytes. Shares are of the rates measured here, and of a catalogue's, if it has any."""
        achieved, done = self.moved / self.samples.median, self.flops / self.samples.median
        ceiling = device.bandwidth_bytes_per_second if device is not None else None
        said = {name: None if one is None else one._asdict()
                for name, one in (("calibrated", self.calibrated), ("catalogue", self.catalogue))}  # fmt: skip
        return {
            "phase": self.phase, "mode": self.mode, "batch": self.batch, "tokens": self.tokens,
            **self.samples.summary(), "tokens_per_second": self.rate, "launches": self.launches.operators,
            "predicted": said,
            "moved_bytes": self.moved, "flops": self.flops, "achieved_bytes_per_second": achieved,
            "achieved_flops_per_second": done,
            "of_copy": achieved / rates.copy.median if rates else None,
            "of_gemv": achieved / rates.gemv.median if rates else None,
            "of_matmul": done / rates.matmul.median if rates else None,
            "of_datasheet_bandwidth": achieved / ceiling if ceiling else None,
            **{f"{name}_bytes": value for name, value in self.memory._asdict().items()},
        }  # fmt: skip

    @property
    def rate(self) -> float:
        """Tokens a second: one a sequence of a decode step, all of a prompt."""
        number = self.batch if self.phase == "decode" else self.batch * self.tokens
        return number / self.samples.median


def steps_of(runs: Sequence[Run], tokens: int, batch: int) -> list[Run]:
    """The decode steps of one shape, in the order of their modes."""
    return [run for run in runs if (run.phase, run.tokens, run.batch) == ("decode", tokens, batch)]
