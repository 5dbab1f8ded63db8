"""Requests to stop that come as signals. Imports nothing heavy: they are taken over before everything else."""

from __future__ import annotations

import signal
from enum import IntEnum
from typing import Any


class Request(IntEnum):
    """What a process wants; the largest request of any process is done by all."""

    GO_ON = 0
    CHECKPOINT = 1
    STOP = 2
    INTERRUPT = 3


class Signals:
    """The last request that came as a signal: SIGUSR1 and SIGTERM stop, Ctrl-C interrupts."""

    def __init__(self) -> None:
        self.request = Request.GO_ON

    def install(self) -> None:
        """Take over the signals; a second Ctrl-C ends the process at once."""
        signal.signal(signal.SIGUSR1, self._stop)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._interrupt)

    def _stop(self, *_: Any) -> None:
        self.request = max(self.request, Request.STOP)

    def _interrupt(self, *_: Any) -> None:
        if self.request == Request.INTERRUPT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)
        self.request = Request.INTERRUPT


_early: Signals | None = None


def install_early() -> None:
    """Take over the signals at the very beginning of the program, for `installed` to find."""
    global _early
    _early = Signals()
    _early.install()


def installed() -> Signals:
    """Return the signals that were taken over early, with what came since, or take them over now."""
    global _early
    signals, _early = _early or Signals(), None
    signals.install()
    return signals
