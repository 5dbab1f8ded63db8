r"""Metropolis-Hastings with proposals that do not use the data: exact, or with sequential tests.

`MH` is exact. In the other three algorithms, a decision uses only as many data as a test needs.
Target of `Austerity`: not quite the posterior. Target of `StochasticMH` and `ModifiedStochasticMH`:
not the posterior, because the energies of single data vary far more than the paired differences of
austerity. With risk 0 all three are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from pydantic import Field
from typing_extensions import override

from dsgmcmc.densities.density import Density
from dsgmcmc.densities.metropolis import ProposalConfig, Stepwise
from dsgmcmc.densities.models.sums import SumDensity
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.targets.state import Attributes
from dsgmcmc.types import Array, Float64


class MH(Stepwise[ProposalConfig, Density]):
    """Metropolis-Hastings [Metropolis 1953; Hastings 1970, eq. 6].

    Target: the posterior itself. Left out: nothing; an iteration computes the energy of all data
    once. The preconditioned Crank-Nicolson proposal [Cotter 2013, eq. 4.4] is reversible with
    respect to the prior, so the acceptance probability depends on the likelihood alone.

    [Cotter 2013] S. L. Cotter, G. O. Roberts, A. M. Stuart, D. White. MCMC methods for functions:
    modifying old algorithms to make them faster. Statistical Science 28(3), 2013
    [Hastings 1970] W. K. Hastings. Monte Carlo sampling methods using Markov chains and their
    applications. Biometrika 57(1), 1970
    [Metropolis 1953] N. Metropolis, A. W. Rosenbluth, M. N. Rosenbluth, A. H. Teller, E. Teller.
    Equation of state calculations by fast computing machines. Journal of Chemical Physics 21, 1953
    """

    Config = ProposalConfig

    @override
    def decide(
        self, density: Density, theta: Float64, proposed: Float64, *, limit: Float64, rng: Generator
    ) -> Array:
        self.fill_energies(density, theta)
        energy = density.energy(proposed)
        self.counts[:, 1:3] += density.n_data, 1
        accepted: Array = energy - self.energies <= limit
        self.energies[accepted] = energy[accepted]
        return accepted


class AusterityConfig(ProposalConfig):
    """Configuration of austerity."""

    risk: float = Field(
        0.01, ge=0, lt=0.5, description="epsilon, tail probability at which a test decides"
    )
    batch: int = Field(500, ge=2, description="number of data by which a sample grows")


class Austerity(Stepwise[AusterityConfig, SumDensity]):
    """Approximate Metropolis-Hastings by sequential tests [Korattikara 2014, alg. 1, 2].

    The data's energy rises by the sum of l_i = U_i(theta') - U_i(theta), and a proposal is accepted
    if the rise is at most a limit that depends on a uniform random number, the prior and the
    proposal. A sample of l_i without replacement grows by `batch`, until a t test of its mean
    against the limit / N has a tail probability below `risk`. The standard error in the test is
    s / sqrt(n) sqrt((N - n) / (N - 1)); a decision based on all data is exact.

    If sample means are normal, each test is wrong with a probability of at most about `risk`, and a
    decision may take several tests. Left out: the choice of risk and batch by a model of the error.
    """

    Config = AusterityConfig
    densities = SumDensity

    @override
    def decide(
        self,
        density: SumDensity,
        theta: Float64,
        proposed: Float64,
        *,
        limit: Float64,
        rng: Generator,
    ) -> Array:
        accepted = np.zeros(len(theta), bool)
        for row, pair in enumerate(np.stack([theta, proposed], axis=1)):
            order = rng.permutation(density.n_data)
            accepted[row], used = self.rises_by_no_more(density, pair, limit[row], order)
            self.counts[row, 1:3] += 2 * used, used == density.n_data
        return accepted

    def rises_by_no_more(
        self, density: SumDensity, pair: Float64, limit: float, order: Array
    ) -> tuple[bool, int]:
        """Return whether the energy rises by no more than `limit`, and the number of data used.

        Parameters
        ----------
        density : SumDensity
        pair : (2, D) float64
            theta and theta'.
        limit : float
            Largest accepted rise of the energy from theta to theta'.
        order : (N,) int64
            Order in which the data are used.
        """
        n = len(order)
        for before, after in growing(order, self.config.batch, partial(density.energies, pair)):
            rises = after - before
            difference = rises.mean() - limit / n
            error = error_of_mean(rises, n)
            if is_significant(difference, error, len(rises) - 1, self.config.risk):
                break
        return bool(rises.mean() * n <= limit), len(rises)


class StochasticMHConfig(AusterityConfig):
    """Configuration of austerity, with another default of `batch`."""

    batch: int = Field(
        122, ge=2, description="S, number of data by which a sample grows; in the paper, sqrt(N)"
    )


class StochasticMH(Stepwise[StochasticMHConfig, SumDensity]):
    """Stochastic Metropolis-Hastings with the corrected variance [El Hanchi 2019, alg. 1].

    It tests estimates of energies. A proposal is accepted if U(theta') <= U(theta) - log u, plus
    terms of the prior and the proposal; U is the energy of the data. U(theta') is estimated by N
    times the mean of a sample without replacement, which grows until a t test against the right
    side has a tail probability below `risk`. For U(theta) the algorithm uses the estimate with
    which theta was accepted, as if it were exact. An estimate that is far too low therefore holds
    the chain at theta for a long time. The variance of N times the mean is
    N^2 (s^2 / n) (N - n) / (N - 1); the paper prints it without 1/n and N^2.
    """

    Config = StochasticMHConfig
    densities = SumDensity

    @override
    def decide(
        self,
        density: SumDensity,
        theta: Float64,
        proposed: Float64,
        *,
        limit: Float64,
        rng: Generator,
    ) -> Array:
        self.fill_energies(density, theta)
        bounds = self.energies + limit
        estimates = np.empty(len(theta))
        n = density.n_data
        for row, bound in enumerate(bounds):
            energies = partial(density.energies, proposed[row : row + 1])
            for (sample,) in growing(rng.permutation(n), self.config.batch, energies):
                estimates[row] = n * sample.mean()
                error = n * error_of_mean(sample, n)
                if is_significant(estimates[row] - bound, error, len(sample) - 1, self.config.risk):
                    break
            self.counts[row, 1:3] += len(sample), len(sample) == n
        accepted: Array = estimates <= bounds
        self.energies[accepted] = estimates[accepted]
        return accepted


class ModifiedStochasticMHConfig(StochasticMHConfig):
    """Configuration of modified stochastic Metropolis-Hastings."""

    refresh: int = Field(
        1000, ge=1, description="iterations between reference points, each of which uses all data"
    )


class EnergyEstimate(NamedTuple):
    """Estimate of an energy by the mean of terms.

    Attributes
    ----------
    mean : float
    squares : float
        Sum of the terms' squared deviations from the mean.
    number : float
        Number of terms; inf if the energy is exact.
    """

    mean: float = 0.0
    squares: float = 0.0
    number: float = 0.0

    def refined(self, terms: Float64) -> EnergyEstimate:
        """Return the estimate after adding terms; an exact estimate stays as it is."""
        if self.number == inf:
            return self
        n = self.number + len(terms)
        mean = float(terms.mean())
        off = mean - self.mean
        within = float(((terms - mean) ** 2).sum())
        between = off * off * self.number * len(terms) / n
        return EnergyEstimate(
            mean=self.mean + off * len(terms) / n,
            squares=self.squares + within + between,
            number=n,
        )

    @property
    def variance(self) -> float:
        """Estimated variance of the mean; 0 if the energy is exact."""
        if self.number == inf:
            return 0.0
        return self.squares / (self.number - 1) / self.number


class ComparedEnergies(NamedTuple):
    """Estimates of the energies at the current and the proposed theta, and the terms they used."""

    current: EnergyEstimate
    proposed: EnergyEstimate
    used: int


class ModifiedStochasticMH(Stepwise[ModifiedStochasticMHConfig, SumDensity]):
    """Stochastic Metropolis-Hastings with importance sampling, a variant in [El Hanchi 2019].

    Data are drawn with replacement. Their probabilities p_i are an equal mixture of uniform
    probabilities and of probabilities proportional to abs(U_i) at a reference point; U is estimated
    by the mean of U_i / p_i. The estimates of both energies are stored, and refined until a test of
    their difference decides. The test uses Welch's statistic with n' - 1 degrees of freedom, where
    n' is the number of data in the estimate for the proposal, instead of the Welch-Satterthwaite
    degrees of freedom. If N evaluations give no decision, both energies are computed from all data.

    Left out: a table of every datum's energy at its last draw. Instead, the state becomes the
    reference point every `refresh` iterations.
    """

    Config = ModifiedStochasticMHConfig
    densities = SumDensity

    def __init__(self, config: ModifiedStochasticMHConfig, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self._probabilities = np.zeros((0, 0))  # probabilities of the data, (n, N)
        self._estimates: list[EnergyEstimate] = []  # of the energy at theta, for every row
        self.replicated += (Attributes(self, "_probabilities", "estimates"),)

    @property
    def estimates(self) -> Float64:
        """The estimates of the energies, (n, 3), for checkpoints."""
        return np.array(self._estimates)

    @estimates.setter
    def estimates(self, rows: Float64) -> None:
        self._estimates = [EnergyEstimate(*row) for row in rows.tolist()]

    @override
    def step(self, target: VectorTarget[SumDensity], iteration: int) -> None:
        is_due = not len(self._probabilities) or iteration % self.config.refresh == 0
        if is_due:
            self._set_reference(target.density, target.block["theta"])
        super().step(target, iteration)  # resets `counts` at the end of burn-in
        if is_due:
            self.counts[:, 1] += target.density.n_data

    def _set_reference(self, density: SumDensity, theta: Float64) -> None:
        """Compute the probabilities of the data from their energies at theta, (n, D)."""
        size = np.abs(density.energies(theta)) + np.finfo(np.float64).tiny
        relative = 0.5 * size / size.sum(axis=1, keepdims=True)
        self._probabilities = relative + 0.5 / density.n_data

    @override
    def decide(
        self,
        density: SumDensity,
        theta: Float64,
        proposed: Float64,
        *,
        limit: Float64,
        rng: Generator,
    ) -> Array:
        if not self._estimates:
            self._estimates = [EnergyEstimate()] * len(theta)
        accepted = np.zeros(len(theta), bool)
        for row, p in enumerate(self._probabilities):
            pair = np.stack([theta[row], proposed[row]])
            current = self._estimates[row]
            found = self._compare(density, pair, current, limit=limit[row], p=p, rng=rng)
            accepted[row] = found.proposed.mean - found.current.mean <= limit[row]
            self._estimates[row] = found.proposed if accepted[row] else found.current
            self.counts[row, 1:3] += found.used, found.proposed.number == inf
        return accepted

    def _compare(
        self,
        density: SumDensity,
        pair: Float64,
        current: EnergyEstimate,
        *,
        limit: float,
        p: Float64,
        rng: Generator,
    ) -> ComparedEnergies:
        """Refine estimates of the energies at theta and theta' until a test decides.

        `pair`, (2, D), has theta and theta', `p`, (N,), the probabilities of the data, and
        `current` the estimate at theta so far.
        """
        proposed = EnergyEstimate()
        cumulative = np.cumsum(p)
        used = 0
        while used < density.n_data:
            index = np.searchsorted(cumulative, rng.random(self.config.batch))
            index = np.minimum(index, density.n_data - 1)
            before, after = density.energies(pair, index) / p[index]
            current = current.refined(before)
            proposed = proposed.refined(after)
            used += 2 * len(index)
            difference = proposed.mean - current.mean - limit
            error = sqrt(current.variance + proposed.variance)
            if is_significant(difference, error, proposed.number - 1, self.config.risk):
                return ComparedEnergies(current, proposed, used)
        before, after = density.energy(pair)
        return ComparedEnergies(
            current=EnergyEstimate(before, number=inf),
            proposed=EnergyEstimate(after, number=inf),
            used=used + 2 * density.n_data,
        )


def growing(order: Array, batch: int, energies: Callable[[Array], Float64]) -> Iterator[Float64]:
    """Yield the energies (rows, S) of the first S data in `order`; S grows by `batch` up to N."""
    found: list[Float64] = []
    for begin in range(0, len(order), batch):
        found.append(energies(order[begin : begin + batch]))
        yield np.concatenate(found, axis=1)


def error_of_mean(values: Float64, n_data: int) -> float:
    """Return the standard error of the mean of values drawn without replacement from `n_data`."""
    n = len(values)
    if n == n_data:
        return 0.0
    return float(values.std(ddof=1)) / sqrt(n) * sqrt((n_data - n) / (n_data - 1))


def is_significant(difference: float, error: float, freedom: float, risk: float) -> bool:
    """Return whether a t test of a difference against 0 has a tail probability below `risk`.

    `freedom` is the number of degrees of freedom.
    """
    from scipy.special import stdtr  # importing it takes longer than a short run

    return error > 0 and bool(stdtr(freedom, -abs(difference) / error) < risk)
