from collections.abc import Iterator
from pathlib import Path

import pytest

from .hub_server import Hub, Repo, serve

CONFIG = b'{"model_type": "llama", "hidden_size": 64}'


def point_at(monkeypatch: pytest.MonkeyPatch, endpoint: str, home: Path) -> None:
    """What the environment variables of the client do, for the process that has imported it already."""
    from huggingface_hub import constants
    from huggingface_hub.utils import close_session

    close_session()
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 2)
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 2)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """The real client, pointed at a small server that holds org/model."""
    from huggingface_hub.utils import close_session

    with serve() as server:
        server.repos["org/model"] = Repo({"config.json": CONFIG, "README.md": b""})
        point_at(monkeypatch, server.endpoint, tmp_path)
        monkeypatch.chdir(tmp_path)
        yield server
    close_session()
