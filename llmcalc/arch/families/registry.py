"""Which module reads which ``model_type``."""

from __future__ import annotations

from collections.abc import Mapping

_DENSE = (
    "llama mistral ministral ministral3 internlm internlm2 internlm3 baichuan xverse orion minicpm cwm helium arcee "
    "iquestcoder exaone granite granite_swa seed_oss smollm3 hyperclovax qwen2 qwen3 mellum gemma gemma2 vaultgemma "
    "gemma3_text olmo olmo2 olmo3 exaone4 apertus phi3 glm glm4 hunyuan_v1_dense nemotron ernie4_5 bitnet nanochat "
    "starcoder2 jais2 phi persimmon gpt2 gpt_bigcode gpt_neo openai-gpt gpt_neox gptj codegen biogpt xglm ctrl bloom mpt"
)

READERS: dict[str, str] = {name: "dense" for name in _DENSE.split()}
WRAPPERS: dict[str, str] = {}

# Other spellings of a model_type: remote code, renamed classes, nested text blocks with a name of their own.
ALIASES: dict[str, str] = {
    "phi-msft": "phi",
    "mixformer-sequential": "phi",
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "Yi": "llama",
}

_CLASSES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "GPT2LMHeadModel": "gpt2",
}


def type_from_class(architectures: object) -> str:
    """Old files name only their class; the few whose class has one meaning are known."""
    name = architectures[0] if isinstance(architectures, list) and architectures else None
    return _CLASSES.get(name, "") if isinstance(name, str) else ""


def remote_code(model_type: str, data: Mapping[str, object]) -> str:
    """A model_type that remote code and the library use for different layouts, told apart by the file's own keys."""
    del data
    return model_type
