"""What an engine does with a device's memory beside weights and cache."""

from __future__ import annotations

import pytest

from llmcalc.engines.budget import budget
from llmcalc.errors import InvalidInputError

GIB, MIB = 2**30, 2**20


def test_vllm_takes_a_fraction_of_all_of_it() -> None:
    found = budget("vllm", 80 * GIB)

    assert (found.rule, found.fraction) == ("of_total", 0.92)
    assert found.available_bytes == 79_027_398_247  # ceil(0.92 x 80 GiB)
    assert budget("vllm", 1000, utilization=0.9).available_bytes == 900
    assert [part.name for part in found.parts][-1] == "CUDA graphs"


def test_sglang_reserves_by_chunk_and_ranks() -> None:
    """512 + 1.5 x 8,192 + 1,024 x 8 / 8 MiB = 13,824 MiB; at least 10 GiB on cards of more than 60 GB."""
    assert budget("sglang", 24 * GIB, batched_tokens=2048).available_bytes == 24 * GIB - (512 + 3072 + 128) * MIB
    assert budget("sglang", 80 * GIB, tp=8).available_bytes == 80 * GIB - 13_824 * MIB
    assert budget("sglang", 80 * GIB, batched_tokens=2048).available_bytes == 70 * GIB
    assert budget("sglang", 1 * GIB).available_bytes == 0


def test_the_others() -> None:
    assert budget("tensorrt-llm", 80 * GIB)[:3] == ("of_free", 0.9, 80 * GIB)
    found = budget("llama.cpp", 24 * GIB, vocab=128_256)
    assert found.available_bytes == 23 * GIB
    assert found.parts[-1][1:3] == (4 * 128_256, 4 * 512 * 128_256)
    assert budget("transformers", 24 * GIB).available_bytes == budget("none", 24 * GIB).available_bytes == 24 * GIB


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp", "transformers", "none"])
def test_parts_are_ranges_with_a_source(engine: str) -> None:
    found = budget(engine, 80 * GIB, vocab=1000)

    assert found.source
    assert 0 < found.available_bytes <= 80 * GIB
    for part in found.parts:
        assert 0 <= part.low_bytes <= part.high_bytes
        assert part.source


@pytest.mark.parametrize(
    ("engine", "memory", "share"), [("ollama", 1, None), ("vllm", 0, None), ("vllm", 1, 1.5), ("vllm", 1, 0)]
)
def test_nonsense(engine: str, memory: int, share: float | None) -> None:
    with pytest.raises(InvalidInputError):
        budget(engine, memory, utilization=share)
