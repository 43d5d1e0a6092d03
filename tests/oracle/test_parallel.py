"""Tensor parallelism: logits of ranks against those of the whole decoder, and their bytes against the estimate's.

Two processes run the kinds of layers once; threads stand for the ranks of other families, and for more ranks; full
sizes are built on the meta device.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from llmcalc import Ranks, kv_cache, weights
from llmcalc.arch.model import Architecture
from llmcalc.errors import InvalidInputError, MeasureError, UnsupportedLayerError
from reference_model import parallel
from reference_model.load import parameters
from reference_model.ranks import started
from tests.conftest import ROOT
from tests.oracle.cases import CONFIGS
from tests.oracle.corpus import image
from tests.oracle.full_size import built, plain, stated
from tests.oracle.ranks import LENGTH, SOURCE, Found, family, together, whole

LIMIT = 1e-5  # relative, of fp32
REFUSED = {"rwkv": "Rwkv4", "diffllama": "differential", "doge": "dynamic mask"}


def estimate(found: Architecture, tp: int, *, spread: bool = False) -> tuple[int, int]:
    """Bytes of weights and of two sequences on the fullest rank."""
    ranks = Ranks(tp=tp, ep=tp if spread else 1)
    images = {"image_tokens": SOURCE} if image(found) else {}
    cache = kv_cache(found, LENGTH, 2, tp=tp, encoder_tokens=SOURCE, **images).per_device_bytes
    assert cache is not None
    return weights(found, ranks=ranks).per_device_bytes, cache


def near(name: str, ranks: list[Found], expected: tuple[int, int]) -> None:
    """Logits of every rank; bytes of the fullest."""
    assert max(max(found.prefill, found.decode) for found in ranks) < LIMIT, name
    assert (max(found.weights for found in ranks), max(found.cache for found in ranks)) == expected, name


# -- two processes -------------------------------------------------------------------------------------------------

# Grouped, multi-query, biased, tied, windowed, normed, with sinks, latent, indexed, expert and recurrent layers.
PROCESSES = ("gpt2", "falcon", "phi", "llama", "qwen3", "olmo2", "gemma3", "mixtral", "qwen2_moe", "gpt_oss",
             "deepseek_v3", "deepseek_v32", "qwen3_next", "kimi_linear", "mamba2", "jamba", "t5")  # fmt: skip


def test_two_processes(tmp_path: Path) -> None:
    """One test, that they are started once: what they compute is what one does, and slips are noticed."""
    words = [sys.executable, "-W", "error", "-m", "tests.oracle.ranks", str(tmp_path), *PROCESSES]
    given = {**os.environ, "PYTHONPATH": str(ROOT), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(words, env={**given, "RANK": str(rank), "LOCAL_RANK": str(rank)}, cwd=ROOT,
                         stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=300)[1] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert [process.returncode for process in ranks] == [0, 0], "\n".join(said)
    two = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for name in PROCESSES:
        near(name, [Found(*rank["cases"][name]) for rank in two], estimate(family(name), 2))
    for name in ("mixtral", "gpt_oss", "deepseek_v3"):
        near(name, [Found(*rank["spread"][name]) for rank in two], estimate(family(name), 2, spread=True))
    in_bf16(two)
    alike(*(rank["agreed"] for rank in two))
    for rank in two:
        assert len(rank["left out"]) == 1 + 2 * 2  # of the table and in each layer after attention and experts
        assert min(rank["left out"]) > 1e-2
        assert rank["twice"] > 1e-2
        assert rank["swapped"] > 1e-2


def in_bf16(two: list[dict[str, Any]]) -> None:
    """Half the bytes; the tolerance is that of sums in 8 bits of mantissa."""
    found = [Found(*rank["bf16"]) for rank in two]
    expected = estimate(replace(family("llama"), dtype="bf16"), 2)
    assert (max(one.weights for one in found), max(one.cache for one in found)) == expected
    assert max(one.prefill for one in found) < 0.03


def alike(one: dict[str, list[float]], other: dict[str, list[float]]) -> None:
    """Of random routers the first rank's stays, and both ranks have the same logits, bit by bit."""
    assert one["before"] != other["before"]
    assert one["after"] == other["after"] == one["before"]
    assert one["logits"] == other["logits"]


# -- other families, and more ranks, as threads ----------------------------------------------------------------------

# Nothing in them is shared out otherwise than in another family here.
SAME = ("llama_linear", "llama_dynamic", "codegen", "gpt_neo", "ernie4_5", "seed_oss", "smollm3", "exaone4", "olmo3",
        "granite", "granitemoe", "starcoder2", "qwen2", "cohere2", "deepseek_v2", "ctrl", "t5_v11", "gemma", "mistral",
        "gpt_neox", "nemotron", "qwen3_moe", "olmoe", "glm4")  # fmt: skip
OTHERS = [name for name in CONFIGS if name not in (*REFUSED, *PROCESSES, *SAME)]
FOUR = ("llama", "falcon", "bloom", "olmo2", "deepseek_v3", "mamba2", "zamba2", "minimax", "gemma3n")


@pytest.mark.parametrize("name", OTHERS)
def test_two_ranks(name: str) -> None:
    near(name, together(family(name), 2), estimate(family(name), 2))


@pytest.mark.parametrize("name", FOUR)
def test_four_ranks(name: str) -> None:
    near(name, together(family(name), 4), estimate(family(name), 4))


@pytest.mark.parametrize("spread", [False, True], ids=["cut", "spread"])
def test_shares_that_are_not_even(spread: bool) -> None:
    """Eight experts and 127 rows of a vocabulary on three ranks, two of which hold more."""
    heads = {"num_attention_heads": 6, "num_key_value_heads": 3, "hidden_size": 48, "intermediate_size": 96}
    found = family("mixtral", **heads)
    ranks = together(found, 3, spread=spread)
    near(found.model_type, ranks, estimate(found, 3, spread=spread))
    assert ranks[2].weights < ranks[0].weights


# -- full sizes, on the meta device --------------------------------------------------------------------------------


FULL = (
    ("meta-llama--llama-3.1-70b", 8), ("meta-llama--llama-3.1-8b-instruct", 16), ("openai--gpt-oss-120b", 8),
    ("deepseek-ai--deepseek-v3.2", 16), ("moonshotai--kimi-k2-instruct", 8), ("qwen--qwen3-235b-a22b", 4),
    ("qwen--qwen3-next-80b-a3b-instruct", 8), ("google--gemma-3-27b-it", 8), ("google--gemma-4-31b-it", 4),
    ("mistralai--mixtral-8x22b-v0.1", 8), ("nvidia--nvidia-nemotron-3-super-120b-a12b-fp8", 4),
    ("nvidia--nemotron-h-8b-base-8k", 8), ("tiiuae--falcon-7b", 71), ("tiiuae--falcon-180b", 8),
    ("tiiuae--falcon-h1-34b-instruct", 4), ("ai21labs--ai21-jamba-1.5-large", 8), ("openai-community--gpt2-xl", 5),
    ("zyphra--zamba2-1.2b", 4), ("google--recurrentgemma-9b", 2), ("google-t5--t5-11b", 8),
    ("state-spaces--mamba-2.8b-hf", 8), ("meta-llama--llama-4-maverick-17b-128e-instruct", 8),
    ("ibm-granite--granite-4.0-h-small", 8), ("liquidai--lfm2-8b-a1b", 8), ("allenai--olmo-2-1124-13b", 8),
)  # fmt: skip


SPREAD = [
    (slug, tp, True) for slug, tp in FULL if any(word in slug for word in ("gpt-oss", "kimi", "mixtral", "super"))
]


@pytest.mark.parametrize(("slug", "tp", "spread"), [*((slug, tp, False) for slug, tp in FULL), *SPREAD])
def test_bytes_at_full_size(slug: str, tp: int, spread: bool) -> None:
    """Nothing is stored in any other format than fp32."""
    found = plain(slug)
    assert built(found, tp, spread=spread) == stated(found, tp, spread=spread)


# -- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REFUSED)
def test_kinds_that_cannot_be_shared_out_are_named(name: str) -> None:
    with pytest.raises(UnsupportedLayerError, match=REFUSED[name]):
        parallel.build(family(name), parallel.Group(2))


@pytest.mark.parametrize(("name", "tp", "words"), [
    ("llama", 3, "3 ranks cannot share 4 heads"),
    ("qwen3_next", 4, "4 ranks cannot share 2 key heads"),
    ("deepseek_v3", 8, "8 ranks cannot share 4 heads"),
])  # fmt: skip
def test_numbers_that_cannot_be_shared_out(name: str, tp: int, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        parallel.build(family(name), parallel.Group(tp))


def test_a_vocabulary_leaves_no_rank_without_a_row() -> None:
    with pytest.raises(InvalidInputError, match="too many for 9 rows"):
        parallel.Group(4 + 4).rows(9, "rows")


def test_a_checkpoint_is_read_by_every_rank(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    model = whole(family("llama"))
    save_file({name: tensor.contiguous() for name, tensor in parameters(model).items()}, tmp_path / "model.safetensors")
    for rank in range(2):
        shards = [parallel.build(model.architecture, parallel.Group(2, rank)) for _ in range(2)]
        taken, loaded = parallel.take(shards[0], model), parallel.load(shards[1], tmp_path)
        found, expected = parameters(loaded), parameters(taken)
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_what_is_missing_or_of_another_size_is_named() -> None:
    tensors = dict(parameters(whole(family("llama"))))
    shard = parallel.build(family("llama"), parallel.Group(2))
    with pytest.raises(InvalidInputError, match=r"nothing for model\.norm\.weight"):
        parallel.take(shard, {name: tensor for name, tensor in tensors.items() if name != "model.norm.weight"})
    with pytest.raises(InvalidInputError, match=r"model\.norm\.weight: a share of \[32\], and \[64\] here"):
        parallel.take(shard, tensors | {"model.norm.weight": torch.zeros(32)})


# -- one rank, and how ranks are started -----------------------------------------------------------------------------


@torch.no_grad()
def test_a_world_of_one_is_the_decoder_itself() -> None:
    model = whole(family("gpt_oss"))
    alone = parallel.take(parallel.build(family("gpt_oss"), parallel.Group()), model)
    kinds = [[type(module) for module in made.modules()][1:] for made in (alone, model)]
    assert kinds[0] == kinds[1]
    tokens = torch.arange(12)[None]
    assert torch.equal(alone(tokens), model(tokens))


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(("tp", "given", "words"), [
    (2, {}, "--tp 2 needs 2 processes, and torchrun did not start this one: no WORLD_SIZE, RANK, LOCAL_RANK"),
    (2, {"WORLD_SIZE": "2", "RANK": "0"}, "no LOCAL_RANK"),
    (2, {"WORLD_SIZE": "4", "RANK": "0", "LOCAL_RANK": "0"}, "WORLD_SIZE is 4"),
    (1, {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}, "WORLD_SIZE is 2"),
    (2, {"WORLD_SIZE": "two", "RANK": "0", "LOCAL_RANK": "0"}, "WORLD_SIZE is two"),
    (2, {"WORLD_SIZE": "2", "RANK": "2", "LOCAL_RANK": "0"}, "RANK 2"),
])  # fmt: skip
def test_how_processes_must_be_started(
    tp: int, given: dict[str, str], words: str, variables: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        variables.setenv(name, value)
    with pytest.raises(MeasureError, match=words) as caught:
        started(tp)
    assert f"torchrun --nproc-per-node {tp} -m llmcalc measure MODEL --tp {tp}" in caught.value.hint


@pytest.mark.usefixtures("variables")
def test_a_process_that_nothing_started_is_alone() -> None:
    with parallel.processes(1) as group:
        assert (group.size, group.rank) == (1, 0)
    with pytest.raises(MeasureError, match=r"no .*MASTER_ADDR"), parallel.processes(2):
        pass
