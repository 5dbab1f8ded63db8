r"""Gradient estimators that draw single data of a sum U = sum_i U_i + prior.

Every iteration draws S = N / B of the N data with replacement, with probabilities p. The gradient
of the prior is exact. Two estimators are unbiased for all p > 0 and all tables h [El Hanchi 2019,
section 4.3]:

    grad U~ = 1/S sum grad U_i / p_i                                    importance sampling
    grad U~ = 1/S sum (grad U_i - h_i) / p_i + sum_j h_j                with control variates

where h_i is the gradient of datum i when it was last drawn. For the second estimator the paper
prints the mean of h in the last term; the sum is correct. A regression stores one number per datum.
The drawn data are a function of seed, chain, iteration and row.

[El Hanchi 2019] A. El Hanchi: Scaling up MCMC for Bayesian inference using adaptive data
subsampling (report).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from dsgmcmc.densities.base import DensityGradient
from dsgmcmc.densities.models.sums import SumDensity
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.errors import InputError
from dsgmcmc.samplers.gradients import GRADIENTS
from dsgmcmc.samplers.step_size import SamplerConfig
from dsgmcmc.targets.base import Cell
from dsgmcmc.targets.state import Attributes
from dsgmcmc.types import Float64, Int64, Purpose

SumTarget = VectorTarget[SumDensity]

#: Number of sweeps whose positions are stored: with `uniform` = 1 / 2, one datum in 3,000 is not
#: drawn for so long.
PAST = 16


@dataclass(frozen=True)
class Terms:
    """The S terms of an estimated gradient of one row.

    Attributes
    ----------
    density : SumDensity
    slopes : (1, S, W) float64
        The terms in stored form (`SumDensity.slopes`), not yet divided by their probabilities.
    index : (S,) int64
        The drawn data.
    p : (S,) float64
        Probabilities of these data.
    """

    density: SumDensity
    slopes: Float64
    index: Int64
    p: Float64

    def covariance_of_mean(self) -> Float64:
        """Return the estimated covariance of the mean of the terms, (D, D)."""
        terms = self.density.spread(self.slopes, self.index)[0] / self.p[:, None]
        return np.atleast_2d(np.cov(terms, rowvar=False)) / len(terms)


class Subsample(DensityGradient[SumDensity]):
    """Data drawn with replacement, with probabilities that subclasses define.

    Attributes
    ----------
    drawn : list of (S,) int64
        For every row, the indices of the data drawn in the last iteration.
    calls : float
        Number of gradients of single data computed so far for every row.
    table, table_sum : (n, N, W) and (n, D) float64
        Gradients of all data in stored form (`SumDensity.slopes`), and their sums over the data.
    """

    densities = SumDensity
    draws_data = True
    #: Whether the last gradient of every datum is stored, and whether the estimator sums
    #: differences from it.
    stored: ClassVar[bool] = True
    control_variate: ClassVar[bool] = True
    table: Float64
    table_sum: Float64

    def __init__(self, config: SamplerConfig, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self.calls = 0.0
        self.drawn: list[Int64] = []
        self._terms: list[Terms] = []  # of every row
        self.replicated = (Attributes(self, "calls", "table", "table_sum"),)

    @override
    def metrics(self) -> dict[str, float]:
        return {"gradient_calls": self.calls}

    # ------------------------------------------------------------------ an iteration

    @override
    def take(
        self,
        target: SumTarget,
        cell: Cell,
        position: str,
        out: str = "g",
        *,
        prior: bool = True,
        errors: bool = True,
    ) -> None:
        density = target.density
        block = target.block
        size = max(1, density.n_data // target.sweep_length)
        self.drawn = []
        self._terms = []
        block.begin_gradient(position, out, prior)
        if self.stored and target.stream.iteration == 0:
            self.begin_tables(target, block[position])
        elif self.stored and target.stream.iteration % target.sweep_length == 0:
            # summed again, so that rounding errors do not accumulate
            self.table_sum = density.total(self.table)
        for row, theta in enumerate(block[position]):
            p = self.probabilities(target, row, theta)
            index = draw(p, size, target.stream.generator(Purpose.SUBSAMPLE, row))
            slopes = density.slopes(theta[None], index)
            block[out][row] += self._estimate(density, row, slopes, index=index, p=p[index])
            self.record(target, row, theta, index=index, gradient=block[out][row])
        self.calls += size

    def _estimate(
        self, density: SumDensity, row: int, slopes: Float64, *, index: Int64, p: Float64
    ) -> Float64:
        """Return the estimated gradient of the likelihood's energy, (D,), and update the table.

        Parameters
        ----------
        slopes : (1, S, W) float64
            Gradients of the data `index`, (S,), in stored form.
        p : (S,) float64
            Probabilities of these data.
        """
        summed = slopes
        base = np.zeros(density.dimension)
        if self.stored:
            table = self.table[row]
            change = slopes - table[index]
            if self.control_variate:
                summed = change
                base = self.table_sum[row].copy()
            _, once = np.unique(index, return_index=True)
            self.table_sum[row] += density.weighted(
                change[:, once], index[once], np.ones(len(once))
            )
            table[index] = slopes[0]
        self.drawn.append(index)
        self._terms.append(Terms(density, summed, index, p))
        return density.weighted(summed, index, p) / len(index) + base

    def noise(self) -> Float64:
        """Return the estimated covariance of the noise in the last gradient given theta, (n, D, D).

        It is computed from the S terms of the gradient.

        Raises
        ------
        InputError
            If only one datum was drawn.
        """
        if len(self.drawn[0]) < 2:
            raise InputError(
                "the noise of a gradient can be estimated only from two or more data:"
                " use a smaller grid"
            )
        return np.array([terms.covariance_of_mean() for terms in self._terms])

    # ------------------------------------------------------------------ overridden by subclasses

    def probabilities(self, target: SumTarget, row: int, theta: Float64) -> Float64:
        """Probabilities p of the data, (N,); by default uniform.

        They must be positive where the term of a datum may differ from 0.
        """
        return np.full(target.n_data, 1 / target.n_data)

    def record(
        self, target: SumTarget, row: int, theta: Float64, *, index: Int64, gradient: Float64
    ) -> None:
        """Update a subclass's records of a row, after the data `index` gave `gradient`.

        By default do nothing.
        """

    def begin_tables(self, target: SumTarget, theta: Float64) -> None:
        """Fill the tables at the initial state theta (n, D), with N gradients for every row."""
        self.table = target.density.slopes(theta).copy()
        self.table_sum = target.density.total(self.table)
        self.calls = float(target.n_data)


class Saga(Subsample):
    """Control variates and uniform probabilities [Defazio 2014; El Hanchi 2019, section 4.3].

    [Defazio 2014] A. Defazio, F. Bach, S. Lacoste-Julien. SAGA: a fast incremental gradient method
    with support for non-strongly convex composite objectives. NeurIPS, 2014
    """


class ImportanceSampling(Subsample):
    """Probabilities in proportion to the Lipschitz constants [El Hanchi 2019, section 4.3].

    To use other fixed weights, return them from `smoothness` of the density.
    """

    stored = False
    control_variate = False

    @override
    def probabilities(self, target: SumTarget, row: int, theta: Float64) -> Float64:
        smoothness = target.density.smoothness
        return smoothness / smoothness.sum()


class ImportanceSaga(ImportanceSampling):
    """ImportanceSampling sampling with control variates [El Hanchi 2019, section 4.3].

    The estimator has the sum of h, not its mean.
    """

    stored = True
    control_variate = True


class Adaptive(Subsample):
    """Probabilities that depend on the curvature where a datum was last drawn.

    The method is from [El Hanchi 2019, section 5].

    Let theta_i be theta when datum i was last drawn, D_i = |theta - theta_i|, and kappa_i the
    Lipschitz constant of the gradient of U_i near theta_i. The weights are w_i = |h_i| + kappa_i
    D_i, and p is a mixture in equal parts of w / sum w and uniform probabilities. The published
    weights (`AdaptivePublished`) have the maximum L_i over all theta in place of kappa_i. In
    logistic regression with well separated classes L_i is far above kappa_i, and the published
    weights are no better than uniform probabilities.
    """

    #: Weight of the uniform probabilities.
    uniform: ClassVar[float] = 0.5

    def __init__(self, config: SamplerConfig, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self.replicated += (Attributes(self, "_last", "_past", "_stiffness"),)

    @override
    def begin_tables(self, target: SumTarget, theta: Float64) -> None:
        super().begin_tables(target, theta)
        self._last = np.zeros((len(theta), target.n_data), np.int64)
        self._past = np.repeat(theta[:, None], PAST * target.sweep_length, axis=1)
        self._stiffness = self.stiffness(target.density, theta, slice(None)).copy()

    @override
    def probabilities(self, target: SumTarget, row: int, theta: Float64) -> Float64:
        lengths = target.density.lengths(self.table[row][None])[0]
        weights = lengths + self._stiffness[row] * self.moved(target, row, theta)
        total = weights.sum()
        # all stored gradients are exactly 0 if the model predicts all data with certainty
        if total == 0:
            return super().probabilities(target, row, theta)
        return (1 - self.uniform) * weights / total + self.uniform / target.n_data

    def moved(self, target: SumTarget, row: int, theta: Float64) -> Float64:
        """Return D_i, (N,): the distance of theta from its value when each datum was last drawn."""
        past = self._past[row]
        distance = np.sqrt(((past - theta) ** 2).sum(axis=1))
        earliest = target.stream.iteration - len(past)  # of the stored positions
        visited = np.maximum(self._last[row], earliest)
        return distance[visited % len(past)]

    @override
    def record(
        self, target: SumTarget, row: int, theta: Float64, *, index: Int64, gradient: Float64
    ) -> None:
        """Store theta, and for the drawn data the iteration and kappa_i."""
        iteration = target.stream.iteration
        self._past[row, iteration % self._past.shape[1]] = theta
        self._last[row, index] = iteration
        self._stiffness[row, index] = self.stiffness(target.density, theta[None], index)[0]

    def stiffness(self, density: SumDensity, theta: Float64, index: Int64 | slice) -> Float64:
        """Return the Lipschitz constants kappa_i, (n, S)."""
        return density.stiffness(theta, index)


class AdaptiveStored(Adaptive):
    """Weights w_i = |h_i|.

    A tenth of the probability is uniform; otherwise a datum with a small gradient might never be
    drawn again.
    """

    uniform = 0.1

    @override
    def stiffness(self, density: SumDensity, theta: Float64, index: Int64 | slice) -> Float64:
        """Return kappa_i = 0, (n, S)."""
        return np.zeros((len(theta), density.n_data))[:, index]


class AdaptivePublished(Adaptive):
    """Published weights |h_i| + L_i sqrt(2 t d^2 beta_i + K_i) [El Hanchi 2019, section 5.1].

    There are no control variates.

    beta_i is the age of h_i in iterations, K_i the sum of |grad U~|^2 over these iterations, and t
    the step of SGLD.
    """

    control_variate = False
    uniform = 0.0

    def __init__(self, config: SamplerConfig, burn_in: int) -> None:
        super().__init__(config, burn_in)
        self.replicated += (Attributes(self, "_squares"),)

    @override
    def begin_tables(self, target: SumTarget, theta: Float64) -> None:
        super().begin_tables(target, theta)
        self._squares = np.zeros((len(theta), PAST * target.sweep_length))

    @override
    def moved(self, target: SumTarget, row: int, theta: Float64) -> Float64:
        """Return the published estimate of D_i, (N,)."""
        iteration = target.stream.iteration
        squares = self._squares[row]
        age = np.minimum(iteration - self._last[row], len(squares))
        latest_first = np.arange(iteration - 1, iteration - 1 - len(squares), -1) % len(squares)
        since = np.concatenate([[0.0], squares[latest_first]])
        t = self.config.step(iteration, target.sweep_length, self.burn_in) / target.curvature_bound
        return np.sqrt(2 * t * len(theta) ** 2 * age + np.cumsum(since)[age])

    @override
    def record(
        self, target: SumTarget, row: int, theta: Float64, *, index: Int64, gradient: Float64
    ) -> None:
        """Store the squared length of the gradient, too."""
        super().record(target, row, theta, index=index, gradient=gradient)
        self._squares[row, target.stream.iteration % self._squares.shape[1]] = (gradient**2).sum()

    @override
    def stiffness(self, density: SumDensity, theta: Float64, index: Int64 | slice) -> Float64:
        """Return kappa_i = L_i, (n, S)."""
        return np.broadcast_to(density.smoothness, (len(theta), density.n_data))[:, index]


#: The estimators that draw single data, by name. To add one, list its class here.
DATUM_GRADIENTS: dict[str, type[Subsample]] = {
    "saga": Saga,
    "importance": ImportanceSampling,
    "importance-saga": ImportanceSaga,
    "adaptive": Adaptive,
    "adaptive-stored": AdaptiveStored,
    "adaptive-published": AdaptivePublished,
}
GRADIENTS.update(DATUM_GRADIENTS)  # where samplers look for the estimator that a setting names


def draw(p: Float64, size: int, generator: np.random.Generator) -> Int64:
    """Draw `size` indices below len(p) with replacement, in proportion to p."""
    cumulative = np.cumsum(p)
    index = np.searchsorted(cumulative, generator.random(size) * cumulative[-1], side="right")
    return np.asarray(np.minimum(index, np.flatnonzero(p)[-1]), np.int64)
