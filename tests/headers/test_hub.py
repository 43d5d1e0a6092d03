"""Headers on the Hub: by range requests to the small server of tests/sources."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmcalc import load, verify
from llmcalc.errors import LlmcalcError, MalformedConfigError, NotFoundError, OfflineError, SourceError
from tests.sources.hub_server import Hub, Repo
from tests.sources.weights import entry, header

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 128, "max_position_embeddings": 256, "torch_dtype": "float32",
    "tie_word_embeddings": True,
}  # fmt: skip
SHAPES = {
    "model.embed_tokens.weight": [128, 64], "model.norm.weight": [64], "model.layers.0.input_layernorm.weight": [64],
    "model.layers.0.post_attention_layernorm.weight": [64], "model.layers.0.self_attn.q_proj.weight": [64, 64],
    "model.layers.0.self_attn.k_proj.weight": [32, 64], "model.layers.0.self_attn.v_proj.weight": [32, 64],
    "model.layers.0.self_attn.o_proj.weight": [64, 64], "model.layers.0.mlp.gate_proj.weight": [96, 64],
    "model.layers.0.mlp.up_proj.weight": [96, 64], "model.layers.0.mlp.down_proj.weight": [64, 96],
}  # fmt: skip


def file(shapes: dict[str, list[int]], pad: int = 0, data: int | None = None) -> bytes:
    entries: dict[str, object] = {}
    at = 0
    for name, shape in shapes.items():
        size = 4 * (shape[0] * shape[1] if len(shape) == 2 else shape[0])
        entries[name] = entry("F32", shape, at, at + size)
        at += size
    return header(entries, pad) + bytes(at if data is None else data)


def put(hub: Hub, **files: bytes) -> None:
    hub.repos["org/model"] = Repo({"config.json": json.dumps(CONFIG).encode(), **files})


def test_one_file_by_its_first_bytes(hub: Hub) -> None:
    put(hub, **{"model.safetensors": file(SHAPES)})
    model = load("org/model", headers=True)
    assert {t.name: list(t.shape) for t in model.tensors or ()} == SHAPES
    assert verify(model.architecture, model.tensors or ()).agrees
    assert hub.sent < 2 * (1 << 17)


def test_a_long_header_takes_a_second_request(hub: Hub) -> None:
    put(hub, **{"model.safetensors": file(SHAPES, pad=300_000)})
    assert len(load("org/model", headers=True).tensors or ()) == len(SHAPES)
    paths = [path for command, path, _ in hub.asked if command == "GET" and "model.safetensors" in path]
    assert len([path for path in paths if not path.endswith(".json")]) == 2


def test_shards_by_their_index(hub: Hub) -> None:
    names = list(SHAPES)
    first, second = {n: SHAPES[n] for n in names[:5]}, {n: SHAPES[n] for n in names[5:]}
    index = {"weight_map": {**dict.fromkeys(first, "a.safetensors"), **dict.fromkeys(second, "b.safetensors")}}
    files = {"a.safetensors": file(first), "b.safetensors": file(second)}
    put(hub, **files, **{"model.safetensors.index.json": json.dumps(index).encode()})
    model = load("org/model", headers=True)
    assert {t.name: t.shard for t in model.tensors or ()} == index["weight_map"]
    del hub.repos["org/model"].files["b.safetensors"]
    with pytest.raises(NotFoundError, match=r"the shard b\.safetensors is not there"):
        load("org/model", headers=True)


def test_weights_are_not_downloaded(hub: Hub) -> None:
    """Neither with ranges nor from a server that knows none and would send all of it."""
    large = {"big.weight": [20_000, 1_000]}
    for ranges in (True, False):
        hub.ranges, hub.sent = ranges, 0
        put(hub, **{"model.safetensors": file(large)})
        assert load("org/model", headers=True).tensors is not None
        assert hub.sent < 20_000_000


def test_only_when_they_are_asked_for(hub: Hub) -> None:
    put(hub, **{"model.safetensors": file(SHAPES)})
    assert load("org/model").tensors is None
    assert not [path for _, path, _ in hub.asked if "safetensors" in path]


def test_the_token_is_sent(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    put(hub, **{"model.safetensors": file(SHAPES)})
    load("org/model", headers=True)
    assert {token for _, _, token in hub.asked} == {"Bearer hf_secret"}


def refused(kind: type[LlmcalcError]) -> str:
    with pytest.raises(kind) as caught:
        load("org/model", headers=True)
    assert "\n" not in caught.value.message
    return f"{caught.value.message} | {caught.value.hint}"


def test_what_can_be_wrong(hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    put(hub)
    assert "no safetensors files" in refused(NotFoundError)
    put(hub, **{"model.safetensors": file(SHAPES, data=100)})
    assert "the file has 100" in refused(MalformedConfigError)
    put(hub, **{"model.safetensors": (10**12).to_bytes(8, "little") + b"{}"})
    assert "1,000,000,000,000 bytes" in refused(MalformedConfigError)
    put(hub, **{"model.safetensors": b"abc"})
    assert "truncated: 3 bytes" in refused(MalformedConfigError)
    put(hub, **{"model.safetensors.index.json": b'{"weight_map": {"x": "../../x.safetensors"}}'})
    assert "weight_map names" in refused(MalformedConfigError)
    put(hub, **{"model.safetensors": file(SHAPES)})
    load("org/model")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "offline mode" in refused(OfflineError)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    hub.broken = 503
    refused(SourceError)


def test_a_catalogue_name_has_no_headers() -> None:
    with pytest.raises(NotFoundError, match="no weights beside this config"):
        load("llama-3-8b", headers=True)
