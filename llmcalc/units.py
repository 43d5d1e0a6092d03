"""Parse and print sizes, counts and rates: the only file that knows 1024 and 1e9."""

from __future__ import annotations

import re
from typing import Final

from llmcalc.errors import InvalidInputError

DECIMAL: Final = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
LARGEST: Final = 2**53

_SIZE = re.compile(r"\s*(\d{1,40}(?:\.\d{1,40})?(?:[eE]\+?\d{1,4})?)\s*([kKMGTP]i?)?(B)?\s*")


def _scaled(text: str, number: str, factor: int) -> int:
    value = int(number) * factor if number.isdecimal() else float(number) * factor
    if value > LARGEST * 2**40:
        raise InvalidInputError(f"{text!r} is too large")
    return round(value)


def parse_size(text: str) -> int:
    """Bytes: ``24GB`` is 24e9, ``24GiB`` is 24 x 2^30, a plain number is bytes; ``24G`` is refused as ambiguous."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InvalidInputError(f"{text!r} is not a size", "write it like 24GiB, 24GB or 25769803776")
    number, prefix, unit = match.group(1), match.group(2) or "", match.group(3)
    if prefix and not unit:
        letter = prefix[0].upper()
        raise InvalidInputError(
            f"{text!r} is ambiguous: {number}{letter}B is {_scaled(text, number, DECIMAL[letter]):,} bytes, "
            f"{number}{letter}iB is {_scaled(text, number, BINARY[letter + 'i']):,} bytes",
            f"write {number}{letter}B or {number}{letter}iB",
        )
    return _scaled(text, number, BINARY[prefix] if prefix.endswith("i") else DECIMAL[prefix])


def parse_tokens(text: str, name: str = "tokens", low: int = 1) -> int:
    """A token count: ``4096``, ``128k`` (128,000), ``128Ki`` (131,072)."""
    match = re.fullmatch(r"\s*(\d{1,4000})\s*([kKM]i?)?\s*", text)
    if match is None:
        raise InvalidInputError(f"--{name} is {text!r}, expected {_wanted(text, low)}", "4096, 128k or 128Ki")
    prefix = match.group(2) or ""
    factor = BINARY[prefix[0].upper() + "i"] if prefix.endswith("i") else DECIMAL[prefix]
    return _within(int(match.group(1)) * factor, text, name, low, LARGEST)


def parse_whole(text: str, name: str, low: int, high: int) -> int:
    """A whole number between two others, both included."""
    if not re.fullmatch(r"\s*[+-]?\d{1,4000}\s*", text):
        raise InvalidInputError(f"--{name} is {text!r}, expected a whole number")
    return _within(int(text), text, name, low, high)


def _wanted(text: str, low: int) -> str:
    """What is expected in place of a text that is no token count."""
    if re.fullmatch(r"\s*\d{1,3}(,\d{3})+\s*", text):
        return f"a number without separators: {text.strip().replace(',', '')}"
    if re.fullmatch(r"\s*-\d+\s*", text):
        return f"at least {low}"
    return "a whole number of tokens, like 4096, 128k or 128Ki"


def _within(value: int, text: str, name: str, low: int, high: int) -> int:
    if value < low:
        raise InvalidInputError(f"--{name} is {text!r}, expected at least {low}")
    if value > high:
        raise InvalidInputError(f"--{name} is {text!r}, expected at most {'2^53' if high == LARGEST else f'{high:,}'}")
    return value


def show_bytes(value: float) -> str:
    """Memory in the largest binary unit that leaves a number of at least one: ``1.25 GiB``."""
    for unit in ("PiB", "TiB", "GiB", "MiB", "KiB"):
        size = BINARY[unit[:2]]
        if abs(value) >= size:
            return f"{_short(value / size)} {unit}"
    return f"{value:,.0f} B"


def show_memory(value: int) -> str:
    """The exact number of bytes, and the same in a binary unit from a KiB on: ``2,048 bytes = 2.00 KiB``."""
    exact = counted(value, "byte")
    return f"{exact} = {show_bytes(value)}" if value >= BINARY["Ki"] else exact


def show_count(value: float) -> str:
    """A count in SI letters: ``70.55 B`` for 70.55e9."""
    for letter, size in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if abs(value) >= size:
            return f"{value / size:.2f} {letter}"
    return f"{value:,.0f}"


def _short(value: float) -> str:
    return f"{value:,.2f}" if value < 1000 else f"{value:,.0f}"


def counted(count: int, noun: str) -> str:
    """A number of things in words: ``1 sequence``, ``300,000 sequences``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def words(name: str) -> str:
    """A name as a person reads it: ``full_attention`` is ``full attention``."""
    return name.replace("_", " ")


def parse_count(text: str, name: str) -> int:
    """A count that may be written short: ``70e9``, ``70B`` or ``70G`` (70e9), ``350M``, ``1.4T``."""
    match = re.fullmatch(r"\s*(\d{1,40}(?:\.\d{1,40})?(?:[eE]\+?\d{1,4})?)\s*([kKMGBT]?)\s*", text)
    if match is None:
        raise InvalidInputError(f"--{name} is {text!r}, expected a count", "write it like 70e9, 70B or 1.4T")
    number, letter = match.groups()
    return _scaled(text, number, {**DECIMAL, "B": 10**9}[letter])


def parse_rate(text: str, name: str, units: tuple[str, ...]) -> float:
    """A rate per second, decimal: ``989e12``, or with one of the units, ``989TFLOP/s``, ``2039GB/s``."""
    known = "|".join(re.escape(unit) for unit in units)
    match = re.fullmatch(rf"\s*(\d{{1,40}}(?:\.\d{{1,40}})?(?:[eE]\+?\d{{1,4}})?)\s*(?:([kKMGTP]?)({known}))?\s*", text)
    value = float(match.group(1)) * DECIMAL[match.group(2) or ""] if match else 0.0
    if not 0 < value < float("inf"):
        raise InvalidInputError(
            f"--{name} is {text!r}, expected a rate above zero", f"write it like 989e12 or 989T{units[0]}"
        )
    return value


def show_flops(value: float) -> str:
    """Operations in decimal units, ``32.94 TFLOP``; whole training runs as they are written, ``3.80e25 FLOP``."""
    if abs(value) >= 10**21:
        return f"{value:.2e} FLOP".replace("e+", "e")
    for letter, size in (("E", 10**18), ("P", 10**15), ("T", 10**12), ("G", 10**9), ("M", 10**6)):
        if abs(value) >= size:
            return f"{value / size:,.2f} {letter}FLOP"
    return f"{value:,.0f} FLOP"


def show_operations(value: int) -> str:
    """The exact number of operations, and the same in a decimal unit from a million on."""
    return f"{value:,} FLOP" + (f" = {show_flops(value)}" if value >= 10**6 else "")


def show_bandwidth(value: float) -> str:
    """Bytes per second, decimal: ``3,350 GB/s``."""
    return f"{value / DECIMAL['G']:,.4g} GB/s" if value < 10**12 else f"{value / DECIMAL['G']:,.0f} GB/s"


def show_seconds(value: float) -> str:
    """A time in the unit that leaves a number of at least one: ``3.23 ms``, ``2.38 s``, ``1.50 h``."""
    for unit, size in (("h", 3600.0), ("s", 1.0), ("ms", 1e-3)):
        if value >= size and not (unit == "h" and value < 2 * size):
            return f"{value / size:,.4g} {unit}"
    return f"{value * 1e6:,.4g} us"
