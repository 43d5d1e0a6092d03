import hashlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcalc.arch import families
from llmcalc.calc.params import params
from llmcalc.errors import NotFoundError
from llmcalc.sources import catalogue, resolve

PARAMS: dict[str, int] = json.loads((Path(__file__).parent.parent / "golden" / "params.json").read_text())
ENTRIES = catalogue.entries()
NEEDED = [
    "llama-3-70b", "llama-3-8b", "llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "llama-2-7b", "llama-2-13b",
    "llama-2-70b", "qwen3-0.6b", "gpt2", "deepseek-v3", "deepseek-r1", "mixtral-8x7b", "gpt-oss-120b", "gpt-oss-20b",
    "gemma-3-27b", "qwen3.6-27b", "mistral-7b", "qwen2.5-7b-instruct", "deepseek-v3.1", "deepseek-v2-lite",
    "gemma-3-4b", "mistral-7b-v0.3", "kimi-k2-instruct", "whisper-large-v3", "llama-4-maverick",
]  # fmt: skip
# Other names for an entry: an instruction-tuned checkpoint whose config is the base's, a name cut short.
MEANT = {
    "Qwen/Qwen2.5-7B-Instruct": "qwen2.5-7b-instruct",
    "llama2-7b-chat": "llama-2-7b",
    "Llama-2-7b-chat-hf": "llama-2-7b",
    "meta-llama/Llama-2-70b-chat-hf": "llama-2-70b",
    "Mixtral-8x7B-Instruct": "mixtral-8x7b-instruct-v0.1",
    "Mixtral-8x7B-Instruct-v0.1": "mixtral-8x7b-instruct-v0.1",
    "qwen3-next": "qwen3-next-80b-a3b",
    "qwen3-235b": "qwen3-235b-a22b",
    "gemma-3-4b-it": "gemma-3-4b",
    "meta-llama/Llama-3.2-1B-Instruct": "llama-3.2-1b",
    "moonshotai/Kimi-K2-Instruct": "kimi-k2-instruct",
    "deepseek-ai/DeepSeek-V3.1": "deepseek-v3.1",
    "phi-4-mini-instruct": "phi-4-mini",
    "mistral-nemo-instruct": "mistral-nemo",
}
# Totals of the published files' own headers, which this package did not compute.
PUBLISHED = {
    "starcoder2-15b": 15_957_889_024, "phi-1": 1_418_270_720, "llama-4-scout": 108_641_793_536,
    "llama-4-scout-17b-16e-instruct": 108_641_793_536, "llama-4-maverick": 401_583_781_376,
    "gemma-3-4b": 4_300_079_472, "mistral-7b-v0.3": 7_248_023_552, "mixtral-8x22b-instruct-v0.1": 140_630_071_296,
    "deepseek-v2-lite": 15_706_484_224, "qwen2.5-vl-7b": 8_292_166_656, "whisper-large-v3": 1_543_490_560,
    "whisper-large-v3-turbo": 808_878_080, "phi-3-medium-4k": 13_960_238_080, "olmoe-1b-7b": 6_919_161_856,
    "smollm2-360m": 361_821_120, "starcoder2-3b": 3_030_371_328, "yi-6b": 6_061_035_520,
    # Less the key and value weights of the layers that take another layer's, which these files hold all the same.
    "gemma-4-e2b": 5_123_178_979 - (16 * (2 * 1536 * 256 + 256) + 4 * (2 * 1536 * 512 + 512)),
    "gemma-4-e4b": 7_996_157_418 - (15 * (2 * 2560 * 512 + 256) + 3 * (2 * 2560 * 1024 + 512)),
    "kimi-k2-instruct": 1_026_408_235_864 - 61 * 56,  # less a table of frequencies in each layer
    "glm-4.7": 358_337_791_296,
}  # fmt: skip


def test_size_and_kinds() -> None:
    assert len(ENTRIES) >= 80
    assert {entry.origin_kind for entry in ENTRIES} == {"verbatim", "embedded", "transcribed"}


def test_every_file_is_listed_once() -> None:
    files = Counter(entry.file for entry in ENTRIES)
    assert max(files.values()) == 1
    assert {path.name for path in catalogue.FOLDER.glob("*.json")} == {*files, "index.json"}


def test_names_and_hub_ids_are_unique() -> None:
    names = Counter(catalogue.key(name) for entry in ENTRIES for name in (entry.name, *entry.aliases))
    assert [name for name, count in names.items() if count > 1] == []
    hubs = Counter(hub.lower() for entry in ENTRIES for hub in entry.hub_ids)
    assert max(hubs.values()) == 1
    assert all(name == name.lower() and "/" not in name for entry in ENTRIES for name in (entry.name, *entry.aliases))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_entry_reads(entry: catalogue.Entry) -> None:
    raw = resolve(entry.name)
    assert raw.data["model_type"] == entry.model_type
    assert raw.provenance.sha256 == hashlib.sha256((catalogue.FOLDER / entry.file).read_bytes()).hexdigest()
    assert raw.provenance.source == "catalog"
    assert raw.provenance.origin == entry.origin != ""
    assert len(entry.date) == len("2026-11")
    # Some published files hold an Infinity here.
    assert [warning for warning in raw.warnings if "time_step_limit" not in warning] == []
    for ref in (*entry.aliases, *entry.hub_ids, entry.name.upper(), entry.hub_ids[0].upper()):
        assert resolve(ref).provenance.name == entry.name


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_total_parameters(entry: catalogue.Entry) -> None:
    architecture = families.read_config(resolve(entry.name).data)
    known = PARAMS.get(entry.file.removesuffix(".json"))  # three have no published or measured total
    assert known is None or params(architecture).total_params == known


@pytest.mark.parametrize(("name", "total"), PUBLISHED.items())
def test_published_totals(name: str, total: int) -> None:
    assert params(families.read_config(resolve(name).data)).stored_params == total


def test_arctic_is_a_mixture_in_every_layer() -> None:
    """Its card: 480 B in all, 17 B active, of 10 B dense and 128 experts of 3.66 B."""
    count = params(families.read_config(resolve("snowflake-arctic").data))
    assert round(count.total_params / 1e9) == 479
    assert round(count.active_params / 1e9) == 17


@pytest.mark.parametrize(("asked", "name"), MEANT.items())
def test_further_names(asked: str, name: str) -> None:
    assert resolve(asked).provenance.name == name


def test_what_the_catalogue_says_of_itself() -> None:
    unfit = ("/tmp/", "/home/", "/root/", "../", "from memory")
    assert [e.name for e in ENTRIES if any(word in e.origin for word in unfit)] == []
    assert all(e.origin.startswith(("Config file ", "The same keys", "Written out by hand", "The config of")) or
               e.origin_kind == "transcribed" for e in ENTRIES)  # fmt: skip
    assert "vision tower" in next(e for e in ENTRIES if e.name == "kimi-k3").origin


@pytest.mark.parametrize("name", NEEDED)
def test_names_that_people_type(name: str) -> None:
    assert resolve(name).provenance.name == name
    assert resolve(name.replace("-", "_").replace(".", "-").upper()).provenance.name == name


@pytest.mark.parametrize(
    "ref", ["llama-3-70b", "Llama_3.70B", "LLAMA3-70b", "llama.3.70b", "llama370b", " llama-3-70b "]
)
def test_case_and_separators_do_not_matter(ref: str) -> None:
    assert resolve(ref).provenance.name == "llama-3-70b"


def test_a_separator_between_digits_is_not_dropped_for_another() -> None:
    assert resolve("qwen2.5-7b").provenance.name == "qwen2.5-7b"
    with pytest.raises(NotFoundError) as caught:
        resolve("qwen2-57b")
    assert "qwen2-57b-a14b" in caught.value.hint


@pytest.mark.parametrize(
    ("ref", "meant"),
    [
        ("lama-3-70b", "llama-3-70b"),
        ("deepseekv33", "deepseek-v3"),
        ("gpt-oss", "gpt-oss-120b"),
        ("quen3-0.6b", "qwen3-0.6b"),
    ],
)
def test_near_misses_suggest(ref: str, meant: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        resolve(ref)
    assert ref in caught.value.message
    assert meant in caught.value.hint


@pytest.mark.parametrize(
    "name",
    ["kimi-k9-instruct", "whisper-large-v9", "clip-vit-base", "claude-3", "openai/whisper-large-v9", "mistral-9"],
)
def test_a_hint_begins_with_the_same_word(name: str) -> None:
    word = name.rpartition("/")[2].split("-")[0]
    assert all(word in near for near in catalogue.suggestions(name, cutoff=0.75))
    assert catalogue.suggestions("clip-vit-base") == catalogue.suggestions("claude-3") == []


@given(st.text())
def test_any_name_is_a_model_or_not_found(name: str) -> None:
    try:
        hint = catalogue.read_named(name).provenance.origin
    except NotFoundError as error:
        hint = error.hint
    assert hint


def test_a_catalogue_model_needs_nothing_heavy() -> None:
    code = "import sys; from llmcalc.sources import resolve; resolve('llama-3-70b'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {module.split(".")[0] for module in done.stdout.split()}
    assert loaded & {"huggingface_hub", "httpx", "pydantic", "rich", "typer", "torch", "numpy"} == set()
