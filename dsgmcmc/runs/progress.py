"""Messages and progress on process 0 during sampling.

Progress is one live line on a terminal or in a notebook, and plain lines elsewhere.
"""

from __future__ import annotations

import html
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

from rich.live import Live

from dsgmcmc.diagnostics.verdict import in_units, written
from dsgmcmc.errors import WriteError, failed_file
from dsgmcmc.parallel.signals import Request, Signals
from dsgmcmc.settings import named
from dsgmcmc.terminal import console, plain, say

PLAIN_SECONDS, LIVE_SECONDS = 5.0, 0.5
#: Metrics to show besides the RMSE, if present: name and format.
SHOWN_METRICS = (("tau", "{:.4g}".format), ("energy", "{:.6g}".format))


def folded(parts: Sequence[str], width: int) -> str:
    """Join parts into lines of at most `width` characters, broken only between parts."""
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]}  {part}" if lines[-1] else part
        lines = [*lines[:-1], longer] if len(longer) <= width or not lines[-1] else [*lines, f"  {part}"]
    return "\n".join(lines)


class NotebookLine:
    """A progress bar and a line of text in the output of a notebook cell; every new line replaces the last."""

    def __init__(self) -> None:
        self._shown: Any = None

    def __call__(self, text: str) -> None:
        """Show a line."""
        from IPython.display import display  # installed wherever a notebook runs

        done = re.search(r"iteration (\d+)/(\d+)", text)
        bar = "<progress" + (f' value="{done[1]}" max="{done[2]}"' if done else "") + "></progress>"
        line = {"text/plain": text, "text/html": f"{bar} {html.escape(text)}"}
        if self._shown is None:
            self._shown = display(line, raw=True, display_id=True)
        else:
            self._shown.update(line, raw=True)


def notebook_line() -> NotebookLine | None:
    """A `NotebookLine` if this process runs in a notebook, else None."""
    return NotebookLine() if console(stderr=True).is_jupyter else None


def _plain(text: str) -> None:
    say(text, file=sys.stderr)


def _unseen(text: str) -> None:
    pass


class Progress:
    """Shows the metrics of chains while they are sampled. Use as a context manager.

    Parameters
    ----------
    iterations : int
        Total number of iterations.
    data : float
        Number of ratings that an iteration uses.
    quiet : bool
        Whether to show nothing.
    """

    def __init__(self, iterations: int, data: float, quiet: bool = False) -> None:
        self._iterations, self._data = iterations, data
        shown = console(stderr=True)
        live = shown.is_terminal and not quiet
        self._live = Live(console=shown, refresh_per_second=8, transient=False) if live else None
        replaced = notebook_line()
        self._show: Callable[[str], None] = _unseen if quiet else replaced or _plain
        self._seconds = LIVE_SECONDS if replaced else PLAIN_SECONDS
        self._last = 0.0
        #: Accuracy at the last check of all chains; empty before the first check.
        self.look = ""
        self._unsaid = ""
        self._from: tuple[int, float] | None = None

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        elif self._seconds == LIVE_SECONDS:
            self._show("starting")
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live:
            self._live.stop()
        elif self._unsaid:
            self._say(self._unsaid)

    def __call__(self, line: dict[str, Any]) -> None:
        """Show a line of metrics."""
        if self._from is None or line["iteration"] < self._from[0]:
            self._from = (line["iteration"], line["time_s"])
        parts = self._parts(line)
        text = "  ".join(parts)
        if self._live:
            self._live.update(folded(parts, self._live.console.width))
        elif monotonic() - self._last > self._seconds or line["iteration"] >= self._iterations:
            self._say(text)
        else:
            self._unsaid = text

    def _say(self, text: str) -> None:
        self._last, self._unsaid = monotonic(), ""
        self._show(text)

    def _parts(self, line: dict[str, Any]) -> list[str]:
        first, since = self._from or (0, 0.0)
        done, elapsed = line["iteration"] - first, line["time_s"] - since
        speed = done / elapsed if elapsed > 0 else 0.0
        parts = [f"chain {line['chain']}", f"iteration {line['iteration']}/{self._iterations}"]
        if self.look:
            parts.append(self.look)
        errors = (("rmse", "this draw"), ("rmse_mean", "posterior mean"))
        shown = [f"{label} {written(line[name])}" for name, label in errors if line.get(name) is not None]
        parts += [f"RMSE: {', '.join(shown)}"] if shown else []
        parts += [f"{name} {write(line[name])}" for name, write in SHOWN_METRICS if line.get(name) is not None]
        if speed:
            left = (self._iterations - line["iteration"]) / speed
            most = "at most " if self.look else ""
            parts += [f"{in_units(speed * self._data)} ratings/s", f"{most}{left:.0f} s left"]
        return parts


# ---------------------------------------------------------------------- messages


class _Terminal(logging.Formatter):
    """Prefixes warnings and errors with their level."""

    def format(self, record: logging.LogRecord) -> str:
        text = plain(record.getMessage())
        return f"{record.levelname.lower()}: {text}" if record.levelno >= logging.WARNING else text


class LogErrors:
    """Handles errors in writing a run's logs: the job stops after a checkpoint.

    Parameters
    ----------
    signals : Signals
        Requests of this process, by which it asks all processes of its chain to stop.
    """

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._first: OSError | None = None

    def __call__(self, error: OSError) -> None:
        """Keep the first error, and request a stop."""
        self._first = self._first or error
        self._signals.request = max(self._signals.request, Request.STOP)

    def check(self) -> None:
        """Raise WriteError if an error was handled."""
        if self._first is not None:
            said = failed_file(self._first)
            raise WriteError(f"{said}; stopped after a checkpoint: go on with {named('resume')} once it can be written")


def start_logs(rank: int, quiet: bool = False) -> None:
    """Set up the messages of this process.

    Parameters
    ----------
    rank : int
        Number of this process; only process 0 writes to the terminal. In a notebook it writes only warnings.
    quiet : bool
        Whether to write nothing to the terminal.
    """
    logger = logging.getLogger("dsgmcmc")
    stop_logs()
    logger.setLevel(logging.WARNING if console(stderr=True).is_jupyter else logging.INFO)
    logger.propagate = False
    handlers: list[logging.Handler] = []
    if rank == 0 and not quiet:
        handlers.append(logging.StreamHandler(sys.stderr))
        handlers[0].setFormatter(_Terminal())
    for handler in handlers or [logging.NullHandler()]:
        logger.addHandler(handler)


@contextmanager
def logs_as_before() -> Iterator[None]:
    """Context that undoes `start_logs` at its end."""
    logger = logging.getLogger("dsgmcmc")
    level, propagate, handlers = logger.level, logger.propagate, list(logger.handlers)
    for handler in handlers:
        logger.removeHandler(handler)
    try:
        yield
    finally:
        stop_logs()
        logger.setLevel(level)
        logger.propagate = propagate
        for handler in handlers:
            logger.addHandler(handler)


def stop_logs() -> None:
    """Remove and close the handlers of an earlier `start_logs`."""
    logger = logging.getLogger("dsgmcmc")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
