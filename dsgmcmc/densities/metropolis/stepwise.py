"""What kernels have in common that look at a whole proposal at once, with any density, in NumPy."""

from __future__ import annotations

from abc import abstractmethod
from math import sqrt
from typing import NamedTuple, TypeVar

import numpy as np

from dsgmcmc.densities.metropolis.base import Metropolis
from dsgmcmc.densities.metropolis.proposals import NormalProposal, Proposal, ProposalConfig, dense
from dsgmcmc.densities.targets.density import D, Density, prior_energy
from dsgmcmc.densities.targets.vector import VectorTarget
from dsgmcmc.types import Array, Float64, Purpose

C = TypeVar("C", bound=ProposalConfig)


def stand_in(config: ProposalConfig, density: Density) -> NormalProposal:
    """Normal law by which proposals are made: the prior for pcn, else as wide as the typical curvature says."""
    prior = dense(density.prior_precision)
    if config.proposal == "pcn":
        return NormalProposal.of(density.prior_mean, prior, "the prior's precision")
    if config.proposal == "walk":
        return NormalProposal(density.prior_mean, np.eye(density.dimension), np.eye(density.dimension))
    return NormalProposal.of(
        density.prior_mean, np.diag(density.curvature) + prior, "curvature and the prior's precision"
    )


class Moves(NamedTuple):
    """What is proposed to the rows in an iteration.

    Attributes
    ----------
    theta, proposed : (n, D) float64
        Where the rows are, and where they may go.
    bar : (n,) float64
        -log u, and what the prior and the proposal say.
    energies : (n,) float64
        What is known of the data's energy at theta, else NaN; to be set to that of where the row will be.
    counts : (n, 4) float64
        See `Tally`; evaluations and decisions from all data are to be added.
    rng : Generator
        Of this iteration.
    """

    theta: Float64
    proposed: Float64
    bar: Float64
    energies: Float64
    counts: Float64
    rng: np.random.Generator


class Stepwise(Metropolis[C, D]):
    """A kernel that proposes, and decides by what it learns of the data's energy."""

    def __init__(self, config: C, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self._proposal: Proposal | None = None

    def step(self, target: VectorTarget[D], iteration: int) -> None:
        """One iteration."""
        theta, density = target.block["theta"], target.density
        energies, counts = self.tallied(target, iteration)
        if self._proposal is None:
            self._proposal = Proposal.of(self.config, stand_in(self.config, density), density.n_data)
        rng = target.stream.generator(Purpose.PROPOSAL)
        proposed = self._proposal.move(theta, rng.standard_normal(theta.shape))
        bar = rng.standard_exponential(len(theta))  # -log u
        for sign, at in ((1, theta), (-1, proposed)):
            bar += sign * (prior_energy(density, at) - self._proposal.own_energy(at))
        accepted = self.decide(density, Moves(theta, proposed, bar, energies, counts, rng))
        theta[accepted] = proposed[accepted]
        counts[:, 0] += accepted
        counts[:, 3] += 1

    @abstractmethod
    def decide(self, density: D, moves: Moves) -> Array:
        """Say of every row whether the data's energy rises by no more than `bar`, (n,) bool.

        Parameters
        ----------
        density : Density
            What is sampled.
        moves : Moves
            Energies that it learns and what it took are to be entered there.
        """


def known(density: Density, theta: Float64, energies: Float64, counts: Float64) -> Float64:
    """Return the energies at theta, those that were not known filled in."""
    unknown = np.isnan(energies)
    if unknown.any():
        energies[unknown] = density.energy(theta[unknown])
        counts[unknown, 1] += density.n_data
    return energies


def error_of_mean(values: Float64, n_data: int) -> float:
    """Standard error of the mean of a sample without replacement."""
    n = len(values)
    return float(values.std(ddof=1)) / sqrt(n) * sqrt((n_data - n) / (n_data - 1))


def surely(difference: float, error: float, freedom: float, risk: float) -> bool:
    """Whether a difference with a standard error has its sign by chance with a probability below `risk`."""
    from scipy.special import stdtr  # it takes longer to import than a short run to sample

    return error > 0 and bool(stdtr(freedom, -abs(difference) / error) < risk)
