"""The verbs as a user runs them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def document(run: Run, *words: str) -> dict[str, object]:
    done = run(*words, "--json")
    assert done.returncode == 0, done.stderr
    results: dict[str, object] = json.loads(done.stdout)["results"]
    return results


def test_prefill(run: Run) -> None:
    found = document(run, "flops", "llama-3-8b", "--tokens", "2048", "--convention", "dense", "--logits", "all")

    assert found["forward_flops"] == 32_938_104_193_024
    assert found["macs"] == 32_938_104_193_024 // 2
    assert found["attention_flops"] == found["attention_dense_flops"] == 2_199_023_255_552
    assert found["matmul_flops"] == 30_739_080_937_472
    assert found["lm_head_flops"] == 2_151_778_615_296
    assert found["rough_2p_flops"] == 2 * 8_030_261_248 * 2048
    assert found["scan_flops"] == 0
    assert [row["tokens"] for row in found["growth"]] == [1_000, 8_000, 128_000, 1_000_000]  # type: ignore[attr-defined]


def test_decode(run: Run) -> None:
    found = document(run, "flops", "llama-3-8b", "--phase", "decode", "--past", "2048", "--convention", "dense")

    assert found["forward_flops"] == 16_083_582_976
    assert found["attention_flops"] == found["attention_dense_flops"]


def test_train(run: Run) -> None:
    found = document(run, "flops", "llama-3-8b", "--phase", "train", "--tokens", "2048", "--recompute", "full")

    assert found["training_flops"] == 3 * found["forward_flops"] + found["recompute_flops"]  # type: ignore[operator]
    assert found["rough_6pd_flops"] == 6 * 8_030_261_248 * 2048
    assert found["matmul_flops"] == 3 * 30_739_080_937_472


def test_a_text_has_pairs_of_its_own(run: Run) -> None:
    apart = document(run, "flops", "llama-3-8b", "--lengths", "100,300")
    whole = document(run, "flops", "llama-3-8b", "--tokens", "400")

    assert apart["attention_flops"] == 32 * 2 * 32 * 256 * (100 * 101 // 2 + 300 * 301 // 2)
    assert whole["attention_flops"] == 32 * 2 * 32 * 256 * (400 * 401 // 2)


def test_explain_multiplies_out(run: Run) -> None:
    done = run("flops", "llama-3-8b", "--tokens", "2048", "--explain")

    assert (
        "32 calls x 2 x 32 heads x 256 wide (key and value) x 2,098,176 query-key pairs = 1,100,048,498,688 FLOP"
        in (done.stdout)
    )
    assert "arXiv:1706.03762" in done.stdout


def test_rules_of_thumb(run: Run) -> None:
    assert document(run, "flops", "--params", "70e9", "--tokens", "100")["rough_2p_flops"] == 14_000_000_000_000
    assert document(run, "flops", "--params", "70e9", "--tokens", "1")["forward_flops"] == 140_000_000_000
    run_of = document(run, "flops", "--params", "405e9", "--phase", "train", "--train-tokens", "15.6T")
    assert run_of["rough_6pd_flops"] == 6 * 405_000_000_000 * 15_600_000_000_000
    assert run_of["rule_of_thumb"] is True


@pytest.mark.parametrize(("form", "attention"), [("absorbed", 61 * 513 * 278_528), ("expanded", 61 * 513 * 81_920)])
def test_forms_of_latent_attention(run: Run, form: str, attention: int) -> None:
    found = document(run, "flops", "deepseek-v3", "--phase", "decode", "--past", "512", "--mla", form)

    assert found["attention_flops"] == attention


def test_mfu(run: Run) -> None:
    found = document(run, "mfu", "llama-3-8b", "--tokens-per-second", "110496", "--gpus", "8", "--gpu", "h100",
                     "--peak-dtype", "fp8", "--tokens", "8192", "--convention", "megatron_dense")  # fmt: skip

    assert found["mfu"] == pytest.approx(800 / 1978.9, rel=0.001)
    assert found["peak_flops_per_second"] == 1_978_900_000_000_000
    assert set(found["by_convention"]) == {"6n", "palm", "dense", "causal", "megatron", "megatron_dense"}  # type: ignore[call-overload]
    thumb = document(run, "mfu", "--params", "70e9", "--train-tokens", "16384000", "--seconds", "48600", "--gpus", "16",
                     "--peak", "312e12")  # fmt: skip
    assert thumb["mfu"] == pytest.approx(0.028363, rel=0.001)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("flops",), 2, "--params"),
        (("flops", "llama-3-8b", "--phase", "sleep"), 2, "prefill"),
        (("flops", "llama-3-8b", "--phase", "train", "--method", "lora", "--lora-targets", "nothing"), 1, "no weight"),
        (("flops", "llama-3-8b", "--train-tokens", "5"), 1, "--phase train"),
        (("flops", "bert-base-uncased", "--phase", "decode"), 1, "encoder"),
        (("mfu", "llama-3-8b", "--tokens-per-second", "10"), 1, "--gpu"),
        (
            ("mfu", "llama-3-8b", "--tokens-per-second", "10", "--gpu", "a100-sxm4-80gb", "--peak-dtype", "fp8"),
            1,
            "fp8",
        ),
        (("mfu", "llama-3-8b", "--tokens-per-second", "10", "--gpu", "h1000"), 1, "no such device"),
        (("mfu", "llama-3-8b", "--gpu", "h100"), 1, "--tokens-per-second"),
        (("mfu", "--params", "7e9", "--tokens-per-second", "1", "--peak", "1e12", "--convention", "dense"), 1, "model"),
        (("mfu", "llama-3-8b", "--tokens-per-second", "nan", "--peak", "1e12"), 1, "above zero"),
    ],
)
def test_mistakes(run: Run, words: tuple[str, ...], code: int, says: str) -> None:
    done = run(*words)

    assert done.returncode == code
    assert done.stdout == ""
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_other_verbs_do_not_load_these_modules(run: Run) -> None:
    import sys

    from tests.conftest import ROOT

    code = (
        "import sys; sys.argv = ['llmcalc', 'kv-cache', 'gpt2', '--json']\n"
        "from llmcalc.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "sys.stderr.write(' '.join(n for n in sys.modules if n.endswith(('flops', 'mfu', 'training', 'hardware'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "llmcalc" not in done.stderr


def test_nothing_cached_is_a_step_and_no_tokens_are_none(run: Run) -> None:
    assert run("flops", "llama-3-8b", "--phase", "decode", "--past", "0").returncode == 0
    assert run("flops", "llama-3-8b", "--lengths", "0").returncode == 2


def test_a_whole_run_is_told_as_it_is_written(run: Run) -> None:
    done = run("flops", "--params", "405e9", "--phase", "train", "--train-tokens", "15.6T")

    assert "3.79e25 FLOP" in done.stdout
