"""Likelihoods that the mean, the variance and a few parameters of all ratings determine.

A new likelihood states the *score*, the derivative of the log density with respect to the predictor
eta, as a formula that is compiled into the kernels, and the mean, the variance and the log density
of a rating given eta. docs/own-likelihood.md builds one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from dsgmcmc.kernels.effects import Score, formula_score
from dsgmcmc.kernels.gradient import gradient_kernel
from dsgmcmc.model.circulation import RatingsCell
from dsgmcmc.model.likelihoods.base import Law, State
from dsgmcmc.model.predictive.base import Moments, Predictive, PredictorDraws
from dsgmcmc.model.predictive.mixture import ExpectationMixture, LawOfMoments, Mixture
from dsgmcmc.types import Array, Float32, Float64, Int32


class Likelihood(Law):
    """Distribution of a rating that is determined by its mean, its variance and `shape`."""

    #: d log density / d eta at noise precision 1: a formula in x and eta
    #: (`dsgmcmc.kernels.formulas.formula`).
    score: ClassVar[str]
    #: Class of the predictive distributions, mixtures over draws.
    mixture: ClassVar[type[Mixture]] = Mixture

    @override
    def add_gradient(
        self, cell: RatingsCell, position: str, out: str, *, scale: float, share: float
    ) -> float:
        """Add the gradient of a cell's energy, times `scale`, to `out` of both blocks."""
        kernel = gradient_kernel(
            self.rank,
            self.biases,
            score=self.score,
            offset=cell.ratings.offsets is not None,
            by_rating=cell.ratings.weights is not None,
        )
        return float(kernel(*cell.arguments(position, out), np.float32(scale)))

    @classmethod
    @override
    def has_score(cls) -> bool:
        """Whether effects of groups can use the scores of single ratings.

        True if `scores` is overridden. Also true if `add_gradient` is not overridden: the gradient
        then follows the formula `score`.
        """
        return cls.scores is not Likelihood.scores or cls.add_gradient is Likelihood.add_gradient

    @override
    def scores(self, cell: RatingsCell) -> tuple[Score, Float32]:
        """Score at noise precision 1, and its argument: the formula `score`, and the rating."""
        return formula_score(self.score), cell.ratings.values[None]

    # ------------------------------------------------------------------ new ratings

    @staticmethod
    def mean(eta: Array, *shape: Array | float) -> Array:
        """Expected rating given its predictor, elementwise; here: the predictor."""
        return eta

    @staticmethod
    @abstractmethod
    def variance(eta: Array, noise: Array | float, *shape: Array | float) -> Array | float:
        """Variance of a rating given its predictor and its `noise`, 1 / (tau g g'), elementwise."""

    @staticmethod
    @abstractmethod
    def log_density(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Array:
        """Log density of ratings with these means and variances, in nats, elementwise."""

    @staticmethod
    def cdf(x: Array, mean: Array, variance: Array, *shape: Array | float) -> Float64:
        """Probability that a rating is at most `x`, elementwise.

        Not needed if `components` returns another class.
        """
        raise NotImplementedError

    @override
    def state(
        self, eta: Float32, cell: RatingsCell, rows: Int32, columns: Int32, *, tau: float
    ) -> State:
        noise: Float32 | float = 1 / tau
        if self.heteroscedastic:
            row_scale = self.row_scale(cell.row)[rows]
            column_scale = self.row_scale(cell.column)[columns]
            precision = np.float32(tau) * row_scale * column_scale
            noise = np.reciprocal(precision, dtype=np.float32)
        shape = self.shape
        return State(
            mean=self.mean(eta, *shape),
            variance=self.variance(eta, noise, *shape),
            probability=np.zeros((len(eta), 0), np.float32),
        )

    @override
    def log_likelihood(self, x: Float32, state: State) -> float:
        logs = self.log_density(x, state.mean, np.asarray(state.variance), *self.shape)
        return float(logs.sum(dtype=np.float64))

    @override
    def log_between(self, bounds: tuple[Array, Array], state: State) -> Float64:
        mean = np.asarray(state.mean, np.float64)
        variance = np.broadcast_to(np.asarray(state.variance, np.float64), len(mean))
        return self._at_one_draw(mean, variance, self.shape).log_between(*bounds)

    @classmethod
    @override
    def predictive(
        cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None
    ) -> Predictive:
        nodes = draws.over_effects()
        eta = np.concatenate([node.eta for _, node in nodes], axis=1)
        noise = np.concatenate([node.noise for _, node in nodes], axis=1)
        weights = np.concatenate([share * node.weights for share, node in nodes])
        shapes = cls._shapes([node for _, node in nodes])
        law, mean, variance, shape = cls.components(eta.astype(np.float64), noise, shapes)
        return cls.mixture(law, mean, variance, weights, centre, levels, shape)

    @classmethod
    @override
    def log_likelihood_at(
        cls, x: Float64, eta: Float64, scale: Float64, parameters: Array | None
    ) -> Float64:
        mean, variance, shape = cls._moments_at(eta, scale, parameters)
        return np.asarray(cls.log_density(x, mean, variance, *shape), np.float64)

    @classmethod
    @override
    def log_between_at(
        cls, bounds: Array, eta: Float64, scale: Float64, parameters: Array | None
    ) -> Float64:
        mean, variance, shape = cls._moments_at(eta, scale, parameters)
        return cls._at_one_draw(mean, variance, shape).log_between(*bounds)

    @classmethod
    def _moments_at(
        cls, eta: Float64, scale: Float64, parameters: Array | None
    ) -> tuple[Array, Float64, Sequence[Any] | Array]:
        """Means and variances of ratings given their predictors, (n,), and the draw's `shape`.

        Arguments are those of `log_likelihood_at`.
        """
        shape: Sequence[Any] | Array = ()
        if parameters is not None:
            shape = parameters.T  # each a number, or one for every rating
        variance = np.asarray(cls.variance(eta, 1 / np.asarray(scale), *shape), np.float64)
        return cls.mean(eta, *shape), variance, shape

    @classmethod
    def _at_one_draw(cls, mean: Array, variance: Array, shape: Sequence[Any] | Array) -> Mixture:
        """Distributions of ratings with these means and variances, (q,).

        `shape` has numbers, or arrays (q,).
        """
        parameters = [np.reshape(parameter, (-1, 1)) for parameter in shape]
        return cls.mixture(cls, mean[:, None], variance[:, None], np.ones(1), shape=parameters)

    @classmethod
    @override
    def quantiles_within(
        cls,
        p: Float64,
        draws: PredictorDraws,
        bounds: tuple[Float64, Float64],
        centre: float = 0.0,
    ) -> Float64:
        eta = draws.eta.astype(np.float64)
        noise = draws.noise.astype(np.float64) + draws.spread
        shape = cls._shapes([draws])
        variance = np.asarray(cls.variance(eta, noise, *shape), np.float64)
        mean = cls.mean(eta, *shape) + centre
        columns = (bounds[0][:, None], bounds[1][:, None])
        return cls.quantile_between(p, mean, variance, columns, *shape)

    @classmethod
    def components(
        cls, eta: Float64, noise: Array, shape: Sequence[Array]
    ) -> tuple[type[LawOfMoments], Array, Array, Sequence[Array]]:
        """Components of a mixture over draws: their class, means, variances, further parameters."""
        return cls, cls.mean(eta, *shape), np.asarray(cls.variance(eta, noise, *shape)), shape

    @classmethod
    def _shapes(cls, nodes: Sequence[PredictorDraws]) -> list[Float64]:
        """Each parameter in `shape` at all quadrature nodes, (q or 1, nodes times draws).

        If draws have none of these parameters: their values in `starts`, (1, 1).
        """
        sets = [node.parameters for node in nodes if node.parameters is not None]
        if not sets:
            return [np.full((1, 1), start) for start in cls.starts.values()]
        by_draw = np.concatenate(sets)
        owner = nodes[0].owner
        if owner is not None:
            by_draw = by_draw[:, owner]
        return list(by_draw.transpose(2, 1, 0))

    @classmethod
    @override
    def expectation(
        cls, draws: PredictorDraws, centre: float = 0.0, levels: Float64 | None = None
    ) -> Predictive:
        known = draws.known()
        mean = np.zeros_like(known.eta)
        for share, node in draws.over_effects():
            mean += np.float32(share) * cls.mean(node.eta, *cls._shapes([node]))
        return ExpectationMixture(mean, known.spread, known.weights, centre)

    @classmethod
    @override
    def predictive_of_moments(cls, moments: Moments) -> Predictive:
        mean = np.asarray(moments.mean, np.float64)[:, None]
        variance = np.asarray(moments.variance, np.float64)[:, None]
        shape: list[Float64] = []
        if moments.shape is not None:
            shape = [parameter[:, None] for parameter in moments.shape.T]
        return cls.mixture(cls, mean, variance, np.ones(1), levels=moments.levels, shape=shape)
