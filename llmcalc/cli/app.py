"""The program: verbs that are imported when they are typed, and the one place where errors become messages."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from llmcalc.cli.quick import read_at_once
from llmcalc.cli.streams import abandon, complain, prepare, say
from llmcalc.errors import LlmcalcError

# verb -> (module, the question it answers); the module is imported only for its own verb and for --help.
VERBS: dict[str, str] = {
    "inspect": "inspect",
    "params": "params",
    "weights": "weights",
    "kv-cache": "kv_cache",
    "flops": "flops",
    "mfu": "mfu",
    "latency": "latency",
    "capacity": "capacity",
    "cost": "cost",
    "verify": "verify",
    "measure": "measure",
    "models": "models",
    "gpus": "gpus",
    "formats": "formats",
}


class VerbGroup(TyperGroup):
    """Lists verbs without importing them, suggests near misses, and catches every known error."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The verbs in the order of the documentation."""
        del ctx
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb's own command, imported now."""
        module = VERBS.get(cmd_name)
        if module is None:
            return None
        command = typer.main.get_command(import_module(f"llmcalc.cli.{module}").app)
        read_at_once(command.get_params(ctx))
        return command

    def get_params(self, ctx: Any) -> Any:
        """The program's own options, read without delay."""
        params = super().get_params(ctx)
        read_at_once(params)
        return params

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb to run; a near miss names the verb that was meant."""
        name = args[0] if args else ""
        if name and name not in VERBS and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name.lower().replace("_", "-"), VERBS, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}?" if near else f"verbs: {', '.join(VERBS)}"
            fail("usage", f"no such verb: {name}", hint)
            raise typer.Exit(2)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; a known error is one line and a hint on stderr, exit 1, and nothing on stdout."""
        try:
            return super().invoke(ctx)
        except LlmcalcError as error:
            fail(error.code, error.message, error.hint)
            raise typer.Exit(1) from None


def fail(code: str, message: str, hint: str = "") -> None:
    """Say an error on stderr."""
    complain(f"error[{code}]: {message}\n" + (f"hint: {hint}\n" if hint else ""))


app = typer.Typer(
    cls=VerbGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        from llmcalc import __version__

        say(f"llmcalc {__version__}\n")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Exact figures of language models from their public configs."""
    del version


def main() -> None:
    """Run the program; a closed pipe ends it quietly, an interrupt exits 130, a full disk is an error like others."""
    prepare()
    try:
        app()
    except BrokenPipeError:
        abandon()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except LlmcalcError as error:  # before a verb began
        fail(error.code, error.message, error.hint)
        sys.exit(1)
    except OSError as error:
        if error.filename is not None:  # about a file, which has its own errors: a bug
            raise
        abandon()
        fail("output", f"standard output could not be written: {error.strerror}")
        sys.exit(1)
