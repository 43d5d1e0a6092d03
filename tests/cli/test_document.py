"""Every verb's JSON is the document that the schema describes."""

from __future__ import annotations

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from llmcalc.report.document import Document, json_schema

Run = Callable[..., CompletedProcess[str]]
COMMANDS = [
    ("inspect", "gpt2"),
    ("params", "deepseek-v3"),
    ("weights", "gpt-oss-20b"),
    ("kv-cache", "qwen3-next-80b-a3b", "--engine", "vllm"),
    ("flops", "llama-3-8b"),
    ("mfu", "llama-3-8b", "--tokens-per-second", "1000", "--gpu", "h100"),
    ("latency", "llama-3-8b", "--gpu", "h100"),
    ("capacity", "llama-3-8b", "--memory", "24GiB"),
    ("cost", "--expense", "100000", "--saving", "0.01"),
    ("models",),
    ("gpus",),
    ("formats",),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_document(run: Run, words: tuple[str, ...]) -> None:
    done = run(*words, "--json")
    document = Document.model_validate_json(done.stdout)

    assert done.returncode == 0
    assert document.command == words[0]
    assert (document.model is None) == (len(words) == 1 or words[0] == "cost")


def test_the_schema_names_the_envelope() -> None:
    assert set(json_schema()["required"]) == {
        "schema", "version", "command", "model", "inputs", "assumptions", "results", "warnings",
    }  # fmt: skip
