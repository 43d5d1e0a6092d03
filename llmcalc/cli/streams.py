"""Standard output and standard error as they are: full, closed, a broken pipe, or without the signs of a table."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Final

from llmcalc.errors import OutputError

# What the screen is drawn with, and the signs that origins of configs hold (quotes, dashes, a times sign).
PLAIN: Final = {
    0xB7: "|", 0x2500: "-", 0x2026: "...", 0xD7: "x", 0x2013: "-", 0x2014: "-", 0x2018: "'", 0x2019: "'", 0x201C: '"',
    0x201D: '"',
}  # fmt: skip


def prepare() -> None:
    """Let no character of a name end the program: what a stream cannot write is escaped there."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def plain(stream: object) -> bool:
    """Whether a stream lacks the signs that tables and headlines are drawn with."""
    try:
        "·─".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def say(text: str) -> None:
    """Write to standard output, now.

    Raises: OutputError where it is closed or full; BrokenPipeError where nobody reads on.
    """
    if sys.stdout is None:
        raise OutputError("standard output is closed", "give -o FILE, or leave standard output open")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        abandon()
        raise OutputError(f"standard output could not be written: {error.strerror}") from None


def complain(text: str) -> None:
    """Write to standard error; where that is closed or full there is nobody to tell."""
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.write(text.translate(PLAIN) if plain(sys.stderr) else text)


def abandon() -> None:
    """Let what is left in standard output's buffer go nowhere, so that its end is quiet."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
