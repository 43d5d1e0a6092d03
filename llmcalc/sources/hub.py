"""The Hugging Face Hub: one config.json of one commit, through huggingface_hub with its cache, token and endpoint.

``HF_ENDPOINT``, ``HF_TOKEN``, ``HF_HOME``, ``HF_HUB_OFFLINE``, ``HF_HUB_ETAG_TIMEOUT`` and ``HF_HUB_DOWNLOAD_TIMEOUT``
mean what they mean there. The server is asked once before the library downloads, and all of it ends within a bound:
the library alone retries for minutes where there is no network, and a server that trickles never times out.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from llmcalc.errors import LlmcalcError, NotFoundError, OfflineError, SourceError
from llmcalc.sources.hub_errors import CONFIG, Asked, explain, is_passing
from llmcalc.sources.raw import RawConfig
from llmcalc.sources.text import check_size, parse_config, read_bounded

T = TypeVar("T")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_REPO_IN_URL: Final = re.compile(r"(?:/api/resolve-cache/models/([^/]+/[^/]+)/|//[^/]+/([^/]+/[^/]+)/resolve/)")


class Found(NamedTuple):
    """A config.json in the cache, the commit it belongs to, and what the user should know."""

    path: Path
    commit: str
    warnings: tuple[str, ...] = ()


def read_hub(ref: str) -> RawConfig:
    """The config.json of ``org/name`` or ``org/name@revision``; its provenance names the commit.

    Raises: GatedError, OfflineError, NotFoundError, MalformedConfigError, and SourceError for what else the server or
        the machine did.
    """
    repo, at, revision = ref.partition("@")
    if at and not revision:
        raise NotFoundError(
            f"{ref}: no revision after the @", "write org/name@revision, or org/name for its main branch"
        )
    found = _bounded(Asked(repo, revision or None))
    where = f"{repo}@{found.commit[:12]}/{CONFIG}"
    try:
        with found.path.open("rb") as file:
            data = read_bounded(file, where)
    except OSError as error:
        raise SourceError(f"{where}: the cached file cannot be read: {error.strerror}", f"see {found.path}") from None
    raw = parse_config(
        data, where, source="hub", name=repo, ref=ref, revision=found.commit, origin=f"Hugging Face Hub, {where}"
    )
    return replace(raw, warnings=(*found.warnings, *raw.warnings))


def _bounded(asked: Asked) -> Found:
    """Fetch, or take the cached copy when that takes too long."""
    try:
        return in_time(asked, lambda: _fetch(asked))
    except LateError as late:
        return _cached_despite(OfflineError(late.message, late.hint), asked)


class LateError(OfflineError):
    """The server did not deliver in time."""


def in_time(asked: Asked, task: Callable[[], T], times: float = 1.0) -> T:
    """Do a task in a thread of its own, which is left behind when it takes ``times`` as long as one file may.

    Raises: LateError, and what the task raises.
    """
    try:
        from huggingface_hub import constants
    except (ImportError, ValueError) as error:
        # ValueError: it reads its environment variables when it is imported, and takes HF_HUB_ETAG_TIMEOUT=ten badly.
        raise SourceError(f"{asked}: huggingface_hub cannot be loaded: {error}", "check the HF_* variables") from None

    seconds = 2.0 * times * (constants.HF_HUB_ETAG_TIMEOUT + constants.HF_HUB_DOWNLOAD_TIMEOUT)
    outcome: list[T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            with _quiet():
                outcome.append(task())
        except BaseException as error:  # carried over to the caller's thread
            failure.append(error)

    thread = threading.Thread(target=work, name=f"hub {asked}", daemon=True)
    thread.start()
    thread.join(seconds)
    if failure:
        raise failure[0]
    if not outcome:
        raise LateError(
            f"{asked}: {constants.ENDPOINT} did not deliver within {seconds:g} s",
            "allow more with HF_HUB_ETAG_TIMEOUT and HF_HUB_DOWNLOAD_TIMEOUT (seconds)",
        )
    return outcome[0]


def _fetch(asked: Asked) -> Found:
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url

    if constants.HF_HUB_OFFLINE:
        return _offline(asked)
    if asked.revision and _COMMIT.fullmatch(asked.revision):
        found = _cached(asked)
        if found:
            return found
    timeout = constants.HF_HUB_ETAG_TIMEOUT
    try:
        url = hf_hub_url(asked.repo, CONFIG, revision=asked.revision)
        metadata = get_hf_file_metadata(url, timeout=timeout)
        check_size(metadata.size or 0, f"{asked}/{CONFIG}")
        path = Path(hf_hub_download(asked.repo, CONFIG, revision=asked.revision, etag_timeout=timeout))
    except LlmcalcError:
        raise
    except Exception as error:  # of another library: each becomes one of ours
        problem = explain(error, asked)
        if is_passing(problem):
            return _cached_despite(problem, asked)
        raise problem from error
    return Found(path, path.parent.name, _moved(asked, metadata.location))


def _moved(asked: Asked, location: str) -> tuple[str, ...]:
    """A warning where the server redirected to a repository of another name."""
    match = _REPO_IN_URL.search(location)
    repo = (match[1] or match[2]) if match else asked.repo
    return () if repo == asked.repo else (f"{asked.repo} is now called {repo}: use that name",)


def _cached(asked: Asked) -> Found | None:
    """What the cache holds of this revision, without any network."""
    from huggingface_hub import try_to_load_from_cache

    try:
        path = try_to_load_from_cache(asked.repo, CONFIG, revision=asked.revision)
    except (OSError, ValueError) as error:
        raise explain(error, asked) from error
    return Found(Path(path), Path(path).parent.name) if isinstance(path, str) else None


def _offline(asked: Asked) -> Found:
    found = _cached(asked)
    if found is None:
        raise OfflineError(
            f"{asked}: offline mode (HF_HUB_OFFLINE) and its {CONFIG} is not in the cache",
            f"unset HF_HUB_OFFLINE, or fetch it once with network: hf download {asked.repo} {CONFIG}",
        )
    return found._replace(warnings=(f"offline mode: {asked} is read from the cache, commit {found.commit[:12]}",))


def _cached_despite(problem: SourceError, asked: Asked) -> Found:
    """The cached copy where the server could not be asked, with a warning that says so."""
    found = _cached(asked)
    if found is None:
        raise problem
    return found._replace(warnings=(f"{problem.message}; the cached copy is used, commit {found.commit[:12]}",))


@contextmanager
def _quiet() -> Iterator[None]:
    """No log lines and no progress bars from what this thread does."""
    from huggingface_hub import constants

    # The client may import its logging only later, and with that comes the handler that prints.
    from huggingface_hub.utils import logging as _  # noqa: F401
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    thread = threading.get_ident()
    handlers = list(logging.getLogger("huggingface_hub").handlers)

    def elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != thread

    for handler in handlers:
        handler.addFilter(elsewhere)
    # Where the environment decides about the bars, the library refuses to be told otherwise.
    hide = constants.HF_HUB_DISABLE_PROGRESS_BARS is None and not are_progress_bars_disabled()
    if hide:
        disable_progress_bars()
    try:
        yield
    finally:
        if hide:
            enable_progress_bars()
        for handler in handlers:
            handler.removeFilter(elsewhere)
