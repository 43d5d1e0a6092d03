"""The command line: a verb's body is parse, calculate, report."""

from __future__ import annotations

from llmcalc.cli.app import main

__all__ = ["main"]
