"""A DuckDB session with a memory limit, spilling to disk, progress reports, and queries that signals interrupt."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import duckdb

from dsgmcmc.errors import InputError
from dsgmcmc.parallel.machine import memory_limit

Report = Callable[[str, float], None]

_OVERHEAD = 200_000_000  # bytes for Python, its libraries and arrays
_PER_THREAD = 80_000_000  # bytes that a DuckDB thread needs to sort and join
MINIMUM = 400_000_000
_SECONDS = 0.2  # between two progress reports
_SPILL = ".dsgmcmc-prepare-"


def parse_bytes(text: str) -> int:
    """Parse a size such as ``2GB``, ``512MiB`` or ``1e9``."""
    match = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(i?)b?\s*", text, flags=re.IGNORECASE)
    try:
        if match is None:
            raise ValueError
        base = 1024 if match[3] else 1000
        return int(float(match[1]) * base ** " kmgt".index(match[2].lower() or " "))
    except ValueError:
        raise InputError(f"{text!r} is not a size: expected, for example, 2GB or 512MB") from None


def default_memory() -> int:
    """Return 60 % of the bytes that this process may use."""
    return int(0.6 * memory_limit())


@contextlib.contextmanager
def open_session(
    parent: Path, memory: int, threads: int | None = None, report: Report = lambda stage, fraction: None
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Watch]]:
    """Open DuckDB in memory, spilling to a folder in `parent` that is removed at the end.

    Raises InputError if memory or disk space does not suffice, on entry or within the context, and KeyboardInterrupt if
    a signal interrupts a query within the context.

    Parameters
    ----------
    memory : int
        Limit on the memory of the whole process, in bytes.
    threads : int or None
        Default: the processors that the process may use, or fewer if memory is small.
    """
    if memory < MINIMUM:
        raise InputError(
            f"{memory / 1e6:.0f} MB of memory are not enough; at least {MINIMUM / 1e6:.0f} MB are needed (--memory)"
        )
    limit = int(0.8 * (memory - _OVERHEAD))
    try:
        scratch = tempfile.TemporaryDirectory(prefix=_SPILL, dir=parent)
    except OSError as error:
        raise InputError(f"cannot write in the folder {parent}: {error.strerror}") from error
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{limit}B",
        "threads": threads or min(len(os.sched_getaffinity(0)), limit // _PER_THREAD),
        "temp_directory": scratch.name,
        "autoinstall_known_extensions": False,  # never download extensions
    }
    try:
        with scratch, duckdb.connect(config=settings) as connection, Watch(connection, report) as watch:
            connection.execute("SET TimeZone = 'UTC'")
            yield connection, watch
    except duckdb.OutOfMemoryException as error:
        raise InputError(
            f"{memory / 1e6:.0f} MB of memory, or the space in {parent}, are not enough; "
            f"raise --memory or set --temp-dir to a larger disk ({str(error).splitlines()[0]})"
        ) from error
    except duckdb.IOException as error:
        raise InputError(f"reading or spilling to {parent} failed: {in_short(error)}") from error


@contextlib.contextmanager
def reading(shown: str | Path, explain: Callable[[str], str] = str) -> Iterator[None]:
    """Turn DuckDB's errors about a file that is read within the context into an InputError of one line.

    `explain` may reword DuckDB's message. Errors in spilling, which `open_session` reports, and interruptions pass
    unchanged.
    """
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        why = str(error).splitlines()[0]
        raise InputError(
            f"{shown} needs more memory, or more space for temporary files, than there is ({why})"
        ) from error
    except (duckdb.Error, RuntimeError) as error:  # RuntimeError: column names that are not UTF-8
        if _SPILL in str(error) or _interrupted(error):
            raise
        raise InputError(f"{shown} cannot be read: {explain(str(error).strip()).splitlines()[0]}") from error


def in_short(error: duckdb.Error) -> str:
    """Return the system error behind a DuckDB error, if known, otherwise the first line of the error."""
    number = re.search(r'"errno":"(\d+)"', str(error))
    return os.strerror(int(number[1])) if number else str(error).splitlines()[0]


class Watch:
    """A thread that watches the queries of a connection. Use as a context manager in the main thread.

    DuckDB looks for signals only between its tasks, which may last minutes. Python writes the number of a
    signal to a socket at once, whatever the main thread does; the watching thread reads it and interrupts the query.

    Parameters
    ----------
    report : callable(stage, fraction of the whole work that is done)
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, report: Report) -> None:
        self._connection, self._report = connection, report
        self._stage: tuple[str, float, float] = ("starting", 0.0, 0.0)
        self._done = 0.0
        self._thread = threading.Thread(target=self._run, name="dsgmcmc-prepare-watch", daemon=True)
        self._here, self._there = socket.socketpair()
        self._main = threading.current_thread() is threading.main_thread()

    def stage(self, name: str, start: float, stop: float) -> None:
        """Begin a stage that takes the work from fraction `start` to fraction `stop`."""
        self._stage = (name, start, stop)
        self._done = max(self._done, start)
        self._report(name, self._done)

    def __enter__(self) -> Watch:
        if self._main:  # Python handles signals only in the main thread
            self._there.setblocking(False)
            self._wakeup = signal.set_wakeup_fd(self._there.fileno(), warn_on_full_buffer=False)
        self._here.settimeout(_SECONDS)
        with contextlib.suppress(duckdb.InvalidInputException):  # in a notebook without ipywidgets
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
        if _interrupted(error):
            raise KeyboardInterrupt from error

    def _run(self) -> None:
        while True:
            try:
                number = self._here.recv(1)
            except TimeoutError:
                name, start, stop = self._stage
                done = self._connection.query_progress()  # per cent; negative if unknown
                if done > 0:  # never backwards, though a stage may have several queries
                    self._done = max(self._done, start + (stop - start) * done / 100)
                    self._report(name, self._done)
                continue
            if not number:
                return
            if number[0] in (signal.SIGINT, signal.SIGTERM):
                self._connection.interrupt()


def _interrupted(error: BaseException | None) -> bool:
    """Whether a signal ended a query."""
    return isinstance(error, duckdb.InterruptException) or (type(error) is RuntimeError and "interrupted" in str(error))


def memory_of(connection: duckdb.DuckDBPyConnection) -> int:
    """Memory limit of the queries of a connection, in bytes."""
    return parse_bytes(connection.execute("SELECT current_setting('memory_limit')").fetchall()[0][0])


def identifier(name: str) -> str:
    """Quote a column name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a text for SQL."""
    return "'" + text.replace("'", "''") + "'"
