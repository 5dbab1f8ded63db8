"""Standard streams of a command: if writing fails, the command continues, and reports the failure at the end.

So neither a full disk nor a reader that ends early, such as `head`, causes a traceback or ends a run. This module is
loaded first, and imports nothing heavy.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dsgmcmc.errors import EXIT_FAILURE
from dsgmcmc.terminal import complain

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _File(io.FileIO):
    """A file descriptor that drops all data after a write has failed."""

    failure: OSError | None = None

    def write(self, data: ReadableBuffer) -> int | None:  # type: ignore[override]  # None: it would block
        if self.failure is None:
            try:
                return super().write(data)
            except OSError as error:
                self.failure = error
        return memoryview(data).nbytes


def _text(file: _File, before: Any) -> io.TextIOWrapper:
    """Make a text stream for a file descriptor, with the encoding and buffering of the stream `before`."""
    encoding, errors = getattr(before, "encoding", None), getattr(before, "errors", None)
    at_once = getattr(before, "line_buffering", False) or getattr(before, "write_through", False)
    return io.TextIOWrapper(io.BufferedWriter(file), encoding, errors, line_buffering=at_once)


@contextmanager
def standard_streams() -> Iterator[None]:
    """Context of a command; it ends the process, with status 1 if writing to standard output failed."""
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:  # closed: no other file may get its number; output then fails, and warnings are lost
            os.open(os.devnull, mode)
    output, errors = (_File(number, "w", closefd=False) for number in (1, 2))
    sys.stdout, sys.stderr = _text(output, sys.stdout), _text(errors, sys.stderr)
    status: Any = None
    try:
        yield
    except SystemExit as end:
        status = end.code
    sys.stdout.flush()
    if output.failure and output.failure.errno != errno.EPIPE:  # a reader that has ended is no failure
        complain(f"standard output cannot be written: {output.failure.strerror}")
        status = status or EXIT_FAILURE
    sys.exit(status)
