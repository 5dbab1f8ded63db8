"""The chains that one group of processes samples, and the loop over them.

Each group samples its chains one after another, each to its end. In a run with a target accuracy, a
group instead samples all its chains in turn up to the next check of the accuracy.
`dsgmcmc.runs.chain` has the iterations of one chain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.diagnostics.accuracy import (
    AccuracyCheck,
    ChainProgress,
    ProcessDraws,
    check_accuracy,
    next_check,
)
from dsgmcmc.errors import AgreedError, DivergenceError
from dsgmcmc.parallel.alone import Comm
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.parallel.signals import Request
from dsgmcmc.runs.chain import Chain
from dsgmcmc.runs.control import Control
from dsgmcmc.runs.progress import Progress


class ChainGroup:
    """Samples the chains of one group of processes.

    Parameters
    ----------
    comm : Comm
        The processes of all groups.
    config : ResolvedConfig
        Settings of the run.
    ring : Ring
        The processes of this group.
    control : Control
        Decides when to save a checkpoint and when to stop.
    open_chain : callable
        Makes a chain, given its number, in its initial state or in that of its newest checkpoint.
    since_start : callable
        Returns the seconds since the job began.
    on_first_iteration : callable
        Called once, before the first iteration; not if there is nothing to sample.

    Attributes
    ----------
    failure : AgreedError, DivergenceError or None
        The first error of a chain; equal on all processes of the group.
    request : Request
        The last request on which the processes agreed.
    accuracy : AccuracyCheck or None
        The last check of the accuracy of all chains.
    sampled : int
        Iterations of this group in this job.
    timed : int
        The same without the job's first sweep, which compiles or loads kernels.
    startup_seconds : float
        Seconds from the beginning of the job to the first timed iteration.
    sampling_seconds : float
        Seconds of the timed iterations; 0 without any.
    """

    def __init__(
        self,
        *,
        comm: Comm,
        config: ResolvedConfig,
        ring: Ring,
        control: Control,
        open_chain: Callable[[int], Chain],
        since_start: Callable[[], float],
        on_first_iteration: Callable[[], None],
    ) -> None:
        self.config = config
        self.ring = ring
        self.control = control
        self.failure: AgreedError | DivergenceError | None = None
        self.request = Request.GO_ON
        self.accuracy: AccuracyCheck | None = None
        self.sampled = 0
        self.timed = 0
        self.startup_seconds = 0.0
        self.sampling_seconds = 0.0
        self._comm = comm
        self._open_chain = open_chain
        self._since_start = since_start
        self._on_first_iteration = on_first_iteration
        self._timing_began_at = 0.0

    @property
    def _stopped(self) -> bool:
        """Whether an error or a request stops sampling."""
        return self.failure is not None or self.request >= Request.STOP

    def sample(self, numbers: Sequence[int], progress: Progress) -> None:
        """Sample the chains with these numbers. Collective.

        The chains are sampled together if the run has a target accuracy, else one by one. An error
        of a chain ends the work of this group; it is kept as `failure`, so that other groups
        continue.
        """
        self._begin_timing()
        if self.config.until:
            self._sample_batch(numbers, progress)
        else:
            for number in numbers:
                self._sample_batch([number], progress)
                if self._stopped:
                    break
        if self.timed:
            self.sampling_seconds = perf_counter() - self._timing_began_at

    def _begin_timing(self) -> None:
        self.startup_seconds = self._since_start()
        self._timing_began_at = perf_counter()

    def _sample_batch(self, numbers: Sequence[int], progress: Progress) -> None:
        """Open, sample and save some chains. Collective."""
        chains: list[Chain] = []
        for number in numbers:
            with self._keeping_failure():
                chains.append(self._open_chain(number))
                self.control.chains = len(chains)
        try:
            if self.config.until:
                self._sample_until_accurate(chains, progress)
            else:
                self._advance_all(chains, self.config.iterations, progress)
            for chain in chains:
                if chain.iteration:
                    with self._keeping_failure():
                        chain.finish()
        finally:
            for chain in chains:
                chain.close()

    def _sample_until_accurate(self, chains: list[Chain], progress: Progress) -> None:
        """Sample chains until they reach the target accuracy or the end, or must stop. Collective.

        All chains of all groups go from one check to the next. A chain that fails is removed from
        `chains`; it is neither checked nor saved.
        """
        config = self.config
        reached = self._comm.allgather(max((chain.iteration for chain in chains), default=0))
        goal = next_check(max(reached), config.burn_in, config.sweep_length)
        while True:
            self._advance_all(chains, min(goal, config.iterations), progress)
            self.control.meet(self._comm)
            if any(self._comm.allgather(self._stopped)):
                return
            self.accuracy = self._measure_accuracy(chains)
            progress.accuracy = self.accuracy.against(config.accuracy_limits)
            if self.accuracy.reached or self.accuracy.iteration >= config.iterations:
                return
            goal = next_check(goal + 1, config.burn_in, config.sweep_length)

    def _advance_all(self, chains: list[Chain], goal: int, progress: Progress) -> None:
        """Sample all chains up to iteration `goal`, and remove those that fail from `chains`.

        Collective.
        """
        for chain in list(chains):
            if chain.iteration >= goal or self._stopped:
                continue
            with self._keeping_failure():
                self._advance(chain, goal, progress)
            if self.failure is not None:
                chains.remove(chain)
                chain.close()

    def _advance(self, chain: Chain, goal: int, progress: Progress) -> None:
        """Sample a chain up to iteration `goal`, unless the job is stopped. Collective."""
        if not self.sampled:
            self._make_first_sweep(chain, goal, progress)
        before = chain.sampled
        if not self._stopped:
            self.request = chain.advance(goal, progress)
        made = chain.sampled - before
        self.sampled += made
        self.timed += made

    def _make_first_sweep(self, chain: Chain, goal: int, progress: Progress) -> None:
        """Make the job's first sweep, which is not timed. Collective."""
        self._on_first_iteration()
        first = min(goal, chain.iteration + chain.config.sweep_length)
        self.request = chain.advance(first, progress, timed=False)
        self.sampled = chain.sampled
        self._begin_timing()
        chain.ring.phases.clear()

    @contextmanager
    def _keeping_failure(self) -> Iterator[None]:
        """Keep the first error of a chain, so that other groups continue. Collective.

        The job raises it at its end.
        """
        try:
            yield
        except (AgreedError, DivergenceError) as error:
            self.failure = self.failure or error
        # not after other errors, which end the job while other processes may be waiting
        self.control.finish()

    def _measure_accuracy(self, chains: Sequence[Chain]) -> AccuracyCheck:
        """Measure the accuracy of all chains on process 0; return it on all processes. Collective.

        Chains of all groups are measured.
        """
        monitored = {
            (chain.chain, block): values
            for chain in chains
            for block, values in chain.monitored().items()
        }
        progress = {
            chain.chain: ChainProgress(chain.iteration, chain.draw_weights())
            for chain in chains
            if chain.ring.rank == 0
        }
        gathered = self._comm.gather(ProcessDraws(monitored, progress))
        check = None if gathered is None else check_accuracy(self.config, gathered)
        agreed: AccuracyCheck = self._comm.bcast(check)
        return agreed
