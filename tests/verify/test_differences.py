"""What ``verify`` says of checkpoints that are spelled otherwise, packed, or not those of the config."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcalc import Architecture, read_config, verify
from llmcalc.arch.names import groups, rules_of, stored
from llmcalc.arch.spellings import TABLE
from llmcalc.calc.verify import Verification
from llmcalc.sources.raw import Tensor
from tests.headers.gguf_files import LLAMA, write_llama

GPT2 = {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 96, "n_positions": 64}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
QWEN3_MOE = {
    **LLAMA,
    "model_type": "qwen3_moe",
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
}
GPT_OSS = {**LLAMA, "model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2, "attention_bias": True}
DEEPSEEK = {
    "model_type": "deepseek_v3", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 96,
    "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 8, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "moe_intermediate_size": 24, "first_k_dense_replace": 1, "num_nextn_predict_layers": 1, "n_group": 1,
}  # fmt: skip
BERT = {
    "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 96, "max_position_embeddings": 64,
}  # fmt: skip


def usual(architecture: Architecture) -> list[Tensor]:
    """The headers of a checkpoint in its family's usual spelling."""
    return [Tensor(tensor.name, "BF16", tensor.shape, "") for tensor in stored(architecture)]


def check(config: dict[str, Any], change: Callable[[list[Tensor]], list[Tensor]] = list) -> Verification:
    architecture = read_config(config)
    return verify(architecture, change(usual(architecture)))


def renamed(old: str, new: str) -> Callable[[list[Tensor]], list[Tensor]]:
    def change(tensors: list[Tensor]) -> list[Tensor]:
        return [tensor._replace(name=tensor.name.replace(old, new)) for tensor in tensors]

    return change


# -- spellings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [LLAMA, GPT2, MIXTRAL, QWEN3_MOE, GPT_OSS, DEEPSEEK, BERT])
def test_the_usual_spelling_agrees(config: dict[str, Any]) -> None:
    assert check(config).agrees


def test_the_usual_names() -> None:
    names = {tensor.name: tensor.shape for tensor in stored(read_config(GPT2))}
    assert names["transformer.h.1.attn.c_attn.weight"] == (32, 96)
    assert names["transformer.h.1.attn.c_attn.bias"] == (96,)
    names = {tensor.name: tensor.shape for tensor in stored(read_config(MIXTRAL))}
    assert names["model.layers.0.block_sparse_moe.experts.3.w1.weight"] == (96, 64)
    names = {tensor.name: tensor.shape for tensor in stored(read_config(GPT_OSS))}
    assert names["model.layers.2.mlp.experts.gate_up_proj"] == (4, 64, 192)
    assert names["model.layers.2.mlp.experts.gate_up_proj_bias"] == (4, 192)


@pytest.mark.parametrize(
    ("config", "old", "new"),
    [
        (GPT2, "transformer.", ""),
        (LLAMA, "model.", ""),
        (LLAMA, "model.", "model.language_model."),
        (BERT, "bert.", ""),
        (BERT, "LayerNorm.weight", "LayerNorm.gamma"),
    ],
)
def test_other_roots(config: dict[str, Any], old: str, new: str) -> None:
    assert check(config, renamed(old, new)).agrees


def test_a_wrapped_model() -> None:
    def wrap(tensors: list[Tensor]) -> list[Tensor]:
        return [tensor._replace(name=f"language_model.{tensor.name}") for tensor in tensors]

    assert check(LLAMA, wrap).agrees


def test_stacked_experts() -> None:
    def stack(tensors: list[Tensor]) -> list[Tensor]:
        kept = [tensor for tensor in tensors if ".experts." not in tensor.name]
        for layer in range(3):
            root = f"model.layers.{layer}.mlp.experts"
            kept += [
                Tensor(f"{root}.gate_up_proj", "BF16", (4, 48, 64), ""),
                Tensor(f"{root}.down_proj", "BF16", (4, 64, 24), ""),
            ]
        return kept

    assert check(QWEN3_MOE, stack).agrees


def test_fused_projections_of_another_family() -> None:
    def fuse(tensors: list[Tensor]) -> list[Tensor]:
        kept = [t for t in tensors if not any(f".{part}_proj" in t.name for part in ("q", "k", "v", "gate", "up"))]
        for layer in range(3):
            kept.append(Tensor(f"model.layers.{layer}.self_attn.qkv_proj.weight", "BF16", (128, 64), ""))
            kept.append(Tensor(f"model.layers.{layer}.mlp.gate_up_proj.weight", "BF16", (192, 64), ""))
        return kept

    assert check(LLAMA, fuse).agrees


def test_a_row_for_every_family_is_read() -> None:
    for family in TABLE:
        assert rules_of(family).rules


# -- what differs ------------------------------------------------------------------------------------------------------


def test_missing_unexpected_and_another_shape() -> None:
    def change(tensors: list[Tensor]) -> list[Tensor]:
        found = [t for t in tensors if t.name != "model.layers.1.mlp.down_proj.weight"]
        found = [t._replace(shape=(64, 65)) if t.name == "model.layers.2.self_attn.q_proj.weight" else t for t in found]
        return [*found, Tensor("model.layers.3.mlp.down_proj.weight", "BF16", (64, 96), "")]

    found = check(LLAMA, change)
    assert not found.agrees
    assert [tuple(t) for t in found.missing] == [("model.layers.1.mlp.down_proj.weight", (64, 96))]
    assert [tuple(t) for t in found.unexpected] == [("model.layers.3.mlp.down_proj.weight", (64, 96))]
    assert [tuple(m) for m in found.mismatched] == [
        ("model.layers.2.self_attn.q_proj.weight", (64, 64), (64, 65), ("model.layers.2.self_attn.q_proj.weight",))
    ]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_whatever_is_taken_away_is_missing(data: st.DataObject) -> None:
    config = data.draw(st.sampled_from([LLAMA, GPT2, MIXTRAL, QWEN3_MOE, GPT_OSS]))
    architecture = read_config(config)
    tensors = usual(architecture)
    gone = data.draw(st.sampled_from(tensors))
    found = verify(architecture, [tensor for tensor in tensors if tensor is not gone])
    assert not found.agrees
    assert gone.name in [tensor.name for tensor in found.missing] or found.unexpected
    other = gone._replace(shape=(*gone.shape, 7))
    found = verify(architecture, [other if tensor is gone else tensor for tensor in tensors])
    assert [m.name for m in found.mismatched] == [gone.name]
    found = verify(architecture, [*tensors, Tensor("something.else", "BF16", (3,), "")])
    assert [t.name for t in found.unexpected] == ["something.else"]


def test_ties_are_there_or_not() -> None:
    tied = {**LLAMA, "tie_word_embeddings": True}
    head = Tensor("lm_head.weight", "BF16", (128, 64), "")
    assert check(tied).agrees
    assert check(tied, lambda tensors: [*tensors, head]).agrees
    assert check(tied, lambda tensors: [t for t in tensors if "embed_tokens" not in t.name] + [head]).agrees
    assert not check(tied, lambda tensors: [*tensors, head._replace(shape=(129, 64))]).agrees
    assert not check(LLAMA, lambda tensors: [t for t in tensors if t.name != "lm_head.weight"]).agrees


def test_prediction_heads_are_there_as_a_whole_or_not_at_all() -> None:
    architecture = read_config(DEEPSEEK)
    heads = [t for g in groups(architecture) if g.apart for t in g.spellings[0]]
    more = [Tensor(t.name, "BF16", t.shape, "") for t in heads]
    assert {t.name.split(".")[2] for t in more} == {"2"}
    assert "model.layers.2.eh_proj.weight" in {t.name for t in more}
    assert not check(DEEPSEEK).heads
    found = verify(architecture, [*usual(architecture), *more])
    assert found.agrees
    assert found.heads
    assert not verify(architecture, [*usual(architecture), *more[1:]]).agrees


def test_known_tables_beside() -> None:
    more = [Tensor(f"h.{layer}.attn.bias", "BF16", (1, 1, 64, 64), "") for layer in range(2)]
    more += [Tensor(f"h.{layer}.attn.masked_bias", "BF16", (), "") for layer in range(2)]
    found = check(GPT2, lambda tensors: [*renamed("transformer.", "")(tensors), *more])
    assert found.agrees
    assert len(found.beside) == 4
    frequencies = Tensor("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", (8,), "")
    assert check(LLAMA, lambda tensors: [*tensors, frequencies]).agrees
    assert not check(LLAMA, lambda tensors: [*tensors, Tensor("model.layers.0.attn.bias", "F32", (8,), "")]).agrees


# -- the verb ----------------------------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    from llmcalc.cli.app import main

    monkeypatch.setattr(sys, "argv", ["llmcalc", *words])
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr()
    return int(left.value.code or 0), said.out, said.err


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(write_llama(tmp_path / "small.gguf"))
    code, out, _ = run(capsys, monkeypatch, "verify", path, "--check", "--json")
    results = json.loads(out)["results"]
    assert (code, results["agrees"]) == (0, True)
    assert (results["missing"], results["unexpected"], results["mismatched"]) == ([], [], [])
    code, out, _ = run(capsys, monkeypatch, "verify", path, "--set", "intermediate_size=100", "--json", "--check")
    results = json.loads(out)["results"]
    assert (code, results["agrees"]) == (3, False)
    assert results["mismatched"][0] == {
        "name": "blk.0.ffn_gate.weight", "expected": [100, 64], "found": [96, 64],
        "holds": ["model.layers.0.mlp.gate_proj.weight"],
    }  # fmt: skip
    code, out, _ = run(capsys, monkeypatch, "verify", path, "--set", "intermediate_size=100")
    assert code == 0
    assert "differs: 0 missing, 0 unexpected, 9 of another shape" in out
    assert "blk.2.ffn_down.weight" in out
    code, out, err = run(capsys, monkeypatch, "verify", "llama-3-8b")
    assert (code, out) == (1, "")
    assert "no weights beside this config" in err
