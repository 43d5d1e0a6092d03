"""Every task of every encoder: the parameters that transformers builds on the meta device, class by class."""

from __future__ import annotations

from typing import Any

import pytest

from llmcalc import params, read_config
from llmcalc.arch.families.encoders import ROWS
from tests.verify.small import ENCODERS, config_of

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

ENDINGS = (
    "Model LMHeadModel ForCausalLM ForMaskedLM ForPreTraining ForSequenceClassification ForMultipleChoice "
    "ForNextSentencePrediction ForTokenClassification ForQuestionAnswering"
).split()


def counted(name: str, ending: str, **more: Any) -> tuple[int, int] | None:
    """Parameters of the class and ours, None where there is no such class."""
    config = config_of(name)
    for key, value in more.items():
        setattr(config, key, value)
    kind = getattr(transformers, type(config).__name__.removesuffix("Config") + ending, None)
    if kind is None:
        return None
    with torch.device("meta"):
        model = kind(config)
    written = {**config.to_dict(), "architectures": [kind.__name__]}
    return sum(p.numel() for p in model.parameters()), params(read_config(written)).total_params


@pytest.mark.parametrize("name", ENCODERS)
def test_every_class_of_a_family(name: str) -> None:
    found = {ending: counted(name, ending) for ending in ENDINGS}
    pairs = {ending: pair for ending, pair in found.items() if pair}
    assert {ending: theirs for ending, (theirs, _) in pairs.items()} == {e: ours for e, (_, ours) in pairs.items()}
    assert len(pairs) >= 4


def test_all_families_are_here() -> None:
    assert set(ROWS) <= set(ENCODERS)


def test_a_decoder_of_bert_has_the_masked_head_and_no_pooler() -> None:
    pair = counted("bert", "LMHeadModel", is_decoder=True, tie_word_embeddings=True)
    assert pair is not None
    assert pair[0] == pair[1]
    config = {**config_of("bert").to_dict(), "architectures": ["BertLMHeadModel"], "is_decoder": True}
    architecture = read_config(config)
    names = {placed.weight.name for placed in architecture.weights}
    assert "cls.predictions.transform.dense.weight" in names
    assert not any("pooler" in name for name in names)
    assert any("is_decoder" in text for text in architecture.warnings)
