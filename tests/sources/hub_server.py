"""A small Hugging Face Hub on 127.0.0.1: what the real client asks for one file, and the errors of the real server."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "fedcba9876543210fedcba9876543210fedcba98"


@dataclass
class Repo:
    """``refused``: (status, X-Error-Code, X-Error-Message) instead of the file; ``card``: the model card's data."""

    files: dict[str, bytes]
    revisions: dict[str, str] = field(default_factory=lambda: {"main": COMMIT, "v1": OTHER})
    refused: tuple[int, str, str] | None = None
    card: dict[str, object] = field(default_factory=dict)


@dataclass
class Hub:
    """``moved``: old name to new; ``slow``: seconds before an answer, ``trickle``: seconds between bytes of a body.

    ``ranges``: whether it serves the parts of files that are asked for; ``sent``: bytes of bodies so far.
    """

    endpoint: str = ""
    repos: dict[str, Repo] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    slow: float = 0
    trickle: float = 0
    broken: int = 0
    plain: bool = False
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)
    ranges: bool = True
    sent: int = 0

    def tell(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer to a path."""
        if self.broken:
            return self.broken, {"Retry-After": "7"}, b"busy"
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^?]+))?", path)
        listing = found is not None
        found = found or re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if found is None:
            return 404, {}, b""
        name, revision = found[1], (found[2] or "main").replace("%2F", "/")
        if name in self.moved:
            return 307, {"Location": path.replace(name, self.moved[name])}, b""
        if name not in self.repos:
            return 401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}, b""
        return self.answer(name, revision, None if listing else found[3])

    def answer(self, name: str, revision: str, file: str | None) -> tuple[int, dict[str, str], bytes]:
        """A file of a repository, or its listing."""
        repo = self.repos[name]
        commit = repo.revisions.get(revision, revision if revision in repo.revisions.values() else "")
        if not commit:
            return 404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"}, b""
        if file is None:
            info = {
                "id": name,
                "sha": commit,
                "siblings": [{"rfilename": one} for one in repo.files],
                "cardData": repo.card,
            }
            return 200, {"Content-Type": "application/json"}, json.dumps(info).encode()
        if repo.refused:
            status, code, message = repo.refused
            return status, {"X-Error-Code": code, "X-Error-Message": message} if code else {}, b""
        if file not in repo.files:
            return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}, b""
        body = repo.files[file]
        warned = {"X-HF-Warning": "unauthenticated; You are sending unauthenticated requests"}
        etag = {"ETag": f'"{hashlib.sha1(body).hexdigest()}"', "X-Repo-Commit": commit}
        return 200, warned if self.plain else warned | etag, body


def handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            hub.asked.append((self.command, self.path, self.headers.get("authorization")))
            time.sleep(hub.slow)
            status, headers, body = hub.tell(self.path.partition("?")[0])
            wanted = re.fullmatch(r"bytes=0-(\d+)", self.headers.get("range", ""))
            if wanted and hub.ranges and status == 200:
                part = body[: int(wanted[1]) + 1]
                status, headers = 206, headers | {"Content-Range": f"bytes 0-{len(part) - 1}/{len(body)}"}
                body = part
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "HEAD":
                return
            for at in range(len(body)) if hub.trickle else ():
                time.sleep(hub.trickle)
                self.wfile.write(body[at : at + 1])
            if not hub.trickle:
                for at in range(0, len(body), 1 << 16):
                    self.wfile.write(body[at : at + (1 << 16)])
                    hub.sent += len(body[at : at + (1 << 16)])

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

        def handle(self) -> None:
            with suppress(OSError):  # the client has left
                super().handle()

    return Handler


@contextmanager
def serve() -> Iterator[Hub]:
    """A hub that answers until the block ends."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(hub))
    server.daemon_threads = True
    server.block_on_close = False
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
