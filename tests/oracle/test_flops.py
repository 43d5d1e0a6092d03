"""Operations that torch's counter sees in the reference decoder, against the estimate, on shrunken copies.

Left out are scans and convolutions: here they run token by token, and the estimate counts them in blocks as libraries
do. Two libraries mask instead of forgetting, or see one position more: their decode step is compared with the exact
(causal) count, which is what a ring cache computes.
"""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from llmcalc.arch.attention import Attention
from llmcalc.arch.latent import LatentAttention
from llmcalc.calc.flops import flops
from reference_model.cache import Cache
from reference_model.decoder import Decoder
from tests.oracle.test_corpus import UNLIKE

TOKENS = 24
EXACT = ("defaults--gpt-neo", "xiaomimimo--mimo-v2-flash")
ATTENDING = [
    slug for slug, small in UNLIKE.items()
    if all(isinstance(mixer, (Attention, LatentAttention)) for layer in small.decoder.layers for mixer in layer.mixers)
]  # fmt: skip


def counted(model: Decoder, tokens: torch.Tensor, cache: Cache | None = None) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(tokens, cache)
    return counter.get_total_flops()


@pytest.mark.parametrize("slug", ATTENDING)
def test_flops(slug: str) -> None:
    small = UNLIKE[slug]
    model, tokens = Decoder(small).eval(), torch.randint(0, 61, (1, TOKENS))
    cache = model.allocate(1, TOKENS)
    prefill = flops(small, TOKENS, convention="dense", logits="all")
    assert counted(model, tokens) == prefill.matmul_flops + prefill.attention_flops + prefill.scan_flops
    model(tokens[:, :-1], cache)
    convention = "causal" if slug in EXACT else "dense"
    decode = flops(small, TOKENS - 1, phase="decode", convention=convention, logits="all")
    assert counted(model, tokens[:, -1:], cache) == decode.matmul_flops + decode.attention_flops + decode.scan_flops
