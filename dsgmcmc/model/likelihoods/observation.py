"""A rating's law given its predictor eta = a_i + b_j + W_i . H_j, apart from any chain.

`Observation` has what predictions, new rows and comparisons need of a likelihood: which ratings are
possible, how they are encoded, and distributions of ratings given draws of their predictors. Its
methods belong to the class; `dsgmcmc.model.likelihoods.base.Law` adds what a chain needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, ClassVar

from dsgmcmc.model.likelihoods.own_prior import Expansion, OwnPrior
from dsgmcmc.model.predictive.base import Moments, Predictive, PredictorDraws
from dsgmcmc.model.predictive.steps import LogisticSteps
from dsgmcmc.model.quantity import SavedDraw
from dsgmcmc.model.transform import Transform
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.types import Array, Float64, Mask


class Observation(ABC):
    """Distribution of a rating given its predictor, and predictions from draws of predictors."""

    #: Whether predictions can be compared with ratings; if not, only the order of predictions
    #: matters.
    can_be_evaluated: ClassVar[bool] = True
    #: Whether the expected rating is the predictor. Only then may ratings have another scale
    #: (`dsgmcmc.model.log_scale`).
    is_linear: ClassVar[bool] = False
    #: Whether the exponential of a rating has an expectation.
    exponential_has_mean: ClassVar[bool] = True
    #: The change of variables between ratings and what the likelihood models.
    transform: ClassVar[Transform] = Transform()
    #: Whether ratings are counts, which have no largest value.
    of_counts: ClassVar[bool] = False
    #: Whether single ratings that are far from all others hardly matter.
    has_heavy_tails: ClassVar[bool] = False
    #: Whether ratings may have weights, which multiply the precision of their noise.
    takes_weights: ClassVar[bool] = False
    #: Whether ratings may be known only to lie within bounds: `quantile_between` is defined.
    takes_bounds: ClassVar[bool] = False
    #: Name of the quantity of rows that stands in for `parameters_of`, for users or items that have
    #: it; empty if none can have it.
    row_parameters: ClassVar[str] = ""
    #: The function f(x, eta, scale, parameters, moves) that expands the log densities of the same n
    #: ratings in several rows; None lets differences be taken. x is (n,), eta and scale are (rows,
    #: n), parameters (rows, m) or (rows, n, m); `moves` are derivatives of every row's log scale
    #: and parameters, in each of its coordinates.
    expansion: ClassVar[Callable[..., Expansion] | None] = None

    # ------------------------------------------------------------------ possible ratings

    @classmethod  # noqa: B027 (some refuse nothing)
    def check_new(cls, values: Array, minimum: float) -> None:
        """Raise `InputError` for impossible ratings; `minimum` is the lowest training rating."""

    @classmethod
    def levels_of(cls, ratings: Ratings) -> Float64 | None:
        """Levels of the training ratings, (R,) float64; None without thresholds between levels."""
        return None

    @classmethod
    def codes(cls, values: Array, levels: Float64 | None) -> Array:
        """Ratings as this likelihood encodes them.

        That is the index of the nearest level, 1 for clicks, else the value.
        """
        return values

    # ------------------------------------------------------------------ rows without a chain

    @classmethod
    def inherits(cls, base: type[Observation], name: str) -> bool:
        """Whether a class method is that of `base`."""
        method: Any = getattr(cls, name)
        method_of_base: Any = getattr(base, name)
        return method.__func__ is method_of_base.__func__

    @classmethod
    def is_conditionally_gaussian(cls) -> bool:
        """Whether a row is normal given the other factor and the ratings.

        Here: whether `statistics` is overridden.
        """
        return cls.statistics is not Observation.statistics

    @staticmethod
    def statistics(
        covariates: Float64, x: Float64, precision: Float64
    ) -> tuple[Float64, Float64] | None:
        """Sufficient statistics of a row's ratings given the other factor.

        None if rows are not Gaussian given the other factor.

        Parameters
        ----------
        covariates : (n, D) float64
            Covariates phi_j = (H_j, 1) of the row's n ratings, by which their predictors multiply
            the row.
        x : (n,) float64
            Ratings, less the other terms of their predictors.
        precision : (n,) float64
            Precisions of the ratings' noise.

        Returns
        -------
        gram : (D, D) float64
            sum_j precision_j phi_j phi_j^T
        moment : (D,) float64
            sum_j precision_j x_j phi_j
        """
        return None

    @classmethod
    def shape_of(cls, shared: Mapping[str, Float64]) -> Float64 | None:
        """A draw's parameters, (m,), that predictions need besides mean and variance; or None.

        Parameters
        ----------
        shared : dict of str to float64 array
            Quantities of the draw that all rows share (`SavedDraw.shared`).
        """
        return None

    @classmethod
    def parameters_of(cls, shared: Mapping[str, Float64]) -> Float64 | None:
        """A draw's parameters, (m,), besides predictors and noise; None if there are none.

        They are handed back in `PredictorDraws` and to `log_likelihood_at`, for all ratings or, if
        users or items have their own (`row_parameters`), for each rating. Only the likelihood knows
        what the numbers mean. `shared` is that of `shape_of`, which is returned here.
        """
        return cls.shape_of(shared)

    @classmethod
    def own_prior(cls, draw: SavedDraw, entity: str, most: float = inf) -> OwnPrior:
        """Prior of what a user (or item) has besides theta, given a draw.

        Here: nothing. `most` is the largest noise scale.
        """
        return OwnPrior()

    @classmethod
    def levels_of_items(cls, draw: SavedDraw) -> Mask | None:
        """Which levels each item has, (items, R); None if all have all, or there are no levels."""
        return None

    @classmethod
    def thresholds_of_items(cls, draw: SavedDraw) -> Float64 | None:
        """Thresholds below the levels of items, (items, R - 1), or those of all items, (1, R - 1).

        NaN for levels that an item lacks, and for its lowest. None without ordered levels.
        """
        return None

    @classmethod
    @abstractmethod
    def log_likelihood_at(
        cls, x: Float64, eta: Float64, scale: Float64, parameters: Array | None
    ) -> Float64:
        """Log density of ratings given their predictors, (n,) float64.

        For likelihoods that are not Gaussian.

        Parameters
        ----------
        x : (n,) float64
            Ratings; for ordered levels, their indices.
        eta : (n,) float64
            Predictors.
        scale : (n,) float64
            Product of the row's scale, the column's scale (1 for rows without scales) and the noise
            precision.
        parameters : (m,) or (n, m) float, or None
            The draw's `parameters_of`, for all ratings or for each.
        """

    # ------------------------------------------------------------------ ratings within bounds

    @staticmethod
    def quantile_between(
        p: Float64,
        mean: Float64,
        variance: Float64,
        bounds: tuple[Float64, Float64],
        *shape: Array | float,
    ) -> Float64:
        """Quantiles, at p in (0, 1), of ratings given that they lie between bounds, elementwise.

        Not needed unless `takes_bounds`.
        """
        raise NotImplementedError

    @classmethod
    def log_between_at(
        cls, bounds: Array, eta: Float64, scale: Float64, parameters: Array | None
    ) -> Float64:
        """Log probability that ratings lie between bounds, (2, n), given their predictors, (n,).

        Not needed unless `takes_bounds`. `scale` and `parameters` are those of `log_likelihood_at`.
        """
        raise NotImplementedError

    @classmethod
    def quantiles_within(
        cls,
        p: Float64,
        draws: PredictorDraws,
        bounds: tuple[Float64, Float64],
        centre: float = 0.0,
    ) -> Float64:
        """Quantiles at every draw, (q, draws), of ratings that are known to lie between bounds.

        Not needed unless `takes_bounds`.

        Parameters
        ----------
        p : (q, draws) float64
            Probabilities in (0, 1).
        draws : PredictorDraws
        bounds : tuple of (q,) float64
            Lower and upper bounds, in the ratings' own unit.
        centre : float
            Number that was subtracted from the ratings.
        """
        raise NotImplementedError

    # ------------------------------------------------------------------ predictions

    @classmethod
    @abstractmethod
    def predictive(
        cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None
    ) -> Predictive:
        """Posterior predictive distributions of ratings: mixtures over draws of their predictors.

        Parameters
        ----------
        draws : PredictorDraws
        centre : float
            Number that was subtracted from the ratings, and is added to predictions.
        levels : (R,) float64, optional
            Possible ratings, if known.
        """

    @classmethod
    @abstractmethod
    def expectation(
        cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None
    ) -> Predictive:
        """Posterior distributions of expected ratings, without noise; parameters: `predictive`."""

    @classmethod
    def expected_steps(cls, levels: Float64 | None) -> LogisticSteps | None:
        """The expected rating as a sum of steps of the predictor; None if it is no such sum."""
        return None

    @classmethod
    def steps_at_least(cls, bound: float, levels: Float64 | None) -> LogisticSteps | None:
        """The probability of a rating of at least `bound` as a sum of steps of the predictor.

        None if it is no such sum. If all ratings have the same probability, there are no steps.
        """
        return None

    @classmethod
    @abstractmethod
    def predictive_of_moments(cls, moments: Moments) -> Predictive:
        """Posterior predictive distributions, approximated from moments over draws."""
