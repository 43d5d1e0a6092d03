"""The true bound of a pass, of the bytes that must move and the operations that must be done; and its roofline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from llmcalc.calc.links import Traffic
from llmcalc.calc.needed import Work
from llmcalc.calc.operators import Operator
from llmcalc.calc.rates import fastest, product_format
from llmcalc.calc.reads import Reader
from llmcalc.hardware.device import Device, Peak


@dataclass(frozen=True)
class Bounds:
    """What a device can do at best for a model as it is stored."""

    reader: Reader
    device: Device

    @cached_property
    def layouts(self) -> tuple[str, ...]:
        """How the matrices are stored."""
        stored = self.reader.stored
        return tuple(dict.fromkeys(item.share.layout.name for item in stored if item.site.weight.role == "matmul"))

    @cached_property
    def peak(self) -> Peak | None:
        """The dense rate that products can run at."""
        return fastest(self.device, self.layouts, self.reader.architecture.dtype)

    @cached_property
    def product_rate(self) -> int | None:
        """The same for the bound: at the rate of fp16 sums where the device has a higher one (GeForce; llama.cpp)."""
        return self._best(self.layouts, self.peak)

    @cached_property
    def attention_rate(self) -> int | None:
        """What attention can run at: in the format of the cache too, where that is narrower."""
        cache = self.reader.sizer.cache
        formats = (cache.key.name, cache.value.name)
        narrow = fastest(self.device, formats, self.reader.architecture.dtype)
        rates = (self.product_rate, self._best(formats, narrow))
        return max((rate for rate in rates if rate is not None), default=None)

    def _best(self, layouts: Sequence[str], peak: Peak | None) -> int | None:
        if peak is None:
            return None
        dtype, sums = self.reader.architecture.dtype, self.device.peak_fp16_accumulate_per_second
        formats = {product_format(layout, dtype) for layout in layouts} | {peak.dtype}
        names = {"fp16" if name == "bf16" else name for name in formats}
        return max(peak.per_second, *(sums[name] for name in names if name in sums), 0)

    def compute_seconds(self, work: Work) -> float | None:
        """Operations over the peaks of all tensor-parallel ranks."""
        if self.product_rate is None or self.attention_rate is None:
            return None
        tp = self.reader.ranks.tp
        return work.products / (tp * self.product_rate) + work.attention / (tp * self.attention_rate)

    def moved(self, operators: Sequence[Operator]) -> list[int]:
        """Bytes that must cross the memory bus, a stage.

        Not what no step needs (``spare``), and not what a cache can hold: its own size from the step before, again
        where something is touched again, and of a state that is written where it was read both.
        """
        cache, out = self.device.cache_bytes(), []
        for stage in range(len(self.reader.spans)):
            total, again, renewed = (_sum(operators, name, stage) for name in ("least", "again", "renewed"))
            total += _sum(operators, "written", stage) - _sum(operators, "spare", stage)
            out.append(max(0, total - self.held(again) - min(cache, renewed)))
        return out

    def roofline(self, operators: Sequence[Operator], said: Traffic) -> float:
        """The usual estimate: products one after another, as long as each moves bytes or computes, then the links."""
        bandwidth, link = self.device.bandwidth(), self.device.link_bytes_per_second
        rate = self.reader.ranks.tp * self.peak.per_second if self.peak else 0
        seconds = said.likely / link if link else 0.0
        for op in operators:
            for likely, written, flops in zip(op.likely, op.written, op.flops, strict=True):
                moving = (likely + written) / bandwidth
                seconds += max(moving, flops / rate) if rate else moving
        return seconds

    def held(self, again: int) -> int:
        """Bytes of a pass's reads that a cache can serve, where ``again`` bytes are read again."""
        cache = self.device.cache_bytes()
        return min(cache * (1 + self.reader.repeats), cache + again)


def _sum(operators: Sequence[Operator], name: str, stage: int) -> int:
    return sum(getattr(op, name)[stage] for op in operators if getattr(op, name))
