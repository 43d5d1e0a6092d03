"""The corpus: parameters and cache at full size on the meta device, decoding on shrunken copies with numbers."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from llmcalc import kv_cache
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
        assert (
            model.allocate(1, length, formats).bytes == kv_cache(small, length, cache="bf16", engine="none").total_bytes
        )


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-12), (torch.float32, 1e-5)], ids=["fp64", "fp32"])
@pytest.mark.parametrize("slug", UNLIKE)
@torch.no_grad()
def test_cached_passes_equal_one_full_pass(slug: str, dtype: torch.dtype, limit: float) -> None:
    torch.manual_seed(0)
    model = Decoder(UNLIKE[slug]).to(dtype).eval()
    tokens = torch.randint(0, VOCABULARY, (2, 26))
    full = model(tokens)
    held = model.allocate(2, 26)
    pieces = [model(tokens[:, low:high], held) for low, high in ((0, 5), (5, 16), *((i, i + 1) for i in range(16, 26)))]
    assert relative(torch.cat(pieces, 1), full) < limit


@pytest.mark.parametrize("slug", UNLIKE)
@torch.no_grad()
def test_sequences_of_unequal_length(slug: str) -> None:
    torch.manual_seed(0)
    model = Decoder(UNLIKE[slug]).double().eval()
    counts, capacity = torch.tensor([3, 13, 8]), 20
    tokens = torch.randint(0, VOCABULARY, (3, capacity))
    alone = [model(row[None], horizon=capacity)[0] for row in tokens]
    held = model.allocate(3, capacity)
    for low in range(0, 13, 5):
        new = (counts - low).clamp(0, 5)
        found = model(tokens[:, low : low + 5], held, new_B=new)
        for row, count in enumerate(new.tolist()):
            if count:
                assert relative(found[row, :count], alone[row][low : low + count]) < 1e-12
    for step in range(5):
        places = counts + step
        found = model(tokens[torch.arange(3), places][:, None], held)
        expected = torch.stack([alone[row][place] for row, place in enumerate(places.tolist())])
        assert relative(found[:, 0], expected) < 1e-12
