"""Watches DuckDB at work: shows how far a query is, and ends it at a signal."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable
from types import TracebackType

import duckdb

Report = Callable[[str, float], None]
_SECONDS = 0.2  # between two looks


class Watch:
    """A thread beside the queries of a connection. Use as a context manager in the main thread.

    DuckDB looks for signals only between its tasks, which may last minutes. Python writes the number of a
    signal to a socket at once, whatever the main thread does; this thread reads it and interrupts the query.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
    report : callable(stage, fraction of the whole that is done)
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, report: Report) -> None:
        self._connection, self._report = connection, report
        self._stage: tuple[str, float, float] = ("starting", 0.0, 0.0)
        self._done = 0.0
        self._thread = threading.Thread(target=self._run, name="dsgmcmc-prepare-watch", daemon=True)
        self._here, self._there = socket.socketpair()
        self._main = threading.current_thread() is threading.main_thread()

    def stage(self, name: str, start: float, stop: float) -> None:
        """Say that a stage begins which goes from `start` to `stop` of the whole."""
        self._stage = (name, start, stop)
        self._done = max(self._done, start)
        self._report(name, self._done)

    def __enter__(self) -> Watch:
        if self._main:  # elsewhere signals cannot be handled
            self._there.setblocking(False)
            self._wakeup = signal.set_wakeup_fd(self._there.fileno(), warn_on_full_buffer=False)
        self._here.settimeout(_SECONDS)
        # DuckDB counts, we show
        self._connection.execute("SET enable_progress_bar = true; SET enable_progress_bar_print = false")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._main:
            signal.set_wakeup_fd(self._wakeup)
        self._there.close()  # ends the thread
        self._thread.join()
        self._here.close()
        if isinstance(error, duckdb.InterruptException) or ("interrupted" in str(error) and kind is RuntimeError):
            raise KeyboardInterrupt from error

    def _run(self) -> None:
        while True:
            try:
                number = self._here.recv(1)
            except TimeoutError:
                name, start, stop = self._stage
                done = self._connection.query_progress()  # per cent; negative where it is not known
                if done > 0:  # never back: a stage may have several queries
                    self._done = max(self._done, start + (stop - start) * done / 100)
                    self._report(name, self._done)
                continue
            if not number:
                return
            if number[0] in (signal.SIGINT, signal.SIGTERM):
                self._connection.interrupt()
