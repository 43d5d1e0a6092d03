import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from llmcalc.errors import GatedError, MalformedConfigError, NotFoundError, OfflineError, SourceError
from llmcalc.sources import resolve

from .conftest import CONFIG
from .hub_server import COMMIT, OTHER, Hub, Repo


def refused(ref: str, kind: type[SourceError]) -> str:
    with pytest.raises(kind) as caught:
        resolve(ref)
    assert type(caught.value) is kind or kind is SourceError
    assert "\n" not in caught.value.message
    return f"{caught.value.message} | {caught.value.hint}"


def constant(monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, name, value)


def test_a_config_with_the_commit_it_belongs_to(hub: Hub, capfd: pytest.CaptureFixture[str]) -> None:
    raw = resolve("org/model")
    assert raw.data == {"model_type": "llama", "hidden_size": 64}
    assert (raw.provenance.source, raw.provenance.name) == ("hub", "org/model")
    assert raw.provenance.revision == COMMIT
    assert raw.warnings == ()
    assert COMMIT[:12] in raw.where
    assert {path for _, path, _ in hub.asked} == {"/org/model/resolve/main/config.json"}
    assert capfd.readouterr() == ("", "")


def test_revisions(hub: Hub) -> None:
    hub.repos["org/model"].revisions["refs/pr/1"] = OTHER
    assert resolve("org/model@v1").provenance.revision == OTHER
    assert resolve("org/model@refs/pr/1").provenance.revision == OTHER
    assert resolve(f"org/model@{COMMIT}").provenance.revision == COMMIT
    assert resolve("org/model@main").provenance.ref == "org/model@main"


def test_a_commit_that_is_cached_asks_nobody(hub: Hub) -> None:
    resolve(f"org/model@{COMMIT}")
    hub.asked.clear()
    assert resolve(f"org/model@{COMMIT}").provenance.revision == COMMIT
    assert hub.asked == []


def test_the_token_is_sent(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    resolve("org/model")
    assert {token for _, _, token in hub.asked} == {"Bearer hf_secret"}


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("code", ["GatedRepo", ""])
def test_gated(hub: Hub, status: int, code: str) -> None:
    hub.repos["org/gated"] = Repo({"config.json": CONFIG}, refused=(status, code, "Access to model is restricted"))
    said = refused("org/gated", GatedError)
    assert all(word in said for word in ("gated", "HF_TOKEN", f"{hub.endpoint}/org/gated", str(status)))


def test_token_that_is_refused(hub: Hub) -> None:
    hub.repos["org/model"].refused = (401, "-", "Invalid credentials in Authorization header")
    assert "refuses the token" in refused("org/model", GatedError)


def test_disabled(hub: Hub) -> None:
    hub.repos["org/model"].refused = (403, "-", "Access to this resource is disabled.")
    assert "disabled" in refused("org/model", SourceError)


def test_no_such_repository(hub: Hub) -> None:
    said = refused("org/nothing", NotFoundError)
    assert "no such repository" in said
    assert "HF_TOKEN" in said
    hub.repos["org/bare"] = Repo({}, refused=(404, "", ""))
    assert "no such repository" in refused("org/bare", NotFoundError)


def test_no_such_revision(hub: Hub) -> None:
    assert "org/model has no revision 'v9'" in refused("org/model@v9", NotFoundError)
    assert "no revision after the @" in refused("org/model@", NotFoundError)


@pytest.mark.parametrize("ref", ["a--b/c@main", "x@main@main", "-/x@main", "o/" + "x" * 200, "org/model.git@main"])
def test_names_that_no_repository_can_have(hub: Hub, ref: str) -> None:
    refused(ref, NotFoundError)
    assert [path for _, path, _ in hub.asked if "resolve/main/" in path] == []


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (["a-Q4_K_M.gguf", "b-Q8_0.gguf", "README.md"], "only GGUF files: a-Q4_K_M.gguf, b-Q8_0.gguf"),
        (["adapter_config.json", "adapter_model.safetensors"], "LoRA adapter"),
        (["model_index.json"], "diffusers"),
        (["params.json"], "native"),
        (["weights.bin"], "it holds weights.bin"),
        ([], "no config.json"),
    ],
)
def test_no_config_says_what_is_there(hub: Hub, files: list[str], says: str) -> None:
    hub.repos["org/other"] = Repo(dict.fromkeys(files, b""), card={"base_model": "org/base"})
    said = refused("org/other", NotFoundError)
    assert says in said
    assert ("org/base" in said) == ("adapter_config.json" in files)


def test_renamed_repository(hub: Hub) -> None:
    hub.moved["old/name"] = "org/model"
    raw = resolve("old/name")
    assert raw.data["hidden_size"] == 64
    assert raw.provenance.revision == COMMIT
    assert raw.warnings == ("old/name is now called org/model: use that name",)


def test_garbage_instead_of_a_config(hub: Hub) -> None:
    hub.repos["org/model"].files["config.json"] = b"<html>"
    assert f"org/model@{COMMIT[:12]}/config.json: not valid JSON" in refused("org/model", MalformedConfigError)


def test_huge_config(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmcalc.sources.text.LARGEST_FILE", 10)
    assert "64 MiB" in refused("org/model", MalformedConfigError)
    assert [method for method, _, _ in hub.asked] == ["HEAD"]


def test_a_server_that_is_no_hub(hub: Hub) -> None:
    hub.plain = True
    assert "HF_ENDPOINT" in refused("org/model", SourceError)


@pytest.mark.parametrize(("status", "says"), [(429, "wait 7 s"), (500, "answered 500"), (503, "answered 503")])
def test_server_that_cannot_serve_now(hub: Hub, status: int, says: str) -> None:
    hub.broken = status
    assert says in refused("org/model", SourceError)
    hub.broken = 0
    resolve("org/model")
    hub.broken = status
    raw = resolve("org/model")
    assert raw.provenance.revision == COMMIT
    assert "the cached copy is used" in raw.warnings[0]


def test_no_network(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    constant(monkeypatch, "HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}")
    began = time.monotonic()
    assert "cannot be reached" in refused("org/model", OfflineError)
    assert time.monotonic() - began < 2  # the library alone goes on trying for half a minute


def test_no_such_host(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "http://nowhere.invalid/{repo_id}/resolve/{revision}/{filename}"
    constant(monkeypatch, "HUGGINGFACE_CO_URL_TEMPLATE", url)
    refused("org/model", OfflineError)


def test_no_network_with_a_cached_file(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve("org/model")
    constant(monkeypatch, "HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}")
    assert "the cached copy is used" in resolve("org/model").warnings[0]


@pytest.mark.parametrize("slow", ["slow", "trickle"])
def test_slow_server(hub: Hub, monkeypatch: pytest.MonkeyPatch, slow: str, capfd: pytest.CaptureFixture[str]) -> None:
    constant(monkeypatch, "HF_HUB_ETAG_TIMEOUT", 0.2)
    constant(monkeypatch, "HF_HUB_DOWNLOAD_TIMEOUT", 0.2)
    setattr(hub, slow, 0.6 if slow == "slow" else 0.1)
    began = time.monotonic()
    said = refused("org/model", OfflineError)
    assert time.monotonic() - began < 2  # 0.2 s for an answer, 0.8 s for everything
    assert "HF_HUB_DOWNLOAD_TIMEOUT" in said
    assert capfd.readouterr() == ("", "")
    hub.slow = hub.trickle = 0
    for thread in threading.enumerate():
        if thread.name.startswith("hub "):
            thread.join(10)


def test_offline_mode(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve("org/model")
    hub.asked.clear()
    constant(monkeypatch, "HF_HUB_OFFLINE", True)
    raw = resolve("org/model")
    assert raw.provenance.revision == COMMIT
    assert "offline mode" in raw.warnings[0]
    assert "HF_HUB_OFFLINE" in refused("org/other", OfflineError)
    assert "HF_HUB_OFFLINE" in refused("org/model@v1", OfflineError)
    assert hub.asked == []


def test_cache_that_cannot_be_written(hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    constant(monkeypatch, "HF_HUB_CACHE", str(tmp_path / "file" / "hub"))
    assert "HF_HOME" in refused("org/model", SourceError)


def run(hub: Hub, home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, where the environment alone tells the client what to do."""
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HF_ENDPOINT": hub.endpoint,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
    }
    code = (
        "from llmcalc.errors import SourceError\nfrom llmcalc.sources import resolve\n"
        "try: raw = resolve('org/model'); print(raw.provenance.revision, *raw.warnings)\n"
        "except SourceError as error: print(error.code, error.message)"
    )
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=env | more, capture_output=True, text=True, check=True, timeout=60)


def test_environment(hub: Hub, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert run(hub, home, HF_HUB_OFFLINE="1").stdout.startswith("offline ")
    online = run(hub, home, HF_TOKEN="hf_x")
    assert (online.stdout, online.stderr) == (f"{COMMIT}\n", "")
    assert {token for _, _, token in hub.asked} == {"Bearer hf_x"}
    cached = run(hub, home, HF_HUB_OFFLINE="1")
    assert cached.stdout.startswith(f"{COMMIT} offline mode")
    assert cached.stderr == ""


def test_environment_without_network(hub: Hub, tmp_path: Path) -> None:
    done = run(hub, tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
    assert done.stdout.startswith("offline org/model: http://127.0.0.1:9 cannot be reached")
    assert done.stderr == ""


def test_environment_with_a_slow_server(hub: Hub, tmp_path: Path) -> None:
    hub.slow = 3
    done = run(hub, tmp_path, HF_HUB_ETAG_TIMEOUT="1", HF_HUB_DOWNLOAD_TIMEOUT="1")
    assert done.stdout.startswith("offline org/model")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("HF_HUB_ETAG_TIMEOUT", "ten", "source org/model: huggingface_hub cannot be loaded"),
        ("HF_ENDPOINT", "nonsense", "offline org/model: nonsense cannot be reached"),
        ("HF_ENDPOINT", "http://[", "source org/model: huggingface_hub cannot be loaded"),
    ],
)
def test_environment_that_makes_no_sense(hub: Hub, tmp_path: Path, name: str, value: str, says: str) -> None:
    done = run(hub, tmp_path, **{name: value})
    assert done.stdout.startswith(says)
    assert done.stderr == ""
