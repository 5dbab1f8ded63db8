"""When the chains of a run end: after a number of iterations, or earlier, once they are accurate enough.

The accuracy is that of the followed quantities: predictions of some test ratings, or elements of a density's theta.
Process 0 measures it (`dsgmcmc.diagnostics.accuracy`) from the recorded draws of all chains; 9 in 10 of the quantities
must reach it. Shared parameters are measured, too, by the log likelihood of the test ratings at each draw. A single
chain is compared with itself: its halves count as chains, each of which R-hat splits again.

Chains are looked at when all have made the same number of iterations: burn-in and 10 n sweeps, n = 1, 2, ..., 7, 8, 10,
12, 14, 16, 20, ... with at most three significant binary digits. So the end depends on the draws alone, all looks
together cost about as much as six looks at the end, and chains end at most a quarter later than they could.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dsgmcmc.config.chain import ResolvedChain
from dsgmcmc.diagnostics.accuracy import LABELS, Look, accuracy, limits, reached
from dsgmcmc.diagnostics.mixing import equal_weights
from dsgmcmc.targets.base import Followed
from dsgmcmc.types import Comm, Float64

if TYPE_CHECKING:  # `dsgmcmc info` does without them
    from dsgmcmc.runs.chain import Chain
    from dsgmcmc.runs.control import Control
    from dsgmcmc.runs.progress import Progress

LOOK_SWEEPS, LOOK_DIGITS = 10, 3

#: What is followed, by chain and block.
Parts = dict[tuple[int, int], Followed]


def next_look(iteration: int, burn_in: int, sweep: int) -> int:
    """Iteration of the first look at `iteration` or later; see the module.

    Parameters
    ----------
    iteration, burn_in : int
    sweep : int
        Iterations in a sweep.
    """
    number = max(1, -(-(iteration - burn_in) // (LOOK_SWEEPS * sweep)))
    spacing = 1 << max(0, number.bit_length() - LOOK_DIGITS)
    return burn_in + -(-number // spacing) * spacing * LOOK_SWEEPS * sweep


class Limit:
    """Chains run one after another, and make all iterations."""

    #: Whether the chains run together.
    together = False
    #: The last look at all chains, the same on all processes; None before the first.
    look: Look | None = None

    def __init__(self, iterations: int) -> None:
        self.iterations = iterations

    def goal(self, chains: Sequence[Chain]) -> int:
        """Number of iterations that the chains make next."""
        return self.iterations

    def over(self, chains: Sequence[Chain], stopped: bool) -> bool:
        """Whether the chains end there."""
        return True


class Until(Limit):
    """Chains run together until they reach the accuracy, or have made all iterations.

    Parameters
    ----------
    config : ResolvedChain
        Settings of the run.
    comm : Comm
        The processes of all chains.
    control : Control
        Waits for them.
    progress : Progress
        Shows the accuracy.
    """

    together = True

    def __init__(self, config: ResolvedChain, comm: Comm, control: Control, progress: Progress) -> None:
        super().__init__(config.iterations)
        self.config = config
        self._comm, self._control, self._progress = comm, control, progress
        self._goal = -1

    def goal(self, chains: Sequence[Chain]) -> int:
        """Number of iterations that the chains make next: the next look that no chain has passed. Collective."""
        if self._goal < 0:
            made = self._comm.allgather(max((chain.iteration for chain in chains), default=0))
            self._goal = max(made) - 1
        self._goal = next_look(self._goal + 1, self.config.burn_in, self.config.sweep_length)
        return min(self._goal, self.iterations)

    def over(self, chains: Sequence[Chain], stopped: bool) -> bool:
        """Look at all chains, unless some were `stopped`: then all end. Collective; see `Limit.over`."""
        self._control.meet(self._comm)
        if any(self._comm.allgather(stopped)):
            return True
        followed = {(chain.chain, block): parts for chain in chains for block, parts in chain.followed().items()}
        facts = {chain.chain: (chain.iteration, chain.draw_weights()) for chain in chains if chain.ring.rank == 0}
        everything = self._comm.gather((followed, facts))
        look: Look = self._comm.bcast(None if everything is None else self._judge(everything))
        wanted = limits(self.config.wanted, look.found)
        shown = [f"{LABELS[name][0]} {value:{LABELS[name][1]}}/{wanted[name]:g}" for name, value in look.found.items()]
        self.look, self._progress.look = look, ", ".join(shown)
        return look.reached or look.iteration >= self.iterations

    def _judge(self, everything: Sequence[tuple[Parts, dict[int, tuple[int, Float64]]]]) -> Look:
        """Measure the accuracy of the draws of all processes; on process 0."""
        followed = {key: parts for part, _ in everything for key, parts in part.items()}
        facts = {chain: fact for _, part in everything for chain, fact in part.items()}
        chains, scores = [], []
        for number in sorted(facts):
            parts = [followed[key] for key in sorted(followed) if key[0] == number]
            chains.append(np.concatenate([part.values for part in parts], axis=1))
            scores.append(np.sum([part.score for part in parts], axis=0))  # in the order of the blocks
        draws = min(map(len, chains))
        weights = np.stack([fact[1][len(fact[1]) - draws :] for fact in facts.values()])
        measured: dict[str, float] = {}
        if equal_weights(weights):
            values = np.stack([chain[len(chain) - draws :] for chain in chains]).astype(np.float64)
            shared = np.stack([score[len(score) - draws :] for score in scores]) if scores[0].size else None
            measured = accuracy(values, len(self.config.make_sampler().positions), list(self.config.wanted), shared)
        return Look(
            until=str(self.config.until),
            iteration=min(iteration for iteration, _ in facts.values()),
            found=measured,
            reached=reached(self.config.wanted, measured),
            limit=self.iterations,
        )
