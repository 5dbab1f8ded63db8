"""When to checkpoint and when to stop: signals and the clock, agreed on by all processes of a chain."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

import numpy as np

from dsgmcmc.errors import AgreedError
from dsgmcmc.parallel.signals import Request, Signals
from dsgmcmc.parallel.watchdog import Watchdog
from dsgmcmc.types import Comm

MARGIN = 3.0  # seconds between the last write and the end of the wall time: summary, MPI's and the launcher's end
POLL = 0.005  # seconds between two looks at a write


class Control:
    """Asks all processes of a chain, once an iteration, what to do next.

    One pipelined maximum of two integers: the answer to the question of one iteration is read in the next.

    Parameters
    ----------
    comm : Comm
        The processes of the chain.
    signals : Signals
        What this process was asked.
    checkpoint_seconds : float or None
        Time between checkpoints.
    deadline : float or None
        When the job must have ended, on the clock of `time.monotonic`.
    watchdog : Watchdog or None
        What to tell that this process is getting on.
    """

    def __init__(
        self,
        comm: Comm,
        signals: Signals,
        checkpoint_seconds: float | None,
        deadline: float | None = None,
        watchdog: Watchdog | None = None,
    ) -> None:
        self._comm, self._signals = comm, signals
        self._seconds, self._deadline, self._watchdog = checkpoint_seconds, deadline, watchdog
        #: Seconds that writing all of a chain may take, to be known before the wall time is over.
        self.write_seconds = 0.0
        #: Chains of these processes that are not finished, each of which is to be written.
        self.chains = 1
        self._iteration_seconds = 0.0
        self._saved = self._asked = monotonic()
        self._mine, self._all = np.zeros(2, np.int32), np.zeros(2, np.int32)
        self._reduction: Any = None  # a request of MPI

    def _local(self) -> Request:
        now = monotonic()
        # decays, so that an iteration that compiled kernels is forgotten
        self._iteration_seconds = max(now - self._asked, 0.9 * self._iteration_seconds)
        self._asked = now
        writing = self.chains * self.write_seconds
        if self._deadline and now + writing + 2 * self._iteration_seconds + MARGIN > self._deadline:
            return max(self._signals.request, Request.STOP)
        due = self._comm.rank == 0 and self._seconds and now - self._saved > self._seconds
        return max(self._signals.request, Request.CHECKPOINT if due else Request.GO_ON)

    def ask(self, busy: bool) -> tuple[Request, bool]:
        """Largest request of all processes, and whether none of them was busy writing. Collective."""
        self._progress()
        if self._comm.size == 1:
            return self._local(), not busy
        request, idle = Request.GO_ON, False
        if self._reduction is not None:
            self._reduction.Wait()
            request, idle = Request(int(self._all[0])), not self._all[1]
        from mpi4py import MPI  # of several processes alone

        self._mine[:] = self._local(), busy
        self._reduction = self._comm.Iallreduce(self._mine, self._all, op=MPI.MAX)
        return request, idle

    def wait(self, busy: Callable[[], bool]) -> None:
        """Wait until no process is busy. Collective.

        While all of them answer, however slow the disk of one, no watchdog ends the job.
        """
        while any(self._comm.allgather(busy())):
            self._progress()
            sleep(POLL)
        self._progress()

    def meet(self, everyone: Comm) -> None:
        """Wait for the processes of all chains. Collective over `everyone`.

        While they come, however slow another chain, no watchdog ends the job.
        """
        self._progress()
        if everyone.size == self._comm.size:
            return
        arrival = everyone.Ibarrier()
        while not arrival.Test():
            self._progress()
            sleep(POLL)

    def saving(self) -> None:
        """Take note that a checkpoint is being written. Collective."""
        self._saved = monotonic()
        self.finish()

    def finish(self) -> None:
        """Wait for the question that is under way; what it asked for was done, or is asked again. Collective."""
        if self._reduction is not None:
            self._reduction.Wait()
            self._reduction = None

    def _progress(self) -> None:
        if self._signals.failure:
            raise AgreedError(self._signals.failure)
        if self._watchdog is not None:
            self._watchdog.progress()
