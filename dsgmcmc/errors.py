"""Errors whose message is meant for the user, and the exit codes of the command line."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

EXIT_DONE = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_ABORT = 70
EXIT_RESUME = 75
EXIT_INTERRUPTED = 130

#: Numbers of an `OSError` whose cause is the disk, and not what the user asked for.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


def failed_file(error: OSError) -> str:
    """Message of the system about a file, in one line that begins with its path where that is known."""
    said = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
    return " ".join(said.split()) or type(error).__name__


@contextmanager
def naming(path: os.PathLike[str]) -> Iterator[None]:
    """Context in which a file is written: errors have its path, and not that of a temporary one, or none."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


#: What was expected, by Pydantic's type of error; its own words are those of a programmer.
EXPECTED = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "finite_number": "must be a finite number",
    "literal_error": "must be {expected}",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    "string_type": "must be text",
}


def what_it_must_be(detail: Mapping[str, Any]) -> str:
    """Say what a value must be, from one of the errors in Pydantic's `ValidationError.errors`."""
    expected = EXPECTED.get(detail["type"])
    found: str = detail["msg"].removeprefix("Value error, ")
    return expected.format(**detail.get("ctx", {})) if expected else found


class InputError(ValueError):
    """Something that the user gave is wrong: a file, an option, a launch.

    The message says what was found, where, and what to do; the command line prints it without a
    traceback and exits with status 2.
    """


class NotFittedError(InputError, AttributeError):
    """A model was used before it was fitted; scikit-learn's error of this name has the same bases."""


def not_fitted(message: str) -> Exception:
    """Make the error of a model that was used before it was fitted.

    It is scikit-learn's `NotFittedError` if the program has imported it: only then can the program catch it.
    """
    of_sklearn = sys.modules.get("sklearn.exceptions")
    kind: type[Exception] = NotFittedError if of_sklearn is None else of_sklearn.NotFittedError
    return kind(message)


class AgreedError(InputError):
    """An `InputError` that all processes of a job raise together, so that each may end by itself."""


class WriteError(AgreedError):
    """Files could not be written: a full disk, a quota, permissions. All processes raise it together."""


class GoneError(InputError):
    """A run that is being sampled has removed what was being read; what it has in its place can be read."""


RETRIES = 3  # of work that reads a run while it is sampled


def anew(work: Callable[P, T], renew: Callable[[], object] = lambda: None) -> Callable[P, T]:
    """Make work that reads a run begin again, up to `RETRIES` times, where a file is gone.

    The work leaves nothing behind where it fails; it opens the run by itself, or `renew` opens it again.
    """

    @wraps(work)
    def again(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(RETRIES):
            with suppress(GoneError):
                return work(*args, **kwargs)
            with suppress(GoneError):  # the next attempt says what it lacks
                renew()
        return work(*args, **kwargs)

    return again


class DivergenceError(RuntimeError):
    """The chain left the region where its numbers mean anything (non-finite or exploding)."""


class StoppedError(RuntimeError):
    """A run that was stopped before its end, at a checkpoint from which it can go on; `status` is its exit status."""

    def __init__(self, message: str, status: int = EXIT_RESUME) -> None:
        super().__init__(message)
        self.status = status


@contextmanager
def writing(path: os.PathLike[str]) -> Iterator[None]:
    """Context in which a file is written for the user: what the system says of it becomes one line.

    Raises
    ------
    InputError
        If the file cannot be there; a `WriteError` if a disk is full or failed.
    """
    try:
        yield
    except OSError as error:
        kind = WriteError if error.errno in DISK_ERRORS else InputError
        raise kind(f"{path} cannot be written: {error.strerror or error}") from error
