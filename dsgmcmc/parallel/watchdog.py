"""A thread that ends a job without progress; MPI would wait for ever.

A thread is needed because Python's signal handlers do not run while the main thread waits in MPI.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading

from dsgmcmc.errors import Exit
from dsgmcmc.terminal import say

#: Number of ticks in the time without progress that ends the job.
TICKS = 20


class Watchdog:
    """Ends this process with status 70 if `progress` is not called for a given time.

    Use as a context manager.

    A process that waits for a slow disk sets `writing`, and continues to call `progress`. After the
    given time the watchdog then prints a message, but does not end the process.

    The time is counted in ticks of the watchdog's thread, so a job that is suspended and resumed is
    not ended.

    Parameters
    ----------
    seconds : float
        Time without progress that ends the job; 0 for no limit.
    who : str
        Name of this process, for the message.
    """

    def __init__(self, seconds: float, who: str) -> None:
        self._seconds = seconds
        self._who = who
        self._beats = 0
        #: Whether this process waits for its disk; a wait of the given time is reported.
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
        """Record that this process makes progress."""
        self._beats += 1

    def stop(self) -> None:
        """Stop watching."""
        self._end.set()

    def _watch(self) -> None:
        """Count ticks without progress, and ticks of a write, until `stop` is called."""
        last_beats = self._beats
        idle = 0
        writing = 0
        while not self._end.wait(self._seconds / TICKS):
            idle = idle + 1 if self._beats == last_beats else 0
            last_beats = self._beats
            writing = writing + 1 if self.writing else 0
            if writing == TICKS:
                say(
                    f"dsgmcmc: {self._who} has been writing for {self._seconds:g} s. It goes on"
                    " when the disk answers; checkpoints are intact",
                    file=sys.stderr,
                )
            if idle == TICKS:
                self._end_job()

    def _end_job(self) -> None:
        """Print where all threads are, and end this process."""
        say(
            f"dsgmcmc: {self._who} has made no progress for {self._seconds:g} s and ends the job."
            " It is waiting for a process or a disk that does not answer. Checkpoints are intact:"
            " go on with --resume. Its threads are at:",
            file=sys.stderr,
        )
        faulthandler.dump_traceback(sys.stderr.fileno(), all_threads=True)
        os._exit(Exit.ABORT)
