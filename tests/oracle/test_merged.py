"""The decoder as it is measured (matrices that read the same are one product) is the decoder as it is read."""

from __future__ import annotations

import pytest
import torch

from reference_model.decoder import Decoder
from reference_model.ffn import MixtureOfExperts
from tests.oracle.corpus import image
from tests.oracle.test_corpus import UNLIKE, picture

TOKENS = 12


def stored(model: Decoder) -> int:
    held = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in model.state_dict().values()}
    return sum(storage.nbytes() for storage in held.values())


def outputs(model: Decoder, tokens: torch.Tensor, states: torch.Tensor | None, source: int) -> torch.Tensor:
    """Logits of a prompt in two pieces and of a step."""
    cache = model.allocate(2, TOKENS, source=source)
    pieces = ((0, 5), (5, TOKENS - 1), (TOKENS - 1, TOKENS))
    return torch.cat([model(tokens[:, a:b], cache, source_BSD=states) for a, b in pieces], 1)


@pytest.mark.parametrize("slug", UNLIKE)
@torch.no_grad()
def test_merged_is_the_same(slug: str) -> None:
    """With the experts in one product, and one by one."""
    small = UNLIKE[slug]
    torch.manual_seed(1)
    model, tokens = Decoder(small).eval(), torch.randint(0, 61, (2, TOKENS))
    states = picture(small, 2, torch.float32)
    size, expected = stored(model), outputs(model, tokens, states, image(small))
    found = outputs(model.merge(), tokens, states, image(small))
    assert float((found - expected).norm() / expected.norm()) < 1e-5
    assert stored(model) == size
    for part in model.modules():
        if isinstance(part, MixtureOfExperts):
            part.grouped = False
            found = outputs(model, tokens, states, image(small))
            assert float((found - expected).norm() / expected.norm()) < 1e-5


@torch.no_grad()
def test_merging_is_seen() -> None:
    small = next(small for slug, small in UNLIKE.items() if slug == "01-ai--yi-34b")
    model, tokens = Decoder(small).eval(), torch.randint(0, 61, (2, TOKENS))
    expected = outputs(model, tokens, None, 0)
    attention = model.merge().main.blocks[0].mixers()[0]  # type: ignore[operator,union-attr]
    attention.joined.weight.mul_(1.5)  # type: ignore[union-attr]
    assert float((outputs(model, tokens, None, 0) - expected).norm() / expected.norm()) > 1e-3
