"""Decides, from signals and the clock, when the processes of a chain save a checkpoint or stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

import numpy as np

from dsgmcmc.parallel.alone import Comm
from dsgmcmc.parallel.comm import POLL, meet
from dsgmcmc.parallel.signals import Request, Signals
from dsgmcmc.parallel.watchdog import Watchdog

#: Seconds for the summary and MPI_Finalize, between the last write and the end of the wall time.
MARGIN = 3.0


@dataclass(eq=False)
class Control:
    """Lets the processes of a chain agree in every iteration whether to save a checkpoint or stop.

    Every iteration starts one reduction, of two integers to their maxima over the processes; the
    next iteration reads the result.

    Parameters
    ----------
    comm : Comm
        The processes of the chain.
    signals : Signals
        Requests that this process has received.
    checkpoint_seconds : float or None
        Seconds between checkpoints; None if no checkpoint depends on the clock.
    deadline : float or None
        Time at which the job must have ended, on the clock of `time.monotonic`; None without a
        limit.
    watchdog : Watchdog or None
        Watchdog to which progress is reported.
    """

    comm: Comm
    signals: Signals
    checkpoint_seconds: float | None
    deadline: float | None = None
    watchdog: Watchdog | None = None

    def __post_init__(self) -> None:
        #: Seconds reserved for writing one chain before the end of the wall time.
        self.write_seconds = 0.0
        #: Number of open chains of these processes; all must be written before the end.
        self.chains = 1
        self._iteration_seconds = 0.0
        self._saved_at = monotonic()
        self._asked_at = self._saved_at
        self._local_values = np.zeros(2, np.int32)
        self._maxima = np.zeros(2, np.int32)
        self._reduction: Any = None  # an MPI request

    def _local_request(self) -> Request:
        now = monotonic()
        # the maximum decays, so that a slow iteration that compiles kernels does not count for long
        self._iteration_seconds = max(now - self._asked_at, 0.9 * self._iteration_seconds)
        self._asked_at = now
        writing = self.chains * self.write_seconds
        if self.deadline and now + writing + 2 * self._iteration_seconds + MARGIN > self.deadline:
            return max(self.signals.request, Request.STOP)
        if self._checkpoint_is_due(now):
            return max(self.signals.request, Request.CHECKPOINT)
        return self.signals.request

    def _checkpoint_is_due(self, now: float) -> bool:
        """Whether the time for a checkpoint has come; process 0 alone decides."""
        if self.comm.rank != 0 or not self.checkpoint_seconds:
            return False
        return now - self._saved_at > self.checkpoint_seconds

    def ask(self, busy: bool) -> tuple[Request, bool]:
        """Return the largest request of all processes, and whether no process was writing.

        Collective.

        With several processes, the result describes the time of the previous call; the first call,
        and the first call after `finish`, return `Request.GO_ON` and False. `busy` tells whether
        this process is writing.
        """
        self._progress()
        if self.comm.size == 1:
            return self._local_request(), not busy
        request = Request.GO_ON
        idle = False
        if self._reduction is not None:
            self._reduction.Wait()
            request = Request(int(self._maxima[0]))
            idle = not self._maxima[1]
        from mpi4py import MPI  # only needed with several processes

        self._local_values[0] = self._local_request()
        self._local_values[1] = busy
        self._reduction = self.comm.Iallreduce(self._local_values, self._maxima, op=MPI.MAX)
        return request, idle

    def wait(self, busy: Callable[[], bool]) -> None:
        """Wait until no process is busy. Collective.

        However slow the disk is, the watchdogs do not end the job while all processes respond: they
        only report.
        """
        while any(self.comm.allgather(is_busy := busy())):
            self._progress(writing=is_busy)
            sleep(POLL)
        self._progress()

    def meet(self, all_processes: Comm) -> None:
        """Wait for the processes of all chains. Collective over `all_processes`.

        During the wait, the watchdogs do not end the job, however slow another chain is.
        """
        meet(all_processes, self._progress)

    def saving(self) -> None:
        """Record that the writing of a checkpoint begins, and call `finish`. Collective."""
        self._saved_at = monotonic()
        self.finish()

    def finish(self) -> None:
        """Complete a pending reduction and drop its result. Collective.

        The next reduction repeats all requests.
        """
        if self._reduction is not None:
            self._reduction.Wait()
            self._reduction = None

    def _progress(self, writing: bool = False) -> None:
        if self.watchdog is not None:
            self.watchdog.progress()
            self.watchdog.writing = writing
