"""What a model is for, read off the name of its class: the one place that knows these names."""

from __future__ import annotations

from typing import Literal

from llmcalc.arch.fields import Fields

Task = Literal[
    "causal", "generate", "body", "encoder", "masked", "pretraining", "sequence", "token", "answer", "choice", "next",
    "double", "reward",
]  # fmt: skip

ENDINGS: tuple[tuple[str, Task], ...] = (
    ("ForCausalLM", "causal"), ("LMHeadModel", "causal"), ("DoubleHeadsModel", "double"), ("HeadModel", "causal"),
    ("ForConditionalGeneration", "generate"), ("MTModel", "generate"), ("ForVision2Seq", "generate"),
    ("ForImageTextToText", "generate"), ("ForSpeechToText", "generate"), ("ChatModel", "generate"),
    ("ForMaskedLM", "masked"), ("ForPreTraining", "pretraining"), ("ForSequenceClassification", "sequence"),
    ("ForTokenClassification", "token"), ("ForQuestionAnswering", "answer"), ("ForMultipleChoice", "choice"),
    ("ForNextSentencePrediction", "next"), ("RewardModel", "reward"), ("EncoderModel", "encoder"), ("Model", "body"),
)  # fmt: skip

# Classes whose name says something else: they write text.
NAMES: dict[str, Task] = {
    "ChatGLMModel": "causal", "Qwen2_5OmniModel": "generate", "ShieldGemma2ForImageClassification": "generate",
    "MiniCPMV": "generate", "MiniCPMO": "generate", "NemotronH_Omni_Reasoning_V3": "generate",
}  # fmt: skip

# Classes of the library that are the language model alone, though the model_type is that of a model with towers.
TEXT_ALONE = frozenset(
    """
    Apertus1p5TextForCausalLM AriaTextForCausalLM Dots3NoteForCausalLM Emu3ForCausalLM Gemma3ForCausalLM
    Gemma3TextForSequenceClassification Gemma3nForCausalLM Gemma4ForCausalLM Gemma4UnifiedForCausalLM
    Inkling2ForCausalLM Inkling2LoopForCausalLM InklingForCausalLM Llama4ForCausalLM MiniMaxM3VLForCausalLM
    MllamaForCausalLM Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM Qwen3_5TextForSequenceClassification Qwen4ExpForCausalLM
    """.split()
)


def class_name(fields: Fields) -> str:
    """The class that the file names first; empty where it names none."""
    names = fields.raw("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""


def named_task(name: str) -> Task | None:
    """What a class is for; None where its name does not say."""
    return NAMES.get(name) or next((task for ending, task in ENDINGS if name.endswith(ending)), None)


def task_of(fields: Fields, default: Task, known: tuple[Task, ...]) -> Task:
    """What the class that the file names is for: one of ``known``, else ``default``, with a warning if it is named."""
    name = class_name(fields)
    task = named_task(name) if name else default
    if task in known:
        return task
    head = HEADS.get(default, "its usual head")
    fields.notes.warn(f"what stands behind the layers of {name} is not known: it is read with {head}")
    return default


HEADS: dict[Task, str] = {
    "causal": "an output matrix over the vocabulary", "generate": "an output matrix over the vocabulary",
    "masked": "a masked-token head",
}  # fmt: skip
