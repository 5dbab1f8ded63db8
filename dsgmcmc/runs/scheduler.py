"""The chains of one group of processes: sampled one after another, or in turns if they end together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

from dsgmcmc.errors import AgreedError, DivergenceError
from dsgmcmc.parallel.signals import Request
from dsgmcmc.runs.chain import Chain, Report
from dsgmcmc.runs.control import Control
from dsgmcmc.runs.until import Limit


class ChainScheduler:
    """Samples chains, of which one iterates at a time.

    If they end together, all of them are in memory, and each iterates up to the next look in turn.

    Parameters
    ----------
    open_chain : callable
        Makes a chain by its number, at its start or at its checkpoint.
    numbers : sequence of int
        Numbers of the chains.
    end : Limit
        When they end.
    control : Control
        Through which these processes agree.
    report : callable
        Shows lines of metrics.
    begins : callable
        Called once before anything is sampled; not if all chains have ended already.
    age : callable
        Seconds since the job began.

    Attributes
    ----------
    request : Request
        The last request.
    failure : AgreedError, DivergenceError or None
        The error that ended a chain, on all processes of the group.
    startup : float
        Seconds of the job until the first sweep was made: kernels are compiled, or loaded, where they are first needed.
    made : (int, int)
        Iterations made, and those of them after the first sweep.
    """

    def __init__(
        self,
        open_chain: Callable[[int], Chain],
        numbers: Sequence[int],
        end: Limit,
        control: Control,
        report: Report,
        begins: Callable[[], None],
        age: Callable[[], float],
    ) -> None:
        self._open, self._end, self._control, self._report = open_chain, end, control, report
        self._begins: Callable[[], None] | None = begins
        self._batches = [list(numbers)] if end.together else [[number] for number in numbers]
        self._chains: list[Chain] = []
        self.request = Request.GO_ON
        self.failure: AgreedError | DivergenceError | None = None
        self._age = age
        self.startup, self.made = age(), (0, 0)
        self._begin = perf_counter()

    @property
    def seconds(self) -> float:
        """Wall seconds since the first sweep; 0 if no more was sampled."""
        return perf_counter() - self._begin if self.made[1] else 0.0

    @property
    def stopped(self) -> bool:
        """Whether sampling stops, though chains may not have ended."""
        return self.failure is not None or self.request >= Request.STOP

    def run(self) -> None:
        """Sample all chains to their end, or until they are stopped. Collective."""
        for batch in self._batches:
            for number in batch:
                self._attempt(partial(self._add, number))
            try:
                self._go_on()
                for chain in self._chains:
                    if chain.iteration:
                        self._attempt(chain.finish)
            finally:
                for chain in self._chains:
                    chain.close()
            self._chains = []  # frees their memory for the next batch
            if self.stopped:
                return

    def _add(self, number: int) -> None:
        self._chains.append(self._open(number))
        self._control.chains = len(self._chains)

    def _go_on(self) -> None:
        """Sample the chains until they end."""
        over = False
        while not over:
            goal = self._end.goal(self._chains)
            for chain in list(self._chains):
                if chain.iteration < goal and not self.stopped:
                    self._attempt(partial(self._advance, chain, goal))
            over = self._end.over(self._chains, self.stopped)

    def _advance(self, chain: Chain, goal: int) -> None:
        if self._begins:
            self._begins()
            self._begins = None
        self._chains.remove(chain)  # if it fails it is neither evaluated nor saved
        try:
            if not self.made[0]:
                self._make_first_sweep(chain, goal)
            before = chain.made
            if not self.stopped:
                self.request = chain.advance(goal, self._report)
        except BaseException:
            chain.close()
            raise
        self._chains.append(chain)
        self.made = self.made[0] + chain.made - before, self.made[1] + chain.made - before

    def _make_first_sweep(self, chain: Chain, goal: int) -> None:
        """Make the first sweep, in which kernels are compiled or loaded, and start the clock after it."""
        sweep = chain.config.sweep_length
        self.request = chain.advance(min(goal, chain.iteration + sweep), self._report, timed=False)
        self.made = chain.made, 0
        self.startup, self._begin = self._age(), perf_counter()
        chain.ring.phases.clear()

    def _attempt(self, work: Callable[[], None]) -> None:
        """Do something with a chain, and keep its error for the end of the job: other groups continue."""
        try:
            work()
        except (AgreedError, DivergenceError) as error:
            self.failure = self.failure or error
        self._control.finish()  # not after other errors: this process ends the job, and the others wait for it
