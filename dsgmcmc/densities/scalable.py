r"""Metropolis-Hastings in which every datum may reject a proposal [Cornish 2019, eq. 1-13].

Let U be the energy, U^_k its Taylor polynomial of order k at a point theta^, and R_i the remainder
of the energy of datum i after its Taylor polynomial. A proposal theta' is accepted with probability

    alpha = min{1, q(theta', theta) / q(theta, theta') e^(U^_k(theta) - U^_k(theta'))}
            prod_i min{1, e^(R_i(theta) - R_i(theta'))}

This is at most the acceptance probability of Metropolis-Hastings, and leaves the same posterior
invariant. The product is evaluated by a Poisson process of candidates (`dsgmcmc.kernels.thinning`),
and only candidates are evaluated.

Target: the posterior itself, for any theta^. Left out: the kernels without an expansion (FMH,
TFMH), whose acceptance falls to 0 as N grows; proposals that use the data, except for the Hessian
at the mode; proposal (17) of the paper, which is the random walk if theta^ is the mode.
"""

from __future__ import annotations

from abc import abstractmethod
from math import factorial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field
from typing_extensions import override

from dsgmcmc.densities.curvature import mode_of
from dsgmcmc.densities.density import prior_gradient
from dsgmcmc.densities.metropolis import Metropolis, NormalApproximation, Proposal, ProposalConfig
from dsgmcmc.densities.models.regression import Regression
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.kernels.formulas.formula import dense
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


class Expansion(NamedTuple):
    """The expansion of the energy of a regression at a point theta^.

    Attributes
    ----------
    anchor : (D,) float64
        theta^.
    taylor : (N, 4) float64
        x_i . theta^, and u and its first two derivatives at this predictor.
    prior_slope, slope : (D,) float64
        Gradient of the prior's energy, and of the energy of data and prior.
    prior_hessian, data_hessian : (D, D) float64
        Second derivatives of the prior's energy, and of the energy of the data.
    normal : NormalApproximation
        The normal distribution with energy U^_2.
    """

    anchor: Float64
    taylor: Float64
    prior_slope: Float64
    slope: Float64
    prior_hessian: Float64
    data_hessian: Float64
    normal: NormalApproximation

    @classmethod
    def at(cls, density: Regression, anchor: Float64) -> Expansion:
        """Return the expansion at a point (D,)."""
        link = density.link
        x = density.features
        y = density.responses
        eta = x @ anchor
        value = link.value(eta, y, link.shape)
        slope = link.slope(eta, y, link.shape)
        curvature = link.curvature(eta, y, link.shape)
        prior_slope = prior_gradient(density, anchor[None])[0]
        prior_hessian = dense(density.prior_precision)
        gradient = prior_slope + slope @ x
        data_hessian = (curvature[:, None] * x).T @ x
        normal = NormalApproximation.from_precision(
            anchor, data_hessian + prior_hessian, "the curvature at the posterior's mode"
        )
        mean = anchor - normal.root @ (normal.root.T @ gradient)
        return cls(
            anchor=anchor,
            taylor=np.ascontiguousarray(np.stack([eta, value, slope, curvature], axis=1)),
            prior_slope=prior_slope,
            slope=gradient,
            prior_hessian=prior_hessian,
            data_hessian=data_hessian,
            normal=normal._replace(mean=mean),
        )


class Scalable(Metropolis[SMHConfig, Regression]):
    """A kernel in which every datum may reject a proposal, and few data are evaluated.

    If the posterior has width N^(-1/2) about theta^, O(1) data are evaluated for k = 1, and
    O(N^(-1/2)) for k = 2. The preconditioned Crank-Nicolson proposal is reversible with respect to
    the normal distribution with energy U^_2, so for k = 2 the first factor of alpha is 1.

    The kernel makes a step of plain Metropolis-Hastings if more than R candidates are expected.
    This condition is symmetric in theta and theta'. The published R is N. The default is R = N / 2,
    because a candidate takes two evaluations, while Metropolis-Hastings stores one of them.

    The published bounds use the largest feature of every datum, and are several times too wide if
    features are many or correlated. ``bound = "whitened"`` uses abs(x.v) <= abs(L^T x) abs(L^-1 v)
    instead, with L L^T the inverse Hessian.
    """

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
        """Return the compiled steps for a target, and the normal approximation of its posterior.

        Both are made only once.
        """
        if self._prepared is None:
            density = target.density
            expansion = Expansion.at(density, mode_of(density))
            self._prepared = self._make_kernel(density, expansion), expansion.normal
        return self._prepared

    def _make_kernel(self, density: Regression, expansion: Expansion) -> Thinning:
        """Return the compiled steps for a density."""
        link = density.link
        psi = self._bounds(density, expansion.normal)
        if psi.any():
            chance, alias = alias_table(psi)
        else:
            chance = np.ones(len(psi))
            alias = np.arange(len(psi))
        proposal = Proposal.from_config(self.config, expansion.normal, density.n_data)
        centre = proposal.centre - expansion.anchor
        # without data, and to order k
        linear = np.array([expansion.prior_slope, expansion.slope]) + proposal.precision @ centre
        hessian = expansion.prior_hessian
        if self.order == 2:
            hessian = hessian + expansion.data_hessian
        quadratic = np.array([expansion.prior_hessian, hessian]) - proposal.precision
        euclidean = self.config.bound == "whitened"
        white = np.linalg.inv(expansion.normal.root) if euclidean else np.eye(density.dimension)
        tables = Tables(
            features=density.features,
            responses=density.responses,
            taylor=expansion.taylor,
            psi=psi,
            chance=chance,
            alias=alias,
            total=float(psi.sum()),
            anchor=expansion.anchor,
            white=np.ascontiguousarray(white, np.float64),
            linear=linear,
            quadratic=quadratic,
            keep=proposal.keep,
            centre=centre,
            root=np.ascontiguousarray(proposal.root, np.float64),
        )
        return Thinning(
            value=link.value,
            third=link.third,
            shape=link.shape,
            order=self.order,
            euclidean=euclidean,
            limit=self.config.fallback * density.n_data,
            tables=tables,
        )

    def _bounds(self, density: Regression, normal: NormalApproximation) -> Float64:
        """Return psi, (N,), the bounds on the data's remainders, for the setting `bound`."""
        power = self.order + 1
        if self.config.bound == "published":
            return density.bounds(power) / factorial(power)
        lengths = np.linalg.norm(density.features @ normal.root, axis=1)
        return density.link.suprema[self.order - 1] * lengths**power / factorial(power)

    # ------------------------------------------------------------------ sampling

    @override
    def start(self, target: VectorTarget[Regression], sd: float) -> None:
        """Draw the initial state from the normal approximation, with `sd` times its width."""
        self.start_field(target, "theta", sd)
        _, normal = self.prepared(target)
        for block in target.blocks():
            block["theta"][:] = normal.mean + block["theta"] @ normal.root.T

    @override
    def advance(self, target: VectorTarget[Regression], first: int, count: int) -> None:
        """Run iterations in one compiled loop; counts are reset at the end of burn-in."""
        if first < self.burn_in < first + count:
            self.advance(target, first, self.burn_in - first)
            self.advance(target, self.burn_in, first + count - self.burn_in)
            return
        kernel, _ = self.prepared(target)
        self.begin_counts(target, first)
        target.begin(first)
        added = np.zeros((len(self.counts), 3))
        key = target.stream.key(Purpose.METROPOLIS, Factor.W, 0)
        kernel.iterate(target.block["theta"], self.energies, added, key=key, count=count)
        self.counts += np.column_stack([added, np.full(len(added), count)])
        target.begin(first + count - 1)

    @override
    def step(self, target: VectorTarget[Regression], iteration: int) -> None:
        self.advance(target, iteration, 1)


class SMH1(Scalable):
    """Scalable Metropolis-Hastings of the first order."""

    order = 1


class SMH2(Scalable):
    """Scalable Metropolis-Hastings of the second order.

    The more data there are, the fewer data it evaluates.
    """

    order = 2


def alias_table(weights: Float64) -> tuple[Float64, Int64]:
    """Make the alias table to draw i with probability w_i / sum w [Vose 1991].

    [Vose 1991] M. D. Vose. A linear algorithm for generating random numbers with a given
    distribution. IEEE Transactions on Software Engineering 17(9), 1991

    Parameters
    ----------
    weights : (N,) float64
        Not negative, not all zero.

    Returns
    -------
    chance, alias : (N,) float64 and int64
        Draw i uniformly; keep it with probability chance[i], and otherwise use alias[i].
    """
    n = len(weights)
    chance = weights * (n / weights.sum())
    alias = np.arange(n)
    small = list(np.flatnonzero(chance < 1))
    large = list(np.flatnonzero(chance >= 1))
    while small and large:
        low = small.pop()
        high = large[-1]
        alias[low] = high
        chance[high] -= 1 - chance[low]
        if chance[high] < 1:
            small.append(large.pop())
    chance[small + large] = 1  # exact up to rounding errors
    return chance, alias
