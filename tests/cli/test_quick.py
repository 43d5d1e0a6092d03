"""Options that are read at once have the values that typer itself would give them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import typer

from llmcalc.cli.app import VERBS
from llmcalc.cli.quick import read_at_once

MODEL = ("llama-3-70b",)
COMMON = ("--tokens", "128Ki", "--batch", "3", "--tp", "2", "--set", "num_hidden_layers=2", "--explain", "--json")
TYPED: dict[str, tuple[tuple[str, ...], ...]] = {
    "inspect": ((), (*MODEL, "--json"), (*MODEL, "--as", "llama", "--source", "catalogue")),
    "params": ((), (*MODEL, "--markdown")),
    "weights": ((), (*MODEL, "--weights", "nf4", "--group-size", "64", "--ep", "2"), ("--params", "70e9")),
    "kv-cache": ((), (*MODEL, *COMMON), (*MODEL, "--cache", "q8_0:Q4_0", "--lengths", "18,31", "--engine", "VLLM")),
    "flops": ((), (*MODEL, "--phase", "train", "--recompute", "full", "--tokens", "2048")),
    "mfu": ((), (*MODEL, "--tokens-per-second", "1e4", "--gpu", "h100")),
    "latency": ((), (*MODEL, "--gpu", "h100", "--bandwidth", "3TB/s", "--mla", "Expanded", "--acceptance", "0.5")),
    "capacity": ((), (*MODEL, "--gpu", "h100", "--memory", "80GiB", "--utilization", "0.9", "--check")),
    "cost": ((), ("--expense", "100,000", "--saving", "0.01"), (*MODEL, "--price", "2.5", "--gpu", "h100")),
    "verify": ((), MODEL),
    "measure": ((), (*MODEL, "--device", "cuda:1", "--phase", "Decode", "--layers", "4", "--budget", "9", "--save")),
    "models": ((), ("llama", "--json")),
    "gpus": ((), ("h100", "--json")),
    "formats": ((), ("--json",)),
}


def values(verb: str, words: tuple[str, ...], *, quick: bool) -> dict[str, Any] | str:
    """What the verb would be called with, or the refusal's words."""
    command: Any = typer.main.get_command(import_module(f"llmcalc.cli.{VERBS[verb]}").app)
    if quick:
        read_at_once(command.params)
    try:
        found: dict[str, Any] = command.make_context(verb, list(words)).params
    except Exception as error:  # whatever it is, both must say the same
        return f"{type(error).__name__}: {error}"
    return found


def test_every_verb_is_compared() -> None:
    assert list(TYPED) == list(VERBS)


@pytest.mark.parametrize(("verb", "words"), [(verb, words) for verb, lines in TYPED.items() for words in lines])
def test_the_same_values(verb: str, words: tuple[str, ...]) -> None:
    read, usual = values(verb, words, quick=True), values(verb, words, quick=False)
    assert read == usual
    if isinstance(read, dict) and isinstance(usual, dict):
        assert {name: type(value) for name, value in read.items()} == {n: type(value) for n, value in usual.items()}


def test_lines_with_a_model_are_read() -> None:
    for verb, lines in TYPED.items():
        for words in lines[1:]:
            assert isinstance(values(verb, words, quick=True), dict), (verb, words)
