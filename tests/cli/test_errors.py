"""Bad input: one line that names file, field, what was found and what was expected; no estimate, no traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

Run = Callable[..., CompletedProcess[str]]
LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN_MOE = {**LLAMA, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 8}


def refused(done: CompletedProcess[str], *words: str, code: int = 1) -> None:
    assert done.returncode == code
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": -1}, ["hidden_size is -1", "at least 1"]),
        ({"num_hidden_layers": 0}, ["num_hidden_layers is 0", "at least 1"]),
        ({"num_attention_heads": 0, "num_key_value_heads": 0}, ["num_attention_heads is 0"]),
        ({"hidden_size": None}, ["hidden_size is null"]),
        ({"hidden_size": True}, ["hidden_size is True", "a whole number"]),
        ({"hidden_size": 4096.5}, ["hidden_size is 4096.5", "a whole number"]),
        ({"hidden_size": [4096]}, ["hidden_size is [4096]", "a whole number"]),
        ({"hidden_size": {"a": 1}}, ["hidden_size", "a whole number"]),
        ({"hidden_size": "wide"}, ["hidden_size is 'wide'", "a whole number"]),
        ({"hidden_size": 2**53 + 1}, ["hidden_size", "at most 2^53"]),
        ({"num_hidden_layers": 2**40}, ["num_hidden_layers", "layers"]),
        ({"num_key_value_heads": 5}, ["num_key_value_heads is 5", "does not divide", "num_attention_heads = 32"]),
        ({"num_attention_heads": 48, "num_key_value_heads": 48}, ["4,096 is not a multiple of 48"]),
        ({"tie_word_embeddings": "yes"}, ["tie_word_embeddings is 'yes'", "true or false"]),
        ({"model_type": "lama"}, ["model_type 'lama' is not known", "llama", "--as"]),
        ({"model_type": None}, ["model_type is missing", "--as FAMILY"]),
        ({"model_type": 7}, ["model_type is 7", "a string"]),
    ],
)
def test_bad_fields(run: Run, tmp_path: Path, changes: dict[str, Any], words: list[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, **changes}))

    refused(run("kv-cache", "./config.json"), "config.json", *words)


@pytest.mark.parametrize("name", ["hidden_size", "num_hidden_layers", "num_attention_heads"])
def test_missing_required_field(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in LLAMA.items() if k != name}))

    refused(run("params", "./config.json"), f"{name} is missing", f"--set {name}=N")


def test_more_active_experts_than_experts(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**QWEN_MOE, "num_experts_per_tok": 9}))

    refused(run("params", "./config.json"), "num_experts_per_tok is 9", "more than the 8 experts")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_not_a_number_where_it_is_read(run: Run, tmp_path: Path, number: str) -> None:
    text = json.dumps(LLAMA).replace("4096", number)
    (tmp_path / "config.json").write_text(text)

    refused(run("kv-cache", "./config.json"), "hidden_size is NaN or Infinity")


def test_not_a_number_elsewhere_is_a_warning(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "time_step_limit": [0.0, float("inf")]}))
    done = run("kv-cache", "./config.json", "--json")

    assert done.returncode == 0
    assert any("time_step_limit" in text for text in json.loads(done.stdout)["warnings"])


@pytest.mark.parametrize(
    "text", ["", "   ", "{", "[]", "[{}]", "null", '"llama"', "3", "{'model_type': 'llama'}", "\x00"]
)
def test_not_a_config(run: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)

    refused(run("kv-cache", "./config.json"), "config.json")


def test_standard_input(run: Run) -> None:
    assert run("kv-cache", "-", "--json", stdin=json.dumps(LLAMA)).returncode == 0
    refused(run("kv-cache", "-", stdin="{"), "error[")


def test_byte_order_mark_is_accepted(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("\ufeff" + json.dumps(LLAMA), "utf-8")

    assert run("kv-cache", "./config.json").returncode == 0


def test_numeric_string_is_accepted_with_a_warning(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "hidden_size": "4096"}))
    done = run("kv-cache", "./config.json", "--json")

    assert done.returncode == 0
    assert any("hidden_size is the string '4096'" in text for text in json.loads(done.stdout)["warnings"])


def test_a_default_that_changes_a_number_is_a_warning(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in LLAMA.items() if k != "vocab_size"}))
    done = run("params", "./config.json", "--json")

    assert any("vocab_size is not given: 32,000" in text for text in json.loads(done.stdout)["warnings"])


def test_unknown_fields_are_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "super_heads": 3, "attention_dropout": 0.0}))
    warnings = json.loads(run("params", "./config.json", "--json").stdout)["warnings"]

    assert any(text.endswith("harmless: super_heads") for text in warnings)


def test_unknown_type_read_as_a_family(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "model_type": "my_llama"}))
    done = run("kv-cache", "./config.json", "--as", "llama", "--json")

    assert json.loads(done.stdout)["results"]["bytes_per_token"] == 131_072
    refused(run("kv-cache", "./config.json", "--as", "lama"), "no such family", "llama")


def test_remote_code_is_never_run(run: Run, tmp_path: Path) -> None:
    """auto_map is a key like any other; a Python file beside the config stays a file."""
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "auto_map": {"AutoConfig": "evil.Config"}}))
    (tmp_path / "evil.py").write_text("raise SystemExit('run')")

    assert run("kv-cache", ".").returncode == 0


def test_lora_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lora").mkdir()
    (tmp_path / "lora" / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')

    refused(run("kv-cache", "./lora"), "adapter", "org/base")


def test_diffusers_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "pipe").mkdir()
    (tmp_path / "pipe" / "model_index.json").write_text("{}")

    refused(run("kv-cache", "./pipe"), "diffusers")


def test_folder_of_gguf_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "model-Q4_K_M.gguf").write_bytes(b"GGUF")

    refused(run("kv-cache", "./files"), "model-Q4_K_M.gguf")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("kvcache", "llama-3-70b"), "kv-cache"),
        (("kv-cache",), "MODEL"),
        (("kv-cache", "llama-3-70b", "--tokens", "-5"), "tokens"),
        (("kv-cache", "llama-3-70b", "--tokens", "0"), "tokens"),
        (("kv-cache", "llama-3-70b", "--tokens", "many"), "tokens"),
        (("kv-cache", "llama-3-70b", "--batch", "0"), "batch"),
        (("kv-cache", "llama-3-70b", "--tp", "0"), "tp"),
        (("kv-cache", "llama-3-70b", "--nonsense"), "nonsense"),
        (("kv-cache", "llama-3-70b", "--json", "--csv"), "exclude"),
    ],
)
def test_usage(run: Run, words: tuple[str, ...], found: str) -> None:
    refused(run(*words), found, code=2)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("kv-cache", "llama-3-7b"), "llama-3-70b"),
        (("kv-cache", "./not/exist"), "not/exist"),
        (("kv-cache", ""), "empty"),
        (("kv-cache", "llama-3-70b", "--engine", "nope"), "transformers"),
        (("kv-cache", "llama-3-70b", "--source", "moon"), "hub"),
        (("models", "llama-3-7b"), "llama-3-70b"),
    ],
)
def test_not_found(run: Run, words: tuple[str, ...], found: str) -> None:
    refused(run(*words), found, "error[")


def test_offline(run: Run) -> None:
    refused(run("params", "nobody/no-such-model"), "error[offline]", "hint:")


def test_parts_nobody_describes_are_refused(run: Run) -> None:
    refused(run("params", "kimi-k3"), "vision_config")
    assert run("kv-cache", "kimi-k3").returncode == 0
