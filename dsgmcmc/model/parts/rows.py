r"""Priors of the rows of both factors, theta_i ~ N(m, Lambda^-1), and the draws of (m, Lambda).

A row theta_i has D = K + 1 columns, the last of which is the bias, or D = K columns without biases;
at rank 0 the bias is the only column. The prior mean of the bias is not drawn: it is 0, or for
counts half the logarithm of their mean. Other parts may shift the prior means of single rows, by
field ``shift`` (`dsgmcmc.model.parts.base`).

The priors of (m, Lambda) are as follows; (m, Lambda) is drawn from its exact conditional given the
factor's state:

- ``fixed``: m = 0, Lambda = lambda I [Simsekli 2016, 4.3]; nothing is drawn.
- ``normal-gamma``: Lambda = diag(lambda), lambda_k ~ Gamma(1, rate 5), m_k | lambda_k ~ N(0, 1 /
  lambda_k) [Nemeth 2021, 6.3]. If ratings are standardised, or the likelihood has no noise and so
  no unit, lambda_k ~ Gamma(4, rate 3 b), so that E[1 / lambda_k] = b. Then E[W_ik^2] = 2 b, which
  includes the variance of m. With b = 1 / (4 sqrt K), E[(W_i . H_j)^2] = 4 K b^2 is a quarter of
  the ratings' variance. For the biases b = 1/8, so that a_i and b_j together account for another
  quarter.
- ``normal-wishart``: (m, Lambda) ~ N(m | 0, (2 Lambda)^-1) W(Lambda | I, K) [Salakhutdinov 2008,
  eq. 5-7]; the bias keeps its normal-gamma prior.

If m is drawn, and the priors are standardised and include biases, chains of rank 2 or more begin
with a mean m_k of `START_MEAN` in one column of W and in another of H; in such a column, the other
factor's elements act as a second bias. In a chain that begins at m = 0, the means need hundreds of
sweeps to take over from the biases. With samplers that use all ratings in an iteration, moves
between later sweeps exchange means and biases without changing predictors.

*Exchange of the means of one factor's rows and the biases of the other factor's rows.* The
predictor a_i + b_j + W_i . H_j does not change if all H_j move by d and every bias a_i by -W_i . d.
Nor does the prior density of H if its mean m moves by d, too. Means and biases explain the same
differences between users (or items). A chain that draws the means given the biases, and the biases
given the means, exchanges them only over thousands of sweeps. The conditional distribution of d is
normal. With r_i the bias less its prior mean, lambda_a its prior precision, and m ~ N(0, (kappa
Lambda)^-1),

    d ~ N(Q^-1 (lambda_a sum_i r_i W_i - kappa Lambda m), Q^-1),    Q = kappa Lambda + lambda_a sum_i W_i W_i^T

and likewise for W and the biases b_j. Ordered levels have an intercept mu ~ N(0, 1 / lambda_0) in
their thresholds. All biases a_i and mu may also move by c, which changes no probability: d becomes
(d, c), W_i becomes (W_i, -1), m becomes (m, mu), and kappa Lambda gets lambda_0 as another block.
The move leaves the posterior invariant: the translations by d form a group with Jacobian 1, so that
d may be drawn from a density proportional to the posterior along the orbit of the state [Liu &
Sabatti 2000, theorem 1].

[Liu & Sabatti 2000] Generalised Gibbs sampler and multigrid Monte Carlo for Bayesian computation.
Biometrika 87.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from math import sqrt
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import Generator
from pydantic import BaseModel

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.kernels.formula import RowPrior, dense
from dsgmcmc.kernels.products import inner
from dsgmcmc.model import conjugate
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.parts.base import (
    NO_TERMS,
    DrawContext,
    FeatureSizes,
    Intercept,
    ModelFacts,
    Part,
    PrecisionTerms,
)
from dsgmcmc.model.quantity import SHIFT, Quantity, Sampled, SavedDraw
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.settings import setting
from dsgmcmc.targets.state import ParameterBlock, Rows
from dsgmcmc.types import Factor, Float64, Named, PriorName, Purpose

#: Initial value of one m_k of each factor, in units of the square root of the ratings' sd.
START_MEAN = 1.0

#: Sweeps between moves, and least number of sweeps before the first move; if the first sweep ends
#: with a draw of the hyperparameters, a move follows it, too. Other early moves would only disturb
#: the biases, which converge first.
MOVE_EVERY, FIRST_MOVE = 5, 50

MEAN = Quantity("{}.mean", ("column",), columns=1, started=True, per_chain=True)
PRECISION = Quantity(
    "{}.precision", ("column",), columns=-2, positive=True, started=True, per_chain=True
)
DENSE_PRECISION = replace(PRECISION, dims=("column", "column"))


def start_precision(rank: int) -> float:
    """1 / b for standardised ratings: columns that few ratings need would stay unused for long at a
    larger start.
    """
    return 4.0 * sqrt(max(rank, 1))


def row_quantities(prior: PriorName) -> tuple[Quantity, ...]:
    """The quantities of the priors of both factors."""
    precision = DENSE_PRECISION if prior == "normal-wishart" else PRECISION
    return tuple(quantity.of(factor) for quantity in (MEAN, precision) for factor in Factor)


@dataclass
class RowParameters(Sampled):
    """Mean and precision of the rows of both factors, for each of M sub-chains, float64.

    Attributes
    ----------
    mean : dict of Factor to (M, D)
    precision : dict of Factor to (M, D), or (M, D, D) for ``normal-wishart``
    """

    quantities: ClassVar[Mapping[str, Quantity]] = {"mean": MEAN, "precision": PRECISION}

    mean: dict[Factor, Float64]
    precision: dict[Factor, Float64]


class RowSettings(BaseModel):
    """Settings of the rows' priors."""

    prior: PriorName = setting(
        "Prior of the rows of both factors; fixed: without hyperparameters.", "normal-gamma"
    )
    prior_precision: float = setting(
        "Precision of a fixed prior, in the ratings' own unit; for other priors, the initial"
        " precision.",
        1.0,
        shown=(
            "10, below rank 7 4 sqrt(rank); 1 with --prior fixed and with the samplers gibbs,"
            " psgld, hamcmc and sgld"
        ),
        offered=False,
        gt=0,
    )
    standardise: bool = setting(
        "Scale the priors by the ratings' standard deviation; no: as published.",
        True,
        shown="yes; no with --prior fixed or a likelihood without noise",
        offered=False,
    )


@dataclass(eq=False)
class RowPriors(Part):
    """Priors of the rows of both factors.

    Parameters
    ----------
    rank : int
        Number K of latent dimensions.
    biases : bool
        Whether there is a bias column.
    prior : {"fixed", "normal-gamma", "normal-wishart"}
    prior_precision : float
        lambda if `prior` is fixed, in the ratings' own unit; else the initial precision of all
        columns.
    subchains : int
        Number M of interleaved sub-chains.
    scale : float
        Divisor of the ratings.
    standardised : bool
        Whether the priors are in units of the ratings' standard deviation; else they are the
        published ones.
    width : float
        Multiplies the variances of standardised priors, for predictors in another unit than the
        ratings'.
    bias_mean : float
        Prior mean of the biases.
    exchanges : bool
        Whether means and biases are exchanged between sweeps.
    """

    Settings = RowSettings
    rank: int
    biases: bool = True
    prior: PriorName = "normal-gamma"
    prior_precision: float = 1.0
    _: KW_ONLY
    subchains: int = 1
    scale: float = 1.0
    standardised: bool = False
    width: float = 1.0
    bias_mean: float = 0.0
    exchanges: bool = False
    parameters: RowParameters = field(init=False)

    def __post_init__(self) -> None:
        free_means = self.biases and self.rank > 0 and self.prior != "fixed"
        self._exchanges = self.exchanges and free_means
        self._start_mean = START_MEAN if self.standardised and free_means and self.rank > 1 else 0.0
        self.dimension = self.rank + int(self.biases)
        self.precision_prior = self.bias_prior = conjugate.PUBLISHED_PRIOR
        if self.standardised:
            self.precision_prior = conjugate.with_mean_variance(
                self.width / start_precision(self.rank)
            )
            self.bias_prior = conjugate.with_mean_variance(self.width * 0.125)
        self.quantities = row_quantities(self.prior)
        self.parameters = RowParameters({}, {})
        self.start(())

    @classmethod
    def quantities_of(
        cls, config: Any, transposed: bool, features: FeatureSizes
    ) -> tuple[Quantity, ...]:
        """The part's quantities; none if the run does not use the part."""
        return row_quantities(config.prior)

    @classmethod
    def read(cls, config: Any, ratings: Ratings, blocks: RatingBlocks, ring: Ring) -> float:
        """Prior mean of the biases, computed from the mean of the ratings."""
        return float(config.law.bias_mean(ratings.mean))

    @classmethod
    def of(cls, model: ModelFacts, data: float) -> Self:
        """Make a chain's instance of the part."""
        config, ratings = model.config, model.ratings
        return cls(
            config.rank,
            config.biases,
            config.prior,
            config.prior_precision,
            subchains=model.subchains,
            scale=ratings.scale,
            standardised=config.standardise or not config.law.has_noise,
            width=config.law.width,
            bias_mean=data,
            exchanges=model.subchains == 1 and not model.by_parts,
        )

    @classmethod
    def of_unseen(cls, draw: SavedDraw, kind: str) -> tuple[Float64, Float64]:
        """Mean and covariance of the prior of a row whose prior mean is not shifted."""
        mean, precision = draw.shared[f"{kind}.mean"], draw.shared[f"{kind}.precision"]
        covariance = np.diag(1 / precision) if precision.ndim == 1 else np.linalg.inv(precision)
        return mean, covariance.astype(np.float64)

    @property
    def unit(self) -> Float64:
        """Multipliers that convert the columns of a row to the ratings' own unit, (D,)."""
        unit = np.full(self.dimension, np.sqrt(self.scale))
        unit[self.rank :] = self.scale
        return unit

    @property
    def expected_square(self) -> float:
        """Largest variance of a row's elements under a fixed prior, or 1 if that is larger; 1 for
        other priors.
        """
        return (
            max(1.0, 1 / float(np.min(self.prior_precision * self.unit**2)))
            if self.prior == "fixed"
            else 1.0
        )

    def origin(self, factor: Factor) -> Float64:
        """Prior mean of a factor's rows before the first draw, (D,)."""
        origin = self._with_bias_mean()
        if self._start_mean:
            origin[factor] = self._start_mean
        return origin

    def _with_bias_mean(self) -> Float64:
        mean = np.zeros(self.dimension)
        mean[self.rank :] = self.bias_mean
        return mean

    def of_block(self, block: ParameterBlock, subchain: int) -> RowPrior:
        """Prior of a block's rows in a sub-chain, in float32."""
        factor, parameters = block.factor, self.parameters
        mean, precision = parameters.mean[factor][subchain], parameters.precision[factor][subchain]
        return RowPrior(
            mean.astype(np.float32), precision.astype(np.float32), block.arrays.get(SHIFT.name)
        )

    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set m and Lambda of both factors to their initial values."""
        precision = np.full(self.dimension, self.prior_precision)
        if self.prior == "fixed":
            precision = precision * self.unit**2
        if self.prior == "normal-wishart":
            precision = np.diag(precision)
        m = self.subchains
        self.parameters.mean = {
            factor: np.repeat(self.origin(factor)[None], m, axis=0) for factor in Factor
        }
        self.parameters.precision = {
            factor: np.repeat(precision[None], m, axis=0) for factor in Factor
        }

    def move(self, context: DrawContext) -> None:
        """Exchange means and biases, if due. Collective."""
        if not self._exchanges or not context.is_turn(MOVE_EVERY, FIRST_MOVE):
            return
        kappa = conjugate.WISHART_BETA if self.prior == "normal-wishart" else 1.0
        mean = {factor: means[0] for factor, means in self.parameters.mean.items()}
        precision = {
            factor: precisions[0] for factor, precisions in self.parameters.precision.items()
        }
        circulation, law = context.circulation, context.law
        k, shape = self.rank, circulation.ratings.shape

        def finish(total: dict[str, Float64]) -> dict[str, Float64]:
            sums = {factor: total[factor.name] for factor in Factor}
            rng = context.stream.generator(Purpose.HYPERPARAMETERS, part=3)
            steps, biases = draw_translation(
                mean, precision, sums, shape, kappa, rng, law.intercept
            )
            return {factor.name: np.append(steps[factor], biases[factor]) for factor in Factor}

        groups = circulation.rows_by_factor()
        partials = {
            rows.factor.name: exchange_sums(rows, context.position, self.bias_mean)
            for rows in groups
        }
        moved = circulation.ring.sum(partials, finish, {factor.name: (k + 1,) for factor in Factor})
        steps = {factor: moved[factor.name][:k] for factor in Factor}
        offset = float(steps[Factor.W] @ steps[Factor.H])
        for block in circulation.blocks():
            step, across = (
                steps[f].astype(block.dtype) for f in (block.factor, Factor(1 - block.factor))
            )
            theta, bias = block[context.position][:, :k], block[context.position][:, k]
            theta += step
            bias -= np.einsum("ij,j->i", theta, across) - moved[block.factor.name][k]
            if block.factor == Factor.W:
                bias += offset  # of both steps, which the other factor's biases have lost, too
        for factor in Factor:
            mean[factor][:k] += steps[factor]
        if law.intercept is not None:
            law.move_intercept(
                circulation.blocks(), sum(float(moved[factor.name][k]) for factor in Factor)
            )

    def sums(self, context: DrawContext) -> Named | None:
        """Total and products of `sums_of_rows` for every sub-chain, by factor; (local blocks, M,
        ...) each.
        """
        if self.prior == "fixed":
            return None
        return {
            rows.factor.name: self._sums(rows, context.positions)
            for rows in context.circulation.rows_by_factor()
        }

    def _sums(self, rows: Rows, positions: tuple[str, ...]) -> Float64:
        n, sums = len(rows.blocks), []
        for position in positions:
            total, products = conjugate.sums_of_rows(rows, position, self.prior == "normal-wishart")
            sums += [total, products.reshape(n, -1)]
        return np.concatenate(sums, axis=1).reshape(n, len(positions), -1)

    def draw_shared(
        self, subchain: int, sums: Mapping[str, Float64], context: DrawContext, rng: Generator
    ) -> None:
        """Draw m and Lambda of both factors for a sub-chain, given the totals of `sums`; runs at
        the root.
        """
        for factor, n in zip(Factor, context.circulation.ratings.shape, strict=True):
            terms = context.terms.get(factor, NO_TERMS)
            mean, precision = self._draw_prior(sums[factor.name][subchain], n, terms, rng)
            self.parameters.mean[factor][subchain] = mean
            self.parameters.precision[factor][subchain] = precision

    def _draw_prior(
        self, sums: Float64, n: int, more: PrecisionTerms, rng: Generator
    ) -> tuple[Float64, Float64]:
        """Draw (m, Lambda) of a factor of n rows, given the total and products of the rows in
        `sums`.
        """
        d, k = self.dimension, self.rank
        average, products = sums[:d] / n, sums[d:]
        mean = self._with_bias_mean()
        if self.prior == "normal-gamma":
            precision, squares = np.empty(d), products
            mean[:k], precision[:k] = conjugate.draw_normal_gamma(
                average[:k], products[:k], n, rng, self.precision_prior, more
            )
        else:
            products = products.reshape(d, d)
            precision, squares = np.zeros((d, d)), np.diag(products)
            mean[:k], precision[:k, :k] = conjugate.draw_normal_wishart(
                average[:k], products[:k, :k], n, rng, more
            )
        if self.biases:
            b = self.bias_mean
            about_mean = squares[k] + n * b * (b - 2 * average[k])
            square = about_mean + more.of(d)[k, k]
            precision[(k,) * precision.ndim] = self.bias_prior.draw(square, n + more.n, rng)
        return mean, precision


# --------------------------------------------------------------------- exchange of means and biases


def exchange_sums(rows: Rows, position: str, bias_mean: float) -> Float64:
    """Sums, over each block's rows, of W_i W_i^T, r_i W_i and W_i: of v v^T and of v, with v =
    (W_i, r_i).

    Returns
    -------
    (blocks, D + 1, D) float64
    """
    totals, products = rows.update(conjugate.SUMS[False], theta=position)["total"], []
    for block, total in zip(rows.blocks, totals, strict=True):
        theta, shift = block[position], block.arrays.get(SHIFT.name)
        if bias_mean or shift is not None:
            means = np.full(len(theta), bias_mean) + (0.0 if shift is None else shift[:, -1])
            theta = theta.copy()
            theta[:, -1] -= means
            total[-1] -= means.sum()
        products.append(inner(theta, theta))
    return np.concatenate([np.array(products), totals[:, None]], axis=1)


def draw_translation(
    mean: dict[Factor, Float64],
    precision: dict[Factor, Float64],
    sums: dict[Factor, Float64],
    shape: tuple[int, int],
    kappa: float,
    rng: Generator,
    intercept: Intercept | None = None,
) -> tuple[dict[Factor, Float64], dict[Factor, float]]:
    """Draw steps for all rows of H, then for all rows of W given the new H; and for the biases.

    Parameters
    ----------
    mean, precision : dict of Factor to (D,), and to (D,) or (D, D) float64
        Means and precisions of the rows' priors; the last column is for the bias.
    sums : dict of Factor to (D + 1, D) float64
        Totals of `exchange_sums`.
    shape : (int, int)
        Numbers of rows of W and of H.
    kappa : float
        Precision of m in units of Lambda.
    rng : Generator
    intercept : Intercept, optional
        Intercept of the likelihood, if it has one.

    Returns
    -------
    rows : dict of Factor to (K,) float64
        Step of all rows of a factor, and of their mean.
    biases : dict of Factor to float
        Step of all biases of a factor, in addition to the exchange with the other factor's rows.
        The intercept moves by the sum of both factors' steps.
    """
    k = len(mean[Factor.W]) - 1
    rows: dict[Factor, Float64] = {}
    biases: dict[Factor, float] = {}
    for factor, other in (
        (Factor.H, Factor.W),
        (Factor.W, Factor.H),
    ):  # rows of `factor`, and biases of `other`
        prior, centre = kappa * dense(precision[factor])[:k, :k], mean[factor][:k]
        strength, n = np.atleast_1d(precision[other][-1])[-1], shape[other]
        products, fit = sums[other][:k, :k], sums[other][k, :k]
        total, bias = sums[other][-1, :k], sums[other][-1, k]
        if other in rows:
            moved = rows[other]
            cross = np.outer(total, moved)
            products = products + cross + cross.T + n * np.outer(moved, moved)
            fit, total = fit + bias * moved, total + n * moved
        if intercept is not None:
            value = intercept.value + sum(biases.values())
            prior = np.block(
                [
                    [prior, np.zeros((k, 1))],
                    [np.zeros((1, k)), np.full((1, 1), intercept.precision)],
                ]
            )
            products = np.block(
                [[products, -total[:, None]], [-total[None], np.full((1, 1), float(n))]]
            )
            fit, centre = np.append(fit, -bias), np.append(centre, value)
        root = np.linalg.cholesky(prior + strength * products)
        scaled = np.linalg.solve(root, strength * fit - prior @ centre)
        step = np.linalg.solve(root.T, scaled + rng.standard_normal(len(scaled)))
        rows[factor] = step[:k].astype(np.float64)
        biases[other] = 0.0 if intercept is None else float(step[k])
    return rows, biases
