"""The library door takes what people hand it, and refuses the rest in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import llmcalc
from llmcalc.calc.latency import latency
from llmcalc.errors import InvalidInputError
from llmcalc.hardware.catalogue import describe

MODEL = llmcalc.load("llama-3-8b")


def test_a_model_is_as_good_as_its_architecture() -> None:
    a = MODEL.architecture

    assert llmcalc.kv_cache(MODEL) == llmcalc.kv_cache(a)
    assert llmcalc.params(MODEL) == llmcalc.params(a)
    assert llmcalc.weights(MODEL).total_bytes == llmcalc.weights(a).total_bytes
    assert llmcalc.flops(MODEL).forward_flops == llmcalc.flops(a).forward_flops
    assert llmcalc.sentence(MODEL) == llmcalc.sentence(a)


def test_a_path_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "llama-3-8b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1}))

    for path in (folder, folder / "config.json", Path("llama-3-8b")):
        assert llmcalc.load(path).architecture.model_type == "gpt2"


@pytest.mark.parametrize(
    "call",
    [
        lambda: llmcalc.kv_cache(MODEL, 1.5),
        lambda: llmcalc.kv_cache(MODEL, True),
        lambda: llmcalc.kv_cache(MODEL, "4096"),
        lambda: llmcalc.kv_cache(MODEL, [4096]),
        lambda: llmcalc.kv_cache(MODEL, 2**53 + 1),
        lambda: llmcalc.kv_cache(MODEL, 10**5000),
        lambda: llmcalc.kv_cache(MODEL, -1),
        lambda: llmcalc.kv_cache(MODEL, 0),
        lambda: llmcalc.kv_cache(MODEL, lengths=[18, 0]),
        lambda: llmcalc.flops(MODEL, 0),
        lambda: llmcalc.flops(MODEL, lengths=[0]),
        lambda: latency(MODEL.architecture, describe(bandwidth=1e12), 0),
        lambda: latency(MODEL.architecture, describe(bandwidth=1e12), lengths=[18, -1]),
        lambda: llmcalc.kv_cache(MODEL, batch=0),
        lambda: llmcalc.kv_cache(MODEL, lengths="123"),
        lambda: llmcalc.kv_cache(MODEL, lengths=[1, 2.0]),
        lambda: llmcalc.kv_cache(MODEL, lengths=[]),
        lambda: llmcalc.kv_cache(MODEL, tp=0),
        lambda: llmcalc.kv_cache(MODEL, cache=8),
        lambda: llmcalc.kv_cache(MODEL, engine=None),
        lambda: llmcalc.kv_cache("llama-3-8b"),
        lambda: llmcalc.params({"model_type": "llama"}),
        lambda: llmcalc.flops(MODEL, 1.5),
        lambda: llmcalc.load(MODEL),
        lambda: llmcalc.load(3),
        lambda: llmcalc.load("llama-3-8b", overrides="a=1"),
        lambda: llmcalc.load("llama-3-8b", as_family=3),
    ],
)
def test_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(InvalidInputError, match="expected"):
        call()


def test_what_was_changed_is_kept() -> None:
    model = llmcalc.load("llama-3-8b", overrides={"num_key_value_heads": 32})

    assert model.provenance.asked == {"set": {"num_key_value_heads": 32}, "as": None, "source": None}


def test_it_is_typed() -> None:
    assert (Path(llmcalc.__file__).parent / "py.typed").exists()
