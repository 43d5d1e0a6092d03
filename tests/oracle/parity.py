"""A tiny model of a family in transformers, its weights perturbed and saved, and the reference loaded from them.

Every parameter is moved off its default, q and k are scaled until scores have a standard deviation of at least one,
and the sequence goes past the original context and past every window.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor

from llmcalc.arch.families import read_config
from reference_model.attention import attend
from reference_model.decoder import Decoder
from reference_model.load import load
from reference_model.sight import Sight
from tests.oracle.leave_out import Change

TOLERANCE = 1e-4


@dataclass
class Case:
    """A family's tiny config, what is left out of it to see the comparison fail, and how long the sequence is."""

    config: dict[str, object]
    without: dict[str, Change] = field(default_factory=dict)
    length: int = 40
    kernel: str = "eager"
    distinct: bool = False  # no token twice: what weighs equally much would be chosen between by chance (Doge)
    image: int = 0  # states of an image that the decoder is given


# Names of matrices whose outputs meet in the scores.
SCORING = (
    "q_proj", "k_proj", "q_b_proj", "query", "qkv", "kv_b_proj", "c_attn", "Wqkv", "Wq.", "Wk.", ".q.", ".k.",
)  # fmt: skip
TABLES = ("wte", "shared", "word_embeddings")
STORED = ("correction", "expert_bias", "layer_scalar")  # buffers of a file that are not computed from its config


def matrix(name: str, tensor: Tensor, noise: Tensor, *, rows_first: bool) -> None:
    """Random numbers that keep the magnitude of what goes through; larger ones for queries and keys."""
    if any("embed" in part or part in TABLES for part in name.rsplit(".", 2)[-2:]):
        tensor.copy_(noise)
    else:
        tensor.copy_(noise * 0.7 * (tensor.shape[-2] if rows_first else tensor.shape[-1]) ** -0.5)
    if any(mark in name for mark in SCORING):
        tensor.mul_(2.0)


@torch.no_grad()
def perturbed(model: torch.nn.Module) -> None:
    """Move every parameter and every learned buffer; matrices of queries and keys become larger ones."""
    generator = torch.Generator().manual_seed(1)
    buffers = ((name, b) for name, b in model.named_buffers() if any(mark in name for mark in STORED))
    for name, tensor in (*model.named_parameters(), *buffers):
        if not tensor.is_floating_point():
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        if tensor.dim() >= 2 and not any(mark in name for mark in ("A_log", "time_mix", "norm")):
            stacked = tensor.dim() == 3 and "experts" in name
            matrix(name, tensor, noise, rows_first=stacked or type(model).__name__.startswith("GPT2"))
        elif name.endswith("self_attn.A"):
            tensor.copy_(noise.sign())  # or keys would weigh the same but for rounding (Doge)
        elif "sinks" in name or "correction" in name or "expert_bias" in name:
            tensor.copy_(noise * 0.5)
        else:
            tensor.add_(noise * 0.2)
            if re.search(r"(q|k|query|key)_(layer)?norm", name):
                tensor.add_(0.5)


def independent(case: Case, folder: Path) -> tuple[torch.nn.Module, dict[str, object]]:
    """The model of transformers, saved to ``folder``; and the config it wrote."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, MllamaForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(**copy.deepcopy(case.config))
    config._attn_implementation = case.kernel
    config.dtype = "float32"
    pair = config.is_encoder_decoder
    if config.model_type == "mllama_text_model":
        model = MllamaForCausalLM(config).float().eval()  # whose automatic class is the one with a tower
    else:
        model = (AutoModelForSeq2SeqLM if pair else AutoModelForCausalLM).from_config(config).float().eval()
    perturbed(model)
    model.save_pretrained(folder)
    return model, json.loads((folder / "config.json").read_text())


def reference(config: dict[str, object], folder: Path, change: Change | None = None) -> Decoder:
    """The reference decoder of a config with the saved weights; ``change`` leaves something out."""
    architecture = read_config(config)
    return load(Decoder(change(architecture) if change else architecture).eval(), folder)


def tokens(config: dict[str, object], case: Case, batch: int = 2) -> Tensor:
    """Random token numbers."""
    vocab, length = config.get("vocab_size"), case.length
    assert isinstance(vocab, int)
    if case.distinct:
        generator = torch.Generator().manual_seed(2)
        return torch.stack([3 + torch.randperm(vocab - 3, generator=generator)[:length] for _ in range(batch)])
    return torch.randint(3, vocab, (batch, length), generator=torch.Generator().manual_seed(2))


def picture(case: Case, config: dict[str, object]) -> Tensor | None:
    """States of an image, where the case has one: [B, S, D]."""
    width = config["hidden_size"] if case.image else 0
    assert isinstance(width, int)
    return torch.randn(2, case.image, width, generator=torch.Generator().manual_seed(3)) if case.image else None


def logits(model: torch.nn.Module, batch: Tensor, image: Tensor | None = None) -> Tensor:
    """Of transformers; an encoder-decoder reads the same tokens on both sides."""
    with torch.no_grad():
        if image is not None:
            return model(batch, cross_attention_states=image, use_cache=False).logits
        if model.config.is_encoder_decoder:
            return model(input_ids=batch, decoder_input_ids=batch, use_cache=False).logits
        return model(batch, use_cache=False).logits


def own_logits(model: Decoder, batch: Tensor, image: Tensor | None = None) -> Tensor:
    """Of the reference decoder."""
    with torch.no_grad():
        if image is not None:
            return model(batch, source_BSD=image)
        if model.encoder is not None:
            return model(batch, source_BSD=model.encode(batch))
        return model(batch)


@contextmanager
def scores_seen() -> Iterator[list[float]]:
    """Standard deviations of the scores of every attention that runs inside."""
    found: list[float] = []

    def watched(q: Tensor, k: Tensor, v: Tensor, visible: Sight, *, scale: float, **more: object) -> Tensor:
        each = q.shape[1] // k.shape[1]
        scores = (q @ k.repeat_interleave(each, 1).mT) * scale
        mask = torch.ones_like(scores, dtype=torch.bool)
        if isinstance(visible, Tensor):
            mask = visible[:, None].expand_as(scores)
        elif visible == "causal":
            mask = mask.tril()
        found.append(float(scores[mask].std()))
        return attend(q, k, v, visible, scale=scale, **more)  # type: ignore[arg-type]

    with patch("reference_model.attention.attend", watched), patch("reference_model.latent.attend", watched):
        yield found


def difference(ours: Tensor, theirs: Tensor) -> float:
    """Largest difference, in standard deviations of the logits."""
    return float((ours - theirs).abs().max() / theirs.std())
