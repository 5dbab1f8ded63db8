"""A DuckDB session that keeps to a memory limit, spills beside the output, and cleans up after itself."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb

from dsgmcmc.errors import InputError
from dsgmcmc.ingest.watch import Report, Watch
from dsgmcmc.parallel.machine import memory_limit

_OVERHEAD = 200_000_000  # bytes of Python, its libraries and the arrays
_PER_THREAD = 80_000_000  # bytes with which a thread of DuckDB sorts and joins
MINIMUM = 400_000_000


def parse_bytes(text: str) -> int:
    """Parse a size such as ``2GB``, ``512MiB`` or ``1e9``."""
    match = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(i?)b?\s*", text, flags=re.IGNORECASE)
    try:
        if match is None:
            raise ValueError
        base = 1024 if match[3] else 1000
        return int(float(match[1]) * base ** " kmgt".index(match[2].lower() or " "))
    except ValueError:
        raise InputError(f"{text!r} is no size: expected for example 2GB or 512MB") from None


def default_memory() -> int:
    """Return 60 % of the bytes that this process may use."""
    return int(0.6 * memory_limit())


@contextlib.contextmanager
def open_session(
    parent: Path, memory: int, threads: int | None, report: Report
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Watch]]:
    """Open DuckDB in memory, spilling to a folder in `parent` that is removed at the end.

    Parameters
    ----------
    parent : Path
    memory : int
        Bytes that the whole process should stay within.
    threads : int or None
        Default: what the process may run on, or fewer where the memory is small.
    report : see `Watch`

    Raises
    ------
    InputError
        If the memory or the disk does not suffice, also later, within the context.
    KeyboardInterrupt
        If a signal interrupts a query within the context.
    """
    if memory < MINIMUM:
        raise InputError(
            f"{memory / 1e6:.0f} MB of memory are too few; at least {MINIMUM / 1e6:.0f} MB are needed (--memory)"
        )
    limit = int(0.8 * (memory - _OVERHEAD))
    try:
        scratch = tempfile.TemporaryDirectory(prefix=".dsgmcmc-prepare-", dir=parent)
    except OSError as error:
        raise InputError(f"cannot write in the folder {parent}: {error.strerror}") from error
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{limit}B",
        "threads": threads or min(len(os.sched_getaffinity(0)), limit // _PER_THREAD),
        "temp_directory": scratch.name,
        "autoinstall_known_extensions": False,  # never ask the network for one
    }
    try:
        with scratch, duckdb.connect(config=settings) as connection, Watch(connection, report) as watch:
            connection.execute("SET TimeZone = 'UTC'")
            yield connection, watch
    except duckdb.OutOfMemoryException as error:
        raise InputError(
            f"{memory / 1e6:.0f} MB of memory, or the space in {parent}, do not suffice; "
            f"raise --memory or set --temp-dir to a larger disk ({str(error).splitlines()[0]})"
        ) from error
    except duckdb.IOException as error:
        raise InputError(f"reading or spilling to {parent} failed: {str(error).splitlines()[0]}") from error
