"""Where messages go: process 0's to the terminal, every process's to a file of its own where one asks for it."""

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
    """One line a message, whatever names are in it."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return plain(super().formatMessage(record))


class _Terminal(logging.Formatter):
    """Warnings say that they are."""

    def format(self, record: logging.LogRecord) -> str:
        text = plain(record.getMessage())
        return f"{record.levelname.lower()}: {text}" if record.levelno >= logging.WARNING else text


class _File(logging.FileHandler):
    """A log that is left once it cannot be written, which is said once."""

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        logger = logging.getLogger("dsgmcmc")
        logger.removeHandler(self)
        with suppress(OSError):
            self.close()
        logger.warning("%s cannot be written any more: %s", self.baseFilename, getattr(error, "strerror", error))


class LogErrors:
    """What is done where a line of a run's logs cannot be written: the job stops after a checkpoint, or goes on.

    Parameters
    ----------
    signals : Signals
        By which this process asks all others to stop.
    go_on : bool
        Whether the job goes on without the line, and says so once.
    """

    def __init__(self, signals: Signals, go_on: bool) -> None:
        self._signals, self._go_on = signals, go_on
        self._first: OSError | None = None

    def __call__(self, error: OSError) -> None:
        """Take note of an error."""
        if self._first is None and self._go_on:
            log.warning("%s; the run goes on without what cannot be logged", failed_file(error))
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
        Number of this process; only process 0 writes to the terminal, so that nothing is said P times.
    level : {"debug", "info", "warning"}
        The least that is said.
    directory : Path or None
        Where ``process-00000.log`` and so on are appended to, with times; made if need be.
    quiet : bool
        Whether nothing goes to the terminal.

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
    """Context in which `start_logs` may be called."""
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
    """Close the files of an earlier `start_logs` of this process."""
    logger = logging.getLogger("dsgmcmc")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
