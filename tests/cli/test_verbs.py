"""The command line as scripts use it: envelope, keys, streams, exits, files."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

Run = Callable[..., CompletedProcess[str]]
VERBS = ["inspect", "params", "kv-cache"]
KEYS = {
    "inspect": {"layers", "hidden_size", "vocab_size", "max_position_embeddings", "tie_word_embeddings"},
    "params": {
        "total_params", "text_params", "untied_params", "stored_params", "active_params", "embedding_params",
        "lm_head_params", "non_embedding_params", "router_bias_params", "mtp_params", "vision_params", "audio_params",
        "components",
    },
    "kv-cache": {
        "total_bytes", "kv_bytes", "recurrent_bytes", "bytes_per_sequence", "bytes_per_token", "cache_format", "tokens",
        "batch", "total_tokens", "layers", "every_layer_full_bytes", "mla_expanded_bytes",
    },
}  # fmt: skip


def strict(text: str) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("verb", VERBS)
def test_envelope(run: Run, verb: str) -> None:
    done = run(verb, "llama-3-70b", "--json")
    document = strict(done.stdout)

    assert done.returncode == 0
    assert list(document) == ["schema", "version", "command", "model", "inputs", "assumptions", "results", "warnings"]
    assert document["schema"] == "llmcalc/1"
    assert document["command"] == verb
    assert document["model"].keys() >= {"name", "source", "revision", "sha256"}
    assert document["results"].keys() >= KEYS[verb]


def test_main_job(run: Run) -> None:
    done = run("kv-cache", "llama-3-70b", "--tokens", "4096")

    assert "1,342,177,280 bytes = 1.25 GiB per sequence" in done.stdout
    assert done.stderr == ""


def test_explain_prints_the_formula_with_its_numbers(run: Run) -> None:
    done = run("kv-cache", "llama-3-70b", "--tokens", "4096", "--explain")

    assert "= 2 x L layers x H K/V heads x N tokens x d wide x b bytes" in done.stdout
    assert (
        "= 2 x 80 layers x 8 K/V heads x 4,096 tokens x 128 wide x 2 bytes = 1,342,177,280 B = 1.25 GiB" in done.stdout
    )
    assert "not counted: paging" in done.stdout
    assert "source: arXiv:1706.03762; shared key/value heads arXiv:1911.02150" in done.stdout


def test_explain_is_in_json_too(run: Run) -> None:
    document = strict(run("params", "gpt2", "--json", "--explain").stdout)
    figure = document["figures"][0]

    assert figure["value"] == 124_439_808 == sum(part["value"] for part in figure["parts"])


def test_csv_has_a_header_and_exact_numbers(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(run("kv-cache", "gemma-3-27b", "--csv").stdout)))

    assert [row["kind"] for row in rows] == ["sliding attention", "full attention", "total"]
    assert sum(int(row["bytes"]) for row in rows[:2]) == int(rows[2]["bytes"])


def test_markdown_is_a_table(run: Run) -> None:
    lines = run("params", "gpt2", "--markdown").stdout.splitlines()

    assert any(line.startswith("| part | parameters |") for line in lines)


def test_a_pipe_is_never_cut(run: Run) -> None:
    """A table in a pipe is as wide as it is, without colour."""
    text = run("inspect", "deepseek-v3").stdout

    assert "\x1b" not in text
    assert "…" not in text
    assert "256 experts of width 2,048, 8 a token, beside a shared one of 2,048" in text


def test_columns_bound_the_width(run: Run) -> None:
    text = run("inspect", "deepseek-v3", COLUMNS="100", NO_COLOR="1").stdout

    assert max(len(line) for line in text.splitlines()) <= 100


class TestOutputFile:
    def test_written_whole_and_nothing_on_stdout(self, run: Run, tmp_path: Path) -> None:
        done = run("params", "gpt2", "--json", "-o", "out.json")

        assert done.stdout == ""
        assert strict((tmp_path / "out.json").read_text())["results"]["total_params"] == 124_439_808

    def test_refuses_to_overwrite(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "out.json").write_text("mine")
        done = run("params", "gpt2", "--json", "-o", "out.json")

        assert done.returncode == 1
        assert (tmp_path / "out.json").read_text() == "mine"
        assert "--force" in done.stderr

    def test_force_overwrites(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "out.json").write_text("mine")

        assert run("params", "gpt2", "--json", "-o", "out.json", "--force").returncode == 0
        assert (tmp_path / "out.json").read_text() != "mine"

    def test_missing_folder(self, run: Run) -> None:
        done = run("params", "gpt2", "-o", "none/out.txt")

        assert done.returncode == 1
        assert done.stderr.startswith("error[output]:")

    def test_nothing_is_left_behind_after_an_error(self, run: Run, tmp_path: Path) -> None:
        run("params", "no-such-model", "-o", "out.txt")

        assert list(tmp_path.iterdir()) == []


class TestLengths:
    def test_list(self, run: Run) -> None:
        results = strict(run("kv-cache", "llama-3-8b", "--lengths", "18,31", "--json").stdout)["results"]

        assert results["bytes_per_sequence"] == [18 * 131_072, 31 * 131_072]
        assert results["tokens"] == [18, 31]
        assert results["total_tokens"] == 49
        assert results["bytes_per_token"] is None

    @pytest.mark.parametrize("content", ["18\n31\n", "18, 31", "[18, 31]", "\ufeff18 31"])
    def test_file(self, run: Run, tmp_path: Path, content: str) -> None:
        (tmp_path / "lengths").write_text(content, "utf-8")
        results = strict(run("kv-cache", "llama-3-8b", "--lengths-file", "lengths", "--json").stdout)["results"]

        assert results["total_tokens"] == 49

    @pytest.mark.parametrize("text", ["", "1,x", "-3", "1e9", "1.5"])
    def test_nonsense(self, run: Run, text: str) -> None:
        done = run("kv-cache", "llama-3-8b", "--lengths", text)

        assert done.returncode != 0
        assert done.stdout == ""


class TestParallel:
    def test_heads_are_replicated_past_their_number(self, run: Run) -> None:
        words = ("kv-cache", "llama-3-70b", "--tokens", "1000", "--json")
        whole = strict(run(*words).stdout)["results"]["total_bytes"]
        halves = [strict(run(*words, "--tp", str(tp)).stdout)["results"]["per_device_bytes"] * tp for tp in (2, 8, 16)]

        assert halves == [whole, whole, 2 * whole]

    def test_first_stages_hold_one_layer_more(self, run: Run) -> None:
        results = strict(run("kv-cache", "llama-3-70b", "--tokens", "1", "--pp", "3", "--json").stdout)["results"]

        assert results["per_device_bytes"] == 27 * 4096

    def test_heads_that_do_not_divide(self, run: Run) -> None:
        done = run("kv-cache", "llama-3-70b", "--tp", "3")

        assert done.returncode == 1
        assert "3" in done.stderr
        assert "8" in done.stderr

    def test_more_stages_than_layers(self, run: Run) -> None:
        assert run("kv-cache", "gpt2", "--pp", "13").returncode == 1


class TestCacheFormats:
    @pytest.mark.parametrize(
        ("name", "bytes_"),
        [("fp32", 512), ("bf16", 256), ("f16", 256), ("fp8", 128), ("q8_0", 136), ("q4_0", 72), ("q5_1", 96),
         ("fp8_per_token_head", 132)],
    )  # fmt: skip
    def test_bytes_with_scales(self, run: Run, name: str, bytes_: int) -> None:
        results = strict(run("kv-cache", "llama-3-8b", "--tokens", "1", "--cache", name, "--json").stdout)["results"]

        assert results["total_bytes"] == 32 * 2 * 8 * bytes_

    def test_keys_and_values_apart(self, run: Run) -> None:
        results = strict(run("kv-cache", "llama-3-8b", "--tokens", "1", "--cache", "q8_0:f16", "--json").stdout)[
            "results"
        ]

        assert results["total_bytes"] == 32 * 8 * (136 + 256)
        assert results["cache_format"] == "q8_0:fp16"

    def test_unknown(self, run: Run) -> None:
        done = run("kv-cache", "llama-3-8b", "--cache", "int3")

        assert done.returncode == 1
        assert done.stderr.startswith("error[unsupported-format]: unknown format 'int3'")

    def test_blocks_that_do_not_divide_a_head(self, run: Run) -> None:
        done = run("kv-cache", "openlm-research/open_llama_3b", "--cache", "q4_0")

        assert (done.returncode, "32" in done.stderr) in ((0, False), (1, True))
        done = run("kv-cache", "microsoft/phi-2", "--cache", "q8_0")
        assert done.returncode == 1
        assert "row of 80" in done.stderr

    def test_the_configs_own_scheme(self, run: Run) -> None:
        results = strict(run("kv-cache", "nvidia/GLM-5.2-NVFP4", "--tokens", "1", "--json").stdout)["results"]

        assert results["cache_format"] == "fp8"

    def test_weights_in_4_bits_leave_the_cache(self, run: Run) -> None:
        results = strict(run("kv-cache", "TheBloke/Llama-2-13B-GPTQ", "--json").stdout)["results"]

        assert results["cache_format"] == "fp16"


class TestSet:
    def test_canonical_name_inside_a_wrapper(self, run: Run) -> None:
        text = run("kv-cache", "gemma-3-27b", "--set", "num_hidden_layers=6", "--json").stdout

        assert sum(row["count"] for row in strict(text)["results"]["layers"]) == 6

    def test_canonical_name_of_an_alias(self, run: Run) -> None:
        text = run("params", "gpt2", "--set", "num_hidden_layers=1", "--json").stdout

        assert strict(text)["results"]["total_params"] == 124_439_808 - 11 * 7_087_872

    def test_dotted(self, run: Run) -> None:
        text = run("params", "gemma-3-27b", "--set", "vision_config.num_hidden_layers=1", "--json").stdout

        assert strict(text)["results"]["vision_params"] < 50_000_000

    def test_nobody_reads_it(self, run: Run) -> None:
        done = run("kv-cache", "llama-3-8b", "--set", "num_heads_of_state=3")

        assert done.returncode == 1
        assert "nothing reads this field" in done.stderr

    def test_no_value(self, run: Run) -> None:
        assert run("kv-cache", "llama-3-8b", "--set", "hidden_size").returncode == 2


def test_tokens_units(run: Run) -> None:
    sizes = [
        strict(run("kv-cache", "llama-3-8b", "--tokens", text, "--json").stdout)["results"]["tokens"]
        for text in ("128k", "128Ki")
    ]

    assert sizes == [128_000, 131_072]


def test_past_the_context_is_a_warning(run: Run) -> None:
    done = run("kv-cache", "llama-3-8b", "--tokens", "8193", "--json")

    assert done.returncode == 0
    assert "max_position_embeddings" in strict(done.stdout)["warnings"][0]
    assert "warning: 8,193 tokens are past" in done.stderr


def test_every_layer_full_is_null_without_attention(run: Run) -> None:
    results = strict(run("kv-cache", "state-spaces/mamba-130m-hf", "--json").stdout)["results"]

    assert results["every_layer_full_bytes"] is None
    assert results["kv_bytes"] == 0
    assert results["recurrent_bytes"] > 0


def test_inspect_reads_aloud(run: Run) -> None:
    text = run("inspect", "llama-3-70b").stdout

    assert (
        "80 blocks; a width of 8,192; 64 query heads of 128 share 8 key/value heads; gated feed-forward of width 28,672"
        in text
    )


def test_inspect_draws_the_pattern(run: Run) -> None:
    assert "10 x (5 sliding, full), 2 sliding" in run("inspect", "gemma-3-27b").stdout


def test_models_lists_and_names_one(run: Run) -> None:
    listed = strict(run("models", "--json").stdout)["results"]["models"]
    one = strict(run("models", "LLAMA_3-70b", "--json").stdout)["results"]["models"]

    assert len(listed) >= 80
    assert all(entry["origin"] and entry["date"] for entry in listed)
    assert [entry["name"] for entry in one] == ["llama-3-70b"]


def test_version_and_help(run: Run) -> None:
    assert run("--version").stdout.startswith("llmcalc ")
    assert "kv-cache" in run("--help").stdout
    assert "--encoder-tokens" in run("kv-cache", "--help").stdout


def test_shares_are_finite(run: Run) -> None:
    components = strict(run("params", "deepseek-v3", "--json").stdout)["results"]["components"]

    assert math.fsum(part["params"] for part in components) == 671_026_404_352
