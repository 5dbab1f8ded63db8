r"""Metropolis kernels: base classes, adaptive step sizes, and proposals that do not use the data.

Every row of theta is an independent chain. Steps are adapted by `DualAveraging`.

Proposals that do not use the data have the form theta' = m + keep (theta - m) + root z, with
z ~ N(0, I). With keep = 1 the proposal is a random walk, which is symmetric. With keep = sqrt(rho)
and root root^T = (1 - rho) S it is the preconditioned Crank-Nicolson proposal, which is reversible
with respect to N(m, S); in the acceptance ratio the target is then divided by N(m, S) [Cornish
2019, section 3.2].
"""

from __future__ import annotations

from abc import abstractmethod
from math import sqrt
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar

import numpy as np
from numpy.random import Generator
from pydantic import Field
from typing_extensions import override

from dsgmcmc.densities.base import DensitySampler
from dsgmcmc.densities.density import D, Density, prior_energy
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.errors import refusing
from dsgmcmc.kernels.formulas.formula import dense
from dsgmcmc.samplers.base import C
from dsgmcmc.samplers.step_size import SamplerConfig
from dsgmcmc.targets.state import Attributes
from dsgmcmc.types import Array, Float64, Purpose

#: Constants gamma, kappa and t0 of dual averaging.
GAMMA = 0.05
KAPPA = 0.75
T0 = 10.0


class DualAveraging:
    """Dual averaging of the steps of all rows [Hoffman & Gelman 2014, eq. 6, algorithm 5].

    It adapts the step eps of a row to a mean acceptance probability delta. With m the number of
    iterations so far, and alpha the acceptance probability of the last iteration,

        H            <- (1 - 1 / (m + t0)) H + (delta - alpha) / (m + t0)
        log eps      <- log(10 eps_0) - sqrt(m) H / gamma
        log eps_bar  <- m^-kappa log eps + (1 - m^-kappa) log eps_bar

    Every row has a separate step: eps in burn-in, and the fixed eps_bar after burn-in. A step that
    continued to depend on the past would change the invariant distribution.

    [Hoffman & Gelman 2014] The No-U-Turn Sampler, Journal of Machine Learning Research 15.

    Parameters
    ----------
    eps : (n,) float64
        First steps.
    """

    def __init__(self, eps: Float64) -> None:
        self._log_eps = np.log(eps)
        self._log_mean = self._log_eps  # log eps_bar
        self._centre = self._log_eps + np.log(10)  # log(10 eps_0)
        self._error = np.zeros_like(self._log_eps)  # H
        self._iterations = 0  # m

    def eps(self, adapting: bool) -> Float64:
        """Return the steps of the rows, (n,): eps while adapting, otherwise eps_bar."""
        return np.exp(self._log_eps if adapting else self._log_mean)

    def adapt(self, probability: Float64, target: float) -> None:
        """Adapt the steps to a mean acceptance probability `target`.

        Parameters
        ----------
        probability : (n,) float64
            Acceptance probabilities of an iteration; NaN counts as 0.
        target : float
            delta.
        """
        probability = np.where(np.isnan(probability), 0.0, probability)
        self._iterations += 1
        m = self._iterations
        self._error = self._error + (target - probability - self._error) / (m + T0)
        self._log_eps = self._centre - sqrt(m) / GAMMA * self._error
        weight = m**-KAPPA
        self._log_mean = weight * self._log_eps + (1 - weight) * self._log_mean

    @property
    def state(self) -> Float64:
        """All numbers of the adaptation, (5, n) float64."""
        iterations = np.full_like(self._error, self._iterations)
        return np.stack([self._log_eps, self._log_mean, self._centre, self._error, iterations])

    @classmethod
    def from_state(cls, state: Float64) -> Self:
        """Return the adaptation that has this `state`."""
        log_eps, log_mean, centre, error, iterations = state
        adapted = cls(np.exp(log_eps))
        adapted._log_eps = log_eps
        adapted._log_mean = log_mean
        adapted._centre = centre
        adapted._error = error
        adapted._iterations = int(iterations[0])
        return adapted


class Metropolis(DensitySampler[C, D]):
    """A kernel that proposes a new value for every row, and accepts or rejects it.

    Attributes
    ----------
    counts : (n, 4) float64
        For every row since burn-in: accepted proposals, evaluations of the energy of a datum,
        decisions based on all data, and iterations.
    energies : (n,) float64
        Energy of all data at theta; NaN if unknown.
    adapted : DualAveraging or None
        Adaptation of the steps, if a kernel has one and has begun.
    """

    gradients = ("none",)
    scratch = ()
    #: Many proposals are rejected, and the energy of a draw takes all data, so that not all states
    #: are kept.
    defaults: ClassVar[dict[str, Any]] = {"iterations": 20_000, "burn_in": 1_000, "thin": 10}

    def __init__(self, config: C, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self.counts = np.zeros((0, 4))
        self.energies = np.zeros(0)
        self.adapted: DualAveraging | None = None
        self.replicated = (Attributes(self, "counts", "energies", "adaptation"),)

    @property
    def adaptation(self) -> Float64 | None:
        """The state of `adapted`, for checkpoints."""
        if self.adapted is None:
            return None
        return self.adapted.state

    @adaptation.setter
    def adaptation(self, state: Float64) -> None:
        self.adapted = DualAveraging.from_state(state)

    @override
    def metrics(self) -> dict[str, float]:
        """Return the acceptance rate, and evaluations of a datum's energy per iteration."""
        accepted, evaluations, _, n = self.counts.sum(axis=0)
        return {
            "acceptance": float(accepted / max(n, 1.0)),
            "evaluations": float(evaluations / max(n, 1.0)),
        }

    def begin_counts(self, target: VectorTarget[D], first: int) -> None:
        """Prepare `counts` and `energies` for iterations from `first` on.

        Counts are reset at the end of burn-in.
        """
        rows = len(target.block.counts)
        if len(self.counts) != rows:
            self.counts = np.zeros((rows, 4))
            self.energies = np.full(rows, np.nan)
        if first == self.burn_in:
            self.counts[:] = 0.0

    def fill_energies(self, density: Density, theta: Float64) -> None:
        """Compute the unknown energies at theta, (n, D)."""
        unknown = np.isnan(self.energies)
        if unknown.any():
            self.energies[unknown] = density.energy(theta[unknown])
            self.counts[unknown, 1] += density.n_data


class ProposalConfig(SamplerConfig):
    """Configuration of kernels with a normal proposal."""

    proposal: Literal["walk", "preconditioned", "pcn"] = Field(
        "preconditioned",
        description=(
            "walk: N(theta, scale^2 / N); preconditioned: scale times as wide as a normal"
            " approximation of the target; pcn: reversible with respect to a normal distribution"
        ),
    )
    scale: float = Field(1.0, gt=0, description="width of a random walk")
    rho: float = Field(
        0.9, ge=0, lt=1, description="pcn: square of the correlation; 0 proposes independently"
    )


class NormalApproximation(NamedTuple):
    """A normal distribution: mean (D,), precision (D, D) and a root of the covariance (D, D)."""

    mean: Float64
    precision: Float64
    root: Float64

    @classmethod
    def from_precision(cls, mean: Float64, precision: Float64, label: str) -> NormalApproximation:
        """Make the distribution from its precision.

        Raises
        ------
        InputError
            If the precision is not positive definite; the message calls it `label`.
        """
        problem = (
            f"{label} is not positive definite (give a prior_precision above 0,"
            ' or use proposal = "walk")'
        )
        with refusing(problem, np.linalg.LinAlgError):
            lower = np.linalg.cholesky(precision)
        return cls(mean, precision, np.ascontiguousarray(np.linalg.inv(lower).T))

    @classmethod
    def without_data(cls, config: ProposalConfig, density: Density) -> NormalApproximation:
        """Return the distribution for a proposal that does not use the data.

        It is the prior for pcn, N(prior mean, I) for a walk, and otherwise a normal distribution
        that uses the typical curvature.
        """
        mean = density.prior_mean
        if config.proposal == "walk":
            return cls(mean, np.eye(len(mean)), np.eye(len(mean)))
        prior = dense(density.prior_precision)
        if config.proposal == "pcn":
            return cls.from_precision(mean, prior, "the prior's precision")
        curvature = np.diag(density.curvature) + prior
        return cls.from_precision(mean, curvature, "curvature and the prior's precision")


class Proposal(NamedTuple):
    """A proposal theta' = m + keep (theta - m) + root z.

    Attributes
    ----------
    keep : float
        Factor of theta - m.
    centre : (D,) float64
        m.
    root : (D, D) float64
        Matrix that multiplies the standard normals z.
    precision : (D, D) float64
        Precision S^-1 of N(m, S), with respect to which the proposal is reversible; 0 for a random
        walk.
    """

    keep: float
    centre: Float64
    root: Float64
    precision: Float64

    @classmethod
    def from_config(
        cls, config: ProposalConfig, normal: NormalApproximation, n_data: int
    ) -> Proposal:
        """Make the proposal of a configuration; pcn is reversible with respect to `normal`."""
        if config.proposal == "pcn":
            return cls(
                keep=sqrt(config.rho),
                centre=normal.mean,
                root=sqrt(1 - config.rho) * normal.root,
                precision=normal.precision,
            )
        if config.proposal == "walk":
            root = config.scale / sqrt(n_data) * np.eye(len(normal.mean))
        else:
            root = config.scale * normal.root
        return cls(
            keep=1.0,
            centre=normal.mean,
            root=root,
            precision=np.zeros_like(normal.precision),
        )

    def move(self, theta: Float64, z: Float64) -> Float64:
        """Return new values of all rows of theta, (n, D), from standard normals z, (n, D)."""
        return self.centre + self.keep * (theta - self.centre) + z @ self.root.T

    def energy(self, theta: Float64) -> Float64:
        """Return minus the log density of N(m, S), up to a constant, (n,); 0 for a random walk."""
        offset = theta - self.centre
        return 0.5 * (offset * (offset @ self.precision)).sum(axis=1)


P = TypeVar("P", bound=ProposalConfig)


class Stepwise(Metropolis[P, D]):
    """A kernel that makes one proposal per iteration in NumPy.

    Subclasses define the decision to accept it.
    """

    def __init__(self, config: P, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self._proposal: Proposal | None = None

    @override
    def step(self, target: VectorTarget[D], iteration: int) -> None:
        theta = target.block["theta"]
        density = target.density
        self.begin_counts(target, iteration)
        if self._proposal is None:
            normal = NormalApproximation.without_data(self.config, density)
            self._proposal = Proposal.from_config(self.config, normal, density.n_data)
        rng = target.stream.generator(Purpose.PROPOSAL)
        proposed = self._proposal.move(theta, rng.standard_normal(theta.shape))
        limit = rng.standard_exponential(len(theta))  # -log u
        limit += prior_energy(density, theta) - self._proposal.energy(theta)
        limit -= prior_energy(density, proposed) - self._proposal.energy(proposed)
        accepted = self.decide(density, theta, proposed, limit=limit, rng=rng)
        theta[accepted] = proposed[accepted]
        self.counts[:, 0] += accepted
        self.counts[:, 3] += 1

    @abstractmethod
    def decide(
        self, density: D, theta: Float64, proposed: Float64, *, limit: Float64, rng: Generator
    ) -> Array:
        """Return for every row whether the data's energy rises by no more than `limit`.

        A subclass adds evaluations and decisions based on all data to `counts`, and updates
        `energies` if it uses them.

        Parameters
        ----------
        density : Density
        theta, proposed : (n, D) float64
            Current and proposed values.
        limit : (n,) float64
            Maximum rise of the data's energy at which a proposal is accepted: -log u, plus terms of
            prior and proposal.
        rng : Generator
            Random numbers for this iteration.

        Returns
        -------
        (n,) bool
        """
