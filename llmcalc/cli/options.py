"""Options that mean the same in every verb, and how their values are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from llmcalc.errors import InvalidInputError
from llmcalc.units import parse_count, parse_tokens

OUTPUT = "Output"
MODEL = "Model"


def _tokens(name: str, low: int = 1) -> object:
    def read(text: str | int) -> int:
        try:
            return parse_tokens(str(text), name, low)
        except InvalidInputError as error:
            raise typer.BadParameter(error.message) from None

    return read


ModelArg = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="A catalogue name, a config.json or folder, - (stdin), or org/name[@revision]."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.", rich_help_panel=OUTPUT)]
Csv = Annotated[bool, typer.Option("--csv", help="The table as CSV, exact numbers.", rich_help_panel=OUTPUT)]
Markdown = Annotated[bool, typer.Option("--markdown", help="A Markdown document.", rich_help_panel=OUTPUT)]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="Write there.", rich_help_panel=OUTPUT)]
Force = Annotated[bool, typer.Option("--force", help="Let -o overwrite a file.", rich_help_panel=OUTPUT)]
Explain = Annotated[bool, typer.Option("--explain", help="Show each formula with its numbers.", rich_help_panel=OUTPUT)]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Override a config field (repeatable).", rich_help_panel=MODEL),
]
As = Annotated[
    str | None,
    typer.Option("--as", metavar="FAMILY", help="Read an unknown model_type as this one.", rich_help_panel=MODEL),
]
Source = Annotated[str | None, typer.Option("--source", help="catalog, local, hub or gguf.", rich_help_panel=MODEL)]
Tokens = Annotated[
    int,
    typer.Option("--tokens", parser=_tokens("tokens"), metavar="N", help="Positions per sequence: 4096, 128k, 128Ki."),
]
Batch = Annotated[int, typer.Option("--batch", min=1, max=2**31, help="Sequences held at once.")]
EncoderTokens = Annotated[
    int | None,
    typer.Option(
        "--encoder-tokens", parser=_tokens("encoder-tokens", 0), metavar="N",
        help="What cross-attention reads; by default as many as --tokens.",
    ),
]  # fmt: skip
ImageTokens = Annotated[
    int,
    typer.Option("--image-tokens", parser=_tokens("image-tokens", 0), metavar="N", help="Image positions attended to."),
]
Lengths = Annotated[
    str | None, typer.Option("--lengths", metavar="N,N,...", help="Retained lengths, instead of --tokens x --batch.")
]
LengthsFile = Annotated[
    Path | None, typer.Option("--lengths-file", metavar="FILE", help="The same, one length a line, or a JSON list.")
]
Tp = Annotated[int, typer.Option("--tp", min=1, max=2**20, help="Tensor-parallel ranks.")]
Pp = Annotated[int, typer.Option("--pp", min=1, max=2**20, help="Pipeline stages.")]


def verb_app() -> typer.Typer:
    """The program of one verb."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def overrides(settings: list[str] | None) -> dict[str, object]:
    """``field=value`` pairs; the value is JSON, or a bare word taken as a string."""
    out: dict[str, object] = {}
    for setting in settings or ():
        name, equals, text = setting.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"--set {setting!r}: expected FIELD=VALUE")
        try:
            out[name.strip()] = json.loads(text)
        except (ValueError, RecursionError):
            out[name.strip()] = text
    return out


def lengths(text: str | None, file: Path | None) -> list[int] | None:
    """Retained lengths from ``18,31,...``, or from a file of numbers apart by commas or white space, or a JSON list."""
    if text is not None and file is not None:
        raise typer.BadParameter("--lengths and --lengths-file are two ways to say the same; give one")
    if file is not None:
        try:
            text = file.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInputError(f"--lengths-file {file}: {getattr(error, 'strerror', None) or error}") from None
    if text is None:
        return None
    words = text.strip().strip("[]").replace(",", " ").split()
    if not words:
        raise InvalidInputError("there are no lengths")
    return [parse_tokens(word, "lengths", 0) for word in words]


def _choice(name: str, *words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise typer.BadParameter(f"--{name} {text}: expected {', '.join(words)}")
        return text

    return read


def _count(name: str) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            return parse_count(str(text), name)
        except InvalidInputError as error:
            raise typer.BadParameter(error.message) from None

    return read


OptionalModel = Annotated[
    str | None,
    typer.Argument(metavar="[MODEL]", help="As in every verb; --params N stands in its place where there is none."),
]
Params = Annotated[
    int | None,
    typer.Option("--params", parser=_count("params"), metavar="N", help="Parameters, for the rules of thumb."),
]
TrainTokens = Annotated[
    int | None,
    typer.Option("--train-tokens", parser=_count("train-tokens"), metavar="D", help="Tokens of a whole run."),
]
Recomputed = Annotated[
    str, typer.Option("--recompute", parser=_choice("recompute", "none", "selective", "full"), metavar="HOW",
                      help="What the backward pass computes again: none, selective (attention) or full (layers)."),
]  # fmt: skip


def one_of(model: str | None, params: int | None) -> None:
    """Either a model or a number of parameters."""
    if (model is None) == (params is None):
        raise typer.BadParameter("give MODEL, or --params N in its place")


def pick(name: str, *words: str) -> Callable[[str], str]:
    """The parser of an option that takes one of a few words."""
    return _choice(name, *words)


def tokens_of(name: str, low: int = 1) -> object:
    """The parser of an option that takes a number of tokens."""
    return _tokens(name, low)
