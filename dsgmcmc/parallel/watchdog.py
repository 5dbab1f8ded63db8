"""A thread that ends a job which makes no progress: MPI itself would wait for ever.

Python's signal handlers do not run while the main thread waits inside MPI; a thread does.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

from dsgmcmc.errors import EXIT_ABORT
from dsgmcmc.terminal import say

TICKS = 20
LATE_TICKS = 3  # by which a process that waits for none of its files ends the job later: another may know which it is
LONGEST = 4096  # bytes of a path
NO_DISK = ("/dev/", "/proc/", "/sys/", "/memfd:")  # what is open under these names lies on none


class Watchdog:
    """Ends this process with status 70 if nobody calls `progress` for a time. Use as a context manager.

    A process that waits for its own disk is told of, and not ended: the disk may be slow.

    The time is counted in ticks of this process, so a whole job that is suspended and resumed is not ended.

    Parameters
    ----------
    seconds : float
        How long to wait; 0 never ends the job.
    who : str
        Name of this process, for the message.
    """

    def __init__(self, seconds: float, who: str) -> None:
        self._seconds, self._who = seconds, who
        self._beats = 0
        #: Whether this process waits for what it writes: it says so then, and goes on waiting.
        self.writing = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        if self._seconds:
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def progress(self) -> None:
        """Note that this process makes progress."""
        self._beats += 1

    def stop(self) -> None:
        """Stop watching."""
        self._end.set()

    def _watch(self) -> None:
        seen, idle, writing = self._beats, 0, 0
        while not self._end.wait(self._seconds / TICKS):
            idle = idle + 1 if self._beats == seen else 0
            seen = self._beats
            writing = writing + 1 if self.writing else 0
            if writing == TICKS:
                self._tell_of(files_waited_for())
            files = files_waited_for() if idle >= TICKS else []
            if files or idle >= TICKS + LATE_TICKS:
                self._end_job(" and ".join(files))

    def _tell_of(self, files: list[str]) -> None:
        say(
            f"dsgmcmc: {self._who} has been writing for {self._seconds:g} s, and waits for "
            f"{' and '.join(files) or 'its files'}. It goes on when the disk answers; the last checkpoint is intact",
            file=sys.stderr,
        )

    def _end_job(self, files: str) -> None:
        what = f"for {files}, whose disk does not answer" if files else "for a process or a disk that does not answer"
        say(
            f"dsgmcmc: {self._who} has made no progress for {self._seconds:g} s and ends the job. It is waiting "
            f"{what}. The last checkpoint is intact: go on with --resume. Its threads are at:",
            file=sys.stderr,
        )
        faulthandler.dump_traceback(sys.stderr.fileno(), all_threads=True)
        os._exit(EXIT_ABORT)


def files_waited_for() -> list[str]:
    """Files that threads of this process are inside a system call with, as Linux shows it; no thread is asked.

    Not of a thread that reads by HDF5: it keeps Python's lock, and nothing else of the process runs.
    """
    found: dict[str, None] = {}
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError, ValueError):
            words = (thread / "syscall").read_text(encoding="ascii").split()  # its number and arguments, or `running`
            found |= dict.fromkeys(filter(None, [_opened(words[1:]) or _named(words[1:])]))
    return list(found)


def _opened(arguments: list[str]) -> str:
    """File on a disk that the first argument is the descriptor of; empty if it is none."""
    descriptor = int(arguments[0], 16) if arguments else 0
    if not sys.stderr.fileno() < descriptor < 1 << 20:
        return ""
    with suppress(OSError):
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        return path if path.startswith("/") and not path.startswith(NO_DISK) else ""
    return ""


def _named(arguments: list[str]) -> str:
    """Path that one of the first two arguments points to, as of a file that is opened; empty if there is none."""
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for argument in arguments[:2]:
            with suppress(OSError, ValueError, OverflowError):  # no address
                memory.seek(int(argument, 16))
                path = os.fsdecode(memory.read(LONGEST).partition(b"\0")[0])
                if "/" in path and path.isprintable() and not path.startswith(NO_DISK):
                    return path
    return ""
