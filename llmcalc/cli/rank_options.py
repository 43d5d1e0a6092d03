"""How a model is spread over devices, and how it is stored: options of the verbs that ask what devices can do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from llmcalc.calc.weight_shards import Ranks
from llmcalc.cli import options as opt
from llmcalc.errors import InvalidInputError
from llmcalc.units import parse_size

Ep = Annotated[
    int, typer.Option("--ep", parser=opt.whole("ep"), metavar="N", help="Expert-parallel ranks; divides tp x dp.")
]
Dp = Annotated[
    int, typer.Option("--dp", parser=opt.whole("dp"), metavar="N", help="Replicas; sequences are those of one.")
]
Weights = Annotated[str, typer.Option("--weights", metavar="FORMAT", help="config, bf16, fp8, gptq, nf4, q4_k_m ...")]
GroupSize = Annotated[
    int | None,
    typer.Option("--group-size", parser=opt.whole("group-size", -1), metavar="N",
                 help="Values of a group; -1: a whole row."),
]  # fmt: skip
Cache = Annotated[str, typer.Option("--cache", metavar="FORMAT", help="Keys and values: auto, bf16, fp8, K:V ...")]
BatchedTokens = Annotated[
    int | None,
    typer.Option("--max-batched-tokens", parser=opt.tokens_of("max-batched-tokens"), metavar="N",
                 help="Of one pass; prompts are cut to it."),
]  # fmt: skip
SharedPrefix = Annotated[
    int,
    typer.Option("--shared-prefix", parser=opt.tokens_of("shared-prefix", 0), metavar="N",
                 help="First tokens that all sequences have in common, cached once."),
]  # fmt: skip
OutFile = Annotated[Path | None, typer.Option("-o", "--output-file", help="Write there.", rich_help_panel=opt.OUTPUT)]
OutputTokens = Annotated[
    int, typer.Option("--output", parser=opt.tokens_of("output"), metavar="N", help="Tokens that a request generates.")
]
Prompt = Annotated[
    int | None,
    typer.Option("--prompt", parser=opt.tokens_of("prompt"), metavar="N", help="Of a request; by default --tokens."),
]


def ranks(gpus: int | None, tp: int, pp: int, ep: int, dp: int) -> Ranks:
    """The degrees; ``--gpus`` alone means ``--tp``, beside degrees it has to agree with them.

    Raises: InvalidInputError.
    """
    found = Ranks(tp, pp, ep, dp)
    if gpus is not None and (tp, pp, dp) == (1, 1, 1):
        found = found._replace(tp=gpus)
    elif gpus is not None and gpus != tp * pp * dp:
        raise InvalidInputError(f"--gpus {gpus} is not tp x pp x dp = {tp} x {pp} x {dp} = {tp * pp * dp}")
    found.check()
    return found


def size_of(name: str) -> Callable[[str | int], int]:
    """The parser of an option that takes a size; ``0`` is one."""

    def read(text: str | int) -> int:
        try:
            return parse_size(str(text))
        except InvalidInputError as error:
            raise typer.BadParameter(f"--{name}: {error.message}") from None

    return read
