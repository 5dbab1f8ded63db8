"""Standard streams of a command: if one cannot be written, the command continues and reports it at the end.

A full disk, or a reader that ends early, as `head` does, then causes neither a traceback nor half a run. Imports
nothing heavy: it is loaded before everything else.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from dsgmcmc.errors import EXIT_FAILURE
from dsgmcmc.terminal import complain

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _File(io.FileIO):
    """A descriptor that is not written any more once a write has failed."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self.failure: OSError | None = None

    def write(self, data: ReadableBuffer) -> int | None:  # type: ignore[override]  # None: it would block
        if self.failure is None:
            try:
                return super().write(data)
            except OSError as error:
                self.failure = error
        return memoryview(data).nbytes


class OutputStream(io.TextIOWrapper):
    """Standard output or standard error, in place of Python's own.

    Attributes
    ----------
    kept : Path or None
        File that also contains what is printed.
    """

    def __init__(self, number: int, before: TextIO | Any) -> None:
        self._file = _File(number)
        self.kept: Path | None = None
        encoding, errors = getattr(before, "encoding", None), getattr(before, "errors", None)
        at_once = getattr(before, "line_buffering", False) or getattr(before, "write_through", False)
        super().__init__(io.BufferedWriter(self._file), encoding, errors, line_buffering=at_once)

    def complaint(self) -> str:
        """Why not everything was printed; empty if it was, or if the reader closed the pipe."""
        self.flush()
        failure = self._file.failure
        if failure is None or failure.errno == errno.EPIPE:
            return ""
        kept = f"; the output is in {self.kept}" if self.kept else ""
        return f"standard output cannot be written: {failure.strerror}{kept}"


def also_in(path: Path) -> None:
    """Name a file that also contains what is printed, for the message if printing fails."""
    if isinstance(sys.stdout, OutputStream):
        sys.stdout.kept = path


@contextmanager
def standard_streams() -> Iterator[None]:
    """Context of a command; it ends the process, with status 1 if standard output could not be written."""
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:  # closed: no other file may get its number. Printing then fails, and warnings are lost
            os.open(os.devnull, mode)
    sys.stdout, sys.stderr = output, _ = OutputStream(1, sys.stdout), OutputStream(2, sys.stderr)
    status: Any = None
    try:
        yield
    except SystemExit as end:
        status = end.code
    complaint = output.complaint()
    if complaint:
        complain(complaint)
    sys.exit(status or (EXIT_FAILURE if complaint else status))
