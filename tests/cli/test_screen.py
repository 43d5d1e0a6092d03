"""What the screen says is true, and nothing of it is cut, however narrow it is."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

import llmcalc
from llmcalc.report.report import Column, Table
from llmcalc.report.screen import fold, table_lines

Run = Callable[..., CompletedProcess[str]]


def results(run: Run, *words: str) -> dict[str, Any]:
    done = run(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["results"]  # type: ignore[no-any-return]


class TestGrowth:
    @pytest.mark.parametrize(
        ("words", "line"),
        [
            (("llama-3-70b",), "each further token adds 327,680 bytes a sequence"),
            (("mistral-7b", "--tokens", "1000"),
             "the next token adds 131,072 bytes a sequence; past its windows a further one adds nothing"),
            (("mistral-7b", "--tokens", "4096"), "a further token adds nothing"),
            (("gemma-3-27b", "--tokens", "1000"),
             "the next token adds 507,904 bytes a sequence; past its windows each further one adds 81,920 bytes"),
            (("gemma-3-27b", "--tokens", "2000"), "each further token adds 81,920 bytes a sequence"),
            (("deepseek-v4-flash", "--tokens", "1000"),
             "the next token adds 148,480 bytes a sequence, each further one 6,880 bytes on average in the long run"),
            (("deepseek-v4-flash", "--tokens", "1023"),
             "the next token frees 5,477,120 bytes a sequence, "
             "each further one 6,880 bytes on average in the long run"),
            (("state-spaces/mamba-130m-hf",), "a further token adds nothing"),
            (("bert-base-uncased",), "an encoder keeps no cache: it reads all positions at once"),
        ],
    )  # fmt: skip
    def test_sentence(self, run: Run, words: tuple[str, ...], line: str) -> None:
        assert line in run("kv-cache", *words).stdout.splitlines()

    @pytest.mark.parametrize("name", ["mistral-7b", "gemma-3-27b", "deepseek-v4-flash", "llama-4-scout", "t5-small"])
    def test_the_next_token_is_the_difference(self, name: str) -> None:
        model = llmcalc.load(name)
        for tokens in (1, 2, 127, 128, 1000, 1023, 4095, 4096, 8192):
            now = llmcalc.kv_cache(model, tokens, encoder_tokens=9)
            then = llmcalc.kv_cache(model, tokens + 1, encoder_tokens=9)
            assert now.next_token_bytes == then.total_bytes - now.total_bytes

    def test_the_column_says_that_it_is_the_long_run(self, run: Run) -> None:
        assert "bytes a token, long run" in run("kv-cache", "mistral-7b", "--tokens", "1000").stdout
        assert "long run" not in run("kv-cache", "llama-3-8b").stdout
        assert results(run, "kv-cache", "mistral-7b", "--tokens", "1000")["bytes_per_token"] == 0

    def test_one_is_one(self, run: Run) -> None:
        one = run("kv-cache", "gpt2", "--tokens", "1").stdout
        many = run("kv-cache", "gpt2", "--lengths", ",".join(["1"] * 1200)).stdout

        assert "gpt2 · 1 token ·" in one
        assert "gpt2 · 1,200 sequences ·" in many
        assert "gpt2 · 1 sequence ·" in run("kv-cache", "gpt2", "--lengths", "3").stdout


class TestWidth:
    WIDE = (
        ("kv-cache", "llama-3-70b"), ("kv-cache", "deepseek-v4-flash", "--engine", "vllm", "--explain"),
        ("params", "deepseek-v3"), ("inspect", "gemma-3-27b"), ("flops", "llama-3-8b"),
    )  # fmt: skip

    @pytest.mark.parametrize("words", WIDE, ids=[" ".join(words) for words in WIDE])
    @pytest.mark.parametrize("columns", [40, 60, 80, 100])
    def test_nothing_is_cut(self, run: Run, words: tuple[str, ...], columns: int) -> None:
        """Every number of the wide form is there, and every letter."""
        wide, text = run(*words).stdout, run(*words, COLUMNS=str(columns)).stdout

        assert max(map(len, text.splitlines())) <= columns
        assert all(number in text for number in re.findall(r"\d[\d,]*\d", wide))
        if columns >= 80:
            return
        for word in re.findall(r"\b[a-z]{4,9}\b", wide):
            assert word in text

    def test_the_first_command_fits_a_terminal(self, run: Run) -> None:
        words = ("kv-cache", "llama-3-70b", "--tokens", "4096")

        assert run(*words, COLUMNS="80").stdout == run(*words).stdout

    def test_below_one_another_where_numbers_do_not_fit(self) -> None:
        table = Table(
            (Column("kind", "kind"), Column("bytes", "bytes", "count")), (("full attention", 123_456_789_012),)
        )
        shown = [["full attention", "123,456,789,012"]]

        assert list(table_lines(table, shown, 25, bold=False)) == ["kind   full attention", "bytes  123,456,789,012"]
        assert list(table_lines(table, shown, 17, bold=False)) == [
            "kind", "  full attention", "bytes", "  123,456,789,012",
        ]  # fmt: skip

    def test_fold_keeps_every_letter(self) -> None:
        assert fold("  one two three", 9) == ["  one two", "  three"]
        assert fold("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]
        assert fold("anything", None) == ["anything"]


class TestTrees:
    def test_csv_adds_up(self, run: Run) -> None:
        rows = list(csv.DictReader(io.StringIO(run("params", "gemma-3-27b", "--csv").stdout)))
        leaves = {row["path"]: int(row["params"]) for row in rows[:-1]}

        assert len(leaves) == len(rows) - 1
        assert {"decoder.attention", "vision.attention"} <= set(leaves)
        assert sum(leaves.values()) == int(rows[-1]["params"]) == 27_432_406_640
        assert rows[-1]["path"] == "total"
        assert abs(sum(float(row["share"]) for row in rows[:-1]) - 1) < 1e-12

    def test_markdown_is_indented(self, run: Run) -> None:
        lines = run("params", "gemma-3-27b", "--markdown").stdout.splitlines()

        assert any(line.startswith("| vision |") for line in lines)
        assert sum(line.startswith("| &nbsp;&nbsp;attention |") for line in lines) == 2

    def test_a_sum_of_one_part_is_said_once(self, run: Run) -> None:
        text = run("params", "deepseek-v3", "--explain").stdout

        assert "  = 671,026,404,352 parameters\n" in text
        assert "= 671,026,404,352 = " not in text


class TestExplain:
    def test_every_figure_of_the_cache(self, run: Run) -> None:
        words = ("kv-cache", "deepseek-v3", "--tokens", "100", "--tp", "2", "--pp", "3", "--explain", "--json")
        document = json.loads(run(*words).stdout)
        found = {figure["name"]: figure["value"] for figure in document["figures"]}

        assert found["cache"] == document["results"]["total_bytes"]
        assert found["were the latents expanded to heads"] == document["results"]["mla_expanded_bytes"]
        assert found["the fullest device"] == document["results"]["per_device_bytes"]
        gemma = json.loads(run("kv-cache", "gemma-3-27b", "--explain", "--json").stdout)
        full = {figure["name"]: figure["value"] for figure in gemma["figures"]}["were every layer full attention"]
        assert full == gemma["results"]["every_layer_full_bytes"]

    def test_every_count_of_parameters(self, run: Run) -> None:
        stored = json.loads(run("params", "deepseek-v3", "--explain", "--json").stdout)
        untied = json.loads(run("params", "gemma-3-27b", "--explain", "--json").stdout)

        names = {figure["name"]: figure for figure in stored["figures"]}
        assert names["stored parameters"]["value"] == stored["results"]["stored_params"]
        assert names["stored parameters"]["parts"][1]["value"] == stored["results"]["mtp_params"]
        values = {figure["name"]: figure["value"] for figure in untied["figures"]}
        assert values["untied parameters"] == untied["results"]["untied_params"]

    def test_what_is_assumed_about_a_model(self, run: Run) -> None:
        assert "assumed:\n" in run("inspect", "gpt2", "--explain").stdout
        assert "nothing is assumed" in run("inspect", "llama-3-70b", "--explain").stdout

    def test_a_scale_outside_the_cache(self, run: Run) -> None:
        document = json.loads(run("kv-cache", "llama-3-8b", "--cache", "bf16:int8", "--json").stdout)

        assert "int8: one scale a tensor, outside the cache" in document["assumptions"]


class TestInspect:
    def test_mixers_come_before_feed_forwards(self, run: Run) -> None:
        sentence = results(run, "inspect", "deepseek-v3")["sentence"]

        assert sentence.index("read one latent") < sentence.index("gated feed-forward") < sentence.index("256 experts")
        assert "weights stored quantized (fp8)" in sentence

    def test_layers_without_positions(self, run: Run) -> None:
        sentence = results(run, "inspect", "smollm3-3b")["sentence"]

        assert "in 9 blocks 16 query heads of 128 share 4 key/value heads, without positions (NoPE)" in sentence

    def test_one_block_is_one(self, run: Run) -> None:
        found = results(run, "inspect", "gemma-3-27b", "--set", "num_hidden_layers=6")

        assert "in 1 block 32 query heads" in found["sentence"]

    def test_numbers_beside_the_prose(self, run: Run) -> None:
        found = results(run, "inspect", "gemma-3-27b")
        sliding, full = (row["mixers"][0] for row in found["layers"])

        assert (sliding["scope"], sliding["window"]) == ("sliding", 1024)
        assert (full["scope"], full["num_attention_heads"], full["num_key_value_heads"]) == ("full", 32, 16)
        assert full["head_dim"] == 128
        assert found["layers"][0]["feed_forwards"][0]["intermediate_size"] == 21_504
        assert set(found["stacks"]) == {"decoder", "vision"}
        moe = results(run, "inspect", "deepseek-v3")["layers"][1]["feed_forwards"][0]
        assert {256, 8, 2048} <= {value for value in moe.values() if isinstance(value, int)}


def test_models_by_a_word(run: Run) -> None:
    names = [entry["name"] for entry in results(run, "models", "Gemma-3")["models"]]

    assert {"gemma-3-27b", "gemma-3-1b"} <= set(names)
    assert "llama-3-8b" not in names
    assert [entry["name"] for entry in results(run, "models", "llama-3-70b")["models"]] == ["llama-3-70b"]
