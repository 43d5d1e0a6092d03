"""The corpus: parameters and cache at full size on the meta device, decoding on shrunken copies with numbers."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from llmcalc.arch.model import Architecture
from llmcalc.errors import UnsupportedLayerError
from reference_model.cache import Formats
from reference_model.decoder import Decoder
from tests.oracle.corpus import (
    COVERED,
    UNCOVERED,
    architecture,
    cache_bytes,
    estimated,
    estimated_cache,
    image,
    lengths,
    one_of_each,
    parameters,
)
from tests.oracle.shrink import VOCABULARY, shrunken

torch.set_num_threads(1)


@cache
def unlike() -> tuple[tuple[str, Architecture], ...]:
    """Shrunken copies of the covered decoders, those that come out equal once."""
    found: list[tuple[str, Architecture]] = []
    for slug in COVERED:
        small = shrunken(architecture(slug))
        if all(small.decoder != known.decoder for _, known in found):
            found.append((slug, small))
    return tuple(found)


UNLIKE = dict(unlike())


def picture(found: Architecture, batch: int, dtype: torch.dtype) -> Tensor | None:
    """States of an image, for a decoder that looks at one: [B, S, D]."""
    return torch.randn(batch, image(found), found.hidden_size, dtype=dtype) if image(found) else None


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.std())


@pytest.mark.parametrize("slug", COVERED)
def test_parameters(slug: str) -> None:
    assert parameters(architecture(slug)) == estimated(architecture(slug))


@pytest.mark.parametrize("slug", COVERED)
def test_allocated_cache(slug: str) -> None:
    found = architecture(slug)
    for allocated, estimate in cache_bytes(found, lengths(found)):
        assert allocated == estimate


@pytest.mark.parametrize("slug", UNCOVERED)
def test_uncovered_kinds_are_named(slug: str) -> None:
    with pytest.raises(UnsupportedLayerError, match=UNCOVERED[slug]), torch.device("meta"):
        Decoder(one_of_each(architecture(slug))[0])


@pytest.mark.parametrize("slug", UNLIKE)
def test_shrunken_cache_with_numbers(slug: str) -> None:
    small = UNLIKE[slug]
    model = Decoder(small)
    formats = Formats(torch.bfloat16, torch.bfloat16, torch.float32)
    for length in (1, 6, 7, 8, 9, 10, 25):
        assert model.allocate(1, length, formats, image(small)).bytes == estimated_cache(small, length)


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-12), (torch.float32, 1e-5)], ids=["fp64", "fp32"])
@pytest.mark.parametrize("slug", UNLIKE)
@torch.no_grad()
def test_cached_passes_equal_one_full_pass(slug: str, dtype: torch.dtype, limit: float) -> None:
    torch.manual_seed(0)
    model = Decoder(UNLIKE[slug]).to(dtype).eval()
    tokens = torch.randint(0, VOCABULARY, (2, 26))
    states = picture(UNLIKE[slug], 2, dtype)
    full = model(tokens, source_BSD=states)
    held = model.allocate(2, 26, source=image(UNLIKE[slug]))
    pieces = [
        model(tokens[:, low:high], held, source_BSD=None if low else states)
        for low, high in ((0, 5), (5, 16), *((i, i + 1) for i in range(16, 26)))
    ]
    assert relative(torch.cat(pieces, 1), full) < limit


@pytest.mark.parametrize("slug", UNLIKE)
@torch.no_grad()
def test_sequences_of_unequal_length(slug: str) -> None:
    torch.manual_seed(0)
    model = Decoder(UNLIKE[slug]).double().eval()
    counts, capacity = torch.tensor([3, 13, 8]), 20
    tokens = torch.randint(0, VOCABULARY, (3, capacity))
    states = picture(UNLIKE[slug], 3, torch.float64)
    given = [states if states is None else states[row : row + 1] for row in range(3)]
    alone = [model(t[None], horizon=capacity, source_BSD=s)[0] for t, s in zip(tokens, given, strict=True)]
    held = model.allocate(3, capacity, source=image(UNLIKE[slug]))
    for low in range(0, 13, 5):
        new = (counts - low).clamp(0, 5)
        found = model(tokens[:, low : low + 5], held, new_B=new, source_BSD=None if low else states)
        for row, count in enumerate(new.tolist()):
            if count:
                assert relative(found[row, :count], alone[row][low : low + count]) < 1e-12
    for step in range(5):
        places = counts + step
        found = model(tokens[torch.arange(3), places][:, None], held)
        expected = torch.stack([alone[row][place] for row, place in enumerate(places.tolist())])
        assert relative(found[:, 0], expected) < 1e-12
