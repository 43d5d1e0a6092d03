"""Configs from GGUF headers: a written llama, wrong metadata, and the headers that llama.cpp itself writes.

``llama_cpp.zip`` holds what ``convert_hf_to_gguf.py`` of llama.cpp (as llama-cpp-python 0.3.36 ships it) made of small
models that transformers 5.24 saved from the config.json beside each: the bytes before the tensor data, the length of
the whole file in ``lengths.json``, the vocabulary replaced by as many numbered words.
"""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path

import pytest

from llmcalc import kv_cache, load, params, read_config, verify
from llmcalc.arch.model import Architecture
from llmcalc.errors import LlmcalcError, MalformedConfigError, NotFoundError, UnsupportedArchitectureError
from llmcalc.sources import resolve

from .gguf_files import LLAMA, gguf_bytes, info, pair, text, write_llama

ZIP = Path(__file__).parent / "llama_cpp.zip"
with zipfile.ZipFile(ZIP) as _archive:
    LENGTHS: dict[str, int] = json.loads(_archive.read("lengths.json"))

# What a header cannot say and llama.cpp fixes: these small configs fix it otherwise.
WINDOWS = {
    "afmoe": "one full layer in four; the small config has one in two",
    "llama4_text": "chunks of 8,192; the small config has 16",
    "mistral": "no window is written for llama",
}


def unpack(name: str, folder: Path) -> tuple[Path, Architecture]:
    """The sparse file of one model, and its config.json read in 16 bits, as llama.cpp keeps its cache."""
    with zipfile.ZipFile(ZIP) as archive:
        path = folder / f"{name}.gguf"
        path.write_bytes(archive.read(path.name))
        config = json.loads(archive.read(f"{name}.json"))
    with path.open("r+b") as file:
        file.truncate(LENGTHS[name])
    return path, read_config(config | {"dtype": "float16"})


@pytest.mark.parametrize("name", sorted(LENGTHS))
def test_a_header_of_llama_cpp_says_what_the_config_says(tmp_path: Path, name: str) -> None:
    path, wanted = unpack(name, tmp_path)
    model = load(str(path))
    assert not [warning for warning in model.warnings if "disagree" in warning or "not used" in warning]
    assert model.tensors is not None
    assert verify(model.architecture, model.tensors, "gguf").agrees
    assert params(model.architecture).total_params == params(wanted).total_params
    assert params(model.architecture).active_params == params(wanted).active_params
    if name not in WINDOWS:
        for tokens in (1, 5, 100, 9000):
            assert kv_cache(model.architecture, tokens).total_bytes == kv_cache(wanted, tokens).total_bytes


def test_eighty_architectures_are_held_against_llama_cpp() -> None:
    assert len(LENGTHS) >= 80


def test_every_verb_gives_what_the_config_gives(tmp_path: Path) -> None:
    model = load(str(write_llama(tmp_path / "small.gguf")))
    wanted = read_config(LLAMA)
    assert model.provenance.source == "gguf"
    assert model.provenance.name == "Small"
    assert len(model.provenance.sha256) == 64
    assert kv_cache(model.architecture, 100) == kv_cache(wanted, 100)
    assert params(model.architecture) == params(wanted)
    assert model.architecture.decoder == wanted.decoder
    assert model.architecture.vocab_size == 128
    assert not model.warnings


def test_tied_and_biased_and_quantized(tmp_path: Path) -> None:
    """The output matrix is tied where it is not there; a quantized file is the same model."""
    model = load(str(write_llama(tmp_path / "small.gguf", "Q8_0")))
    assert params(model.architecture) == params(read_config(LLAMA))
    arch = text(b"llama")
    numbers = {
        b"llama.block_count": 1, b"llama.embedding_length": 8, b"llama.feed_forward_length": 16,
        b"llama.attention.head_count": 2,
    }  # fmt: skip
    pairs = (pair(b"general.architecture", 8, arch), *(pair(k, 4, struct.pack("<I", v)) for k, v in numbers.items()))
    path = tmp_path / "tied.gguf"
    path.write_bytes(
        gguf_bytes(pairs, (info(b"token_embd.weight", (8, 32)), info(b"blk.0.attn_q.bias", (8,), 0, 1024)), 2048)
    )
    found = resolve(str(path)).data
    assert (found["tie_word_embeddings"], found["attention_bias"], found["vocab_size"]) == (True, True, 32)
    assert "disagree about" in load(str(path)).warnings[-1]


def test_a_split_model(tmp_path: Path) -> None:
    whole = write_llama(tmp_path / "whole.gguf")
    write_llama(tmp_path / "part.gguf", split_max_tensors=12)
    shards = sorted(tmp_path.glob("part-*.gguf"))
    assert len(shards) == 3
    model = load(str(shards[0]))
    wanted = load(str(whole))
    assert params(model.architecture) == params(wanted.architecture)
    assert {t[:3] for t in model.tensors or ()} == {t[:3] for t in wanted.tensors or ()}
    assert {t.shard for t in model.tensors or ()} == {shard.name for shard in shards}
    shards[1].unlink()
    with pytest.raises(NotFoundError, match="1 of 3 shards are missing: part-00002"):
        load(str(shards[0]))


ARCH = b"general.architecture"


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ((), "general.architecture is missing"),
        ((pair(ARCH, 8, text(b"")),), "general.architecture is missing"),
        ((pair(ARCH, 4, bytes(4)),), "general.architecture is missing"),
        ((pair(ARCH, 8, text(b"llama")),), "token_embd.weight is not in the list"),
    ],
)
def test_metadata_that_is_no_model(tmp_path: Path, pairs: tuple[bytes, ...], says: str) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf_bytes(pairs))
    with pytest.raises(MalformedConfigError, match=says):
        load(str(path))


@pytest.mark.parametrize(
    ("arch", "says", "hint"),
    [
        (b"llamma", "'llamma' is not known", "close ones: llama"),
        (b"clip", "a vision or audio tower", "the model's own"),
        (b"starling", "'starling' is not known", "config.json of the same model"),
    ],
)
def test_architectures_that_are_not_known(tmp_path: Path, arch: bytes, says: str, hint: str) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf_bytes((pair(ARCH, 8, text(arch)),)))
    with pytest.raises(UnsupportedArchitectureError, match=says) as caught:
        load(str(path))
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("key", "kind", "value"),
    [
        (b"llama.block_count", 10, struct.pack("<Q", 2**60)),
        (b"llama.block_count", 5, struct.pack("<i", -1)),
        (b"llama.block_count", 6, struct.pack("<f", 2.5)),
        (b"llama.block_count", 8, text(b"three")),
        (b"llama.block_count", 9, struct.pack("<IQ", 8, 0)),
        (b"llama.attention.head_count", 4, struct.pack("<I", 0)),
        (b"llama.attention.head_count", 4, struct.pack("<I", 7)),
        (b"llama.embedding_length", 10, struct.pack("<Q", 2**63)),
        (b"llama.attention.key_length", 10, struct.pack("<Q", 2**62)),
        (b"llama.expert_count", 10, struct.pack("<Q", 2**62)),
        (b"llama.nextn_predict_layers", 10, struct.pack("<Q", 2**62)),
        (b"llama.attention.head_count_kv", 9, struct.pack("<IQII", 4, 2, 1, 3)),
    ],
)
def test_impossible_numbers(tmp_path: Path, key: bytes, kind: int, value: bytes) -> None:
    numbers = {
        b"llama.block_count": 1, b"llama.embedding_length": 8, b"llama.feed_forward_length": 16,
        b"llama.attention.head_count": 2,
    }  # fmt: skip
    pairs = [pair(ARCH, 8, text(b"llama"))]
    pairs += [pair(name, 4, struct.pack("<I", number)) for name, number in numbers.items() if name != key]
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf_bytes((*pairs, pair(key, kind, value)), (info(b"token_embd.weight", (8, 32)),), 1024))
    with pytest.raises(LlmcalcError):
        load(str(path))
