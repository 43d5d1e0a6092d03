"""Where a report goes: stdout or a file, in the form that was asked for; warnings go to stderr."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import typer

from llmcalc.cli.streams import PLAIN, complain, plain, say
from llmcalc.errors import OutputError
from llmcalc.report.report import Report
from llmcalc.sources.raw import Provenance


@dataclass(frozen=True, slots=True)
class Form:
    """How a report is wanted: at most one form; a file that cannot be written is refused before anything is computed.

    Raises: typer.BadParameter, and as the file's own errors say.
    """

    json: bool = False
    csv: bool = False
    markdown: bool = False
    output: Path | None = None
    force: bool = False
    explain: bool = False

    @property
    def file(self) -> Path | None:
        """The file to write; None for standard output, which ``-`` means too."""
        return None if self.output is None or str(self.output) in ("-", "/dev/stdout") else self.output

    def __post_init__(self) -> None:
        if self.json + self.csv + self.markdown > 1:
            raise typer.BadParameter("--json, --csv and --markdown exclude each other")
        if self.file is not None:
            writable(self.file, force=self.force)


def model_block(provenance: Provenance) -> Mapping[str, object]:
    """The ``model`` object of a document; what was asked of its config beside goes to the inputs by :func:`emit`."""
    return {
        "name": provenance.name,
        "source": provenance.source,
        "revision": provenance.revision,
        "sha256": provenance.sha256,
        "origin": provenance.origin,
        "asked": provenance.asked,
    }


def emit(report: Report, form: Form) -> None:
    """Write a report in its form; results on stdout (or in the file), warnings on stderr."""
    report = _with_what_was_asked(report)
    text = _render(report, form)
    if form.file is not None:
        write_whole(form.file, text, force=form.force)
    for warning in report.warnings:
        complain(f"warning: {warning}\n")
    if form.file is None:
        say(text)


def _with_what_was_asked(report: Report) -> Report:
    """Overrides of the config among the inputs, and in a line under the first where there are any."""
    if report.model is None or "asked" not in report.model:
        return report
    asked = report.model["asked"]
    assert asked is None or isinstance(asked, Mapping)
    block = {key: value for key, value in report.model.items() if key != "asked"}
    told = {"set": {}, "as": None, "source": None} if asked is None else dict(asked)
    changes = told["set"]
    assert isinstance(changes, Mapping)
    said = [f"with {', '.join(f'{name} = {_value(value)}' for name, value in changes.items())}"] if changes else []
    said += [f"read as {told['as']}"] if told["as"] else []
    head = (*report.headline[:1], *(["; ".join(said)] if said else []), *report.headline[1:])
    return report._replace(model=block, inputs={**report.inputs, **told}, headline=head)


def _value(value: object) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


def _render(report: Report, form: Form) -> str:
    from llmcalc import __version__
    from llmcalc.report import render

    poor = form.file is None and plain(sys.stdout)
    if form.json:
        return render.as_json(report, version=__version__, explain=form.explain, ascii_only=poor)
    if form.csv:
        return render.as_csv(report)
    if form.markdown:
        text = render.as_markdown(report, explain=form.explain)
    else:
        terminal = form.file is None and sys.stdout is not None and sys.stdout.isatty()
        width = terminal_width() if terminal or os.environ.get("COLUMNS") else None
        color = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        text = render.as_text(report, width=width, color=color, explain=form.explain)
    return text.translate(PLAIN) if poor else text


def terminal_width() -> int:
    """Columns of the terminal, or what COLUMNS says."""
    try:
        return max(20, int(os.environ["COLUMNS"]))
    except (KeyError, ValueError):
        try:
            return max(20, os.get_terminal_size().columns)
        except OSError:
            return 100


def writable(path: Path, *, force: bool) -> os.stat_result | None:
    """The file that is there now, None for none.

    Raises: OutputError where it is no plain file, or may not be overwritten.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OutputError(f"{path} could not be written: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no plain file (a device, a pipe or a socket)"
        raise OutputError(f"{path} is {kind}", "name a file, or send standard output there with >")
    if not force:
        raise OutputError(f"{path} exists already", "give --force to overwrite it")
    return found


def write_whole(path: Path, text: str, *, force: bool) -> None:
    """Write a file whole or not at all; a link is followed, a file that is overwritten keeps its mode and owner.

    Raises: OutputError.
    """
    old = writable(path, force=force)
    target = Path(os.path.realpath(path))
    try:
        _replace(target, text, old)
    except OSError as error:
        raise OutputError(f"{path} could not be written: {error.strerror}") from None


def _replace(target: Path, text: str, old: os.stat_result | None) -> None:
    import tempfile

    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        if old is None:
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(name, 0o666 & ~umask)
        else:
            if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                _keep_owner(name, old)
            os.chmod(name, stat.S_IMODE(old.st_mode))
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def _keep_owner(name: str, old: os.stat_result) -> None:
    """As far as this user may."""
    with suppress(OSError):
        os.chown(name, old.st_uid, old.st_gid)
