"""The fewest devices, against every cut there is; what would make it fit, against the program itself."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcalc import load, read_config
from llmcalc.calc.capacity import Capacity, capacity
from llmcalc.calc.degrees import Spreading
from llmcalc.calc.fewest import degrees
from llmcalc.calc.room import Asked
from llmcalc.calc.weight_shards import Ranks
from llmcalc.calc.weights import weights
from llmcalc.cli.app import app
from llmcalc.errors import LlmcalcError
from llmcalc.hardware.catalogue import describe
from tests.capacity.test_room import hybrids
from tests.properties.strategies import llamas

GIB = 2**30


def cuts(devices: int, dp: int = 1) -> Iterator[Ranks]:
    """All products of degrees that make so many devices a replica."""
    for tp in range(1, devices + 1):
        if devices % tp == 0:
            yield from (Ranks(tp, devices // tp, ep, dp) for ep in range(1, tp * dp + 1) if tp * dp % ep == 0)


def fits(room: Capacity, ranks: Ranks) -> bool:
    """Whether it fits so cut, everything computed anew."""
    asked = room.asked._replace(ranks=ranks)
    try:
        return capacity(room.architecture, room.device, asked, room.limits, weights=room.weights).fits
    except LlmcalcError:
        return False


def walked(room: Capacity, most: int) -> int | None:
    """The fewest devices, every cut of one number after another."""
    return next((n for n in range(1, most + 1) if any(fits(room, cut) for cut in cuts(n, room.asked.ranks.dp))), None)


@pytest.mark.parametrize(
    ("name", "gib", "tokens", "batch", "engine", "ranks"),
    [
        ("llama-3-70b", 80, 4096, 1, "none", Ranks(2)),
        ("llama-3-70b", 24, 4096, 1, "none", Ranks(2, 3)),
        ("llama-3-70b", 16, 4096, 1, "none", Ranks(2, 5)),
        ("llama-3-70b", 80, 4096, 1000, "none", Ranks(2, 9)),  # 18, once sought among multiples of 8
        ("deepseek-v3", 80, 4096, 1, "vllm", Ranks(2, 5)),
        ("deepseek-v3", 141, 131_072, 8, "none", Ranks(2, 3)),  # 61 layers in stages of 21, 20 and 20
        ("mixtral-8x7b", 12, 4096, 200, "none", Ranks(8, 2)),
        ("qwen3-next-80b-a3b", 40, 131_072, 4, "vllm", Ranks(2, 3)),
        ("gpt-oss-120b", 24, 131_072, 16, "sglang", Ranks(8, 3)),
        ("gemma-3-27b", 16, 32_768, 4, "tensorrt-llm", Ranks(8)),
        ("t5-base", 1, 4096, 30, "none", Ranks(12)),
    ],
)
def test_the_fewest_are_those_of_every_cut(
    name: str, gib: int, tokens: int, batch: int, engine: str, ranks: Ranks
) -> None:
    room = capacity(load(name).architecture, describe(memory=gib * GIB), Asked(tokens, batch, engine=engine))
    assert room.fewest == ranks
    assert fits(room, ranks)
    assert walked(room, ranks.tp * ranks.pp) == room.min_gpus == ranks.tp * ranks.pp


@st.composite
def mixtures(draw: st.DrawFn) -> dict[str, Any]:
    """A small model with experts, whose widths need not divide by what its heads divide by."""
    data = draw(llamas())
    experts = draw(st.integers(2, 24))
    return {**data, "model_type": "mixtral", "num_local_experts": experts, "num_hidden_layers": draw(st.integers(1, 9)),
            "num_experts_per_tok": draw(st.integers(1, experts))}  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(data=llamas() | mixtures(), tokens=st.integers(1, 4000), batch=st.integers(1, 50), part=st.integers(2, 40),
       dp=st.integers(1, 3))  # fmt: skip
def test_the_fewest_of_small_models(data: dict[str, Any], tokens: int, batch: int, part: int, dp: int) -> None:
    """Devices of a part of what is needed."""
    model = read_config(data)
    whole = capacity(model, describe(memory=1), Asked(tokens, batch, ranks=Ranks(dp=dp)))
    room = capacity(model, describe(memory=1 + whole.short_by_bytes // part), whole.asked)
    found = walked(room, 24)
    assert room.min_gpus == found or (found is None and (room.min_gpus is None or room.min_gpus > 24))


@settings(max_examples=40, deadline=None)
@given(model=hybrids(), tokens=st.integers(1, 300), batch=st.integers(1, 9), part=st.integers(2, 12))
def test_the_fewest_of_hybrids(model: Any, tokens: int, batch: int, part: int) -> None:
    whole = capacity(model, describe(memory=1), Asked(tokens, batch))
    room = capacity(model, describe(memory=1 + whole.short_by_bytes // part), whole.asked)
    found = walked(room, 24)
    assert room.min_gpus == found or (found is None and (room.min_gpus is None or room.min_gpus > 24))


def test_experts_are_spread_where_they_cannot_be_cut() -> None:
    data = {"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 63, "num_hidden_layers": 1,
            "vocab_size": 64,
            "num_attention_heads": 8, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
            "torch_dtype": "bfloat16", "tie_word_embeddings": False}  # fmt: skip
    model = read_config(data)
    room = capacity(model, describe(memory=weights(model).total_bytes // 2), Asked(1))
    assert room.fewest == Ranks(4, 1, 4)
    assert not fits(room, Ranks(4))
    assert [change.option for change in room.changes][-1] == "--gpus 4 --tp 4 --ep 4"


@pytest.mark.parametrize("gib", [1, 80])
@pytest.mark.parametrize("name", ["deepseek-v3", "llama-3.1-405b", "kimi-k2", "qwen3-next-80b-a3b"])
def test_what_never_fits_is_said_at_once(name: str, gib: int) -> None:
    model = load(name).architecture
    start = time.perf_counter()
    assert capacity(model, describe(memory=gib * GIB), Asked(10**6, 10**6)).min_gpus is None
    assert time.perf_counter() - start < 2  # takes 0.1 s; a busy machine is slower


@pytest.mark.parametrize("weights_format", ["config", "q4_k_m"])
@pytest.mark.parametrize("name", ["llama-3-8b", "deepseek-v3", "gpt-oss-20b", "zamba2-1.2b", "t5-base", "gemma-3-27b"])
def test_stages_are_the_ranks_of_weights(name: str, weights_format: str) -> None:
    model = load(name).architecture
    if weights_format != "config" and name != "llama-3-8b":
        return
    spreading = Spreading(model, weights_format)
    for ranks in (Ranks(), Ranks(2), Ranks(1, 3), Ranks(2, 2, 2), Ranks(4, 5, 4), Ranks(2, 1, 4, 2)):
        try:
            wanted = weights(model, weights_format, ranks=ranks).per_device_bytes
        except LlmcalcError:
            assert spreading.choice(ranks).weight_bytes is None
        else:
            assert max(spreading.stages(ranks)) == wanted


def test_degrees_put_right_those_before() -> None:
    assert degrees(Ranks(4), Ranks()) == "--gpus 4"
    assert degrees(Ranks(4), Ranks(2)) == "--gpus 4 --tp 4"
    assert degrees(Ranks(2, 3, 2), Ranks()) == "--gpus 6 --tp 2 --pp 3 --ep 2"
    assert degrees(Ranks(8), Ranks(2, 2, 2)) == "--gpus 8 --tp 8 --pp 1 --ep 1"
    assert degrees(Ranks(2, 2, 1, 3), Ranks(dp=3)) == "--gpus 12 --tp 2 --pp 2"


@pytest.mark.parametrize(
    "words",
    [
        "llama-3-70b --memory 24GiB",
        "llama-3-70b --memory 24GiB --gpus 2",
        "llama-3-70b --gpu h100 --tokens 100000 --batch 40 --tp 4 --pp 2",
        "llama-3-70b --memory 24GiB --dp 2 --engine vllm",
        "llama-3-8b --gpu l4 --batch 400",
        "llama-3-8b --gpu l4 --batch 40 --engine vllm --cache bf16",
        "llama-3-8b --gpu l4 --batch 40 --engine llama.cpp",
        "llama-3-8b --gpu l4 --batch 40 --shared-prefix 100 --block-size 16",
        "llama-3-8b --gpu l4 --tokens 200000 --weights gptq --group-size 64",
        "llama-3-8b --cache-memory 1GiB --batch 9",
        "llama-3-8b --gpu l4 --weight-memory 20GiB --batch 40",
        "deepseek-v3 --gpu h100 --engine sglang",
        "deepseek-v3 --gpu h200 --tp 8 --ep 8 --batch 400",
        "mixtral-8x7b --memory 12GiB --batch 200 --engine tensorrt-llm",
        "gpt-oss-120b --memory 24GiB --tokens 131072 --batch 16 --engine vllm",
        "qwen3-next-80b-a3b --memory 40GiB --tokens 131072 --batch 4 --engine vllm",
        "gemma-3-27b --gpu l4 --tokens 32768",
        "deepseek-v4-flash --gpu h100 --batch 8",
        "mamba-2.8b --memory 4GiB --batch 100",
        "t5-base --memory 1GiB --batch 30",
        "bert-base-uncased --memory 200MiB",
    ],
)
def test_every_change_that_is_named_makes_it_fit(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    def told(*more: str) -> dict[str, Any]:
        app(["capacity", *words.split(), *more, "--json"], standalone_mode=False)
        found: dict[str, Any] = json.loads(capsys.readouterr().out)["results"]
        return found

    before = told()
    assert before["fits"] is False
    assert before["changes"]
    for change in before["changes"]:
        assert told(*change["option"].split())["fits"] is True, change
    named = before["min_gpus_ranks"]
    if named is not None:
        assert named["tp"] * named["pp"] == before["min_gpus"]
