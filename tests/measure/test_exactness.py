"""What must be equal is equal on shrunken copies of the corpus; and what is not equal says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from llmcalc import read_config
from llmcalc.arch.model import Architecture
from llmcalc.errors import InvalidInputError, MeasureError, UnsupportedFormatError, UnsupportedLayerError
from llmcalc.measure.build import build, stored
from llmcalc.measure.cpu import CpuMachine
from llmcalc.measure.exactness import Check, checks, counted, tolerance
from llmcalc.measure.need import weight_bytes
from llmcalc.measure.workload import Workload, cut, decoder_of, dtype_of, stored_as
from tests.conftest import config
from tests.oracle.test_corpus import UNLIKE

torch.set_num_threads(1)
# Of each kind one: plain, sliding, latent with a correction in fp32, an index, a state in fp32, experts, hybrids.
KINDS = (
    "01-ai--yi-34b", "deepseek-ai--deepseek-r1", "deepseek-ai--deepseek-v3.2", "openai--gpt-oss-120b",
    "qwen--qwen3-next-80b-a3b-instruct", "defaults--mamba2", "zyphra--zamba2-1.2b", "tiiuae--falcon-h1-34b-instruct",
    "defaults--diffllama", "defaults--doge", "xiaomimimo--mimo-v2-flash", "defaults--recurrent-gemma",
)  # fmt: skip
NUMBERED = list(enumerate(UNLIKE))
FP32 = [slug for number, slug in NUMBERED if slug in KINDS or number % 8 == 0]
BF16 = [slug for number, slug in NUMBERED if slug in KINDS or number % 8 == 4 or "kimi" in slug]


def workload(found: Architecture, dtype: str = "fp32", tokens: int = 20, batch: int = 2, **more: object) -> Workload:
    whole = stored_as(decoder_of(found), dtype)
    return replace(Workload(whole, whole, dtype, tokens, batch, tokens, ("decode", "prefill")), **more)  # type: ignore[arg-type]


def checked(work: Workload) -> list[Check]:
    machine = CpuMachine(threads=1)
    return checks(build(work, machine), work, machine)


@pytest.mark.parametrize(("slug", "dtype"), [*((slug, "fp32") for slug in FP32), *((slug, "bf16") for slug in BF16)])
def test_everything_exact_is_equal(slug: str, dtype: str) -> None:
    found = checked(workload(UNLIKE[slug], dtype))

    assert [check for check in found if not check.ok] == []
    exact = {check.name: check for check in found if check.tolerance is None}
    assert {"parameters", "weight bytes", "cache bytes", "operations of the step after it"} <= set(exact)
    assert all(check.expected == check.found for check in exact.values())


def test_kinds_are_in_the_corpus() -> None:
    assert set(KINDS) <= set(UNLIKE)


@pytest.mark.parametrize(
    ("dtype", "experts", "limit"),
    [("fp32", False, 1e-5), ("fp32", True, 1e-5), ("bf16", False, 2e-2), ("fp16", False, 2e-2), ("bf16", True, 0.5)],
)
def test_sums_in_16_bits_may_lie_further_apart(dtype: str, experts: bool, limit: float) -> None:
    slug = "deepseek-ai--deepseek-r1" if experts else "01-ai--yi-34b"

    assert tolerance(workload(UNLIKE[slug], dtype)) == limit


def test_experts_in_one_product_are_counted() -> None:
    """Qwen3-MoE with rows of whole 16 bytes: torch's own counter (2.13) has no formula for a grouped product."""
    small = {**config("qwen--qwen3-30b-a3b"), "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64, "moe_intermediate_size": 16,
             "num_experts": 8, "num_experts_per_tok": 2, "vocab_size": 96}  # fmt: skip
    for dtype in ("fp32", "bf16"):
        work = workload(read_config(small), dtype)
        model = build(work, CpuMachine(threads=1))
        tokens = torch.zeros(1, 3, dtype=torch.long)
        ops = counted(lambda model=model, tokens=tokens: model(tokens))  # type: ignore[misc]

        attention = 3 * 2 * 2 * (64 * 64 + 2 * 64 * 32 + 64 * 64) + 2 * (2 * 2 * 3 * 3 * 64)
        experts = 3 * 2 * 2 * (64 * 8 + 2 * 3 * 64 * 16)
        assert ops == attention + experts + 3 * 2 * 64 * 96
        assert all(check.ok for check in checks(model, work, CpuMachine(threads=1)))


def test_a_router_computes_in_fp32_and_is_stored_as_the_model_is() -> None:
    """DeepSeek-V3's checkpoint: gate.weight in bf16, its correction in fp32."""
    work = workload(UNLIKE["deepseek-ai--deepseek-r1"], "bf16")
    model = build(work, CpuMachine(threads=1))
    kinds = {name.rpartition("gate.")[2]: value.dtype
             for name, value in [*model.named_parameters(), *model.named_buffers()] if ".gate." in name}  # fmt: skip

    assert kinds == {"weight": torch.bfloat16, "e_score_correction_bias": torch.float32}
    assert stored(model) == weight_bytes(work)


def test_a_difference_is_found() -> None:
    work = workload(UNLIKE["01-ai--yi-34b"])
    machine = CpuMachine(threads=1)
    wrong = checks(build(replace(work, batch=1), machine), replace(work, tokens=21), machine)
    fewer = replace(work, architecture=cut(work.architecture, 1))
    differing = {check.name for check in checks(build(work, machine), fewer, machine) if not check.ok}

    assert all(check.ok for check in wrong)
    assert differing == {
        "parameters", "weight bytes", "cache bytes", "operations of a prompt of 16", "operations of the step after it",
    }  # fmt: skip


def test_logits_that_are_no_numbers_stop_it() -> None:
    work = workload(UNLIKE["01-ai--yi-34b"])
    model = build(work, machine := CpuMachine(threads=1))
    with torch.no_grad():
        next(iter(model.parameters())).fill_(float("nan"))

    with pytest.raises(MeasureError, match="not finite"):
        checks(model, work, machine)


def test_only_decoders_are_measured() -> None:
    for slug in ("google-t5--t5-base", "openai--whisper-large-v3"):
        with pytest.raises(UnsupportedLayerError, match="only models that are a decoder alone"):
            decoder_of(read_config(config(slug)))


def test_a_cut_keeps_whole_layers() -> None:
    found = UNLIKE["01-ai--yi-34b"]
    depth = len(found.decoder.calls)

    assert cut(found, None) is found
    assert cut(found, depth) is found
    assert len(cut(found, 1).decoder.calls) == 1
    with pytest.raises(InvalidInputError, match=f"this model has {depth}"):
        cut(found, depth + 1)


def test_the_format_that_is_run() -> None:
    machine = CpuMachine(threads=1)
    found = read_config(config("qwen--qwen3-0.6b"))
    wide = replace(found, dtype="fp32")
    machine.supports = lambda ability: False  # type: ignore[method-assign]

    assert dtype_of("f32", found, machine) == ("fp32", [])
    assert dtype_of("bf16", found, machine) == ("bf16", [])
    assert dtype_of("config", wide, machine) == ("fp32", [])
    name, told = dtype_of("config", found, machine)
    assert name == "fp32"
    assert "no units for products of 16 bits" in told[0]
    machine.supports = lambda ability: True  # type: ignore[method-assign]
    assert dtype_of("config", found, machine) == ("bf16", [])
    for asked in ("int4", "nonsense"):
        with pytest.raises(UnsupportedFormatError, match=f"--weights {asked}: the reference decoder stores"):
            dtype_of(asked, found, machine)
