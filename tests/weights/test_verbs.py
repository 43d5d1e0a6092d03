"""``llmcalc weights`` and ``llmcalc formats`` as people and scripts meet them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from llmcalc.calc.weights import rule_of_thumb
from llmcalc.cli.app import app
from llmcalc.schemes.mixes import MIXES
from llmcalc.schemes.named import FORMATS

runner = CliRunner()


def run(*words: str) -> tuple[int, str, str]:
    done = runner.invoke(app, words, env={"COLUMNS": ""})
    return done.exit_code, done.stdout, done.stderr


def results(*words: str) -> dict[str, object]:
    code, out, err = run("weights", *words, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["command"] == "weights"
    return document["results"]  # type: ignore[no-any-return]


KEYS = ("total_bytes", "mtp_bytes", "vision_bytes", "bits_per_weight", "components", "per_device_bytes")


def test_keys_of_the_document() -> None:
    found = results("gpt-oss-20b")
    assert set(KEYS) <= set(found)
    assert found["total_bytes"] == 13_761_264_768
    assert isinstance(found["bits_per_weight"], float)
    assert found["per_device_bytes"] == found["total_bytes"]


def tree(parts: list[dict[str, object]]) -> int:
    for part in parts:
        inner = part.get("components")
        if inner:
            assert tree(inner) == part["bytes"]  # type: ignore[arg-type]
    return sum(int(part["bytes"]) for part in parts)  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["deepseek-v3", "gemma-3-27b", "t5-base", "qwen3-vl-2b", "mamba-130m"])
@pytest.mark.parametrize("stored", ["config", "q4_k_m", "nf4"])
def test_components_sum_to_the_total(name: str, stored: str) -> None:
    found = results(name, "--weights", stored)
    assert tree(found["components"]) == found["total_bytes"]  # type: ignore[arg-type]


def test_explained_figures_multiply_and_add() -> None:
    code, out, _ = run("weights", "llama-3.1-8b", "--weights", "gptq", "--json", "--explain")
    assert code == 0

    def check(figure: dict[str, object]) -> None:
        parts: list[dict[str, object]] = figure.get("parts", [])  # type: ignore[assignment]
        if parts:
            assert sum(int(part["value"]) for part in parts) == figure["value"]  # type: ignore[call-overload]
        for part in parts:
            check(part)

    for figure in json.loads(out)["figures"]:
        check(figure)
    code, text, _ = run("weights", "llama-3.1-8b", "--weights", "gptq", "--explain")
    assert "32 layers x 512 words of inputs x 4,096 out x 4 bytes a word = 268,435,456 B = 256.00 MiB" in text


@pytest.mark.parametrize("form", ["--csv", "--markdown"])
def test_other_forms(form: str) -> None:
    code, out, _ = run("weights", "deepseek-v3", form)
    assert code == 0
    assert "673150611808" in out or "673,150,611,808" in out


def test_a_unit_for_people() -> None:
    _, out, _ = run("weights", "deepseek-v3")
    assert "673,150,611,808 bytes = 626.92 GiB" in out
    assert "beside it multi-token-prediction heads: 15,424,227,552 bytes" in out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("gpt-oss-20b", "--weights", "q9_z"), 1, "unsupported-format"),
        (("gpt-oss-20b", "--group-size", "64"), 1, "invalid-input"),
        (("llama-3-8b", "--tp", "3"), 1, "does not divide"),
        (("llama-3-8b", "--params", "7e9"), 2, "--params"),
        ((), 2, "--params"),
        (("--params", "7e9"), 1, "--weights"),
    ],
)
def test_errors(words: tuple[str, ...], code: int, message: str) -> None:
    found, out, err = run("weights", *words)
    assert found == code
    assert not out
    assert message in err


def test_an_unknown_method_is_named(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    data = json.loads(Path(__file__).with_name("unknown_method.json").read_text())
    config.write_text(json.dumps(data))
    code, out, err = run("weights", str(config))
    assert (code, out) == (1, "")
    assert "brand_new" in err
    assert "Traceback" not in err


def test_set_reaches_into_the_quantization() -> None:
    plain = results("qwen2.5-14b-instruct-gptq-int4")
    wider = results("qwen2.5-14b-instruct-gptq-int4", "--set", "quantization_config.bits=8")
    none = results("qwen2.5-14b-instruct-gptq-int4", "--set", "quantization_config=null")
    assert plain["total_bytes"] < wider["total_bytes"] < none["total_bytes"] == 2 * 14_770_033_664  # type: ignore[operator]


def test_a_quantized_name_without_a_config_for_it_is_a_warning() -> None:
    code, _, err = run("weights", "deepseek-v3.1-nvfp4", "--json")
    assert code == 0
    assert "has no quantization_config" in err


# -- rules of thumb ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "name", "size"),
    [
        (7_000_000_000, "bf16", 14_000_000_000),
        (7_000_000_000, "fp8", 7_000_000_000),
        (7_000_000_000, "nf4", 3_937_500_000),
        (7_000_000_000, "q4_k_m", 3_937_500_000),
        (70_000_000_000, "mxfp4", 37_187_500_000),
        (3, "q4_0", 2),
    ],
)
def test_rules_of_thumb(params: int, name: str, size: int) -> None:
    assert rule_of_thumb(params, name)[0] == size


def test_rules_of_thumb_are_called_so() -> None:
    found = results("--params", "7e9", "--weights", "int4")
    assert found["total_bytes"] == 3_609_375_000
    assert found["rule_of_thumb"] is True
    _, out, _ = run("weights", "--params", "7B", "--weights", "int4", "--explain")
    assert "rule of thumb" in out


# -- formats -------------------------------------------------------------------------------------------------------


def test_formats_are_listed_with_bits_block_and_source() -> None:
    code, out, _ = run("formats", "--json")
    rows = json.loads(out)["results"]["formats"]
    assert code == 0
    names = {row["name"] for row in rows}
    assert set(FORMATS) | set(MIXES) <= names
    assert all(row["bits_per_weight"] > 0 and row["block"] >= 0 for row in rows)
    assert all(row["source"] for row in rows if row["use"] != "cache")


@pytest.mark.parametrize(
    ("name", "bits"),
    [("q4_k", 4.5), ("q6_k", 6.5625), ("mxfp4", 4.25), ("nvfp4", 4.5), ("gptq", 4.15625), ("fp8-block", 8.001953125),
     ("iq2_xxs", 2.0625), ("nf4-dq", 4.126953125), ("w4a16", 4.125), ("iq1_s", 1.5625), ("hqq-4bit", 4.5)],
)  # fmt: skip
def test_one_format(name: str, bits: float) -> None:
    code, out, _ = run("formats", name, "--json")
    rows = json.loads(out)["results"]["formats"]
    assert code == 0
    assert bits in [row["bits_per_weight"] for row in rows]


def test_a_mix_tells_its_tensors() -> None:
    code, out, _ = run("formats", "q3_k_m", "--json")
    tensors = json.loads(out)["results"]["tensors"]
    assert code == 0
    assert {"tensor": "ffn_down", "when": "i<n/16", "type": "q5_k"} in tensors


def test_an_unknown_format_suggests() -> None:
    code, out, err = run("formats", "q4_k_x")
    assert (code, out) == (1, "")
    assert "did you mean" in err


def test_the_cache_loads_none_of_this() -> None:
    script = (
        "import sys; from llmcalc.cli.app import app\n"
        "try: app(['kv-cache', 'llama-3-8b', '--json'])\n"
        "except SystemExit: pass\n"
        "bad = [m for m in sys.modules if m.startswith(('llmcalc.schemes', 'llmcalc.calc.weight'))]\n"
        "assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
