"""DuckDB sessions: they keep to a memory limit, spill to disk, and are interrupted by signals."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from pathlib import Path
from typing import TypeVar

import duckdb
from pydantic import ByteSize, TypeAdapter, ValidationError

from dsgmcmc.errors import InputError, refusing, writing
from dsgmcmc.parallel.machine import memory_for_data
from dsgmcmc.settings import named
from dsgmcmc.storage.files import remove_folder

T = TypeVar("T")
#: An open session, in which SQL is executed.
Session = duckdb.DuckDBPyConnection

_OVERHEAD_BYTES = 200_000_000  # bytes for Python, its libraries and arrays
_THREAD_BYTES = 80_000_000  # bytes that a DuckDB thread needs to sort and join
MIN_MEMORY = 400_000_000  # smallest memory limit in bytes
_IN_UTC = "SET TimeZone = 'UTC'"  # the zone of times that are written without one
_SPILL_PREFIX = ".dsgmcmc-prepare-"


def parse_bytes(text: str) -> int:
    """Parse a size such as ``2GB``, ``512MiB`` or ``1000000000``, in bytes."""
    if text.isdecimal():
        return int(text)
    with refusing(f"{text!r} is no size (for example, 2GB or 512MB)", ValidationError):
        return int(TypeAdapter(ByteSize).validate_python(text))


@contextlib.contextmanager
def open_small_session() -> Iterator[Session]:
    """Open DuckDB in memory for a small table: without a memory limit, and without spilling."""
    with duckdb.connect() as connection:
        connection.execute(_IN_UTC)
        yield connection


@contextlib.contextmanager
def open_session(parent: Path, memory: int | str | None = None) -> Iterator[Session]:
    """Open DuckDB in memory, spilling to a folder in `parent` that is removed at the end.

    Raises InputError, on entry or within the context, if memory or disk space does not suffice.
    Raises KeyboardInterrupt if a signal interrupts a query within the context.

    Parameters
    ----------
    memory : int or str
        Limit on the memory of the whole process, in bytes or as ``2GB``; default 60 % of the memory
        that it may use.
    """
    if memory is None:
        memory = memory_for_data()
    if isinstance(memory, str):
        memory = parse_bytes(memory)
    memory = min(memory, 1 << 50)
    if memory < MIN_MEMORY:
        raise InputError(
            f"{memory / 1e6:.0f} MB of memory are not enough: {MIN_MEMORY / 1e6:.0f} MB are needed"
            f" ({named('memory')})"
        )
    limit = int(0.8 * (memory - _OVERHEAD_BYTES))
    scratch = parent / f"{_SPILL_PREFIX}{secrets.token_hex(8)}"
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{limit}B",
        "threads": min(len(os.sched_getaffinity(0)), limit // _THREAD_BYTES),
        "temp_directory": str(scratch),
        "autoinstall_known_extensions": False,  # never download extensions
    }
    try:  # begins before the folder is made, because a signal may arrive at any moment
        with writing(parent):
            scratch.mkdir(mode=0o700)
        with duckdb.connect(config=settings) as connection:
            connection.execute(_IN_UTC)
            yield connection
    except duckdb.OutOfMemoryException as error:
        raise InputError(
            f"{memory / 1e6:.0f} MB of memory, or the free space in {parent}, are not enough: raise"
            f" {named('memory')}, or write to a larger disk ({system_reason(error)})"
        ) from error
    except duckdb.IOException as error:
        raise InputError(
            f"reading or spilling to {parent} failed: {system_reason(error)}"
        ) from error
    except (duckdb.InterruptException, RuntimeError) as error:
        if _interrupted(error):
            raise KeyboardInterrupt from error
        raise
    finally:
        remove_folder(scratch)


def interruptible(connection: Session, work: Callable[[], T]) -> T:
    """Do `work` in another thread and return its result.

    If a signal raises an exception in the calling thread, the queries of `work` are interrupted. If
    the calling thread ran the queries itself, Python would handle signals only between DuckDB's
    tasks, and a task may last minutes.
    """
    with ThreadPoolExecutor(1) as pool:
        # in the context of the calling thread, messages name settings as there
        future = pool.submit(copy_context().run, work)
        try:
            while not future.done():
                wait([future], 0.1)  # handlers of signals run between two waits
            return future.result()
        finally:
            while not future.done():
                connection.interrupt()
                wait([future], 0.05)


@contextlib.contextmanager
def reading(name: str | Path) -> Iterator[None]:
    """Context in which DuckDB reads a file: an error becomes an InputError that begins with `name`.

    Errors in spilling, which `open_session` reports, and interruptions pass through unchanged.
    """
    try:
        yield
    except (duckdb.Error, RuntimeError) as error:
        # DuckDB raises RuntimeError for column names that are not UTF-8
        if _SPILL_PREFIX in str(error) or _interrupted(error):
            raise
        raise InputError(f"{name} cannot be read: {str(error).strip().splitlines()[0]}") from error


def system_reason(error: duckdb.Error) -> str:
    """Return the system error behind a DuckDB error if it is known, or else its first line."""
    number = re.search(r'"errno":"(\d+)"', str(error))
    if number:
        return os.strerror(int(number[1]))
    return str(error).splitlines()[0]


def _interrupted(error: Exception) -> bool:
    """Whether a signal ended a query."""
    return isinstance(error, duckdb.InterruptException) or (
        type(error) is RuntimeError and "interrupted" in str(error)
    )


def memory_of(connection: Session) -> int:
    """Return the memory limit for queries of a connection, in bytes."""
    return parse_bytes(
        connection.execute("SELECT current_setting('memory_limit')").fetchall()[0][0]
    )


def identifier(name: str) -> str:
    """Quote a column name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a text for SQL."""
    return "'" + text.replace("'", "''") + "'"


def is_integer(text: str = "id") -> str:
    """Return SQL that is true if a text is an integer in canonical form."""
    return f"coalesce(try_cast({text} AS BIGINT)::VARCHAR = {text}, false)"


def is_rounded(text: str) -> str:
    """Return SQL that is true if a text may be a rounded integer.

    It may if it is a float of 2^53 or more, or has an exponent.
    """
    exponent = r"[+-]?[0-9]+([.][0-9]+)?e[+][0-9]+|[+-]?[0-9]+[.][0-9]+e[0-9]+"
    has_exponent = f"regexp_full_match(trim({text}), '{exponent}', 'i')"
    is_large = (
        f"regexp_full_match(trim({text}), '[+-]?[0-9]{{16,}}[.][0-9]+') AND"
        f" abs(try_cast({text} AS DOUBLE)) >= {2**53}"
    )
    # most names have neither sign nor point, and need no slow regular expression
    may_match = f"contains({text}, '+') OR contains({text}, '.')"
    return f"(({may_match}) AND ({has_exponent} OR ({is_large})))"


def as_number(text: str) -> str:
    """Return SQL for a text as a number, or else NULL; DuckDB alone reads 1_0 as 10."""
    return f"CASE WHEN NOT contains({text}, '_') THEN try_cast({text} AS DOUBLE) END"
