"""Options that mean the same in every verb, and how their values are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from llmcalc.arch.model import Architecture
from llmcalc.errors import InvalidInputError
from llmcalc.units import parse_count, parse_tokens, parse_whole

OUTPUT = "Output"
MODEL = "Model"


def _usage(read: Callable[[str], int]) -> Callable[[str | int], int]:
    """A parser whose complaint is one about usage."""

    def parsed(text: str | int) -> int:
        try:
            return read(str(text))
        except InvalidInputError as error:
            raise typer.BadParameter(error.message) from None

    return parsed


def tokens_of(name: str, low: int = 1) -> Callable[[str | int], int]:
    """The parser of an option that takes a number of tokens."""
    return _usage(lambda text: parse_tokens(text, name, low))


def whole(name: str, low: int = 1, high: int = 2**20) -> Callable[[str | int], int]:
    """The parser of an option that takes a whole number."""
    return _usage(lambda text: parse_whole(text, name, low, high))


def count_of(name: str) -> Callable[[str | int], int]:
    """The parser of an option that takes a count like 70e9 or 70B."""
    return _usage(lambda text: parse_count(text, name))


def lowered(text: str) -> str:
    """The parser of an option that takes a name, whatever its case."""
    return text.strip().lower()


def pick(name: str, *words: str) -> Callable[[str], str]:
    """The parser of an option that takes one of a few words, whatever their case."""

    def read(text: str) -> str:
        if lowered(text) not in words:
            raise typer.BadParameter(f"--{name} {text}: expected {', '.join(words)}")
        return lowered(text)

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
Source = Annotated[
    str | None,
    typer.Option(
        "--source", parser=lowered, metavar="SOURCE", help="catalog, local, hub or gguf.", rich_help_panel=MODEL
    ),
]
Tokens = Annotated[
    int,
    typer.Option("--tokens", parser=tokens_of("tokens"), metavar="N", help="Positions a sequence: 4096, 128k, 128Ki."),
]
Batch = Annotated[
    int, typer.Option("--batch", parser=whole("batch", 1, 2**31), metavar="N", help="Sequences held at once.")
]
EncoderTokens = Annotated[
    int | None,
    typer.Option(
        "--encoder-tokens", parser=tokens_of("encoder-tokens", 0), metavar="N",
        help="What cross-attention reads; by default as many as --tokens.",
    ),
]  # fmt: skip
ImageTokens = Annotated[
    int,
    typer.Option("--image-tokens", parser=tokens_of("image-tokens", 0), metavar="N", help="Image positions beside."),
]
Lengths = Annotated[
    str | None, typer.Option("--lengths", metavar="N,N,...", help="Retained lengths, instead of --tokens x --batch.")
]
LengthsFile = Annotated[
    Path | None, typer.Option("--lengths-file", metavar="FILE", help="The same, one length a line, or a JSON list.")
]
Tp = Annotated[int, typer.Option("--tp", parser=whole("tp"), metavar="N", help="Tensor-parallel ranks.")]
Pp = Annotated[int, typer.Option("--pp", parser=whole("pp"), metavar="N", help="Pipeline stages.")]
Engine = Annotated[
    str,
    typer.Option(
        "--engine", parser=lowered, metavar="NAME",
        help="Rules of allocation: none, vllm, sglang, tensorrt-llm, llama.cpp, transformers.",
    ),
]  # fmt: skip


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
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        out[name.strip()] = _finite(value, setting)
    return out


def _finite(value: object, setting: str) -> object:
    """The value, which is JSON through and through: NaN and Infinity are not."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise typer.BadParameter(f"--set {setting}: NaN and Infinity are no sizes") from None
    return value


def lengths(text: str | None, file: Path | None, ctx: typer.Context | None = None) -> list[int] | None:
    """Retained lengths from ``18,31,...``, or from a file of numbers apart by commas or white space, or a JSON list.

    ``ctx`` (where given) tells whether --tokens or --batch, which they stand in place of, were typed as well.
    """
    if text is not None and file is not None:
        raise typer.BadParameter("--lengths and --lengths-file are two ways to say the same; give one")
    if text is None and file is None:
        return None
    name = "--lengths" if file is None else f"--lengths-file {file}"
    for other in typed(ctx, "tokens", "batch"):
        raise typer.BadParameter(f"{name.split(maxsplit=1)[0]} stands in place of --{other}; give one of them")
    if file is not None:
        return _read_lengths(_file_text(file, name), name)
    try:
        return _read_lengths(text or "", name)
    except InvalidInputError as error:
        raise typer.BadParameter(error.message) from None


def typed(ctx: typer.Context | None, *names: str) -> list[str]:
    """Which of the options a person gave."""
    sources = {name: ctx.get_parameter_source(name.replace("-", "_")) for name in names} if ctx is not None else {}
    return [name for name, source in sources.items() if source is not None and source.name != "DEFAULT"]


def _file_text(file: Path, name: str) -> str:
    try:
        return file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{name}: {getattr(error, 'strerror', None) or error}") from None


def _read_lengths(text: str, name: str) -> list[int]:
    """Raises: InvalidInputError, which names the option, and the file if it is one."""
    words = _json_list(text, name) if text.lstrip()[:1] in ("[", "{", '"') else text.replace(",", " ").split()
    if not words:
        raise InvalidInputError(f"{name}: there are no lengths")
    for word in words:
        if len(word) > 1 and word.startswith("0"):
            raise InvalidInputError(f"{name}: {word!r} begins with a zero; a comma parts lengths, not thousands")
    try:
        return [parse_tokens(word, "lengths", 1) for word in words]
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error.message.removeprefix('--lengths is ')}", error.hint) from None


def _json_list(text: str, name: str) -> list[str]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{name}: it begins like JSON and is none: {error}", "a list like [18, 31]") from None
    if not isinstance(found, list) or not all(type(item) in (int, str) for item in found):
        raise InvalidInputError(f"{name}: expected a flat JSON list of whole numbers", "a list like [18, 31]")
    return [str(item) for item in found]


def without_effect(architecture: Architecture, encoder_tokens: int | None, image_tokens: int) -> list[str]:
    """Warnings about positions beside the stream that no layer of this model reads."""
    read = {held.state.scope.kind for held in architecture.states}
    told = []
    if encoder_tokens is not None and "source" not in read:
        told.append("--encoder-tokens has no effect: no layer here attends to an encoder's output")
    if image_tokens and "image" not in read:
        told.append(
            "--image-tokens has no effect: no layer here attends to images beside the text; where images are tokens of "
            "the sequence, count them in --tokens"
        )
    return told


OptionalModel = Annotated[
    str | None,
    typer.Argument(metavar="[MODEL]", help="As in every verb; --params N stands in its place where there is none."),
]
Params = Annotated[
    int | None,
    typer.Option("--params", parser=count_of("params"), metavar="N", help="Parameters, for the rules of thumb."),
]
TrainTokens = Annotated[
    int | None,
    typer.Option("--train-tokens", parser=count_of("train-tokens"), metavar="D", help="Tokens of a whole run."),
]
Recomputed = Annotated[
    str, typer.Option("--recompute", parser=pick("recompute", "none", "selective", "full"), metavar="HOW",
                      help="What the backward pass computes again: none, selective (attention) or full (layers)."),
]  # fmt: skip


def one_of(model: str | None, params: int | None) -> None:
    """Either a model or a number of parameters."""
    if (model is None) == (params is None):
        raise typer.BadParameter("give MODEL, or --params N in its place")
