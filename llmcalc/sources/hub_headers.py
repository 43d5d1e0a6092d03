"""Headers of a checkpoint on the Hub, by range requests: the first bytes of each file, never its tensor data.

``huggingface_hub`` has ``get_safetensors_metadata``; it neither holds a header against the length of its file nor
refuses repeated names, so it serves here for addresses, tokens and sessions, and the bytes go to the reader of local
files.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from llmcalc.errors import LlmcalcError, NotFoundError, OfflineError, SourceError
from llmcalc.sources.checkpoint import INDEX, collect, read_index
from llmcalc.sources.hub import in_time
from llmcalc.sources.hub_errors import Asked, explain
from llmcalc.sources.raw import Tensor
from llmcalc.sources.safetensors import header_length, parse_header

SINGLE: Final = "model.safetensors"
FIRST: Final = 1 << 17
AT_ONCE: Final = 8


def read_hub_tensors(repo: str, revision: str | None) -> tuple[tuple[Tensor, ...], tuple[str, ...]]:
    """The tensors of ``repo``'s safetensors files at a revision, and warnings.

    Raises: NotFoundError where it has no such files, MalformedConfigError for headers that are not right, and the
        errors of the Hub.
    """
    asked = Asked(repo, revision)
    index = in_time(asked, lambda: _index(asked))
    files = sorted(set(index.values())) if index else [SINGLE]
    headers = in_time(asked, lambda: _headers(asked, files), 1 + len(files) / AT_ONCE)
    return collect(f"{asked}", headers, index)


def _index(asked: Asked) -> dict[str, str]:
    """Tensor to file, empty where the repository has no index."""
    from huggingface_hub import constants, errors, hf_hub_download

    if constants.HF_HUB_OFFLINE:
        raise OfflineError(
            f"{asked}: offline mode (HF_HUB_OFFLINE): the headers of its weights are not in the cache",
            "unset HF_HUB_OFFLINE, or name a folder that holds the checkpoint",
        )
    try:
        path = hf_hub_download(asked.repo, INDEX, revision=asked.revision, etag_timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except errors.EntryNotFoundError:
        return {}
    except Exception as error:  # of another library: each becomes one of ours
        raise explain(error, asked) from error
    return read_index(Path(path))


def _headers(asked: Asked, files: list[str]) -> dict[str, tuple[Tensor, ...]]:
    with ThreadPoolExecutor(min(AT_ONCE, len(files))) as pool:
        return dict(zip(files, pool.map(lambda name: _header(asked, name), files), strict=True))


def _header(asked: Asked, name: str) -> tuple[Tensor, ...]:
    where = f"{asked}/{name}"
    try:
        with _opened(asked, name, FIRST) as (body, length):
            first = body.read(8)
            size = header_length(first, length, where)
            if 8 + size <= FIRST:
                return parse_header(_Body(iter([first, body.read(size)])), length, where, name)
        with _opened(asked, name, 8 + size) as (body, length):
            return parse_header(body, length, where, name)
    except LlmcalcError:
        raise
    except Exception as error:
        raise _explained(error, asked, name) from error


def _explained(error: Exception, asked: Asked, name: str) -> SourceError:
    from huggingface_hub import errors

    if isinstance(error, errors.EntryNotFoundError):
        missing = "no safetensors files in this repository" if name == SINGLE else f"the shard {name} is not there"
        return NotFoundError(f"{asked}: {missing}", "verify reads the headers of safetensors files")
    return explain(error, asked)


@contextmanager
def _opened(asked: Asked, name: str, size: int) -> Iterator[tuple[_Body, int]]:
    """The first ``size`` bytes of a file and its length; a server that sends all of it is not listened to."""
    from huggingface_hub import constants, get_session, hf_hub_url
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]

    url = hf_hub_url(asked.repo, name, revision=asked.revision)
    wanted = {**build_hf_headers(), "Range": f"bytes=0-{size - 1}", "Accept-Encoding": "identity"}
    with get_session().stream(
        "GET", url, headers=wanted, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT, follow_redirects=True
    ) as answer:
        hf_raise_for_status(answer)
        yield _Body(answer.iter_bytes(1 << 16)), _length(answer, f"{asked}/{name}")


def _length(answer: Any, where: str) -> int:
    """The length of the whole file."""
    total = answer.headers.get("Content-Range", "").rpartition("/")[2] or answer.headers.get("Content-Length", "")
    if not (total.isascii() and total.isdecimal() and len(total) < 20):
        raise SourceError(f"{where}: the server does not say how long the file is", "check HF_ENDPOINT")
    return int(total)


class _Body:
    """The body of an answer, read as far as it is asked for."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.chunks, self.left = chunks, b""

    def read(self, size: int, /) -> bytes:
        """The next bytes, fewer only at the end."""
        parts, have = [self.left], len(self.left)
        while have < size and (chunk := next(self.chunks, b"")):
            parts.append(chunk)
            have += len(chunk)
        data = b"".join(parts)
        self.left = data[size:]
        return data[:size]
