"""Where the weights of a model stand: each with the blocks that hold it and the names that lists of modules use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Final, NamedTuple

from llmcalc.arch.base import Spec, Weight
from llmcalc.arch.model import Architecture, Layer, Named, Stack, StackName, branch_of

TEXT: Final = ("decoder", "encoder")
TOWERS: Final = ("vision", "audio", "projector")

# Matrices that a family's checkpoints hold as one: the name there, and the names here that it stands for.
_QKV = ("q_proj", "k_proj", "v_proj")
_GATE_UP = ("gate_proj", "up_proj")
FUSED: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "phi3": {"qkv_proj": _QKV, "gate_up_proj": _GATE_UP},
    "glm": {"gate_up_proj": _GATE_UP},
    "glm4": {"gate_up_proj": _GATE_UP},
    "chatglm": {"query_key_value": _QKV, "dense_h_to_4h": _GATE_UP},
    "baichuan": {"W_pack": _QKV},
    "internlm2": {"wqkv": _QKV},
    "dbrx": {"Wqkv": _QKV},
    "mpt": {"Wqkv": _QKV},
    "openelm": {"qkv_proj": _QKV},
    "codegen": {"qkv_proj": _QKV},
    "qwen": {"c_attn": _QKV},
    "gpt2": {"c_attn": _QKV},
    "gpt_bigcode": {"c_attn": _QKV},
    **dict.fromkeys(("falcon", "bloom", "gpt_neox", "persimmon"), {"query_key_value": _QKV}),
    **dict.fromkeys(("modernbert", "nomic_bert"), {"Wqkv": _QKV}),
}

# How checkpoints and model classes spell modules that are spelled otherwise here (pattern, replacement), by family.
_MIXTRAL = (
    (r"\.mlp\.", ".block_sparse_moe."), (r"(experts\.\d+)\.gate_proj", r"\1.w1"),
    (r"(experts\.\d+)\.up_proj", r"\1.w3"), (r"(experts\.\d+)\.down_proj", r"\1.w2"),
)  # fmt: skip
_SINGULAR = ((r"\.shared_experts", ".shared_expert"),)
SPELLINGS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "mixtral": _MIXTRAL,
    "phimoe": _MIXTRAL,
    "minimax_m2": _MIXTRAL,
    "kimi_linear": _MIXTRAL,
    "gpt_oss": ((r"\.mlp\.gate$", ".mlp.router"),),
    **dict.fromkeys(("qwen2_moe", "qwen3_next", "qwen3_5_moe_text"), _SINGULAR),
    "llama4_text": ((r"\.mlp\.gate$", ".mlp.router"), (r"\.mlp\.", ".feed_forward."), *_SINGULAR),
    "deepseek_v4": (
        (r"^model\.", ""), (r"^lm_head", "head"), (r"\.self_attn\.", ".attn."), (r"\.mlp\.", ".ffn."),
        (r"\.compressor\.indexer\.(kv|gate)_proj", r".indexer.compressor.w\1"), (r"\.compressor\.indexer", ".indexer"),
        (r"q_a_proj", "wq_a"), (r"q_b_proj", "wq_b"), (r"kv_proj", "wkv"), (r"o_a_proj", "wo_a"), (r"o_b_proj", "wo_b"),
        (r"compressor\.gate_proj", "compressor.wgate"), (r"gate_proj", "w1"), (r"up_proj", "w3"), (r"down_proj", "w2"),
    ),
}  # fmt: skip
_PREFIXES: Final = (
    ("model.language_model.", "language_model.model."),
    ("language_model.model.", "model.language_model."),
    ("language_model.model.", "model."),
    ("model.language_model.", "model."),
    ("model.visual.", "visual."),
    ("model.vision_tower.", "vision_tower."),
    ("vision_tower.", "model.vision_tower."),
    ("multi_modal_projector.", "model.multi_modal_projector."),
    ("language_model.lm_head", "lm_head"),
    ("lm_head", "language_model.lm_head"),
)


class Site(NamedTuple):
    """A stored weight: ``weights`` (several where a checkpoint fuses them, rows added), and the blocks holding it."""

    weights: tuple[Weight, ...]
    stack: StackName
    prefix: str
    blocks: tuple[int, ...]
    branch: str
    spec: Spec
    family: str
    offset: int = 0

    @property
    def weight(self) -> Weight:
        """The weight, or the first of those that are stored as one."""
        return self.weights[0]

    @property
    def name(self) -> str:
        """Its name in its block, or its whole name outside of blocks."""
        return self.weight.name

    @property
    def module(self) -> str:
        """The name in its block without ``.weight``."""
        return self.name.removesuffix(".weight")

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, rows of fused matrices added."""
        first = self.weight.shape
        return (sum(weight.shape[0] for weight in self.weights), *first[1:]) if len(self.weights) > 1 else first

    @property
    def number(self) -> int:
        """Blocks that hold it."""
        return len(self.blocks) or 1

    @property
    def size(self) -> int:
        """Numbers stored in all its blocks."""
        return self.number * sum(weight.size for weight in self.weights)

    @property
    def matrix(self) -> bool:
        """Whether it is the matrix of a linear module or of a table: what schemes speak of."""
        weight = self.weight
        return len(weight.shape) == 2 and weight.dtype == "model" and weight.name.endswith(".weight")

    def spellings(self, block: int | None, expert: int = 0) -> tuple[str, ...]:
        """The module's full names in one of its blocks."""
        where = "" if block is None else f"{self.prefix}.{block + self.offset}."
        names = [f"{where}{w.name.removesuffix('.weight')}".replace("{}", str(expert)) for w in self.weights]
        for fused, parts in FUSED.get(self.family, {}).items():
            if len(self.weights) > 1 and parts[0] in names[0]:
                names.append(names[0].replace(parts[0], fused))
        return tuple(dict.fromkeys(spelled for name in names for spelled in respell(name, self.family)))


def respell(name: str, family: str) -> Iterator[str]:
    """A name as it is here, as the family's checkpoints write it, and both under the prefixes of wrappers."""
    other = name
    for pattern, replacement in SPELLINGS.get(family, ()):
        other = re.sub(pattern, replacement, other)
    for spelled in dict.fromkeys((name, other)):
        yield spelled
        for old, new in _PREFIXES:
            if spelled.startswith(old):
                yield new + spelled.removeprefix(old)


def sites(architecture: Architecture) -> list[Site]:
    """Every weight of the model proper, tied aliases left out."""
    found = [site for stack in architecture.stacks for site in _of(stack, architecture)]
    return [site for site in found if site.blocks or site.name not in architecture.aliases]


def mtp_sites(architecture: Architecture) -> list[Site]:
    """Every weight of the multi-token-prediction heads."""
    return [site for stack in architecture.mtp for site in _of(stack, architecture)]


def _of(stack: Stack, architecture: Architecture) -> Iterator[Site]:
    family = architecture.decoder_type or architecture.model_type
    decoder = architecture.decoder
    offset = len(decoder.layers) if stack.name == "mtp" and stack.prefix == decoder.prefix else 0
    for named in stack.stem:
        yield from _leaf(stack, named, (), family, offset)
    for layer, members in stack.groups:
        yield from _block(stack, layer, members, family, offset)
    for named in stack.tail:
        yield from _leaf(stack, named, (), family, offset)


def _block(stack: Stack, layer: Layer, members: tuple[int, ...], family: str, offset: int) -> Iterator[Site]:
    for named in layer.leaves():
        yield from _leaf(stack, named, members, family, offset)


def _leaf(stack: Stack, named: Named, blocks: tuple[int, ...], family: str, offset: int) -> Iterator[Site]:
    weights = list(named.weights())
    groups = FUSED.get(family, {}) if stack.name in (*TEXT, "mtp") else {}
    # A bias of fused matrices is one tensor of the same total size: only matrices are joined.
    for _, together in groupby(_keyed(weights, groups), key=lambda pair: pair[0]):
        joined = tuple(weight for _, weight in together)
        branch = branch_of(named.spec, joined[0]._replace(name=joined[0].name.removeprefix(f"{named.name}.")))
        yield Site(joined, stack.name, stack.prefix, blocks, branch, named.spec, family, offset)


def _keyed(weights: list[Weight], groups: dict[str, tuple[str, ...]]) -> list[tuple[str, Weight]]:
    """Weights with the key under which they are joined, those of one key beside each other."""
    keyed = []
    for index, weight in enumerate(weights):
        key = f"{index}"
        for fused, parts in groups.items():
            stem, _, leaf = weight.name.removesuffix(".weight").rpartition(".")
            if weight.name.endswith(".weight") and leaf in parts and "{}" not in weight.name:
                key = f"{stem}.{fused}"
        keyed.append((key, weight))
    first = {key: index for index, (key, _) in reversed(list(enumerate(keyed)))}
    return sorted(keyed, key=lambda pair: first[pair[0]])
