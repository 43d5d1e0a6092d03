"""The configs that ship in the package: found by a bare name or by their hub id, with no network."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from llmcalc.errors import NotFoundError
from llmcalc.sources.raw import RawConfig
from llmcalc.sources.text import parse_config

SHORTEST_WORD: Final = 3
CLOSE_WORD: Final = 0.75  # one letter in four
FOLDER: Final = Path(__file__).parent.parent / "data" / "models"


class Entry(NamedTuple):
    """One model of the catalogue. ``origin_kind``: verbatim, embedded or transcribed, as ``origin`` explains."""

    name: str
    aliases: tuple[str, ...]
    hub_ids: tuple[str, ...]
    model_type: str
    file: str
    origin: str
    origin_kind: str
    date: str
    sha256: str


@cache
def entries() -> tuple[Entry, ...]:
    """Every model of the catalogue, sorted by name."""
    rows = json.loads((FOLDER / "index.json").read_bytes())["models"]
    return tuple(
        Entry(
            aliases=tuple(row.pop("aliases")),
            hub_ids=tuple(row.pop("hub_ids")),
            **row,
        )
        for row in rows
    )


def key(name: str) -> str:
    """What a bare name comes down to: case and separators do not matter.

    Between two digits a separator stays, so that qwen2.5-7b is not qwen2-57b.
    """
    return re.sub(r"[._\s-]+", "", re.sub(r"(?<=\d)[._\s-]+(?=\d)", "/", name.strip().lower()))


def squashed(name: str) -> str:
    """A name without any separator."""
    return key(name).replace("/", "")


@cache
def _table(form: Callable[[str], str]) -> dict[str, frozenset[int]]:
    table: dict[str, frozenset[int]] = {}
    for number, entry in enumerate(entries()):
        for name in (entry.name, *entry.aliases):
            table[form(name)] = table.get(form(name), frozenset()) | {number}
    return table


def find(name: str) -> Entry | None:
    """The model of a bare name, None where there is none."""
    asked = name.lower()
    for entry in entries():  # as it is spelled there: a few milliseconds less than making the table
        if asked == entry.name:
            return entry
    # A name may be shared by no two models (a test holds that), so the first is the only one.
    exact = _table(key).get(key(name))
    if exact:
        return entries()[min(exact)]
    if "/" in key(name):
        return None
    close = _table(squashed).get(squashed(name), frozenset())
    return entries()[min(close)] if len(close) == 1 else None


@cache
def _hub_table() -> dict[str, int]:
    return {hub.lower(): number for number, entry in enumerate(entries()) for hub in entry.hub_ids}


def find_hub_id(repo: str) -> Entry | None:
    """The model of a hub id (org/name, case does not matter), None where there is none."""
    number = _hub_table().get(repo.lower())
    return None if number is None else entries()[number]


def read(entry: Entry, ref: str) -> RawConfig:
    """The config of an entry."""
    data = (FOLDER / entry.file).read_bytes()
    where = f"{entry.name} (catalogue)"
    return parse_config(
        data,
        where,
        source="catalog",
        name=entry.name,
        ref=ref,
        origin=entry.origin,
        date=entry.date,
        digest=entry.sha256,
    )


def read_named(name: str) -> RawConfig:
    """The config of a bare name or a hub id. Raises: NotFoundError with the closest names."""
    entry = find_hub_id(name) if "/" in name else find(name)
    if entry is None:
        raise not_found(name)
    return read(entry, name)


def not_found(name: str) -> NotFoundError:
    """The error for a name that the catalogue does not have."""
    near = suggestions(name)
    hint = f"did you mean {', '.join(near)}?" if near else "llmcalc models lists the names"
    more = "a config.json is named by its path (./config.json), a hub model as org/name"
    return NotFoundError(
        f"no model called {name!r:.80} in the catalogue", f"{hint} {more}" if near else f"{hint}; {more}"
    )


def suggestions(name: str, count: int = 4, *, cutoff: float = 0.6) -> list[str]:
    """The closest names of the catalogue, the best first; hub ids where a hub id was asked.

    None that begins with another word: a model of another maker is no help.
    """
    from difflib import get_close_matches

    if len(name) > 200:
        return []
    if "/" in name:
        every = [(hub.lower(), hub, hub) for entry in entries() for hub in entry.hub_ids]
        asked = name.lower()
    else:
        every = [(squashed(known), known, e.name) for e in entries() for known in (*e.aliases, e.name)]
        asked = squashed(name)
    table = {form: shown for form, known, shown in every if _same_word(name, known)}
    near = get_close_matches(asked, table, n=3 * count, cutoff=cutoff)
    begins = [known for known in table if asked and known.startswith(asked)]
    return list(dict.fromkeys(table[known] for known in (*begins[:2], *near)))[:count]


def _same_word(asked: str, known: str) -> bool:
    """Whether two names, or the names behind two owners, begin with the same word, a letter or two aside."""
    from difflib import SequenceMatcher

    one, other = (re.split("[^a-z]", name.strip().lower().rpartition("/")[2], maxsplit=1)[0] for name in (asked, known))
    shorter, longer = sorted((one, other), key=len)
    if len(shorter) >= SHORTEST_WORD and longer.startswith(shorter):
        return True
    return one == other or SequenceMatcher(None, one, other).ratio() >= CLOSE_WORD
