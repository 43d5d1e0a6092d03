from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmcalc.errors import InvalidInputError, LlmcalcError, NotFoundError, OfflineError, SourceError
from llmcalc.sources import _kind, hub, resolve
from llmcalc.sources.hub_errors import Asked

from .hub_server import Hub, Repo


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to stand in, with no network."""

    def unreachable(asked: Asked) -> hub.Found:
        raise OfflineError(f"{asked}: asked the Hub")

    monkeypatch.setattr(hub, "_bounded", unreachable)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("ref", "kind"),
    [
        ("-", "stdin"),
        ("llama-3-70b", "catalog"),
        ("Llama_3.70B", "catalog"),
        ("org/name", "repo"),
        ("org/name@main", "hub"),
        ("org/name@refs/pr/3", "hub"),
        ("gpt2@main", "hub"),
        ("config.json", "local"),
        ("MODEL.GGUF", "local"),
        ("org/name.json", "local"),
        ("org/name.gguf", "local"),
        ("./name", "local"),
        ("../name", "local"),
        (".", "local"),
        ("/org/name", "local"),
        ("~/name", "local"),
        ("org/name/", "local"),
        ("a/b/c", "local"),
        ("a/b/c@main", "local"),
        ("my model/x", "local"),
    ],
)
def test_what_a_spelling_means(here: Path, ref: str, kind: str) -> None:
    assert _kind(ref) == kind


def model(folder: Path, size: int = 1) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(f'{{"model_type": "llama", "hidden_size": {size}}}')


def test_a_folder_here_goes_before_the_catalogue_and_the_hub(here: Path) -> None:
    model(here / "openai" / "gpt-oss-20b", 7)
    raw = resolve("openai/gpt-oss-20b")
    assert raw.data["hidden_size"] == 7
    assert raw.provenance.source == "local"
    assert "the folder of that name" in raw.warnings[0]
    assert resolve("openai/gpt-oss-20b", source="catalog").provenance.source == "catalog"
    with pytest.raises(OfflineError, match="asked the Hub"):
        resolve("openai/gpt-oss-20b@main")
    with pytest.raises(OfflineError, match="asked the Hub"):
        resolve("openai/gpt-oss-20b", source="hub")


def test_the_catalogue_goes_before_the_hub(here: Path) -> None:
    raw = resolve("openai/GPT-OSS-20b")
    assert (raw.provenance.source, raw.provenance.name) == ("catalog", "gpt-oss-20b")
    with pytest.raises(OfflineError) as caught:
        resolve("openai/gpt-oss-21b")
    assert "the catalogue has openai/gpt-oss-20b" in caught.value.hint


def test_a_bare_name_is_the_catalogue_even_where_a_folder_has_it(here: Path) -> None:
    model(here / "gpt2")
    model(here / "mine")
    assert resolve("gpt2").provenance.source == "catalog"
    assert resolve("./gpt2").provenance.source == "local"
    assert resolve("gpt2", source="local").provenance.source == "local"
    with pytest.raises(NotFoundError) as caught:
        resolve("mine")
    assert "./mine" in caught.value.hint


def test_forced_source(here: Path) -> None:
    model(here / "mine")
    assert resolve("mine", source="local").provenance.name == "mine"
    with pytest.raises(NotFoundError, match="no model called"):
        resolve("./mine", source="catalog")
    with pytest.raises(SourceError):
        resolve("mine", source="gguf")
    with pytest.raises(InvalidInputError, match="catalog, local, hub or gguf"):
        resolve("mine", source="web")


@pytest.mark.parametrize("ref", ["", " "])
def test_nothing_asked(here: Path, ref: str) -> None:
    with pytest.raises(NotFoundError, match="empty"):
        resolve(ref)


def test_from_the_hub_when_nobody_else_has_it(hub: Hub) -> None:
    hub.repos["new/model"] = Repo({"config.json": b'{"model_type": "llama"}'})
    assert resolve("new/model").provenance.source == "hub"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(), min_size=1, max_size=20) | st.from_regex(r"[./~@a-z0-9-]{1,12}", fullmatch=True))
def test_any_spelling_is_a_config_or_an_error(here: Path, ref: str) -> None:
    if ref == "-":
        return
    try:
        message = resolve(ref).where
    except LlmcalcError as error:
        message = error.message
    assert message
