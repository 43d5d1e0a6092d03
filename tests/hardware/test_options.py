"""Options that describe a device: sizes and rates as people write them."""

from __future__ import annotations

import pytest
import typer

from llmcalc.cli import device_options as opt
from llmcalc.errors import InvalidInputError


def test_sizes_and_rates_are_read() -> None:
    assert opt._size("24GiB") == 24 * 2**30
    assert opt._rate("bandwidth", opt.BYTES)("3350GB/s") == 3350e9
    assert opt._rate("peak", opt.FLOPS)("989e12") == opt._rate("peak", opt.FLOPS)("989TFLOP/s") == 989e12
    for bad in ("24G", "-1", "x"):
        with pytest.raises(typer.BadParameter):
            opt._size(bad)
    with pytest.raises(typer.BadParameter):
        opt._rate("link", opt.BYTES)("0")


def test_described() -> None:
    card = opt.needed(opt.described("h200", 100 * 2**30, None, None, None))

    assert (card.memory(), card.bandwidth(), card.given) == (100 * 2**30, 4800 * 10**9, ("memory",))
    nothing = opt.described(None, None, None, None, None)
    assert nothing is None
    with pytest.raises(InvalidInputError, match="no device"):
        opt.needed(nothing)
