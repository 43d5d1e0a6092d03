"""What stands behind the layers, by the name of the class: as the library builds it, or as remote code does."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from llmcalc import kv_cache, params, read_config
from llmcalc.errors import UnsupportedLayerError
from tests.families import library
from tests.families.configs import default

CLASSES = [
    ("gpt2", "GPT2Model"), ("gpt2", "GPT2ForSequenceClassification"), ("gpt2", "GPT2ForTokenClassification"),
    ("gpt2", "GPT2ForQuestionAnswering"), ("gpt2", "GPT2DoubleHeadsModel"), ("qwen2", "Qwen2ForTokenClassification"),
    ("llama", "LlamaForSequenceClassification"), ("opt", "OPTForQuestionAnswering"),
    ("gemma3", "Gemma3ForSequenceClassification"),
    ("t5", "T5EncoderModel"), ("t5", "T5ForSequenceClassification"), ("t5", "T5ForTokenClassification"),
    ("t5", "T5ForQuestionAnswering"), ("umt5", "UMT5ForTokenClassification"),
    ("bart", "BartModel"), ("bart", "BartForSequenceClassification"), ("bart", "BartForQuestionAnswering"),
    ("bart", "BartForConditionalGeneration"), ("bart", "BartForCausalLM"), ("mbart", "MBartForCausalLM"),
    ("plbart", "PLBartForCausalLM"), ("marian", "MarianMTModel"), ("marian", "MarianForCausalLM"),
    ("pegasus", "PegasusForCausalLM"), ("blenderbot-small", "BlenderbotSmallForCausalLM"),
    ("whisper", "WhisperForCausalLM"),
    ("bert", "BertModel"), ("bert", "BertLMHeadModel"), ("bert", "BertForMultipleChoice"),
    ("bert", "BertForNextSentencePrediction"), ("bert", "BertForQuestionAnswering"), ("roberta", "RobertaForCausalLM"),
    ("electra", "ElectraForCausalLM"), ("electra", "ElectraForPreTraining"), ("albert", "AlbertForMultipleChoice"),
    ("modernbert", "ModernBertForTokenClassification"), ("modernbert", "ModernBertForMultipleChoice"),
    ("modernbert", "ModernBertForQuestionAnswering"), ("mpnet", "MPNetForTokenClassification"),
]  # fmt: skip


@pytest.mark.parametrize(("model_type", "name"), CLASSES)
def test_heads(model_type: str, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = library.saved(model_type, {"num_labels": 5} if "Classification" in name else {})
        data["architectures"] = [name]
        assert params(read_config(data)).total_params == library.parameters(data)


def of(name: str, model_type: str = "qwen2", **changes: Any) -> dict[str, Any]:
    return default(model_type, architectures=[name], vocab_size=1000, num_hidden_layers=2, **changes)


def test_a_decoder_alone_keeps_nothing_of_a_source() -> None:
    data: dict[str, Any] = {"model_type": "bart", "d_model": 64, "vocab_size": 100}
    for side in ("encoder", "decoder"):
        data |= {f"{side}_layers": 2, f"{side}_attention_heads": 4, f"{side}_ffn_dim": 64}
    alone = kv_cache(read_config(data | {"architectures": ["BartForCausalLM"]}), 10, cache="bf16")
    both = kv_cache(read_config(data | {"architectures": ["BartModel"]}), 10, cache="bf16")
    assert alone.total_bytes == 2 * 2 * 10 * 64 * 2
    assert both.total_bytes == 2 * alone.total_bytes


@pytest.mark.parametrize(
    ("model_type", "name", "rows", "hidden"),
    [("qwen2", "Qwen2ForRewardModel", 1, True), ("qwen2", "Qwen2ForProcessRewardModel", 2, True),
     ("internlm2", "InternLM2ForRewardModel", 1, False)],
)  # fmt: skip
def test_reward_models_of_remote_code(model_type: str, name: str, rows: int, hidden: bool) -> None:
    """A matrix and a vector with biases in Qwen's code, a bare vector in InternLM's."""
    data = of("Qwen2Model", model_type, hidden_size=64, num_attention_heads=4, num_key_value_heads=2)
    data |= {"intermediate_size": 128}
    body = params(read_config(data)).total_params
    found = read_config(data | {"architectures": [name]})
    head = 64 * 64 + 64 + rows * 64 + rows if hidden else rows * 64
    assert params(found).total_params == body + head
    assert not any("not known" in text for text in found.warnings)


def test_an_unknown_reward_model_has_no_total() -> None:
    found = read_config(of("Qwen2ForGatedRewardModel"))
    with pytest.raises(UnsupportedLayerError, match="the head of Qwen2ForGatedRewardModel"):
        params(found)
    assert kv_cache(found, 10).total_bytes > 0


@pytest.mark.parametrize(
    ("data", "head"),
    [
        (of("Qwen2ForSomething"), "an output matrix over the vocabulary"),
        (of("LlamaForNextSentencePrediction", "llama"), "an output matrix over the vocabulary"),
        (default("bert", architectures=["BertForSomething"]), "a masked-token head"),
        (default("t5", architectures=["T5ForSomething"], d_model=512, num_layers=2, num_heads=8), "an output matrix"),
    ],
)
def test_an_unknown_class_is_said(data: dict[str, Any], head: str) -> None:
    name = data["architectures"][0]
    found = read_config(data)
    assert any(f"behind the layers of {name} is not known: it is read with {head}" in text for text in found.warnings)
    del data["architectures"]
    assert params(found).total_params == params(read_config(data)).total_params
