"""Proposals that do not use the data, and the base class of kernels that make one proposal per iteration in NumPy.

All proposals are theta' = m + keep (theta - m) + root z, with z standard normal. With keep = 1 the proposal is a random
walk, which is symmetric. With keep = sqrt(rho) and root root^T = (1 - rho) S it is the preconditioned Crank-Nicolson
proposal, which is reversible with respect to N(m, S); in the acceptance ratio the target is then divided by N(m, S)
[Cornish 2019, section 3.2].
"""

from __future__ import annotations

from abc import abstractmethod
from math import sqrt
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from pydantic import Field

from dsgmcmc.densities.density import D, Density, prior_energy
from dsgmcmc.densities.metropolis.base import Metropolis
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.errors import InputError
from dsgmcmc.samplers.step_size import SamplerConfig
from dsgmcmc.types import Array, Float64, Purpose


class ProposalConfig(SamplerConfig):
    """Configuration of kernels with a normal proposal."""

    proposal: Literal["walk", "preconditioned", "pcn"] = Field(
        "preconditioned",
        description="walk: N(theta, scale^2 / N); preconditioned: scale times as wide as the normal law that stands "
        "for the target; pcn: reversible with respect to a normal law",
    )
    scale: float = Field(1.0, gt=0, allow_inf_nan=False, description="of a random walk")
    rho: float = Field(0.9, ge=0, lt=1, description="pcn: correlation of the squares; 0 proposes independently")


class NormalProposal(NamedTuple):
    """A normal distribution: mean (D,), precision (D, D) and a root of the covariance (D, D)."""

    mean: Float64
    precision: Float64
    root: Float64

    @classmethod
    def of(cls, mean: Float64, precision: Float64, what: str) -> NormalProposal:
        """Make the distribution from its precision.

        Raises
        ------
        InputError
            If the precision is not positive definite; `what` is its name in the message.
        """
        try:
            lower = np.linalg.cholesky(precision)
        except np.linalg.LinAlgError as error:
            raise InputError(
                f"{what} is not positive definite, so it says no width for proposals: give the density a "
                'prior_precision above 0, or use proposal = "walk"'
            ) from error
        return cls(mean, precision, np.ascontiguousarray(np.linalg.inv(lower).T))


class Proposal(NamedTuple):
    """A proposal theta' = m + keep (theta - m) + root z.

    Attributes
    ----------
    keep : float
    centre : (D,) float64
        m.
    root : (D, D) float64
    own : (D, D) float64
        Precision S^-1 of N(m, S), with respect to which the proposal is reversible; 0 for a random walk.
    """

    keep: float
    centre: Float64
    root: Float64
    own: Float64

    @classmethod
    def of(cls, config: ProposalConfig, law: NormalProposal, n_data: int) -> Proposal:
        """Make the proposal of a configuration; `law` approximates the target."""
        nothing = np.zeros_like(law.precision)
        if config.proposal == "walk":
            return cls(1.0, law.mean, config.scale / sqrt(n_data) * np.eye(len(law.mean)), nothing)
        if config.proposal == "preconditioned":
            return cls(1.0, law.mean, config.scale * law.root, nothing)
        return cls(sqrt(config.rho), law.mean, sqrt(1 - config.rho) * law.root, law.precision)

    def move(self, theta: Float64, z: Float64) -> Float64:
        """Propose new values for all rows, (n, D)."""
        proposed: Float64 = self.centre + self.keep * (theta - self.centre) + z @ self.root.T
        return proposed

    def own_energy(self, theta: Float64) -> Float64:
        """Minus the log density of N(m, S), up to a constant, (n,); 0 for a random walk."""
        offset = theta - self.centre
        own_energy: Float64 = 0.5 * (offset * (offset @ self.own)).sum(axis=1)
        return own_energy


def dense(precision: Float64) -> Float64:
    """Return a precision (D,) or (D, D) as a matrix."""
    return precision if precision.ndim == 2 else np.diag(precision)


C = TypeVar("C", bound=ProposalConfig)


def stand_in(config: ProposalConfig, density: Density) -> NormalProposal:
    """Normal distribution for proposals: the prior for pcn, otherwise one whose precision includes the curvature."""
    prior = dense(density.prior_precision)
    if config.proposal == "pcn":
        return NormalProposal.of(density.prior_mean, prior, "the prior's precision")
    if config.proposal == "walk":
        return NormalProposal(density.prior_mean, np.eye(density.dimension), np.eye(density.dimension))
    return NormalProposal.of(
        density.prior_mean, np.diag(density.curvature) + prior, "curvature and the prior's precision"
    )


class Moves(NamedTuple):
    """Proposals for all rows in an iteration.

    Attributes
    ----------
    theta, proposed : (n, D) float64
        Current and proposed values.
    bar : (n,) float64
        Maximum increase of the data's energy at which a proposal is accepted: -log u, plus terms of prior and proposal.
    energies : (n,) float64
        Energy of the data at theta, NaN if unknown. `decide` replaces it by the energy at the accepted value.
    counts : (n, 4) float64
        Counts of `Tally`, to which `decide` adds evaluations and decisions based on all data.
    rng : Generator
        Random numbers for this iteration.
    """

    theta: Float64
    proposed: Float64
    bar: Float64
    energies: Float64
    counts: Float64
    rng: np.random.Generator


class Stepwise(Metropolis[C, D]):
    """A kernel that makes one proposal per iteration, with a decision defined by subclasses."""

    def __init__(self, config: C, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self._proposal: Proposal | None = None

    def step(self, target: VectorTarget[D], iteration: int) -> None:
        """Run one iteration."""
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
        """Decide for every row whether the data's energy rises by no more than `bar`, (n,) bool.

        Parameters
        ----------
        density : Density
        moves : Moves
            Its `energies` and `counts` are updated in place.
        """


def fill_energies(density: Density, theta: Float64, energies: Float64, counts: Float64) -> Float64:
    """Compute unknown energies at theta in place, and return all energies."""
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
    """Whether a t test finds the sign of a difference at a tail probability below `risk`."""
    from scipy.special import stdtr  # importing it takes longer than a short run

    return error > 0 and bool(stdtr(freedom, -abs(difference) / error) < risk)
