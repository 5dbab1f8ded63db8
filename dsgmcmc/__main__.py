"""Entry point of ``dsgmcmc`` and ``python -m dsgmcmc``.

It sets up signals, streams and threads before heavy imports.

If a write to a standard stream fails, the command continues, and reports the failure at the end. A
full disk, or a reader that ends early, such as `head`, therefore neither causes a traceback nor
ends a run.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

#: Bytes of address space without which OpenBLAS or DuckDB may abort the process.
ADDRESS_SPACE = 1 << 30


def main() -> None:
    """Run the command line, with `interrupt` as handler of SIGTERM and Ctrl-C."""
    handled = []
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        handled.append(signal.SIGTERM)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell may ignore SIGINT
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback during the first imports
        handled.append(signal.SIGINT)
    from dsgmcmc.errors import Exit
    from dsgmcmc.parallel.signals import interrupt

    with _standard_streams():
        try:
            for number in handled:  # also a stop by a batch system must leave no temporary files
                signal.signal(number, interrupt)
            try:
                _main()
            finally:
                for number in handled:
                    if signal.getsignal(number) is interrupt:  # no traceback during cleanup
                        signal.signal(number, signal.SIG_DFL)
        except KeyboardInterrupt:
            print("dsgmcmc: interrupted", file=sys.stderr)
            sys.exit(Exit.INTERRUPTED)
        finally:
            if "_duckdb" not in sys.modules:  # DuckDB would report objects that are not freed
                gc.freeze()  # saves 0.1 s of garbage collection at exit


def _main() -> None:
    """Run the command line with one compute thread, unless the environment sets another number."""
    from dsgmcmc.errors import Exit
    from dsgmcmc.parallel.signals import install_early
    from dsgmcmc.terminal import complain

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= limit < ADDRESS_SPACE:
        complain(
            f"ulimit -v is {limit >> 20:,} MiB of address space; at least {ADDRESS_SPACE >> 20:,}"
            " MiB are needed"
        )
        sys.exit(Exit.USAGE)

    # a batch system may send its signal during the import of NumPy and Numba
    if sys.argv[1:2] == ["sample"]:
        install_early()
    from dsgmcmc.parallel.comm import TELL_STATUS, THREAD_VARIABLES, tell, tell_status

    gc.set_threshold(100_000)  # the imports create many objects and no garbage
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, "1")
    tells_status = os.environ.pop(TELL_STATUS, None)  # child processes must not see this variable
    if tells_status:
        tell("begins")
    from dsgmcmc.cli.app import main as command_line

    try:
        command_line()
    except SystemExit as end:
        if tells_status:
            tell_status(end.code)
        raise


class _Descriptor(io.FileIO):
    """A file descriptor that drops all data after a write has failed."""

    failure: OSError | None = None

    def write(self, data: ReadableBuffer) -> int | None:  # type: ignore[override]
        """Write bytes, and return their number, or None if writing would block."""
        if self.failure is None:
            try:
                return super().write(data)
            except OSError as error:
                self.failure = error
        return memoryview(data).nbytes


def _text_stream(file: _Descriptor, original: object) -> io.TextIOWrapper:
    """Return a text stream for a file descriptor, with encoding and buffering of `original`.

    Characters outside the encoding, which names may contain, become Python's escapes.
    """
    is_by_line = getattr(original, "line_buffering", False)
    is_unbuffered = getattr(original, "write_through", False)
    return io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding=getattr(original, "encoding", None),
        errors="backslashreplace",
        line_buffering=is_by_line or is_unbuffered,
    )


@contextmanager
def _standard_streams() -> Iterator[None]:
    """Context in which a command runs; at its end the process exits with the command's status.

    If a write to standard output has failed, a status of 0 becomes 1.
    """
    from dsgmcmc.errors import Exit
    from dsgmcmc.terminal import complain

    _occupy_closed_descriptors()
    output = _Descriptor(1, "w", closefd=False)
    sys.stdout = _text_stream(output, sys.stdout)
    sys.stderr = _text_stream(_Descriptor(2, "w", closefd=False), sys.stderr)
    status: Any = None
    try:
        yield
    except SystemExit as end:
        status = end.code
    sys.stdout.flush()
    failure = output.failure
    if failure and failure.errno != errno.EPIPE:  # a reader that has ended is not a failure
        complain(f"standard output cannot be written: {failure.strerror}")
        status = status or Exit.FAILURE
    sys.exit(status)


def _occupy_closed_descriptors() -> None:
    """Open the null device for each closed standard stream, so that no file gets its number.

    Writes to standard output then fail, and those to standard error are lost.
    """
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)


if __name__ == "__main__":
    main()
