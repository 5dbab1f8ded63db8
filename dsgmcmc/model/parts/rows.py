r"""Priors of the rows of both factors, theta_i ~ N(m, Lambda^-1), and the draws of (m, Lambda).

A row theta_i has D = K + 1 columns, the last is the bias, or D = K without biases; at rank 0 it is the bias alone. The
bias has m = 0, or for counts half the logarithm of their mean. Other parts may shift the prior means of single rows, by
field ``shift`` (`dsgmcmc.model.parts.base`).

Priors of (m, Lambda), drawn from their exact conditionals given the factor's current state:

- ``fixed``: m = 0, Lambda = lambda I [Simsekli 2016, 4.3]; nothing is drawn.
- ``normal-gamma``: Lambda = diag(lambda), lambda_k ~ Gamma(1, rate 5), m_k | lambda_k ~ N(0, 1 / lambda_k)
  [Nemeth 2021, 6.3]. If ratings are standardised, or the likelihood has no noise and so no unit, it is lambda_k ~
  Gamma(4, rate 3 b), so that E[1 / lambda_k] = b.
  Then E[W_ik^2] = 2 b, the variance of m included, and with b = 1 / (4 sqrt K), E[(W_i . H_j)^2] = 4 K b^2 is a
  quarter of the ratings' variance. For the biases b = 1/8: a_i and b_j together have another quarter.
- ``normal-wishart``: (m, Lambda) ~ N(m | 0, (2 Lambda)^-1) W(Lambda | I, K) [Salakhutdinov 2008, eq. 5-7]; the
  bias keeps its normal-gamma prior.

If m is drawn, a chain begins with m_k = `START_MEAN` in one column of W and in another of H; in this column, the other
factor's elements act as a second bias. From m = 0, hundreds of sweeps pass before the means take over from the biases.
Between later sweeps, moves exchange means and biases without changing predictors (`dsgmcmc.model.parts.translation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import BaseModel

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.kernels.formula import RowPrior
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.conjugate import (
    PUBLISHED_PRIOR,
    WISHART_BETA,
    draw_normal_gamma,
    draw_normal_wishart,
    sums_of_rows,
    with_mean_variance,
)
from dsgmcmc.model.parts.base import NO_TERMS, DrawContext, FeatureSizes, Part, Place, PrecisionTerms
from dsgmcmc.model.parts.translation import FIRST_MOVE, MOVE_EVERY, translate
from dsgmcmc.model.quantity import SHIFT, Quantity, Sampled, SavedDraw
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.settings import setting
from dsgmcmc.targets.state import ParameterBlock, Rows
from dsgmcmc.types import Factor, Float64, Named, PriorName

#: Initial value of one m_k of each factor, in units of the square root of the ratings' sd.
START_MEAN = 1.0

MEAN = Quantity("{}.mean", ("column",), columns=1, started=True, per_chain=True)
PRECISION = Quantity("{}.precision", ("column",), columns=-2, positive=True, started=True, per_chain=True)
DENSE_PRECISION = replace(PRECISION, dims=("column", "column"))


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

    prior: PriorName = setting("Prior of the rows of both factors; fixed: without hyperparameters.", "normal-gamma")
    prior_precision: float = setting(
        "Precision of a fixed prior, in the ratings' own unit; of others, where the precisions start.",
        1.0,
        shown="10; 1 with --prior fixed and with the samplers gibbs, psgld, hamcmc and sgld",
        offered=False,
        gt=0,
        allow_inf_nan=False,
    )
    standardise: bool = setting(
        "Scale the priors by the ratings' standard deviation; no: as published.",
        True,
        shown="yes; no with --prior fixed",
        offered=False,
    )


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
        lambda if `prior` is fixed, in the ratings' own unit; else its value until it is first drawn.
    subchains : int
        Number M of interleaved sub-chains.
    scale : float
        Number by which ratings were divided.
    standardised : bool
        Whether the priors are in units of the ratings' standard deviation; else they are the published ones.
    width : float
        Factor by which these are wider, where the predictor is not in the unit of the ratings.
    bias_mean : float
        Prior mean of the biases.
    exchanges : bool
        Whether means and biases are exchanged between sweeps.
    """

    Settings = RowSettings
    parameters: RowParameters

    def __init__(
        self,
        rank: int,
        biases: bool = True,
        prior: PriorName = "normal-gamma",
        prior_precision: float = 1.0,
        *,
        subchains: int = 1,
        scale: float = 1.0,
        standardised: bool = False,
        width: float = 1.0,
        bias_mean: float = 0.0,
        exchanges: bool = False,
    ) -> None:
        self.rank, self.biases, self.prior = rank, biases, prior
        free_means = biases and rank > 0 and prior != "fixed"
        self._exchanges = exchanges and free_means
        self._start_mean = START_MEAN if standardised and free_means and rank > 1 else 0.0
        self.dimension, self._start, self._subchains = rank + int(biases), prior_precision, subchains
        self.scale, self.bias_mean = scale, bias_mean
        self.precision_prior = self.bias_prior = PUBLISHED_PRIOR
        if standardised:
            self.precision_prior = with_mean_variance(width * 0.25 / np.sqrt(max(rank, 1)))
            self.bias_prior = with_mean_variance(width * 0.125)
        self.quantities = row_quantities(prior)
        self.parameters = RowParameters({}, {})
        self.start(())

    @classmethod
    def quantities_of(cls, config: Any, transposed: bool, features: FeatureSizes) -> tuple[Quantity, ...]:
        """The part's quantities; none if the run does not use the part."""
        return row_quantities(config.prior)

    @classmethod
    def read(cls, config: Any, ratings: Ratings, blocks: RatingBlocks, ring: Ring) -> float:
        """Prior mean of the biases, computed from the mean of the ratings."""
        return float(config.law.bias_mean(ratings.mean))

    @classmethod
    def of(cls, place: Place, data: float) -> Self:
        """Make a chain's instance of the part."""
        config, ratings = place.config, place.ratings
        return cls(
            config.rank,
            config.biases,
            config.prior,
            config.prior_precision,
            subchains=place.subchains,
            scale=ratings.scale,
            standardised=config.standardise or not config.law.has_noise,
            width=config.law.width,
            bias_mean=data,
            exchanges=place.subchains == 1 and not place.by_parts,
        )

    @classmethod
    def of_unseen(cls, draw: SavedDraw, kind: str) -> tuple[Float64, Float64]:
        """Mean and covariance of the prior of a row whose prior mean is not shifted."""
        mean, precision = draw.shared[f"{kind}.mean"], draw.shared[f"{kind}.precision"]
        covariance = np.diag(1 / precision) if precision.ndim == 1 else np.linalg.inv(precision)
        return mean, covariance.astype(np.float64)

    @property
    def unit(self) -> Float64:
        """Factors that convert a row to the ratings' own unit, (D,)."""
        unit = np.full(self.dimension, np.sqrt(self.scale))
        unit[self.rank :] = self.scale
        return unit

    @property
    def expected_square(self) -> float:
        """Approximate upper limit, at least 1, of the mean square of a row's elements under the prior."""
        return max(1.0, 1 / float(np.min(self._start * self.unit**2))) if self.prior == "fixed" else 1.0

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
        """Prior of a block's rows, in their dtype."""
        factor, now = block.factor, self.parameters
        mean, precision = now.mean[factor][subchain], now.precision[factor][subchain]
        return RowPrior(mean.astype(np.float32), precision.astype(np.float32), block.arrays.get(SHIFT.name))

    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set m and Lambda of both factors to their initial values."""
        precision = np.full(self.dimension, self._start)
        if self.prior == "fixed":
            precision = precision * self.unit**2
        if self.prior == "normal-wishart":
            precision = np.diag(precision)
        m = self._subchains
        self.parameters.mean = {factor: np.repeat(self.origin(factor)[None], m, axis=0) for factor in Factor}
        self.parameters.precision = {factor: np.repeat(precision[None], m, axis=0) for factor in Factor}

    def move(self, context: DrawContext) -> None:
        """Exchange means and biases (`dsgmcmc.model.parts.translation`), if due. Collective."""
        if not self._exchanges or not context.is_turn(MOVE_EVERY, FIRST_MOVE):
            return
        kappa = WISHART_BETA if self.prior == "normal-wishart" else 1.0
        mean = {factor: means[0] for factor, means in self.parameters.mean.items()}
        precision = {factor: precisions[0] for factor, precisions in self.parameters.precision.items()}
        translate(context, mean, precision, self.bias_mean, kappa)

    def sums(self, context: DrawContext) -> Named | None:
        """Total and products of `sums_of_rows` for every sub-chain, by factor, (blocks here, ...) each."""
        if self.prior == "fixed":
            return None
        return {rows.factor.name: self._sums(rows, context.positions) for rows in context.circulation.rows_by_factor()}

    def _sums(self, rows: Rows, positions: tuple[str, ...]) -> Float64:
        n, sums = len(rows.blocks), []
        for position in positions:
            total, products = sums_of_rows(rows, position, self.prior == "normal-wishart")
            sums += [total, products.reshape(n, -1)]
        return np.concatenate(sums, axis=1).reshape(n, len(positions), -1)

    def draw_shared(
        self, subchain: int, sums: Mapping[str, Float64], context: DrawContext, rng: np.random.Generator
    ) -> None:
        """Draw m and Lambda of both factors for a sub-chain, given the totals of `sums`; runs at the root."""
        for factor, n in zip(Factor, context.circulation.ratings.shape, strict=True):
            terms = context.terms.get(factor, NO_TERMS)
            mean, precision = self._draw_prior(sums[factor.name][subchain], n, terms, rng)
            self.parameters.mean[factor][subchain] = mean
            self.parameters.precision[factor][subchain] = precision

    def _draw_prior(
        self, sums: Float64, n: int, more: PrecisionTerms, rng: np.random.Generator
    ) -> tuple[Float64, Float64]:
        """Draw (m, Lambda) of a factor of n rows."""
        d, k = self.dimension, self.rank
        average, products = sums[:d] / n, sums[d:]
        mean = self._with_bias_mean()
        if self.prior == "normal-gamma":
            precision, squares = np.empty(d), products
            mean[:k], precision[:k] = draw_normal_gamma(average[:k], products[:k], n, rng, self.precision_prior, more)
        else:
            products = products.reshape(d, d)
            precision, squares = np.zeros((d, d)), np.diag(products)
            mean[:k], precision[:k, :k] = draw_normal_wishart(average[:k], products[:k, :k], n, rng, more)
        if self.biases:
            b = self.bias_mean  # the squares of the biases about it are those about 0, and
            from_mean = n * b * (b - 2 * average[k])
            square = squares[k] + from_mean + more.of(d)[k, k]
            precision[(k,) * precision.ndim] = self.bias_prior.draw(square, n + more.n, rng)
        return mean, precision
