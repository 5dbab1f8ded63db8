"""Fallible local work on several processes: one fails, all raise the same error.

Imports no MPI: the communicator is given.
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

if TYPE_CHECKING:  # it needs NumPy, and commands that need none start with this file
    from dsgmcmc.types import Comm

T = TypeVar("T")


def agree(comm: Comm, work: Callable[[], T], what: str = "", error: type[AgreedError] = AgreedError) -> T:
    """Do fallible local work; if any process fails, all raise one error that names them. Collective.

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
        (or `error`, or a `WriteError` where a disk is full or failed, or an `AgreedGoneError` where the work raised a
        `GoneError`) If the work raised an `InputError`, an `OSError` or a `MemoryError` on any process.
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
    """What all raise whatever was being done, for a cause that says more than that it failed."""
    if isinstance(cause, GoneError):
        return AgreedGoneError
    failed = isinstance(cause, OSError) and cause.errno in DISK_ERRORS
    return WriteError if failed or isinstance(cause, WriteError) else None
