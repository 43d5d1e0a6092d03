from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmcalc import load
from llmcalc.errors import InvalidInputError, LlmcalcError, NotFoundError, OfflineError, SourceError
from llmcalc.sources import _kind, hub, resolve
from llmcalc.sources.hub_errors import Asked

from .hub_server import Hub, Repo
from .weights import write


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
        ("org/model.safetensors", "local"),
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


def test_a_file_here_goes_before_the_hub(here: Path) -> None:
    model(here / "org")
    (here / "org" / "config.json").rename(here / "org" / "name")
    raw = resolve("org/name")
    assert raw.provenance.source == "local"
    assert "the file of that name" in raw.warnings[0]
    model(here / "org" / "dated@2024")
    assert resolve("org/dated@2024").provenance.source == "local"
    with pytest.raises(OfflineError, match="asked the Hub"):
        resolve("org/dated@2025")


def test_weights_are_read_as_their_folder(here: Path) -> None:
    model(here / "ok", 7)
    write(here / "ok" / "model.safetensors", "x")
    for ref in ("ok/model.safetensors", "./ok/model.safetensors", str(here / "ok" / "model.safetensors")):
        raw = resolve(ref)
        assert raw.data["hidden_size"] == 7
        assert [t.name for t in raw.tensors or ()] == ["x"]
        assert raw.warnings[0].startswith(f"{ref} is read as the folder that holds it")
    with pytest.raises(NotFoundError, match="no such file"):
        resolve("gone/model.safetensors")
    (here / "ok" / "config.json").unlink()
    with pytest.raises(NotFoundError, match=r"no config\.json beside them in ok"):
        resolve("ok/model.safetensors")


@pytest.mark.parametrize(
    ("link", "repo"),
    [
        ("https://huggingface.co/Qwen/Qwen9-8B", "Qwen/Qwen9-8B"),
        ("http://www.huggingface.co/Qwen/Qwen9-8B/", "Qwen/Qwen9-8B"),
        ("HTTPS://HuggingFace.co/Qwen/Qwen9-8B?library=transformers#top", "Qwen/Qwen9-8B"),
        ("hf.co/Qwen/Qwen9-8B", "Qwen/Qwen9-8B"),
        ("huggingface.co/Qwen/Qwen9-8B/tree/main", "Qwen/Qwen9-8B"),
        ("https://huggingface.co/Qwen/Qwen9-8B/discussions/3", "Qwen/Qwen9-8B"),
        ("https://huggingface.co/Qwen/Qwen9-8B/tree/v1.0", "Qwen/Qwen9-8B@v1.0"),
        ("https://huggingface.co/Qwen/Qwen9-8B/blob/refs%2Fpr%2F3/config.json", "Qwen/Qwen9-8B@refs/pr/3"),
        ("https://huggingface.co/Qwen/Qwen9-8B/resolve/abc/model.safetensors?download=true", "Qwen/Qwen9-8B@abc"),
        ("https://huggingface.co/Qwen/Qwen9-8B/commit/0a1b2c", "Qwen/Qwen9-8B@0a1b2c"),
        ("https://hub.example/Qwen/Qwen9-8B/raw/main/config.json", "Qwen/Qwen9-8B"),
    ],
)
def test_an_address_of_the_hub(here: Path, monkeypatch: pytest.MonkeyPatch, link: str, repo: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example")
    with pytest.raises(OfflineError) as caught:
        resolve(link)
    assert caught.value.message == f"{repo}: asked the Hub"


def test_an_address_may_be_of_the_catalogue(here: Path) -> None:
    raw = resolve("https://huggingface.co/openai/gpt-oss-20b/tree/main")
    assert (raw.provenance.source, raw.provenance.name) == ("catalog", "gpt-oss-20b")


@pytest.mark.parametrize(
    "link",
    [
        "https://example.com/Qwen/Qwen9-8B",
        "https://huggingface.co",
        "https://huggingface.co/models",
        "https://huggingface.co/datasets/org/name",
        "https://huggingface.co/or%20g/na%00me",
        "https://huggingface.co/org/name/blob/main/text_encoder/config.json",
        "https://huggingface.co/org/name/tree/main/text_encoder",
        "http://[",
    ],
)
def test_an_address_that_is_no_model_says_what_to_write(here: Path, link: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        resolve(link)
    assert link in caught.value.message
    assert "org/name" in caught.value.hint


def test_errors_name_the_path_as_it_was_given(here: Path) -> None:
    for folder in ("a", "a/b/c"):
        (here / folder).mkdir(parents=True, exist_ok=True)
        (here / folder / "config.json").write_text('{"model_type": "llama", "hidden_size": "x"}')
        (here / folder / "broken.json").write_text("{")
        for ref, path in (
            (f"{folder}/config.json", f"{folder}/config.json"),
            (folder, f"{folder}/config.json") if "/" in folder else (f"./{folder}", f"{folder}/config.json"),
            (f"{folder}/broken.json", f"{folder}/broken.json"),
            (str(here / folder), str(here / folder / "config.json")),
        ):
            with pytest.raises(LlmcalcError) as caught:
                load(ref)
            assert caught.value.message.startswith(f"{path}: ")


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
    (here / "mine.json").write_text("{}")
    for ref in ("./mine", "mine.json", "./mine.json", str(here / "mine")):
        with pytest.raises(NotFoundError, match="no model called") as caught:
            resolve(ref, source="catalog")
        assert "leave out --source catalog" in caught.value.hint
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
