r"""Metropolis-Hastings in which every datum may reject on its own, and few are looked at [Cornish 2019, eq. 1-13].

With U = U_0 + sum_i U_i, where U_0 is the prior's, the factorised kernels (`FMH`, `TFMH`) accept a proposal of theta'
with probability

    alpha = min{1, q(theta', theta) / q(theta, theta') e^(U_0(theta) - U_0(theta'))}
            prod_i min{1, e^(U_i(theta) - U_i(theta'))}

which is that of Metropolis-Hastings or less, and keeps the same law. The scalable kernels (`SMH1`, `SMH2`) have U^_k,
the series of order k of U at theta^, in the place of U_0, and R_i, what it leaves of U_i, in the place of U_i. The
product is found by a Poisson process of candidates (`dsgmcmc.kernels.thinning`), and nothing else is looked at: with a
posterior of width N^(-1/2) about theta^, O(1) data at k = 1, and O(N^(-1/2)) at k = 2. The preconditioned
Crank-Nicolson proposal is reversible with respect to the normal law of U^_2: at k = 2 the first factor is then 1.

A truncated kernel is plain Metropolis-Hastings where more than R candidates are expected, which depends on theta and
theta' alike. The published R is N, but a candidate takes two evaluations where Metropolis-Hastings remembers one:
R = N / 2 by default.

Target: the posterior itself, whatever theta^. Left out: proposals that look at the data but for their Hessian at the
mode; proposal (17) of the paper, which is the random walk where theta^ is the mode. The published bounds, by largest
features, are several times too wide where features are many or correlated: ``bound = "whitened"`` has
abs(x.v) <= abs(L^T x) abs(L^-1 v) instead, with L L^T the inverse Hessian.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import factorial, inf
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from pydantic import Field

from dsgmcmc.densities.metropolis.base import Metropolis
from dsgmcmc.densities.metropolis.proposals import NormalProposal, Proposal, ProposalConfig, dense
from dsgmcmc.densities.regression import Regression
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.thinning import Tables, Thinning
from dsgmcmc.targets.state import Replicated
from dsgmcmc.types import Factor, Float64, Int64, Purpose

C = TypeVar("C", bound="ThinnedConfig")


class ThinnedConfig(ProposalConfig):
    """Configuration of the kernels that look at few data."""

    bound: Literal["published", "whitened"] = Field(
        "whitened", description="of derivatives: by largest features, or in the coordinates of the normal approximation"
    )

    def limit(self, n_data: int) -> float:
        """Expected candidates from which on all data are looked at."""
        return inf


class TruncatedConfig(ThinnedConfig):
    """Configuration of the kernels that fall back to all data where that is cheaper."""

    fallback: float = Field(
        0.5, ge=0, description="plain Metropolis-Hastings from fallback times N expected candidates on; published: 1"
    )

    def limit(self, n_data: int) -> float:
        """Expected candidates from which on all data are looked at."""
        return self.fallback * n_data


@dataclass
class Anchor(Replicated):
    """theta^, about which energies are expanded: (D,)."""

    saved_as: ClassVar[dict[str, str]] = {"point": "metropolis.anchor"}

    point: Float64 | None = None


def mode_of(density: Regression) -> Float64:
    """Find a mode of the posterior near the prior's mean, (D,); how well does not matter to the law."""
    from scipy.optimize import minimize  # it takes longer to import than a short run to sample

    n = density.n_data

    def energy(theta: Float64) -> tuple[float, Float64]:
        at = theta[None]
        value = (density.energy(at) + density.prior_energy(at))[0] / n
        return value, (density.gradient(at) + density.prior_gradient(at))[0] / n

    mode: Float64 = minimize(
        energy,
        density.prior_mean,
        jac=True,
        hess=lambda theta: density.hessian(theta) / n,
        method="trust-exact",
        options={"gtol": 1e-10},
    ).x
    return mode


class Thinned(Metropolis[C, Regression]):
    """A kernel whose data reject one by one, of which few are asked."""

    densities = Regression
    defaults: ClassVar[dict[str, Any]] = {
        "iterations": 100_000,
        "burn_in": 1_000,
        "evaluate_every": 5_000,
        "initial_sd": 2.0,
    }

    def __init__(self, config: C, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self.anchor = Anchor()
        self.replicated = (self.tally, self.anchor)
        self._made: tuple[Thinning, NormalProposal] | None = None

    @property
    @abstractmethod
    def order(self) -> int:
        """Order k to which energies are expanded."""

    @classmethod
    def default_thin(cls, config: C, grid: int) -> int:
        """Every hundredth iteration: to look at a state takes all data, and a step hardly any."""
        return 100

    # ------------------------------------------------------------------ what is computed once

    def made(self, target: VectorTarget[Regression]) -> tuple[Thinning, NormalProposal]:
        """The kernel for a target, and the normal approximation of its posterior."""
        if self._made is None:
            density = target.density
            if self.anchor.point is None:
                self.anchor.point = mode_of(density)
            self._made = self._make(density, self.anchor.point)
        return self._made

    def _make(self, density: Regression, anchor: Float64) -> tuple[Thinning, NormalProposal]:
        link, x, y = density.link, density.features, density.responses
        eta = x @ anchor
        value, slope, curvature = (f(eta, y, link.shape) for f in (link.value, link.slope, link.curvature))
        prior, data = dense(density.prior_precision), (curvature[:, None] * x).T @ x
        pull = density.prior_gradient(anchor[None])[0]
        law = NormalProposal.of(anchor, data + prior, "the curvature at the posterior's mode")
        law = law._replace(mean=anchor - law.root @ (law.root.T @ (pull + slope @ x)))
        white = np.linalg.inv(law.root) if self.config.bound == "whitened" else np.eye(len(anchor))
        psi = self._psi(density, law)
        chance, alias = alias_table(psi) if psi.any() else (np.ones(len(psi)), np.arange(len(psi)))
        proposal = Proposal.of(self.config, law, density.n_data)
        centre = proposal.centre - anchor
        linear = np.array([pull, pull + (slope @ x if self.order else 0.0)]) + proposal.own @ centre
        quadratic = np.array([prior, prior + (data if self.order == 2 else 0.0)]) - proposal.own
        tables = Tables(
            features=x,
            responses=y,
            taylor=np.ascontiguousarray(np.stack([eta, value, slope, curvature], axis=1)),
            psi=psi,
            chance=chance,
            alias=alias,
            total=float(psi.sum()),
            anchor=anchor,
            white=np.ascontiguousarray(white),
            linear=linear,
            quadratic=quadratic,
            keep=proposal.keep,
            centre=centre,
            root=np.ascontiguousarray(proposal.root),
        )
        limit = self.config.limit(density.n_data)
        euclidean = self.config.bound == "whitened"
        return Thinning(link.value, link.third, link.shape, self.order, euclidean, limit, tables), law

    def _psi(self, density: Regression, law: NormalProposal) -> Float64:
        """psi_i of `dsgmcmc.kernels.thinning`, (N,)."""
        order, k = self.order + 1, factorial(self.order + 1)
        supremum = density.link.suprema[self.order]
        if supremum == inf:
            raise InputError(
                f"the slopes of the {density.link.name} link have no bound, which this kernel needs: use smh1 or smh2"
            )
        if self.config.bound == "published":
            return density.bounds(order) / k
        psi: Float64 = supremum * np.linalg.norm(density.features @ law.root, axis=1) ** order / k
        return psi

    # ------------------------------------------------------------------ sampling

    def start(self, target: VectorTarget[Regression], sd: float) -> None:
        """Set the initial state: the normal approximation of the posterior, `sd` times as wide."""
        self.start_field(target, "theta", sd)
        _, law = self.made(target)
        for block in target.blocks():
            block["theta"][:] = law.mean + block["theta"] @ law.root.T

    def advance(self, target: VectorTarget[Regression], first: int, count: int) -> None:
        """Make `count` iterations from number `first` on.

        Here: in one compiled loop, and what is tallied begins anew after burn-in. Collective.
        """
        if first < self.burn_in < first + count:
            self.advance(target, first, self.burn_in - first)
            first, count = self.burn_in, first + count - self.burn_in
        kernel, _ = self.made(target)
        energies, counts = self.tallied(target, first)
        target.begin(first)
        added = np.zeros((len(counts), 3))
        kernel.iterate(
            target.block["theta"], energies, added, target.stream.key(Purpose.METROPOLIS, Factor.W, 0), count
        )
        counts += np.column_stack([added, np.full(len(counts), count)])
        target.begin(first + count - 1)

    def step(self, target: VectorTarget[Regression], iteration: int) -> None:
        """One iteration."""
        self.advance(target, iteration, 1)

    def acceptance(self, target: VectorTarget[Regression], theta: Float64, proposed: Float64) -> float:
        """Probability with which a proposal (D,) is accepted at theta (D,); from all data, to look at and to test."""
        return self.made(target)[0].judge(theta, proposed)[1]


class FMHConfig(ThinnedConfig):
    """Configuration of FMH."""


class TFMHConfig(TruncatedConfig):
    """Configuration of TFMH."""


class FMH(Thinned[FMHConfig]):
    """Factorised Metropolis-Hastings. The more data, the rarer it moves."""

    Config = FMHConfig
    order = 0


class TFMH(Thinned[TFMHConfig]):
    """Truncated factorised Metropolis-Hastings."""

    Config = TFMHConfig
    order = 0


class SMHConfig(TruncatedConfig):
    """Configuration of SMH-1 and SMH-2."""


class SMH1(Thinned[SMHConfig]):
    """Scalable Metropolis-Hastings of the first order."""

    Config = SMHConfig
    order = 1


class SMH2(Thinned[SMHConfig]):
    """Scalable Metropolis-Hastings of the second order: the more data, the fewer are looked at."""

    Config = SMHConfig
    order = 2


def alias_table(weights: Float64) -> tuple[Float64, Int64]:
    """Make the table for drawing i with probability w_i / sum w [Vose 1991].

    Parameters
    ----------
    weights : (N,) float64
        Not negative, not all zero.

    Returns
    -------
    chance, alias : (N,) float64 and int64
        Draw i uniformly; keep it with probability chance[i], and otherwise take alias[i].
    """
    n = len(weights)
    chance, alias = weights * (n / weights.sum()), np.arange(n)
    small, large = list(np.flatnonzero(chance < 1)), list(np.flatnonzero(chance >= 1))
    while small and large:
        low, high = small.pop(), large[-1]
        alias[low] = high
        chance[high] -= 1 - chance[low]
        if chance[high] < 1:
            small.append(large.pop())
    chance[small + large] = 1  # but for rounding
    return chance, alias
