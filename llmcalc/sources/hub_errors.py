"""What went wrong with the Hub, in our own errors: each says what to do next."""

from __future__ import annotations

from typing import Final, NamedTuple

from llmcalc.errors import GatedError, NotFoundError, OfflineError, SourceError

CONFIG: Final = "config.json"


class Asked(NamedTuple):
    """A repository and a revision of it, as the user wrote them."""

    repo: str
    revision: str | None

    def __str__(self) -> str:
        """As it is written on the command line."""
        return f"{self.repo}@{self.revision}" if self.revision else self.repo


class ServerError(SourceError):
    """The Hub is there and answers that it cannot serve now."""


def is_passing(problem: SourceError) -> bool:
    """Whether the same question may get an answer later, so that a cached copy can stand in."""
    return isinstance(problem, OfflineError | ServerError)


def explain(error: Exception, asked: Asked) -> SourceError:
    """One of our errors for an exception of huggingface_hub or of the HTTP library under it."""
    from huggingface_hub import errors

    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        # "not on the server and not in the cache": the cause says why
        error = error.__cause__
    if isinstance(error, errors.HFValidationError):
        return NotFoundError(f"{asked.repo!r:.100} is not the name of a repository", "write it as org/name")
    if isinstance(error, errors.HfHubHTTPError):
        return _from_answer(error.response.status_code, error, asked)
    if isinstance(error, errors.FileMetadataError):
        return SourceError(
            f"{asked}: {_endpoint()} does not answer like a Hub: {_line(error)}",
            "check HF_ENDPOINT, and whether a proxy or a login page stands in between",
        )
    return _from_transport(error, asked)


def _from_answer(status: int, error: Exception, asked: Asked) -> SourceError:
    """The server answered, with an error."""
    from huggingface_hub import errors

    headers = error.response.headers if isinstance(error, errors.HfHubHTTPError) else {}
    code, said = headers.get("X-Error-Code", ""), headers.get("X-Error-Message", "")
    if isinstance(error, errors.RevisionNotFoundError):
        return NotFoundError(
            f"{asked.repo} has no revision {asked.revision or 'main'!r:.80}",
            f"a branch, tag or commit of it: {_endpoint()}/{asked.repo}/commits/main",
        )
    if isinstance(error, errors.EntryNotFoundError):
        return without_config(asked)
    if isinstance(error, errors.GatedRepoError):
        return _gated(f"{asked}: this repository is gated ({status})", asked)
    if isinstance(error, errors.DisabledRepoError):
        return SourceError(f"{asked}: the Hub has disabled access to this repository")
    if code == "RepoNotFound" or status == 404:
        return NotFoundError(
            f"{asked}: no such repository at {_endpoint()} ({status})",
            "check the spelling; a private or gated one shows only with a token (HF_TOKEN or hf auth login)",
        )
    if status in (401, 403):
        refused = "the Hub refuses the token" if "credentials" in said.lower() else "access is denied"
        return _gated(f"{asked}: {refused} ({status}): it is gated or private, or does not exist", asked)
    if status == 429:
        wait = headers.get("Retry-After", "")
        when = f"wait {wait} s and try again" if wait.isdecimal() else "wait a minute and try again"
        return ServerError(
            f"{asked}: {_endpoint()} limits the rate of requests (429)", f"{when}; a token (HF_TOKEN) raises it"
        )
    kind = ServerError if status >= 500 else SourceError
    return kind(f"{asked}: {_endpoint()} answered {status}{f': {said:.120}' if said else ''}", "try again later")


def _gated(message: str, asked: Asked) -> GatedError:
    return GatedError(
        message,
        f"accept its licence at {_endpoint()}/{asked.repo}, then set HF_TOKEN to a token of that account"
        " (or run hf auth login)",
    )


def _from_transport(error: Exception, asked: Asked) -> SourceError:
    """No answer came. By class names: httpx under huggingface_hub 1.x, httpx2 from 2.x on."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"TimeoutException", "TimeoutError"}:
        return OfflineError(
            f"{asked}: {_endpoint()} did not answer in time",
            "allow more with HF_HUB_ETAG_TIMEOUT and HF_HUB_DOWNLOAD_TIMEOUT (seconds)",
        )
    if names & {"TransportError", "OfflineModeIsEnabled", "ConnectionError"}:
        return OfflineError(
            f"{asked}: {_endpoint()} cannot be reached: {_line(error)}",
            "check the network, HF_ENDPOINT and the proxy; without network use a catalogue name or a config.json",
        )
    if names & {"InvalidURL", "TooManyRedirects"}:
        return SourceError(f"{asked}: {_endpoint()} leads nowhere: {_line(error)}", "check HF_ENDPOINT")
    if isinstance(error, OSError) and error.filename:
        return SourceError(
            f"{asked}: the cache cannot be used: {error.strerror}: {error.filename}", "set HF_HOME to a writable folder"
        )
    return SourceError(f"{asked}: the download failed: {type(error).__name__}: {_line(error)}", "try again")


def without_config(asked: Asked) -> NotFoundError:
    """The error for a repository that has no config.json: it says what is there instead."""
    from huggingface_hub import HfApi, constants

    base = None
    try:
        timeout = constants.HF_HUB_ETAG_TIMEOUT
        info = HfApi().model_info(asked.repo, revision=asked.revision, timeout=timeout)
        names = sorted(sibling.rfilename for sibling in info.siblings or ())
        base = getattr(info.card_data, "base_model", None)
    except Exception:  # the listing only serves the message
        names = []
    missing = f"{asked}: no {CONFIG} in this repository"
    if "adapter_config.json" in names:
        known = f": {base:.100}" if isinstance(base, str) else ""
        return NotFoundError(f"{missing}: it is a LoRA adapter (adapter_config.json)", f"ask for its base model{known}")
    if "model_index.json" in names:
        return NotFoundError(f"{missing}: it is a diffusers pipeline (model_index.json), not a language model")
    gguf = [name for name in names if name.lower().endswith(".gguf")]
    if gguf:
        return NotFoundError(
            f"{missing}, only GGUF files: {_listed(gguf)}",
            "download one of them and name it by its path, or ask for the original",
        )
    if "params.json" in names:
        return NotFoundError(f"{missing}: it is in the native format (params.json)")
    return NotFoundError(missing + (f"; it holds {_listed(names)}" if names else ""), "name a repository of a model")


def _listed(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _endpoint() -> str:
    from huggingface_hub import constants

    return str(constants.ENDPOINT)


def _line(error: Exception) -> str:
    """The first line of a message: the library adds paragraphs of advice."""
    text = " ".join(str(error).split())
    return text if len(text) <= 160 else text[:157] + "..."
