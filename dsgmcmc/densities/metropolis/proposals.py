"""Proposals that do not look at the data, and the base of the kernels that decide about one at a time in NumPy.

All proposals are theta' = m + keep (theta - m) + root z, with z standard normal: random walks and the preconditioned
Crank-Nicolson proposal. With keep = 1 that is symmetric; with keep = sqrt(rho) and root root^T = (1 - rho) S it is
reversible with respect to N(m, S): the acceptance ratio then has the target divided by that law in the place of the
target [Cornish 2019, section 3.2].
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
    """Configuration of kernels with such a proposal."""

    proposal: Literal["walk", "preconditioned", "pcn"] = Field(
        "preconditioned",
        description="walk: N(theta, scale^2 / N); preconditioned: scale times as wide as the normal law that stands "
        "for the target; pcn: reversible with respect to a normal law",
    )
    scale: float = Field(1.0, gt=0, allow_inf_nan=False, description="of a random walk")
    rho: float = Field(0.9, ge=0, lt=1, description="pcn: correlation of the squares; 0 proposes independently")


class NormalProposal(NamedTuple):
    """A normal law: mean (D,), precision (D, D) and a root of its covariance (D, D)."""

    mean: Float64
    precision: Float64
    root: Float64

    @classmethod
    def of(cls, mean: Float64, precision: Float64, what: str) -> NormalProposal:
        """Make it from its precision.

        Raises
        ------
        InputError
            If the precision is not positive definite; `what` says whose it is.
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
        keep.
    centre : (D,) float64
        m.
    root : (D, D) float64
        root.
    own : (D, D) float64
        Precision of the law with mean m that it is reversible with respect to; 0 of a random walk.
    """

    keep: float
    centre: Float64
    root: Float64
    own: Float64

    @classmethod
    def of(cls, config: ProposalConfig, law: NormalProposal, n_data: int) -> Proposal:
        """Make that of a configuration, with `law` in the place of the target."""
        nothing = np.zeros_like(law.precision)
        if config.proposal == "walk":
            return cls(1.0, law.mean, config.scale / sqrt(n_data) * np.eye(len(law.mean)), nothing)
        if config.proposal == "preconditioned":
            return cls(1.0, law.mean, config.scale * law.root, nothing)
        return cls(sqrt(config.rho), law.mean, sqrt(1 - config.rho) * law.root, law.precision)

    def move(self, theta: Float64, z: Float64) -> Float64:
        """Propose a move to every row, (n, D)."""
        proposed: Float64 = self.centre + self.keep * (theta - self.centre) + z @ self.root.T
        return proposed

    def own_energy(self, theta: Float64) -> Float64:
        """Minus the log density of the law that it is reversible with respect to, (n,)."""
        offset = theta - self.centre
        own_energy: Float64 = 0.5 * (offset * (offset @ self.own)).sum(axis=1)
        return own_energy


def dense(precision: Float64) -> Float64:
    """A precision (D,) or (D, D) as a matrix."""
    return precision if precision.ndim == 2 else np.diag(precision)


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
    """Proposals to the rows in an iteration.

    Attributes
    ----------
    theta, proposed : (n, D) float64
        Where the rows are, and where they may go.
    bar : (n,) float64
        -log u, and what the prior and the proposal say.
    energies : (n,) float64
        What is known of the data's energy at theta, else NaN; to be set to that of where the row will be.
    counts : (n, 4) float64
        Counts of `Tally`, to which evaluations and decisions from all data are to be added.
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
        """Whether the data's energy rises by no more than `bar`, for every row, (n,) bool.

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
