"""From logits to the next token, and from logits to a loss.

Axes: B sequences, T positions, V vocabulary. Sources: arXiv:1904.09751 (top-p), 2211.17192 (speculative sampling).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from reference_model.decoder import Decoder


def distribution(logits_BV: Tensor, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """Probabilities after temperature, then the ``top_k`` largest, then the fewest that reach ``top_p``: [B, V]."""
    p_BV = (logits_BV.double() / temperature).softmax(-1)
    if top_k:
        least_B1 = p_BV.topk(min(top_k, p_BV.shape[-1]), -1).values[:, -1:]
        p_BV = torch.where(p_BV >= least_B1, p_BV, 0.0)
    if top_p < 1.0:
        p_BV = p_BV / p_BV.sum(-1, keepdim=True)
        sorted_BV, order_BV = p_BV.sort(-1, descending=True)
        before_BV = sorted_BV.cumsum(-1) - sorted_BV
        p_BV = p_BV.masked_fill(torch.zeros_like(p_BV, dtype=torch.bool).scatter(-1, order_BV, before_BV >= top_p), 0.0)
    return p_BV / p_BV.sum(-1, keepdim=True)


def choose(
    logits_BV: Tensor,
    *,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The next token of each sequence, the likeliest at temperature 0: [B]."""
    if temperature == 0.0:
        return logits_BV.argmax(-1)
    p_BV = distribution(logits_BV, temperature=temperature, top_k=top_k, top_p=top_p)
    return torch.multinomial(p_BV, 1, generator=generator)[:, 0]


def losses(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """Minus the log-probability of each target: [B, T], in nats."""
    return -logits_BTV.double().log_softmax(-1).gather(-1, targets_BT[..., None])[..., 0]


def perplexity(logits_BTV: Tensor, targets_BT: Tensor) -> float:
    """exp of the mean loss."""
    return float(losses(logits_BTV, targets_BT).mean().exp())


def speculate(draft_V: Tensor, target_V: Tensor) -> tuple[Tensor, Tensor]:
    """Speculative sampling of one token: with what probability each drafted token is accepted [V], and the
    distribution from which a rejected one is drawn anew [V]; together they give exactly the target."""
    accept_V = (target_V / draft_V.clamp(min=torch.finfo(draft_V.dtype).tiny)).clamp(max=1.0)
    rest_V = (target_V - draft_V).clamp(min=0.0)
    return accept_V, rest_V / rest_V.sum() if float(rest_V.sum()) > 0 else target_V


@torch.no_grad()
def generate(
    model: Decoder,
    prompts: Sequence[Sequence[int]],
    count: int,
    *,
    chunk: int = 0,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int | None = None,
    source_BSD: Tensor | None = None,
) -> list[list[int]]:
    """``count`` tokens after each prompt, of any lengths: one prefill (in chunks of ``chunk``), then decode steps."""
    lengths = [len(prompt) for prompt in prompts]
    device, generator = next(model.parameters()).device, None
    if seed is not None:
        generator = torch.Generator(device).manual_seed(seed)
    source = 0 if source_BSD is None else source_BSD.shape[1]
    cache = model.allocate(len(prompts), max(lengths) + count, source=source)
    padded_BT = torch.zeros(len(prompts), max(lengths), dtype=torch.long, device=device)
    for row, prompt in zip(padded_BT, prompts, strict=True):
        row[: len(prompt)] = torch.tensor(list(prompt), device=device)
    total_B, size = torch.tensor(lengths, device=device), chunk or max(lengths)
    last_BV: Tensor | None = None
    for start in range(0, max(lengths), size):
        piece = padded_BT[:, start : start + size]
        new_B = (total_B - start).clamp(0, piece.shape[1])
        logits = model(piece, cache, new_B=new_B, source_BSD=source_BSD)
        ended_BV = logits.gather(1, (new_B - 1).clamp(min=0)[:, None, None].expand(-1, 1, logits.shape[-1]))[:, 0]
        last_BV = ended_BV if last_BV is None else torch.where((new_B > 0)[:, None], ended_BV, last_BV)
    assert last_BV is not None
    out: list[Tensor] = []
    for step in range(count):
        out.append(choose(last_BV, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator))
        if step + 1 < count:
            last_BV = model(out[-1][:, None], cache)[:, 0]
    return [row.tolist() for row in torch.stack(out, 1)]
