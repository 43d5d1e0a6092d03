"""The whole command on this processor with a model of a million parameters, in one thread; no time is asserted."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmcalc.measure.build import build
from llmcalc.measure.cpu import CpuMachine
from llmcalc.measure.training import train
from tests.conftest import ROOT, config
from tests.measure.conftest import TINY, Done
from tests.measure.test_exactness import workload
from tests.oracle.test_corpus import UNLIKE

Measure = Callable[..., Done]
QUICK = ("--device", "cpu", "--tokens", "24", "--budget", "1")
KEYS = {"quantity", "unit", "catalogue", "calibrated", "measured", "ratio", "verdict", "binds"}


def finite(value: Any) -> bool:
    """No infinity and no NaN anywhere in a document."""
    if isinstance(value, dict):
        return all(finite(part) for part in value.values())
    if isinstance(value, list):
        return all(finite(part) for part in value)
    return not isinstance(value, float) or math.isfinite(value)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One document, of prompt and decode."""
    folder = tmp_path_factory.mktemp("once")
    (folder / "tiny.json").write_text(json.dumps(TINY))
    kept = {"LLMCALC_MEASUREMENTS": str(folder / "kept"), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "llmcalc", "measure", "tiny.json", *QUICK, "--budget", "10", "--json"], cwd=folder,
        check=True,
        capture_output=True, text=True, env={**os.environ, **kept},
    )  # fmt: skip
    (path,) = (folder / "kept").iterdir()
    return {"document": json.loads(done.stdout), "kept": json.loads(path.read_text()), "err": done.stderr}


def test_the_document(once: dict[str, Any]) -> None:
    document = once["document"]
    results = document["results"]

    assert (document["schema"], document["command"]) == ("llmcalc/1", "measure")
    assert document["model"]["name"] == "tiny"
    assert document["inputs"]["tokens"] == document["inputs"]["prompt"] == 24
    assert all(set(row) >= KEYS for row in results["estimates"])
    assert {row["verdict"] for row in results["estimates"]} <= {"equal", "within", "outside", "not judged"}
    assert finite(document)
    for name in ("allocated_bytes", "reserved_bytes", "nvml_used_bytes", "context_bytes"):
        assert results[name] is None  # a processor has no allocator that counts, and no driver
    assert results["device"]["kind"] == "cpu"
    assert results["device"]["catalogue"] is None
    assert {"torch", "python", "os", "threads", "time", "variables", "load"} <= set(results["environment"])
    assert results["environment"]["variables"]["OMP_NUM_THREADS"] == "1"
    assert "Traceback" not in once["err"]


def test_what_must_be_equal_is(once: dict[str, Any]) -> None:
    results = once["document"]["results"]
    exact = {row["quantity"]: row for row in results["estimates"] if row["verdict"] in ("equal", "differs")}

    assert all(row["verdict"] == "equal" and row["ratio"] == 1.0 for row in exact.values())
    assert exact["parameters"]["measured"] == 689_280
    assert exact["weight_bytes"]["measured"] == 4 * 689_280
    assert exact["cache_bytes"]["measured"] == 24 * 4 * 2 * 2 * 16 * 4
    assert all(check["ok"] for check in results["checks"])


def test_runs(once: dict[str, Any]) -> None:
    runs = once["document"]["results"]["runs"]

    assert [run["phase"] for run in runs][:1] == ["decode"]
    assert {run["phase"] for run in runs} == {"decode", "prefill"}
    for run in runs:
        assert run["iterations"] >= 3
        assert run["warmup"] >= 1
        assert 0 < run["min_seconds"] <= run["p10_seconds"] <= run["median_seconds"] <= run["p90_seconds"]
        assert run["tokens_per_second"] > 0


def test_the_document_that_is_kept_is_the_last_one(once: dict[str, Any]) -> None:
    kept = once["kept"]["results"]
    assert kept["runs"] == once["document"]["results"]["runs"]
    assert kept["checks"] == once["document"]["results"]["checks"]


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_one_phase_alone(measure: Measure, phase: str) -> None:
    done = measure(*QUICK, "--phase", phase, "--json")
    assert done.code == 0
    assert {run["phase"] for run in done.results["runs"]} == {phase}


def test_training(measure: Measure) -> None:
    done = measure(*QUICK, "--phase", "train", "--json")
    results = done.results
    training = results["training"]

    assert done.code == 0
    assert training["training_flops"] == training["estimated_training_flops"] > 0
    weights = 4 * 689_280
    assert (training["weights_bytes"], training["gradients_bytes"]) == (weights, weights)
    assert training["optimizer_bytes"] == 2 * weights
    assert results["steady_bytes"] == 4 * weights
    assert results["peak_bytes"] >= results["steady_bytes"]
    for name in ("training_flops", "gradient_bytes", "optimizer_bytes"):
        assert done.row(name)["verdict"] == "equal"


@pytest.mark.parametrize(
    "slug", ["01-ai--yi-34b", "deepseek-ai--deepseek-r1", "openai--gpt-oss-120b", "defaults--mamba2",
             "qwen--qwen3-next-80b-a3b-instruct", "tiiuae--falcon-h1-34b-instruct"],
)  # fmt: skip
def test_training_of_other_kinds(slug: str) -> None:
    work = workload(UNLIKE[slug], phases=("train",), prompt=24, batch=2)
    machine = CpuMachine(threads=1)
    told = train(build(work, machine, merged=False), work, machine)

    assert told["training_flops"] == told["estimated_training_flops"]
    assert told["steady_bytes"] == (
        told["weights_bytes"] + told["gradients_bytes"] + told["optimizer_bytes"]  # type: ignore[operator]
    )


def test_a_part_of_a_model(measure: Measure) -> None:
    done = measure(*QUICK, "--phase", "decode", "--layers", "2", "--json")
    results = done.results

    assert done.code == 0
    assert (results["layers"], results["whole_layers"]) == (2, 4)
    row = done.row("whole_model_decode_seconds")
    assert row["note"] == "extrapolated to 4 layers from 1 and 2"
    assert row["verdict"] == "not judged"
    assert done.row("parameters")["measured"] == 410_240


def test_one_layer_has_no_half(measure: Measure) -> None:
    done = measure(*QUICK, "--phase", "decode", "--layers", "1", "--json")
    assert done.code == 0
    assert "a second depth: one layer has no half" in done.results["skipped"][0]


SMALL: dict[str, Any] = {"hidden_size": 64, "vocab_size": 96, "intermediate_size": 96, "moe_intermediate_size": 32}
HEADS: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
LINEAR: dict[str, Any] = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
}  # fmt: skip
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "experts": ("qwen--qwen3-30b-a3b", {**HEADS, "num_hidden_layers": 2, "num_experts": 8, "num_experts_per_tok": 2}),
    "latent": ("deepseek-ai--deepseek-v3", {
        "num_hidden_layers": 2, "first_k_dense_replace": 1, "num_attention_heads": 4, "num_key_value_heads": 4,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "q_lora_rank": 24,
        "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
        "num_nextn_predict_layers": 0,
    }),
    "sliding": ("openai--gpt-oss-20b", {
        **HEADS, "num_hidden_layers": 2, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"], "intermediate_size": 32,
    }),
    "hybrid": ("qwen--qwen3-next-80b-a3b-instruct", {
        **HEADS, **LINEAR, "num_hidden_layers": 4, "num_experts": 8, "num_experts_per_tok": 2,
        "shared_expert_intermediate_size": 32,
    }),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("experts", "fp32"), ("latent", "bf16"), ("sliding", "bf16"), ("hybrid", "fp32"), ("hybrid", "bf16")],
)
def test_other_models(measure: Measure, tmp_path: Path, kind: str, dtype: str) -> None:
    slug, changes = MODELS[kind]
    (tmp_path / "other.json").write_text(json.dumps({**config(slug), **SMALL, **changes}))
    done = measure(*QUICK, "--weights", dtype, "--json", model=str(tmp_path / "other.json"))

    assert done.code == 0, done.err
    assert done.results["errors"] == []
    assert [check for check in done.results["checks"] if not check["ok"]] == []
    assert done.results["weights"] == dtype
    assert done.results["runs"]
    assert finite(done.results)


def test_all_layers_are_no_part(measure: Measure) -> None:
    done = measure(*QUICK, "--phase", "decode", "--layers", "4", "--json")
    assert all(row["quantity"] != "whole_model_decode_seconds" for row in done.results["estimates"])


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_16_bits(measure: Measure, dtype: str) -> None:
    done = measure(*QUICK, "--weights", dtype, "--phase", "prefill", "--json")
    assert done.results["weights"] == dtype
    assert done.row("weight_bytes")["measured"] == 2 * 689_280
    assert all(check["ok"] for check in done.results["checks"])


def test_a_model_of_16_bits_runs_in_fp32_where_there_are_no_units(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuMachine, "supports", lambda self, ability: False)
    done = measure(*QUICK, "--phase", "prefill", "--json", torch_dtype="bfloat16")
    assert done.results["weights"] == "fp32"
    assert "in fp32, not bf16" in done.err
    assert all(check["ok"] for check in done.results["checks"])


# -- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--device", "gpu"), 1, "--device gpu: expected auto, cpu, cuda, cuda:N"),
        (("--device", "cuda:0"), 1, "error[no-gpu]"),
        (("--phase", "encode"), 2, "decode, prefill, train"),
        (("--layers", "0"), 2, "layers"),
        (("--device", "cpu", "--layers", "5"), 1, "--layers 5: this model has 4"),
        (("--tokens", "0"), 2, "tokens"),
        (("--batch", "-1"), 2, "batch"),
        (("--budget", "0"), 2, "budget"),
        (("--device", "cpu", "--weights", "int4"), 1, "the reference decoder stores fp32, bf16, fp16"),
        (("--device", "cpu", "--tokens", "100000000"), 1, "bytes free, and this run takes"),
        (("--json", "--csv"), 2, "exclude each other"),
        (("--phase", "prefill", "--save"), 2, "--save keeps what decode steps took"),
        (("--tp", "2", "--save"), 2, "it goes without --save"),
        (("--tp", "2", "--phase", "train"), 2, "it goes without --phase train"),
        (("--tp", "2", "--compile"), 2, "it goes without --compile"),
        (("--device", "cpu", "--tp", "2"), 1, "torchrun"),
    ],
)
def test_words_that_are_refused(measure: Measure, words: tuple[str, ...], code: int, says: str) -> None:
    done = measure(*words)
    assert (done.code, done.out) == (code, "")
    assert says in done.err
    assert "Traceback" not in done.err


def test_models_that_are_refused(measure: Measure) -> None:
    for model, says in (
        ("whisper-large-v3", "only models that are a decoder alone are measured"),
        ("no-such-model", "error[not-found]"),
    ):
        done = measure("--device", "cpu", "--layers", "1", model=model)
        assert (done.code, done.out) == (1, ""), model
        assert says in done.err


def test_past_the_positions_of_the_config_is_a_warning(measure: Measure) -> None:
    done = measure(*QUICK, "--phase", "prefill", "--json", max_position_embeddings=16)
    assert done.code == 0
    assert "25 positions are past the 16 that the config names" in done.err


def test_check_says_no_where_a_row_is_missed(measure: Measure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmcalc.measure.exactness.weight_bytes", lambda work: 1)
    done = measure(*QUICK, "--phase", "prefill", "--json", "--check")

    assert done.code == 3
    assert done.row("weight_bytes")["verdict"] == "differs"
    assert done.results["skipped"] == ["every time: what must be equal is not"]
    assert done.results["runs"] == []
    assert measure(*QUICK, "--phase", "prefill", "--json").code == 0
