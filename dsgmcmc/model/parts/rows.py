"""Priors of the rows of both factors, theta_i ~ N(m, Lambda^-1), and the draws of (m, Lambda).

If rows have noise scales g_i, their prior has the precision g_i Lambda (docs/model.md).

A row has D = K + 1 columns, the last of which is the bias, or D = K without biases. The prior mean
of the bias is not drawn: it is 0, or for counts half the logarithm of their mean. (m, Lambda) is
drawn from its exact conditional:

- ``fixed``: m = 0, Lambda = lambda I [Simsekli 2016, 4.3]; nothing is drawn.
- ``half-cauchy``: Lambda = diag(lambda), lambda_k^-1/2 half-Cauchy with a common scale, m_k |
  lambda_k ~ N(0, 1 / lambda_k); the bias keeps its normal-gamma prior. Columns that the ratings do
  not need vanish. The scale is no state: it is drawn given lambda, and then lambda given it.
- ``normal-gamma``: Lambda = diag(lambda), lambda_k ~ Gamma(1, rate 5),
  m_k | lambda_k ~ N(0, 1 / lambda_k) [Nemeth 2021, 6.3]; standardised as in `RowPriors`.
- ``normal-wishart``: (m, Lambda) ~ N(m | 0, (2 Lambda)^-1) W(Lambda | I, K) [Salakhutdinov 2008,
  eq. 5-7]; the bias keeps its normal-gamma prior.

With samplers that use all ratings in an iteration, moves between sweeps exchange means and biases
(`dsgmcmc.model.parts.exchange`), and draw sizes of columns (`dsgmcmc.model.parts.column_sizes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from math import sqrt
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.random import Generator
from pydantic import BaseModel
from typing_extensions import override

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.formulas.formula import RowPrior
from dsgmcmc.model import conjugate
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.parts.base import (
    NO_TERMS,
    ChainFacts,
    DrawContext,
    FileFacts,
    ModelFacts,
    Part,
    PrecisionTerms,
)
from dsgmcmc.model.parts.column_sizes import move_column_sizes
from dsgmcmc.model.parts.exchange import exchange_means_and_biases
from dsgmcmc.model.parts.noise import coupled_factors
from dsgmcmc.model.quantity import SHIFT, WEIGHT, Quantity, Sampled, SavedDraw
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.settings import named, setting
from dsgmcmc.targets.state import ParameterBlock, Rows
from dsgmcmc.types import Factor, Float64, Named, PriorName

#: If m is drawn, and the priors are standardised and include biases, chains of rank 2 or more begin
#: with this mean m_k in one column of W and in another of H, in units of the square root of the
#: ratings' sd. In such a column, the other factor's elements act as a second bias. In a chain that
#: begins at m = 0, the means need hundreds of sweeps to take over from the biases.
START_MEAN = 1.0

#: Sweeps between moves, and least number of sweeps before the first move; if the first sweep ends
#: with a draw of the hyperparameters, a move follows it, too. Other early moves would only disturb
#: the biases, which converge first.
MOVE_EVERY = 5
FIRST_MOVE = 50

#: Sweeps between joint moves of columns and their priors: the first number up to sweep
#: `SIZES_SETTLED`, and always with at most `FEW_RATINGS`; then the second, as a move costs more
#: than a sweep. Both are even: `dsgmcmc.samplers.baoab` computes its metric after a move. With a
#: move in 2 sweeps, steps that are a little too large diverge.
SIZES_EVERY = 4
SIZES_LATER_EVERY = 20
SIZES_SETTLED = 100
FEW_RATINGS = 20_000

#: Values of the common scale of the columns of a factor, in units of sqrt(b) (`RowPriors`).
COMMON_SCALES = 2.0 ** np.arange(-6, 1.25, 0.25)

MEAN = Quantity("{}.mean", ("column",), columns=1, started=True, per_state=True)
PRECISION = Quantity(
    "{}.precision", ("column",), columns=-2, positive=True, started=True, per_state=True
)
DENSE_PRECISION = replace(PRECISION, dims=("column", "column"))


def start_precision(rank: int) -> float:
    """1 / b for standardised ratings (`RowPriors`), the initial precision of a factor's columns.

    At a larger precision, columns that few ratings need would stay unused for long.
    """
    return 4.0 * sqrt(max(rank, 1))


def row_quantities(prior: PriorName) -> tuple[Quantity, ...]:
    """The quantities of the priors of both factors."""
    precision = DENSE_PRECISION if prior == "normal-wishart" else PRECISION
    return tuple(quantity.for_factor(factor) for quantity in (MEAN, precision) for factor in Factor)


def have_movable_sizes(prior: PriorName, law: type[Any]) -> bool:
    """Whether columns can be moved together with their priors: ratings must be normal."""
    return bool(prior == "half-cauchy" and law.has_noise and law.is_conditionally_gaussian())


def can_move_sizes(settings: RowSettings, model: ModelFacts) -> bool:
    """Whether columns can be moved together with their priors, without features of their rows.

    Momenta must belong to columns.
    """
    sampler = model.sampler
    is_movable = have_movable_sizes(settings.prior, model.law) and model.rank > 0
    return is_movable and (sampler.moves_parts or sampler.draws_conditionals)


@dataclass
class RowParameters(Sampled):
    """Mean and precision of the rows of both factors, float64.

    Attributes
    ----------
    mean : dict of Factor to (D,)
    precision : dict of Factor to (D,), or (D, D) for ``normal-wishart``
    """

    quantities: ClassVar[Mapping[str, Quantity]] = {"mean": MEAN, "precision": PRECISION}

    mean: dict[Factor, Float64]
    precision: dict[Factor, Float64]


class RowMoments(NamedTuple):
    """Moments of the rows of a factor, from which (m, Lambda) is drawn.

    Attributes
    ----------
    n : int
        Number of rows.
    weight : float
        Sum of the rows' scales, which weight the next two; n if all are 1.
    average : (D,) float64
        Mean over the rows.
    products : (D,) or (D, D) float64
        Sum over the rows of their squares, or of their outer products.
    """

    n: int
    weight: float
    average: Float64
    products: Float64


class RowSettings(BaseModel):
    """Settings of the rows' priors."""

    prior: PriorName = setting(
        "Prior of the rows of both factors; half-cauchy: factors that ratings do not need vanish;"
        " fixed: without hyperparameters.",
        "half-cauchy",
        shown="half-cauchy; normal-gamma with standardise=false",
    )
    prior_precision: float = setting(
        "Precision of a fixed prior, in the ratings' own unit; for other priors, the initial"
        " precision.",
        1.0,
        shown=(
            "10, below rank 7: 4 sqrt(rank); 1 with --prior fixed and with the samplers gibbs,"
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
    size_moves: bool = setting(
        "Draw the sizes of factors' columns also together with the columns.",
        False,
        shown="yes with --sampler baoab and normal ratings; no in runs that were begun without it",
        offered=False,
        later=True,
    )


@dataclass(eq=False)
class RowPriors(Part[RowSettings]):
    """Priors of the rows of both factors.

    If ratings are standardised, or the likelihood has no noise and so no unit, the normal-gamma
    prior has lambda_k ~ Gamma(4, rate 3 b), so that E[1 / lambda_k] = b. Then E[W_ik^2] = 2 b,
    which includes the variance of m. With b = 1 / (4 sqrt K), E[(W_i . H_j)^2] = 4 K b^2 is a
    quarter of the ratings' variance. For the biases b = 1/8, so that a_i and b_j together account
    for another quarter. The half-Cauchy prior of lambda_k^-1/2 has a scale A that the columns of a
    factor share, with log A uniform from log(sqrt(b) / 64) to log(2 sqrt(b)) [Carvalho 2010].

    Parameters
    ----------
    rank : int
        Number K of latent dimensions.
    biases : bool
        Whether there is a bias column.
    prior : {"half-cauchy", "normal-gamma", "normal-wishart", "fixed"}
    prior_precision : float
        lambda if `prior` is fixed, in the ratings' own unit; else the initial precision of all
        columns.
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
    moves_sizes : bool
        Whether columns are moved together with their priors between sweeps.
    scaled : tuple of Factor
        Factors whose rows' noise scales multiply the prior's precision.
    """

    Settings = RowSettings
    rank: int
    biases: bool = True
    prior: PriorName = "normal-gamma"
    prior_precision: float = 1.0
    _: KW_ONLY
    scale: float = 1.0
    standardised: bool = False
    width: float = 1.0
    bias_mean: float = 0.0
    exchanges: bool = False
    moves_sizes: bool = False
    scaled: tuple[Factor, ...] = ()
    parameters: RowParameters = field(init=False)

    def __post_init__(self) -> None:
        has_free_means = self.biases and self.rank > 0 and self.prior != "fixed"
        self._does_exchange = self.exchanges and has_free_means
        self._start_mean = 0.0
        if self.standardised and has_free_means and self.rank > 1:
            self._start_mean = START_MEAN
        self.dimension = self.rank + int(self.biases)
        self.precision_prior = conjugate.PUBLISHED_PRIOR
        self.bias_prior = conjugate.PUBLISHED_PRIOR
        variance = self.width / start_precision(self.rank)
        self.scales = conjugate.Scales.of(sqrt(variance) * COMMON_SCALES)
        if self.standardised:
            self.precision_prior = conjugate.with_mean_variance(variance)
            self.bias_prior = conjugate.with_mean_variance(self.width * 0.125)
        self.quantities = row_quantities(self.prior)
        self.parameters = RowParameters({}, {})
        self.start(())

    @classmethod
    @override
    def check(cls, settings: RowSettings, model: ModelFacts) -> None:
        """Refuse a half-Cauchy prior in no unit."""
        is_standardised = settings.standardise or not model.law.has_noise
        if settings.prior == "half-cauchy" and not is_standardised:
            raise InputError(
                f"{named('prior')} half-cauchy is in units of the ratings' standard deviation:"
                f" leave out {named('standardise')}, or use {named('prior')} normal-gamma"
            )

    @classmethod
    @override
    def quantities_of(
        cls, settings: RowSettings, model: ModelFacts, file: FileFacts
    ) -> tuple[Quantity, ...]:
        return row_quantities(settings.prior)

    @classmethod
    @override
    def read(
        cls, settings: RowSettings, ratings: Ratings, blocks: RatingBlocks, ring: Ring
    ) -> float:
        """Mean of the training ratings."""
        return ratings.mean

    @classmethod
    @override
    def create(cls, settings: RowSettings, chain: ChainFacts, data: float) -> Self:
        model = chain.model
        law = model.law
        return cls(
            model.rank,
            model.biases,
            settings.prior,
            settings.prior_precision,
            scale=chain.ratings.scale,
            standardised=settings.standardise or not law.has_noise,
            width=law.width,
            bias_mean=law.bias_mean(data),
            exchanges=not (chain.by_parts or model.sampler.interleaved),
            moves_sizes=settings.size_moves and can_move_sizes(settings, model),
            scaled=coupled_factors(model, chain.orientation),
        )

    @classmethod
    @override
    def of_unseen(cls, draw: SavedDraw, entity: str) -> tuple[Float64, Float64]:
        """Mean and covariance of the prior of a row whose prior mean is not shifted."""
        mean = draw.shared[f"{entity}.mean"]
        precision = draw.shared[f"{entity}.precision"]
        if precision.ndim == 1:
            return mean, np.diag(1 / precision).astype(np.float64)
        return mean, np.linalg.inv(precision).astype(np.float64)

    @cached_property
    def unit(self) -> Float64:
        """Multipliers that convert the columns of a row to the ratings' own unit, (D,)."""
        unit = np.full(self.dimension, np.sqrt(self.scale))
        unit[self.rank :] = self.scale
        return unit

    @property
    def expected_square(self) -> float:
        """Largest variance of a row's elements under a fixed prior, at least 1; else 1."""
        if self.prior != "fixed":
            return 1.0
        return max(1.0, 1 / float(np.min(self.prior_precision * self.unit**2)))

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

    def of_block(self, block: ParameterBlock) -> RowPrior:
        """Prior of a block's rows, in float32."""
        mean = self.parameters.mean[block.factor]
        precision = self.parameters.precision[block.factor]
        shift = block.arrays.get(SHIFT.name)
        scale = None
        if block.factor in self.scaled:
            scale = block.arrays.get(WEIGHT.name)
        return RowPrior(mean.astype(np.float32), precision.astype(np.float32), shift, scale)

    @override
    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        precision = np.full(self.dimension, self.prior_precision)
        if self.prior == "fixed":
            precision = precision * self.unit**2
        if self.prior == "normal-wishart":
            precision = np.diag(precision)
        for factor in Factor:
            self.parameters.mean[factor] = self.origin(factor)
            self.parameters.precision[factor] = precision.copy()

    @override
    def move(self, context: DrawContext) -> None:
        """Move sizes of columns, and exchange means and biases, if due. Collective."""
        if self._moves_sizes_now(context):
            move_column_sizes(
                context,
                self.parameters.mean,
                self.parameters.precision,
                rank=self.rank,
                scales=self.scales,
            )
        if not self._does_exchange or not context.is_due(MOVE_EVERY, FIRST_MOVE):
            return
        exchange_means_and_biases(
            context,
            self.parameters.mean,
            self.parameters.precision,
            kappa=conjugate.WISHART_BETA if self.prior == "normal-wishart" else 1.0,
            bias_mean=self.bias_mean,
        )

    def _moves_sizes_now(self, context: DrawContext) -> bool:
        """Whether columns are moved before this sweep; the prior means of rows must be equal."""
        sweep = context.hyper_sweep
        if not self.moves_sizes or sweep == 0:
            return False
        every = SIZES_EVERY
        if sweep > SIZES_SETTLED and context.circulation.ratings.n_data > FEW_RATINGS:
            every = SIZES_LATER_EVERY
        if sweep % every:
            return False
        return SHIFT.name not in next(context.circulation.blocks()).arrays

    @override
    def sums(self, context: DrawContext) -> Named | None:
        """Totals and products of the rows, by factor; (local blocks, ...)."""
        if self.prior == "fixed":
            return None
        sums = {}
        for rows in context.circulation.rows_by_factor():
            sums[rows.factor.name] = self._sums(rows, context.position)
        return sums

    def _sums(self, rows: Rows, position: str) -> Float64:
        """Sums of the rows' scales and `conjugate.sums_of_rows` side by side, (blocks, ...)."""
        scaled = rows.factor in self.scaled
        total, products = conjugate.sums_of_rows(
            rows, position, dense=self.prior == "normal-wishart", scaled=scaled
        )
        weights = conjugate.sums_of_scales(rows, scaled)
        return np.concatenate([weights, total, products.reshape(len(rows.blocks), -1)], axis=1)

    @override
    def draw_shared(
        self, sums: Mapping[str, Float64], context: DrawContext, rng: Generator
    ) -> None:
        """Draw m and Lambda of both factors; runs at the root."""
        d = self.dimension
        for factor, n in zip(Factor, context.circulation.ratings.shape, strict=True):
            terms = context.terms.get(factor, NO_TERMS)
            weight = float(sums[factor.name][0])
            totals = sums[factor.name][1:]
            moments = RowMoments(n, weight, totals[:d] / weight, totals[d:])
            if self.prior == "normal-wishart":
                mean, precision = self._draw_dense(moments, terms, rng)
            else:
                prior = self.precision_prior
                if self.prior == "half-cauchy":
                    current = self.parameters.precision[factor][: self.rank]
                    scale = self.scales.draw(current, rng)
                    prior = conjugate.draw_half_cauchy(current, scale, rng)
                mean, precision = self._draw_diagonal(moments, prior, terms, rng)
            self.parameters.mean[factor] = mean
            self.parameters.precision[factor] = precision

    def _draw_diagonal(
        self,
        moments: RowMoments,
        prior: conjugate.GammaPrior,
        more: PrecisionTerms,
        rng: Generator,
    ) -> tuple[Float64, Float64]:
        """Draw m, (D,), and the diagonal of Lambda, (D,), under a gamma prior of the columns."""
        k = self.rank
        squares = moments.products
        mean = self._with_bias_mean()
        precision = np.empty(self.dimension)
        mean[:k], precision[:k] = conjugate.draw_normal_gamma(
            moments.average[:k],
            squares[:k],
            moments.n,
            weight=moments.weight,
            rng=rng,
            prior=prior,
            more=more,
        )
        if self.biases:
            precision[k] = self._draw_bias_precision(moments, squares[k], more, rng)
        return mean, precision

    def _draw_dense(
        self, moments: RowMoments, more: PrecisionTerms, rng: Generator
    ) -> tuple[Float64, Float64]:
        """Draw m, (D,), and Lambda, (D, D), under the normal-Wishart prior."""
        k = self.rank
        outer = moments.products.reshape(self.dimension, self.dimension)
        mean = self._with_bias_mean()
        precision = np.zeros((self.dimension, self.dimension))
        mean[:k], precision[:k, :k] = conjugate.draw_normal_wishart(
            moments.average[:k],
            outer[:k, :k],
            moments.n,
            weight=moments.weight,
            rng=rng,
            more=more,
        )
        if self.biases:
            precision[k, k] = self._draw_bias_precision(moments, outer[k, k], more, rng)
        return mean, precision

    def _draw_bias_precision(
        self, moments: RowMoments, square: float, more: PrecisionTerms, rng: Generator
    ) -> Float64:
        """Draw the precision of the biases, given the sum of their squares."""
        k = self.rank
        b = self.bias_mean
        about_mean = square + moments.weight * b * (b - 2 * moments.average[k])
        more_square = more.leading(self.dimension)[k, k]
        return self.bias_prior.draw(about_mean + more_square, moments.n + more.n, rng)
