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
    "gemma-3-27b", "qwen3.6-27b", "mistral-7b",
]  # fmt: skip


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
