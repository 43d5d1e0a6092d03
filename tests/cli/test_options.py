"""Options as they are typed: numbers, lengths, names of any case, and what is changed about a config."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

Run = Callable[..., CompletedProcess[str]]


def document(run: Run, *words: str) -> dict[str, Any]:
    done = run(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--tokens", "4,096"), "--tokens is '4,096', expected a number without separators: 4096"),
        (("--tokens", "-5"), "--tokens is '-5', expected at least 1"),
        (("--tokens", "many"), "expected a whole number of tokens, like 4096, 128k or 128Ki"),
        (("--tokens", "9" * 5000), "expected"),
        (("--tokens", "1M", "--lengths", "3"), "--lengths stands in place of --tokens"),
        (("--lengths", "3", "--batch", "1"), "--lengths stands in place of --batch"),
        (("--lengths-file", "f", "--batch", "2"), "--lengths-file stands in place of --batch"),
        (("--batch", "abc"), "--batch is 'abc', expected a whole number"),
        (("--batch", "-1"), "--batch is '-1', expected at least 1"),
        (("--tp", "2.5"), "--tp is '2.5', expected a whole number"),
        (("--lengths", "1,x"), "--lengths: 'x', expected a whole number"),
        (("--lengths", ""), "--lengths: there are no lengths"),
        (("--lengths", "-3"), "at least 1"),
        (("--lengths", "18,0"), "'0', expected at least 1"),
        (("--lengths", "4,096"), "'096' begins with a zero"),
        (("--lengths", "[1, [2]]"), "a flat JSON list"),
    ],
)
def test_usage(run: Run, words: tuple[str, ...], says: str) -> None:
    done = run("kv-cache", "gpt2", *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", ["kv-cache", "flops"])
def test_lengths_and_tokens_exclude_each_other_everywhere(run: Run, verb: str) -> None:
    assert run(verb, "gpt2", "--lengths", "3", "--tokens", "3").returncode == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[1, [2]]", "a flat JSON list"), ("[1, 2", "begins like JSON"), ('{"a": 1}', "a flat JSON list"),
        ("[true]", "a flat JSON list"), ("[1.5]", "a flat JSON list"), ("1 2 x", "'x', expected"), ("", "no lengths"),
        ("[-1]", "at least 1"), ("[18, 0]", "at least 1"), ("18\n0\n", "at least 1"),
    ],
)  # fmt: skip
def test_a_bad_file_of_lengths(run: Run, tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "lens.txt").write_text(content)
    done = run("kv-cache", "gpt2", "--lengths-file", "lens.txt")

    assert (done.returncode, done.stdout) == (1, "")
    assert "--lengths-file lens.txt: " in done.stderr
    assert says in done.stderr


def test_no_file_of_lengths(run: Run) -> None:
    assert "--lengths-file none.txt: No such file" in run("kv-cache", "gpt2", "--lengths-file", "none.txt").stderr


class TestWhatWasChanged:
    @pytest.mark.parametrize("verb", ["inspect", "params", "weights", "kv-cache", "flops"])
    def test_inputs(self, run: Run, verb: str) -> None:
        changed = document(run, verb, "llama-3-8b", "--set", "num_key_value_heads=32", "--source", "CATALOG")

        assert changed["inputs"]["set"] == {"num_key_value_heads": 32}
        assert (changed["inputs"]["as"], changed["inputs"]["source"]) == (None, "catalog")
        assert document(run, verb, "llama-3-8b")["inputs"].items() >= {"set": {}, "as": None, "source": None}.items()
        assert "asked" not in changed["model"]

    def test_headline(self, run: Run) -> None:
        lines = run("kv-cache", "mistral-7b", "--set", "num_key_value_heads=32", "--as", "LLaMA").stdout.splitlines()

        assert lines[1] == "with num_key_value_heads = 32; read as LLaMA"

    def test_another_family_than_its_own_is_a_warning(self, run: Run) -> None:
        assert "the config's own family mistral is known" in run("kv-cache", "mistral-7b", "--as", "llama").stderr
        assert run("kv-cache", "llama-3-8b", "--as", "Llama").stderr == ""


def test_names_of_any_case(run: Run) -> None:
    one = document(run, "kv-cache", "llama-3-8b", "--engine", "vLLM", "--cache", "FP8")
    two = document(run, "kv-cache", "llama-3-8b", "--engine", "vllm", "--cache", "fp8")

    assert one["results"] == two["results"]


@pytest.mark.parametrize(
    ("text", "name"), [("auto:fp8", "bf16:fp8"), ("fp8:AUTO", "fp8:bf16"), ("auto:auto", "bf16"), ("auto", "bf16")]
)
def test_auto_on_one_side_is_the_models_own(run: Run, text: str, name: str) -> None:
    assert document(run, "kv-cache", "llama-3-8b", "--cache", text)["results"]["cache_format"] == name


@pytest.mark.parametrize("verb", ["kv-cache", "flops"])
@pytest.mark.parametrize("option", ["--image-tokens", "--encoder-tokens"])
def test_positions_that_nobody_reads(run: Run, verb: str, option: str) -> None:
    warnings = document(run, verb, "llama-3-8b", option, "100")["warnings"]

    assert any(text.startswith(f"{option} has no effect") for text in warnings)


def test_positions_that_are_read(run: Run) -> None:
    assert not any(
        "no effect" in text for text in document(run, "kv-cache", "t5-small", "--encoder-tokens", "9")["warnings"]
    )


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e999", "[1, NaN]"])
def test_no_number_is_no_value(run: Run, value: str) -> None:
    done = run("params", "llama-3-8b", "--set", f"initializer_range={value}", "--json")

    assert (done.returncode, done.stdout) == (2, "")
    assert "NaN and Infinity" in " ".join(done.stderr.split())
