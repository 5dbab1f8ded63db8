"""Decides for all processes of a chain, from signals and the clock, when to save a checkpoint and
when to stop.
"""

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

MARGIN = 3.0  # seconds for the summary and MPI_Finalize, between the last write and the end of the wall time


@dataclass(eq=False)
class Control:
    """Lets all processes of a chain agree, once per iteration, on whether to save a checkpoint or
    stop.

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
        self._saved_at = self._asked_at = monotonic()
        self._local_values, self._maxima = np.zeros(2, np.int32), np.zeros(2, np.int32)
        self._reduction: Any = None  # an MPI request

    def _local_request(self) -> Request:
        now = monotonic()
        # the maximum decays, so that a slow iteration that compiles kernels does not count for long
        self._iteration_seconds = max(now - self._asked_at, 0.9 * self._iteration_seconds)
        self._asked_at = now
        writing = self.chains * self.write_seconds
        if self.deadline and now + writing + 2 * self._iteration_seconds + MARGIN > self.deadline:
            return max(self.signals.request, Request.STOP)
        due = (
            self.comm.rank == 0
            and self.checkpoint_seconds
            and now - self._saved_at > self.checkpoint_seconds
        )
        return max(self.signals.request, Request.CHECKPOINT if due else Request.GO_ON)

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
        request, idle = Request.GO_ON, False
        if self._reduction is not None:
            self._reduction.Wait()
            request, idle = Request(int(self._maxima[0])), not self._maxima[1]
        from mpi4py import MPI  # only needed with several processes

        self._local_values[:] = self._local_request(), busy
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
        """Complete a pending reduction and drop its result; the next reduction repeats all
        requests. Collective.
        """
        if self._reduction is not None:
            self._reduction.Wait()
            self._reduction = None

    def _progress(self, writing: bool = False) -> None:
        if self.watchdog is not None:
            self.watchdog.progress()
            self.watchdog.writing = writing
