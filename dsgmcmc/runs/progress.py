"""Shows messages and progress during sampling, on process 0.

Progress is one line that changes on a terminal or in a notebook, and successive lines elsewhere.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from rich.live import Live
from typing_extensions import override

from dsgmcmc.diagnostics.summary import in_units, written
from dsgmcmc.terminal import console, log, say

#: Seconds between successive lines of plain output.
PLAIN_SECONDS = 5.0
#: Seconds between changes of the line in a notebook.
NOTEBOOK_SECONDS = 0.5


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    return console(stderr=True).is_jupyter


class Progress:
    """Shows the metrics of chains while they are sampled.

    Call it, within its context, with every line of metrics.

    Parameters
    ----------
    iterations : int
        Number of iterations of a chain; with a target accuracy, the largest number.
    data : float
        Mean number of ratings that an iteration uses.
    quiet : bool
        Whether to show nothing.
    """

    def __init__(self, iterations: int, data: float, quiet: bool = False) -> None:
        self._iterations = iterations
        self._data = data
        self._quiet = quiet
        self._live: Live | None = None
        stderr = console(stderr=True)
        if stderr.is_terminal and not quiet:
            self._live = Live(console=stderr, refresh_per_second=8)
        self._notebook = in_notebook()
        self._said_at = 0.0
        self._unshown = ""
        #: Accuracy at the last check of all chains, as text; empty before the first check, or
        #: without checks.
        self.accuracy = ""
        #: Iteration and time of the line from which the speed is measured: the first line with the
        #: lowest iteration.
        self._first_line: tuple[int, float] | None = None

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live:
            self._live.stop()
        elif self._unshown:
            self._say(self._unshown)

    def __call__(self, line: dict[str, Any]) -> None:
        """Show a line of metrics, unless an earlier line was shown too recently."""
        if self._first_line is None or line["iteration"] < self._first_line[0]:
            self._first_line = (line["iteration"], line["time_s"])
        text = self._text(line)
        seconds = NOTEBOOK_SECONDS if self._notebook else PLAIN_SECONDS
        if self._live:
            self._live.update(text)
        elif monotonic() - self._said_at > seconds or line["iteration"] >= self._iterations:
            self._say(text)
        else:
            self._unshown = text

    def _say(self, text: str) -> None:
        self._said_at = monotonic()
        self._unshown = ""
        if self._quiet:
            return
        if self._notebook:
            print(f"\r{text}", end="", file=sys.stderr, flush=True)
        else:
            say(text, file=sys.stderr)

    def _text(self, line: dict[str, Any]) -> str:
        parts = [f"chain {line['chain']}", f"iteration {line['iteration']}/{self._iterations}"]
        if self.accuracy:
            parts.append(self.accuracy)
        rmses = [
            f"{label} {written(line[name])}"
            for name, label in (("rmse", "this draw"), ("rmse_mean", "all draws"))
            if line.get(name) is not None
        ]
        if rmses:
            parts.append(f"RMSE: {', '.join(rmses)}")
        if line.get("tau") is not None:
            parts.append(f"tau {line['tau']:.4g}")
        speed = self._speed(line)
        if speed:
            parts.append(f"{in_units(speed * self._data)} ratings/s")
            left = f"{(self._iterations - line['iteration']) / speed:.0f} s left"
            parts.append(f"at most {left}" if self.accuracy else left)
        return "  ".join(parts)

    def _speed(self, line: dict[str, Any]) -> float:
        """Return the iterations per second since the first line; 0 if it is not known yet."""
        first_iteration, first_time = self._first_line or (0, 0.0)
        elapsed: float = line["time_s"] - first_time
        if elapsed <= 0:
            return 0.0
        return float((line["iteration"] - first_iteration) / elapsed)


# ---------------------------------------------------------------------- messages


class _Terminal(logging.Formatter):
    """Prefixes warnings and errors with their level."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            return f"{record.levelname.lower()}: {text}"
        return text


@contextmanager
def logs(rank: int, quiet: bool = False) -> Iterator[None]:
    """Context in which this process writes its messages to the terminal.

    At its end the logger is as before.

    Parameters
    ----------
    rank : int
        Number of this process; only process 0 writes. In a notebook, it writes only warnings and
        errors.
    quiet : bool
        Whether to write nothing.
    """
    level = log.level
    propagate = log.propagate
    handlers = log.handlers
    handler: logging.Handler = logging.NullHandler()
    if rank == 0 and not quiet:
        handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Terminal())
    log.setLevel(logging.WARNING if in_notebook() else logging.INFO)
    log.propagate = False
    log.handlers = [handler]
    try:
        yield
    finally:
        log.propagate = propagate
        log.handlers = handlers
        log.setLevel(level)
