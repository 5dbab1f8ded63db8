"""Where messages go: those of process 0 to the terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from dsgmcmc.errors import WriteError, failed_file
from dsgmcmc.parallel.signals import Request, Signals
from dsgmcmc.settings import named
from dsgmcmc.terminal import plain

log = logging.getLogger(__name__)


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
        Through which this process asks all others to stop.
    """

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._first: OSError | None = None

    def __call__(self, error: OSError) -> None:
        """Handle an error."""
        self._first = self._first or error
        self._signals.request = max(self._signals.request, Request.STOP)

    def check(self) -> None:
        """Raise a WriteError if the job was stopped."""
        if self._first is not None:
            said = failed_file(self._first)
            raise WriteError(f"{said}; stopped after a checkpoint: go on with {named('resume')} once it can be written")


def start_logs(rank: int, only_warnings: bool = False, quiet: bool = False) -> None:
    """Set up the messages of this process.

    Parameters
    ----------
    rank : int
        Number of this process; only process 0 writes to the terminal.
    only_warnings : bool
        Whether lesser messages are left out.
    quiet : bool
        Whether to write nothing to the terminal.
    """
    logger = logging.getLogger("dsgmcmc")
    stop_logs()
    logger.setLevel(logging.WARNING if only_warnings else logging.INFO)
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
