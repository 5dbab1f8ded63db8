"""Requests to stop, received as signals.

The program installs the handlers before it imports anything slow, so this module imports nothing
slow either.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import IntEnum
from time import monotonic
from types import FrameType
from typing import Any

from dsgmcmc.errors import Exit

#: Seconds within which SIGINTs count as one Ctrl-C: the terminal and a launcher may each send one.
ONE_PRESS = 0.1
#: Signals for which a job has handlers.
HANDLED = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)

_interrupted_at = 0.0  # time of the last Ctrl-C


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handler that raises KeyboardInterrupt; a second Ctrl-C ends the process.

    During an import it ends the process, too, because C++ libraries abort with a traceback if an
    exception is raised while they are loaded.
    """
    global _interrupted_at
    previous = _interrupted_at
    _interrupted_at = monotonic()
    if previous:
        if _interrupted_at - previous >= ONE_PRESS:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        return
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, b"dsgmcmc: interrupted\n")
            os._exit(Exit.INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


_before_death: list[Callable[[], None]] = []


def before_death(clean_up: Callable[[], None]) -> None:
    """Have a function called before `Signals.borrowed` ends the process by a signal.

    Functions of `atexit` are not called then.
    """
    _before_death.append(clean_up)


def _deliver(number: int) -> None:
    """Send a signal to this process, after the functions of `before_death` if it ends by it."""
    if signal.getsignal(number) == signal.SIG_DFL:
        for clean_up in _before_death:
            clean_up()
    signal.raise_signal(number)


class Request(IntEnum):
    """A request to a process; all processes of a chain follow the largest of their requests."""

    GO_ON = 0
    CHECKPOINT = 1
    STOP = 2
    INTERRUPT = 3


class Signals:
    """The largest request received as a signal: SIGUSR1 and SIGTERM stop, Ctrl-C interrupts.

    Attributes
    ----------
    request : Request
        The largest request so far.
    received : set of int
        Numbers of the signals received so far.
    """

    def __init__(self) -> None:
        self.request = Request.GO_ON
        self.received: set[int] = set()
        #: Called by the handlers, at every signal.
        self.on_signal: Callable[[], None] = lambda: None
        self._interrupted_at = 0.0
        self._second_handler: Any = signal.SIG_DFL  # handler of a second Ctrl-C

    def install(self) -> None:
        """Install the handlers; a second Ctrl-C ends the process at once."""
        signal.signal(signal.SIGUSR1, self._stop)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._interrupt)

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """Context with this object's handlers.

        At its end the caller's handlers return, and all received signals are delivered again: to
        the caller's handler or, without one, with their default effect, which ends the process.

        A second Ctrl-C goes to the caller's handler at once. Signals that the caller ignores remain
        ignored. Outside the main thread no handler is installed, because Python delivers signals
        only to the main thread.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        found = {number: signal.getsignal(number) for number in HANDLED}
        handlers = {
            number: handler
            for number, handler in found.items()
            if handler not in (None, signal.SIG_IGN)
        }
        self._second_handler = handlers.get(signal.SIGINT)
        try:
            for number in handlers:
                signal.signal(number, self._interrupt if number == signal.SIGINT else self._stop)
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            with ExitStack() as deliveries:  # a handler that raises does not hide other signals
                for received in self.received:
                    deliveries.callback(_deliver, received)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Handler that records a request to stop."""
        self.received.add(number)
        self.request = max(self.request, Request.STOP)
        self.on_signal()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handler that records a Ctrl-C, and passes a second one on."""
        if self.request != Request.INTERRUPT:
            self._interrupted_at = monotonic()
        elif monotonic() - self._interrupted_at >= ONE_PRESS:
            self.received.discard(number)
            signal.signal(number, self._second_handler)
            signal.raise_signal(number)
        self.received.add(number)
        self.request = Request.INTERRUPT
        self.on_signal()


_early: Signals | None = None


def install_early() -> None:
    """Install the handlers at the beginning of the program; `installed` returns their `Signals`."""
    global _early
    _early = Signals()
    _early.install()


def installed() -> Signals:
    """Return the `Signals` of `install_early`, or new ones, with their handlers installed."""
    global _early
    signals = Signals() if _early is None else _early
    _early = None
    signals.install()
    return signals
