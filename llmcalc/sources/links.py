"""Addresses of the Hub as a browser shows them: ``https://huggingface.co/org/name/tree/main`` is org/name."""

from __future__ import annotations

import os
import re
from typing import Final
from urllib.parse import unquote, urlsplit

from llmcalc.errors import NotFoundError

_HOSTS: Final = ("huggingface.co", "www.huggingface.co", "hf.co")
_LINK: Final = re.compile(rf"https?://|(?:{'|'.join(map(re.escape, _HOSTS))})/", re.IGNORECASE)
_AT_REVISION: Final = ("tree", "blob", "resolve", "raw", "blame", "commits", "commit")
_WORD: Final = re.compile(r"[A-Za-z0-9_][\w.-]*", re.ASCII)
_OTHER: Final = ("datasets", "spaces", "collections", "papers", "docs", "blog", "api", "models")
_WAY_OUT: Final = "write the model as org/name or org/name@revision, or download its config.json and name that file"


def is_link(ref: str) -> bool:
    """Whether it is an address and not a path: it has a scheme, or begins with the Hub's host."""
    return _LINK.match(ref) is not None


def read_link(link: str) -> str:
    """``org/name`` or ``org/name@revision`` of an address of the Hub; the main branch is not named.

    Raises: NotFoundError for another site, and for a page that is no model's.
    """
    address = link if "://" in link else f"https://{link}"
    try:
        parts = urlsplit(address)
        host = (parts.hostname or "").lower()
    except ValueError:
        raise NotFoundError(f"{link!r:.120} is not an address", _WAY_OUT) from None
    if host not in (*_HOSTS, *_own_host()):
        raise NotFoundError(f"{link:.120}: only addresses of the Hugging Face Hub are read", _WAY_OUT)
    words = [unquote(word) for word in parts.path.split("/") if word]
    if len(words) < 2 or words[0].lower() in _OTHER or not all(map(_WORD.fullmatch, words[:2])):
        raise NotFoundError(f"{link:.120}: not the address of a model", _WAY_OUT)
    repo = f"{words[0]}/{words[1]}"
    if len(words) < 4 or words[2] not in _AT_REVISION:
        return repo
    if len(words) > 4 + (words[2] not in ("tree", "commits", "commit")):
        inside = "/".join(words[4:])
        raise NotFoundError(
            f"{link:.120}: {inside:.60} is inside the repository, whose own config.json is read", _WAY_OUT
        )
    return repo if words[3] == "main" else f"{repo}@{words[3]}"


def _own_host() -> tuple[str, ...]:
    """The host that ``HF_ENDPOINT`` names."""
    try:
        host = urlsplit(os.environ.get("HF_ENDPOINT", "")).hostname
    except ValueError:
        host = None
    return (host.lower(),) if host else ()
