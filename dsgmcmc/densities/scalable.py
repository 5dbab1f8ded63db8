r"""Metropolis-Hastings in which every datum may reject a proposal, and few data are evaluated
[Cornish 2019, eq. 1-13].

Let U be the energy, U^_k its Taylor polynomial of order k at a point theta^, and R_i the remainder
of the energy of datum i after its Taylor polynomial. A proposal theta' is accepted with probability

    alpha = min{1, q(theta', theta) / q(theta, theta') e^(U^_k(theta) - U^_k(theta'))}
            prod_i min{1, e^(R_i(theta) - R_i(theta'))}

This is at most the acceptance probability of Metropolis-Hastings, and leaves the same posterior
invariant. The product is evaluated by a Poisson process of candidates (`dsgmcmc.kernels.thinning`),
and only candidates are evaluated. If the posterior has width N^(-1/2) about theta^, these are O(1)
data for k = 1, and O(N^(-1/2)) for k = 2. The preconditioned Crank-Nicolson proposal is reversible
with respect to the normal distribution with energy U^_2, so for k = 2 the first factor is 1.

The kernel makes a step of plain Metropolis-Hastings if more than R candidates are expected. This
condition is symmetric in theta and theta'. The published R is N. The default is R = N / 2, because
a candidate takes two evaluations, while Metropolis-Hastings stores one of them.

Target: the posterior itself, for any theta^. Left out: the kernels without an expansion (FMH,
TFMH), whose acceptance falls to 0 as N grows; proposals that use the data, except for the Hessian
at the mode; proposal (17) of the paper, which is the random walk if theta^ is the mode. The
published bounds use the largest feature of every datum, and are several times too wide if features
are many or correlated. ``bound = "whitened"`` uses abs(x.v) <= abs(L^T x) abs(L^-1 v) instead, with
L L^T the inverse Hessian.

[Vose 1991] M. D. Vose. A linear algorithm for generating random numbers with a given distribution.
IEEE Transactions on Software Engineering 17(9), 1991
"""

from __future__ import annotations

from abc import abstractmethod
from math import factorial
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from dsgmcmc.densities.density import mode_of, prior_gradient
from dsgmcmc.densities.metropolis import Metropolis, NormalApproximation, Proposal, ProposalConfig
from dsgmcmc.densities.regression import Regression
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.kernels.formula import dense
from dsgmcmc.kernels.thinning import Tables, Thinning
from dsgmcmc.types import Factor, Float64, Int64, Purpose


class SMHConfig(ProposalConfig):
    """Configuration of SMH-1 and SMH-2."""

    bound: Literal["published", "whitened"] = Field(
        "whitened",
        description=(
            "of derivatives: by largest features, or in the coordinates of the normal approximation"
        ),
    )
    fallback: float = Field(
        0.5,
        ge=0,
        description=(
            "plain Metropolis-Hastings from fallback times N expected candidates on; published: 1"
        ),
    )


class Scalable(Metropolis[SMHConfig, Regression]):
    """A kernel in which every datum may reject a proposal, and few data are evaluated."""

    Config = SMHConfig
    densities = Regression
    #: The energy of a draw takes all data, and an iteration takes hardly any.
    defaults: ClassVar[dict[str, Any]] = {"iterations": 100_000, "burn_in": 1_000, "thin": 100}

    def __init__(self, config: SMHConfig, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self._prepared: tuple[Thinning, NormalApproximation] | None = None

    @property
    @abstractmethod
    def order(self) -> int:
        """Order k to which energies are expanded, 1 or 2."""

    # ------------------------------------------------------------------ quantities computed once

    def prepared(self, target: VectorTarget[Regression]) -> tuple[Thinning, NormalApproximation]:
        """Return the compiled steps for a target, and the normal approximation of the posterior;
        made only once.
        """
        if self._prepared is None:
            self._prepared = self._make(target.density, mode_of(target.density))
        return self._prepared

    def _make(self, density: Regression, anchor: Float64) -> tuple[Thinning, NormalApproximation]:
        """Make the kernel, and the normal approximation, from the expansion of energies at
        `anchor`, theta^ (D,).
        """
        link = density.link
        x, y = density.features, density.responses
        eta = x @ anchor
        value, slope, curvature = (
            f(eta, y, link.shape) for f in (link.value, link.slope, link.curvature)
        )
        prior, data_hessian = dense(density.prior_precision), (curvature[:, None] * x).T @ x
        pull = prior_gradient(density, anchor[None])[0]
        normal = NormalApproximation.of(
            anchor, data_hessian + prior, "the curvature at the posterior's mode"
        )
        normal = normal._replace(mean=anchor - normal.root @ (normal.root.T @ (pull + slope @ x)))
        white = (
            np.linalg.inv(normal.root) if self.config.bound == "whitened" else np.eye(len(anchor))
        )
        power = self.order + 1
        if self.config.bound == "published":
            psi = density.bounds(power) / factorial(power)
        else:
            lengths = np.linalg.norm(x @ normal.root, axis=1)
            psi = link.suprema[self.order - 1] * lengths**power / factorial(power)
        chance, alias = alias_table(psi) if psi.any() else (np.ones(len(psi)), np.arange(len(psi)))
        proposal = Proposal.of(self.config, normal, density.n_data)
        centre = proposal.centre - anchor
        linear = np.array([pull, pull + slope @ x]) + proposal.precision @ centre
        quadratic = (
            np.array([prior, prior + (data_hessian if self.order == 2 else 0.0)])
            - proposal.precision
        )
        taylor, total = (
            np.ascontiguousarray(np.stack([eta, value, slope, curvature], axis=1)),
            float(psi.sum()),
        )
        white, root = (
            np.ascontiguousarray(matrix, np.float64) for matrix in (white, proposal.root)
        )
        tables = Tables(
            x,
            y,
            taylor,
            psi,
            chance,
            alias,
            total,
            anchor,
            white,
            linear,
            quadratic,
            proposal.keep,
            centre,
            root,
        )
        limit = self.config.fallback * density.n_data
        euclidean = self.config.bound == "whitened"
        return (
            Thinning(link.value, link.third, link.shape, self.order, euclidean, limit, tables),
            normal,
        )

    # ------------------------------------------------------------------ sampling

    def start(self, target: VectorTarget[Regression], sd: float) -> None:
        """Draw the initial state from the normal approximation of the posterior, with `sd` times
        its width.
        """
        self.start_field(target, "theta", sd)
        _, normal = self.prepared(target)
        for block in target.blocks():
            block["theta"][:] = normal.mean + block["theta"] @ normal.root.T

    def advance(self, target: VectorTarget[Regression], first: int, count: int) -> None:
        """Run `count` iterations, starting with number `first`, in one compiled loop. Collective.

        Counts are reset at the end of burn-in.
        """
        if first < self.burn_in < first + count:
            self.advance(target, first, self.burn_in - first)
            first, count = self.burn_in, first + count - self.burn_in
        kernel, _ = self.prepared(target)
        self.begin_counts(target, first)
        target.begin(first)
        added = np.zeros((len(self.counts), 3))
        key = target.stream.key(Purpose.METROPOLIS, Factor.W, 0)
        kernel.iterate(target.block["theta"], self.energies, added, key=key, count=count)
        self.counts += np.column_stack([added, np.full(len(added), count)])
        target.begin(first + count - 1)

    def step(self, target: VectorTarget[Regression], iteration: int) -> None:
        """Run one iteration."""
        self.advance(target, iteration, 1)


class SMH1(Scalable):
    """Scalable Metropolis-Hastings of the first order."""

    order = 1


class SMH2(Scalable):
    """Scalable Metropolis-Hastings of the second order; the more data there are, the fewer data it
    evaluates.
    """

    order = 2


def alias_table(weights: Float64) -> tuple[Float64, Int64]:
    """Make the alias table to draw i with probability w_i / sum w [Vose 1991].

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
    chance[small + large] = 1  # exact up to rounding errors
    return chance, alias
