"""What a measurement leaves while it runs: its document after every stage, a line on stderr, a saved calibration."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import current_thread, main_thread

from llmcalc.cli.measure_report import report
from llmcalc.cli.output import Form, writable, write_whole
from llmcalc.cli.streams import complain
from llmcalc.errors import LlmcalcError, OutputError
from llmcalc.loading import Model
from llmcalc.measure.save import save
from llmcalc.measure.session import Session
from llmcalc.report import render

VARIABLE = "LLMCALC_MEASUREMENTS"


class Kept:
    """The document so far, in the file that was named for it, else among this user's measurements.

    form: how the answer is written at the end; over that file, which is the run's own by then.
    Raises: OutputError where the file that was named is there already, before anything is measured.
    """

    def __init__(self, model: Model, asked: dict[str, object], form: Form) -> None:
        self._model, self._asked = model, asked
        self.form = form
        self.written = False
        if form.file is not None:
            writable(form.file, force=form.force)
            if not os.access(form.file.parent, os.W_OK | os.X_OK):
                raise OutputError(f"{form.file} could not be written: no such folder, or none that may be written to")
        self.path: Path | None = form.file if form.file is not None and form.json else _own(model)
        if form.file is not None and form.json:
            self.form = replace(form, force=True)

    def write(self, session: Session) -> None:
        """Everything found until now; where it cannot be written the run goes on, and that is said."""
        if self.path is None:
            return
        from llmcalc import __version__

        text = render.as_json(report(self._model, session, self._asked), version=__version__, explain=False)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, text, force=True)
            self.written = True
        except (OSError, OutputError) as error:
            session.warnings.append(f"what was measured is not kept between stages: {error}")
            self.path = None

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """SIGTERM ends a run as Ctrl-C does; where it ends early, what is left of it is named."""

        def stop(*_: object) -> None:
            raise KeyboardInterrupt

        old = signal.signal(signal.SIGTERM, stop) if current_thread() is main_thread() else None
        try:
            yield
        except (KeyboardInterrupt, LlmcalcError) as error:
            if self.written:
                complain(f"what was measured until then is in {self.path}\n")
            elif isinstance(error, KeyboardInterrupt):
                complain("stopped before anything was measured\n")
            raise
        finally:
            if old is not None:
                signal.signal(signal.SIGTERM, old)


def _own(model: Model) -> Path:
    """A file of this run in ``LLMCALC_MEASUREMENTS``, by default the user's state folder."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    folder = Path(os.environ.get(VARIABLE) or f"{base}/llmcalc/measure").expanduser()
    name = "".join(char if char.isalnum() or char in "-._" else "-" for char in model.provenance.name)[-80:]
    return folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}-{name}.json"


def progress(text: str) -> None:
    """A line of progress, where somebody looks at it."""
    if sys.stderr is not None and sys.stderr.isatty():
        complain(f"{text} ...\n")


def saved(session: Session) -> tuple[str, ...]:
    """Keep the calibration; what was kept, and where, in words."""
    row, path = save(session)
    return (
        f"kept for latency and capacity on --gpu {row.device}: {row.overhead_seconds * 1e6:.1f} us a layer and "
        f"{100 * row.efficiency:.1f}% of {row.bandwidth_bytes_per_second:,} B/s, from {row.rows} shapes, mean error "
        f"{100 * row.residual:.1f}%, {row.date} ({path})",
    )
