"""Errors with messages for the user, and the exit statuses of the command line."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from enum import IntEnum
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Exit(IntEnum):
    """Exit statuses of the command line."""

    DONE = 0
    FAILURE = 1
    USAGE = 2
    ABORT = 70  # all processes were aborted, by the watchdog or after an error of one process
    RESUME = 75  # stopped at a checkpoint, from which --resume continues
    INTERRUPTED = 130  # Ctrl-C


#: Error numbers of an `OSError` whose cause is the disk, not the user's request.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


def is_of_disk(error: BaseException) -> bool:
    """Whether the cause of an error is the disk."""
    if getattr(error, "errno", None) in DISK_ERRORS:
        return True
    # HDF5 and DuckDB tell it only in the text of their errors
    return any(os.strerror(code) in str(error) for code in DISK_ERRORS)


def failed_file(error: OSError) -> str:
    """Return the message of an `OSError` as one line, with the path of the file first if known."""
    text = str(error)
    if error.filename and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    return " ".join(text.split()) or type(error).__name__


@contextmanager
def naming(path: os.PathLike[str]) -> Iterator[None]:
    """Context in which a file is written: an `OSError` names `path` instead of a temporary path."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


#: Function of the front end that writes the name of a setting in messages: the command line writes
#: an option. None stands for Python (`dsgmcmc.settings.named`).
front_end: ContextVar[Callable[[str], str] | None] = ContextVar("front_end", default=None)


@contextmanager
def settings_written(write: Callable[[str], str]) -> Iterator[None]:
    """Context of a front end, in which messages have names of settings as `write` returns them."""
    token = front_end.set(write)
    try:
        yield
    finally:
        front_end.reset(token)


class InputError(ValueError):
    """The user's input is wrong: a file, an option, or the launch of processes.

    The message describes the error, its place and a remedy. The command line prints the message
    without a traceback, and exits with status 2.
    """


@contextmanager
def refusing(problem: str, *errors: type[Exception]) -> Iterator[None]:
    """Context in which errors of these types become an `InputError` with the problem and reason."""
    try:
        yield
    except InputError:
        raise
    except errors as error:
        raise InputError(f"{problem}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return what an error says, in few words.

    Of Pydantic's errors, it is the first fault and where it is; of the system's, neither number nor
    path. A lookup that failed says only what it looked for, so its type is named, too.
    """
    if hasattr(error, "errors"):
        fault = error.errors(include_input=False)[0]
        return ": ".join([*map(str, fault["loc"]), fault["msg"]])
    if system_text := getattr(error, "strerror", None):
        return str(system_text)
    if isinstance(error, LookupError):
        return repr(error)
    return str(error)


class NotFittedError(InputError, AttributeError):
    """A model was used before it was fitted.

    scikit-learn has an error of this name with the same base classes.
    """


def not_fitted(message: str) -> Exception:
    """Return the error for a model that was used before it was fitted.

    If scikit-learn has been imported, the error is its `NotFittedError`. Otherwise no program can
    catch that class, and the error is the `NotFittedError` of this module.
    """
    sklearn_errors = sys.modules.get("sklearn.exceptions")
    if sklearn_errors is None:
        return NotFittedError(message)
    error: Exception = sklearn_errors.NotFittedError(message)
    return error


class AgreedError(InputError):
    """An `InputError` that all processes of a job raise together: none has to be aborted."""


class WriteError(AgreedError):
    """A disk is full or has failed, or standard output cannot be written.

    All processes raise this error.
    """


class GoneError(InputError):
    """A file of a run that is being sampled was removed while the run was read.

    A newer file replaces it.
    """


#: Number of times that work is repeated which fails because the run is being sampled.
RETRIES = 10


def retry_if_gone(
    work: Callable[P, T], renew: Callable[..., object] = lambda *first: None
) -> Callable[P, T]:
    """Return `work`, which reads a run, repeated up to `RETRIES` times after a `GoneError`.

    `work` must have no side effects if it fails. Every attempt must open the run again, in `work`
    or in `renew`, which gets the first argument of `work`.
    """

    @wraps(work)
    def attempt(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(RETRIES):
            with suppress(GoneError):
                return work(*args, **kwargs)
            # if a file is still missing, the next attempt raises the error
            with suppress(GoneError):
                renew(*args[:1])
        return work(*args, **kwargs)

    return attempt


class DivergenceError(RuntimeError):
    """A chain has diverged: its state is not finite, or too large to be meaningful."""


class RunWarning(UserWarning):
    """A run on ratings is doubtful; the message is one of the warnings of ``dsgmcmc info``."""


class SamplingWarning(UserWarning):
    """Draws of a density are doubtful; the message says why, and what to do."""


class StoppedError(BaseException):
    """A run was stopped before its end, at a checkpoint from which it can be resumed.

    It is no `Exception`, so that a program that goes on after failures, such as a grid search, does
    not take the request to stop for one.

    Attributes
    ----------
    status : int
        Exit status of the command.
    """

    def __init__(
        self, message: str = "sampling was stopped before its end", status: int = Exit.RESUME
    ) -> None:
        super().__init__(message)
        self.status = status


@contextmanager
def saying_how_to_continue(out: str | os.PathLike[str] | None, advice: str) -> Iterator[None]:
    """Context in which a run is sampled: the error of an interruption has the advice as a note.

    Not without `out`, because then the run is gone with the caller's object.
    """
    try:
        yield
    except (KeyboardInterrupt, StoppedError) as error:
        if out is not None:
            error.add_note(advice)
        raise


@contextmanager
def writing(path: os.PathLike[str]) -> Iterator[None]:
    """Context in which a file is written: an `OSError` becomes an error with a one-line message.

    Raises
    ------
    InputError
        If the file cannot be written; a `WriteError` if the disk is full or has failed.
    """
    try:
        yield
    except OSError as error:
        error_type = WriteError if is_of_disk(error) else InputError
        raise error_type(f"{path} cannot be written: {error.strerror or error}") from error
