"""Local work that may fail on some processes: if it fails on one, all raise the same error.

Imports no MPI: the caller passes the communicator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from dsgmcmc.errors import (
    DISK_ERRORS,
    AgreedError,
    AgreedGoneError,
    GoneError,
    InputError,
    WriteError,
    failed_file,
)

if TYPE_CHECKING:  # it needs NumPy, and this file is also loaded by commands that need none
    from dsgmcmc.types import Comm

T = TypeVar("T")


def agree(comm: Comm, work: Callable[[], T], what: str = "", error: type[AgreedError] = AgreedError) -> T:
    """Do local work that may fail; if it fails on any process, all raise one error that names them. Collective.

    Parameters
    ----------
    comm : MPI.Comm
        The processes that must agree.
    work : callable
        Local work: files, parsing, memory. It must not communicate.
    what : str, optional
        What was being done, for the message.
    error : type of AgreedError
        What to raise.

    Returns
    -------
    object
        What `work` returned on this process.

    Raises
    ------
    AgreedError
        Or `error`: if the work raised an `InputError`, an `OSError` or a `MemoryError` on any process.
    WriteError
        If a disk is full or has failed.
    AgreedGoneError
        If the work raised a `GoneError`.
    """
    result: Any = None
    message = ""
    cause: Exception | None = None
    try:
        result = work()
    except (InputError, OSError, MemoryError) as failure:
        message = failed_file(failure) if isinstance(failure, OSError) else str(failure) or type(failure).__name__
        cause = failure
    everyone = comm.allgather((message, _own_kind(cause)))
    messages = [text for text, _ in everyone]
    failed = [rank for rank, text in enumerate(messages) if text]
    if failed:
        error = next((kind for _, kind in everyone if kind), error)
        distinct = "; ".join({messages[rank]: None for rank in failed})
        where = f" (process {', '.join(map(str, failed))} of {comm.size})" if len(failed) < comm.size else ""
        raise error(f"{what}{': ' if what else ''}{distinct}{where}") from cause
    return result  # type: ignore[no-any-return]


def _own_kind(cause: Exception | None) -> type[AgreedError] | None:
    """The type of error that this cause requires, whichever type the caller asked for; None if it requires none."""
    if isinstance(cause, GoneError):
        return AgreedGoneError
    failed = isinstance(cause, OSError) and cause.errno in DISK_ERRORS
    return WriteError if failed or isinstance(cause, WriteError) else None
