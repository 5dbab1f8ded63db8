"""Where messages go: those of process 0 to the terminal and, on request, those of every process to its own file."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dsgmcmc.errors import WriteError, failed_file
from dsgmcmc.parallel.signals import Request, Signals
from dsgmcmc.settings import named
from dsgmcmc.terminal import plain

log = logging.getLogger(__name__)


class _OneLine(logging.Formatter):
    """One line per message, whatever characters it contains."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return plain(super().formatMessage(record))


class _Terminal(logging.Formatter):
    """Prefixes warnings and errors with their level."""

    def format(self, record: logging.LogRecord) -> str:
        text = plain(record.getMessage())
        return f"{record.levelname.lower()}: {text}" if record.levelno >= logging.WARNING else text


class _File(logging.FileHandler):
    """A log file that is closed, with one warning, once it cannot be written."""

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        logger = logging.getLogger("dsgmcmc")
        logger.removeHandler(self)
        with suppress(OSError):
            self.close()
        logger.warning("%s cannot be written any more: %s", self.baseFilename, getattr(error, "strerror", error))


class LogErrors:
    """Handles errors in writing a run's logs: the job stops after a checkpoint, or continues.

    Parameters
    ----------
    signals : Signals
        Through which this process asks all others to stop.
    go_on : bool
        Whether the job continues without the line, with one warning.
    """

    def __init__(self, signals: Signals, go_on: bool) -> None:
        self._signals, self._go_on = signals, go_on
        self._first: OSError | None = None

    def __call__(self, error: OSError) -> None:
        """Handle an error."""
        if self._first is None and self._go_on:
            log.warning("%s; the run goes on, and these lines are lost", failed_file(error))
        self._first = self._first or error
        if not self._go_on:
            self._signals.request = max(self._signals.request, Request.STOP)

    def check(self) -> None:
        """Raise a WriteError if the job was stopped."""
        if self._first is not None and not self._go_on:
            said = failed_file(self._first)
            raise WriteError(f"{said}; stopped after a checkpoint: go on with {named('resume')} once it can be written")


def start_logs(rank: int, level: str, directory: Path | None, quiet: bool = False) -> None:
    """Set up the messages of this process.

    Parameters
    ----------
    rank : int
        Number of this process; only process 0 writes to the terminal.
    level : {"debug", "info", "warning"}
        Least severe level that is logged.
    directory : Path or None
        Folder of ``process-00000.log`` and so on, which are appended to, with times; created if it does not exist.
    quiet : bool
        Whether to write nothing to the terminal.

    Raises
    ------
    OSError
        If the file cannot be opened.
    """
    logger = logging.getLogger("dsgmcmc")
    stop_logs()
    logger.setLevel(level.upper())
    logger.propagate = False
    handlers: list[logging.Handler] = []
    if rank == 0 and not quiet:
        handlers.append(logging.StreamHandler(sys.stderr))
        handlers[0].setFormatter(_Terminal())
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        handlers.append(_File(directory / f"process-{rank:05d}.log", encoding="utf-8"))
        handlers[-1].setFormatter(_OneLine("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
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
