"""Where a report goes: stdout or a file, in the form that was asked for; warnings go to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import typer

from llmcalc.errors import OutputError
from llmcalc.report.report import Report
from llmcalc.sources.raw import Provenance


class Form(NamedTuple):
    """How a report is wanted."""

    json: bool = False
    csv: bool = False
    markdown: bool = False
    output: Path | None = None
    force: bool = False
    explain: bool = False

    def check(self) -> None:
        """At most one form; an existing file is refused before anything is computed."""
        if self.json + self.csv + self.markdown > 1:
            raise typer.BadParameter("--json, --csv and --markdown exclude each other")
        if self.output is not None and self.output.exists() and not self.force:
            raise OutputError(f"{self.output} exists already", "give --force to overwrite it")


def model_block(provenance: Provenance) -> Mapping[str, object]:
    """The ``model`` object of a document."""
    return {
        "name": provenance.name,
        "source": provenance.source,
        "revision": provenance.revision,
        "sha256": provenance.sha256,
        "origin": provenance.origin,
    }


def emit(report: Report, form: Form) -> None:
    """Write a report in its form; results on stdout (or in the file), warnings on stderr."""
    text = _render(report, form)
    for warning in report.warnings:
        sys.stderr.write(f"warning: {warning}\n")
    if form.output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_whole(form.output, text, force=form.force)


def _render(report: Report, form: Form) -> str:
    from llmcalc import __version__
    from llmcalc.report import render

    if form.json:
        return render.as_json(report, version=__version__, explain=form.explain)
    if form.csv:
        return render.as_csv(report)
    if form.markdown:
        return render.as_markdown(report, explain=form.explain)
    terminal = sys.stdout.isatty() and form.output is None
    width = terminal_width() if terminal or "COLUMNS" in os.environ else None
    color = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return render.as_text(report, width=width, color=color, explain=form.explain)


def terminal_width() -> int:
    """Columns of the terminal, or what COLUMNS says."""
    try:
        return max(40, int(os.environ["COLUMNS"]))
    except (KeyError, ValueError):
        try:
            return max(40, os.get_terminal_size().columns)
        except OSError:
            return 100


def write_whole(path: Path, text: str, *, force: bool) -> None:
    """Write a file whole or not at all.

    Raises: OutputError.
    """
    import tempfile

    try:
        if path.exists() and not force:
            raise OutputError(f"{path} exists already", "give --force to overwrite it")
        handle, name = tempfile.mkstemp(dir=path.parent or Path(), prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(name, 0o666 & ~umask)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise OutputError(f"{path} could not be written: {error.strerror}") from None
