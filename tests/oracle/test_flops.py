"""Operations that torch's counter sees in the reference decoder, against the estimate, on shrunken copies.

Scans run here token by token, and so does the estimate that they are compared with. Three things differ by intent:
some libraries mask instead of forgetting, or see one position more, so that their decode step is compared with the
exact (causal) count, which is what a ring cache computes; the library pads a convolution's prompt and convolves a kept
column again, where the reference computes the new outputs alone (the causal count of products); and the library has
only the scan in blocks for prompts, which the reference has not.
"""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from llmcalc.arch.attention import Attention
from llmcalc.arch.latent import LatentAttention
from llmcalc.arch.model import Architecture
from llmcalc.calc.flops import flops
from reference_model.cache import Cache
from reference_model.decoder import Decoder
from tests.oracle.corpus import image
from tests.oracle.test_corpus import UNLIKE, picture

TOKENS = 24
EXACT = (
    "defaults--gpt-neo", "xiaomimimo--mimo-v2-flash", "defaults--recurrent-gemma", "google--recurrentgemma-9b",
)  # fmt: skip
ATTENDING = [
    slug for slug, small in UNLIKE.items()
    if all(isinstance(mixer, (Attention, LatentAttention)) for layer in small.decoder.layers for mixer in layer.mixers)
]  # fmt: skip


def counted(
    model: Decoder, tokens: torch.Tensor, cache: Cache | None = None, states: torch.Tensor | None = None
) -> int:
    # The counter knows torch's plain products; of attention in one piece it sees nothing on a CPU.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(tokens, cache, source_BSD=states)
    return counter.get_total_flops()


def estimate(slug: str, small: Architecture, tokens: int, phase: Literal["prefill", "decode"]) -> int:
    """Products and mixing, each by the convention in which the reference computes them."""
    images = {"image_tokens": image(small)} if image(small) else {}
    dense, causal = (
        flops(small, tokens, phase=phase, convention=convention, logits="all", scan="recurrent", **images)
        for convention in ("dense", "causal")
    )
    products = dense if slug in ATTENDING else causal
    mixing = causal if slug in EXACT and phase == "decode" else dense
    return products.matmul_flops + mixing.attention_flops + mixing.scan_flops


@pytest.mark.parametrize("slug", UNLIKE)
@torch.no_grad()
def test_flops(slug: str) -> None:
    small = UNLIKE[slug]
    model, tokens = Decoder(small).eval(), torch.randint(0, 61, (1, TOKENS))
    states, cache = picture(small, 1, torch.float32), model.allocate(1, TOKENS, source=image(small))
    assert counted(model, tokens, None, states) == estimate(slug, small, TOKENS, "prefill")
    model(tokens[:, :-1], cache, source_BSD=states)
    assert counted(model, tokens[:, -1:], cache) == estimate(slug, small, TOKENS - 1, "decode")
