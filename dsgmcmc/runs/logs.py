"""Where messages go: process 0's to the terminal, every process's to a file of its own where one asks for it."""

from __future__ import annotations

import logging
import sys
from pathlib import Path


class _Terminal(logging.Formatter):
    """Warnings say that they are; other messages are plain."""

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        return f"{record.levelname.lower()}: {text}" if record.levelno >= logging.WARNING else text


def start_logs(rank: int, level: str, directory: Path | None) -> None:
    """Set up the messages of this process.

    Parameters
    ----------
    rank : int
        Number of this process; only process 0 writes to the terminal, so that nothing is said P times.
    level : {"debug", "info", "warning"}
        The least that is said.
    directory : Path or None
        Where ``process-00000.log`` and so on are appended to, with times; made if need be.

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
    if rank == 0:
        handlers.append(logging.StreamHandler(sys.stderr))
        handlers[0].setFormatter(_Terminal())
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(directory / f"process-{rank:05d}.log", encoding="utf-8"))
        handlers[-1].setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    for handler in handlers or [logging.NullHandler()]:
        logger.addHandler(handler)


def stop_logs() -> None:
    """Close the files of an earlier `start_logs` of this process."""
    logger = logging.getLogger("dsgmcmc")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
