r"""Metropolis-Hastings that decides from a part of the data where a test is sure enough [Korattikara 2014, alg. 1, 2].

The data's energy rises by the sum of l_i = U_i(theta') - U_i(theta), and a proposal is accepted where that is no more
than what u and the prior allow. A sample without replacement grows by `batch`, until Student's t of its mean against
the limit, with s / sqrt(n) sqrt((N - n) / (N - 1)) as its standard error, has a tail smaller than `risk`; from all data
the decision is exact.

Target: not quite the posterior; a decision is wrong with a probability of about `risk` at each test, if the mean of a
sample is normal. At risk 0 it is `dsgmcmc.densities.metropolis.mh`. Left out: the choice of risk and batch by a model
of the error.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from dsgmcmc.densities.metropolis.proposals import ProposalConfig
from dsgmcmc.densities.metropolis.stepwise import Moves, Stepwise, error_of_mean, surely
from dsgmcmc.densities.targets.sums import SumDensity
from dsgmcmc.types import Array, Float64


class AusterityConfig(ProposalConfig):
    """Configuration of austerity."""

    risk: float = Field(0.01, ge=0, lt=0.5, description="epsilon, tail probability at which a test decides")
    batch: int = Field(500, ge=2, description="data by which a sample grows")


class Austerity(Stepwise[AusterityConfig, SumDensity]):
    """Approximate Metropolis-Hastings by sequential tests of paired differences."""

    Config = AusterityConfig
    densities = SumDensity

    def decide(self, density: SumDensity, moves: Moves) -> Array:
        """Say of every row whether the data's energy rises by no more than `bar`, (n,) bool."""
        accepted = np.zeros(len(moves.theta), bool)
        for row, pair in enumerate(np.stack([moves.theta, moves.proposed], axis=1)):
            order = moves.rng.permutation(density.n_data)
            accepted[row], used = self.rises_by_no_more(density, pair, moves.bar[row], order)
            moves.counts[row, 1:3] += 2 * used, used == density.n_data
        return accepted

    def rises_by_no_more(self, density: SumDensity, pair: Float64, bar: float, order: Array) -> tuple[bool, int]:
        """Whether the energy of theta and theta' (2, D) rises by no more than `bar`, and how many data said so.

        Parameters
        ----------
        density : SumDensity
            Of which the data are.
        pair : (2, D) float64
            theta and theta'.
        bar : float
            Limit.
        order : (N,) int64
            In which data are looked at.
        """
        n, differences = len(order), np.empty(len(order))
        used = 0
        while used < n:
            index = order[used : used + self.config.batch]
            before, after = density.energies(pair, index)
            differences[used : used + len(index)] = after - before
            used += len(index)
            seen = differences[:used]
            if used < n and surely(seen.mean() - bar / n, error_of_mean(seen, n), used - 1, self.config.risk):
                break
        return bool(differences[:used].mean() * n <= bar), used
