"""Mixtures over draws, of ratings and of their levels: probabilities, and what is read off them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dsgmcmc.errors import InputError
from dsgmcmc.kernels import levels as kernels
from dsgmcmc.kernels.quantiles import summarise
from dsgmcmc.model.likelihoods import Likelihood
from dsgmcmc.model.likelihoods.base import Prediction
from dsgmcmc.model.likelihoods.levels import level_quantile
from dsgmcmc.model.likelihoods.ordinal import Ordinal
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Float32, Float64, Int32

_NODES, _SHARES = np.polynomial.hermite_e.hermegauss(15)  # of the normal law
_SHARES /= _SHARES.sum()


class Mixture(NamedTuple):
    """What a predictive distribution is mixed of: a component for every draw, or for every chain.

    Attributes
    ----------
    centre : (q, draws) float32
        Predictors, less the training mean.
    variance : (q, draws) float32
        Of what is added to them; where ratings are of levels, the product s of the scales.
    spread : (q, draws) float32
        Of `variance`, what the predictor has of its own, not being known; of levels, in addition to it.
    weights : (draws,) float64
        They sum to 1.
    thresholds : (draws, m, R - 1) float64 or None
        Of levels: of m users, or those of all.
    owner : (q,) int32 or None
        Whose thresholds each has.
    """

    centre: Float32
    variance: Float32
    spread: Float32
    weights: Float64
    thresholds: Float64 | None = None
    owner: Int32 | None = None

    def at(self, rows: npt.NDArray[np.intp]) -> Mixture:
        """Of some of the pairs."""
        centre, variance, spread = (each[rows] for each in (self.centre, self.variance, self.spread))
        owner = None if self.owner is None else self.owner[rows]
        return self._replace(centre=centre, variance=variance, spread=spread, owner=owner)

    def spread_out(self) -> Mixture:
        """The same with more components of known predictors: the nodes of a quadrature over every one's own law."""
        sd, nodes = np.sqrt(self.spread), _NODES.astype(np.float32)
        return self._replace(
            centre=np.concatenate([self.centre + node * sd for node in nodes], axis=1),
            variance=np.tile(self.variance, len(nodes)),
            spread=np.tile(np.zeros_like(self.spread), len(nodes)),
            weights=np.concatenate([self.weights * share for share in _SHARES]),
            thresholds=None if self.thresholds is None else np.tile(self.thresholds, (len(nodes), 1, 1)),
        )


def level_probabilities(run: Run, mixture: Mixture) -> Float32:
    """Probability of each level of the run's ratings, (q, R) float32.

    Where the law is not of levels, that of all that is rounded to it.

    Raises
    ------
    InputError
        If the ratings have no levels.
    """
    levels = run.levels
    if levels is None or run.config.law.all_cells:
        raise InputError(f"{run.path}: its ratings have no levels that could have probabilities")
    if run.config.law.has_levels:
        found = np.zeros((len(mixture.centre), len(levels)), np.float32)
        for rows, known in _by_certainty(mixture):
            for weight, p in zip(known.weights.tolist(), components(run, known), strict=True):
                found[rows] += np.float32(weight) * p
        return found
    between = [_below(run, mixture, end) for end in ((levels[1:] + levels[:-1]) / 2).tolist()]
    ends = np.zeros(len(mixture.centre)), np.ones(len(mixture.centre))
    return np.diff(np.stack([ends[0], *between, ends[1]], axis=1), axis=1).astype(np.float32)


def at_least(run: Run, mixture: Mixture, bound: float) -> Float32:
    """Probability of a rating of at least `bound`, (q,) float32."""
    levels = run.levels
    if levels is not None and not run.config.law.of_counts:
        reached = levels >= bound - 1e-9
        if run.config.law.has_levels or reached.all() or not reached.any():
            found: Float32 = level_probabilities(run, mixture)[:, reached].sum(axis=1, dtype=np.float32)
            return found
        bound = float(levels[reached][0] + levels[~reached][-1]) / 2  # from where on it is rounded to the level
    return (1 - _below(run, mixture, bound)).astype(np.float32)


def level_summary(run: Run, mixture: Mixture, quantiles: tuple[float, float], of_mean: bool) -> Prediction:
    """Predictive distributions where ratings are of levels; see `Likelihood.predictive`."""
    levels = run.levels
    assert levels is not None
    if of_mean:
        result = Prediction(*(np.empty(len(mixture.centre), np.float32) for _ in Prediction._fields))
        for rows, known in _by_certainty(mixture):
            expected = np.stack([kernels.level_moments(p, levels)[0] for p in components(run, known)], axis=1)
            found = summarise(expected, np.zeros_like(expected), known.weights, quantiles, (0.0, 0.0))
            for whole, part in zip(result, found, strict=True):
                whole[rows] = part
        return result
    p = level_probabilities(run, mixture)
    mean, variance = kernels.level_moments(p, levels)
    low, high = (level_quantile(p, levels, level).astype(np.float32) for level in quantiles)
    return Prediction(mean, np.sqrt(variance), low, high)


def expected(run: Run, mixture: Mixture) -> Float32:
    """Expected rating, less the training mean, (q,) float32."""
    law = run.config.law
    if not issubclass(law, Likelihood):
        return level_summary(run, mixture, (0.5, 0.5), of_mean=False).mean
    found = np.empty(len(mixture.centre), np.float32)
    for rows, known in _by_certainty(mixture):
        found[rows] = law.mean(known.centre) @ known.weights
    return found


def _by_certainty(mixture: Mixture) -> Iterator[tuple[npt.NDArray[np.intp], Mixture]]:
    """Pairs whose predictors are known, and pairs whose are not, with these spread out."""
    unsure = np.any(mixture.spread > 0, axis=1)
    for rows in (np.flatnonzero(~unsure), np.flatnonzero(unsure)):
        if len(rows):
            some = mixture.at(rows)
            yield rows, some.spread_out() if unsure[rows[0]] else some


def components(run: Run, mixture: Mixture) -> Iterator[Float32]:
    """Probabilities of the levels, (q, R) float32, in every component."""
    law, thresholds = run.config.law, mixture.thresholds
    assert issubclass(law, Ordinal)
    assert thresholds is not None
    for d, own in enumerate(thresholds):
        eta, scale = (np.ascontiguousarray(each[:, d]) for each in (mixture.centre, mixture.variance))
        yield kernels.level_probabilities(law.link, eta, scale, own, mixture.owner)


def _below(run: Run, mixture: Mixture, bound: float) -> Float64:
    """Probability of a rating below `bound`, (q,) float64, where the law has noise."""
    law = run.config.law
    if not issubclass(law, Likelihood) or law.all_cells:
        raise InputError(f"{run.path}: probabilities of bounds are not known for {run.config.likelihood}")
    if law.has_noise:
        p = law.below(np.array(bound - run.mean), law.mean(mixture.centre), mixture.variance)
        return np.asarray(p @ mixture.weights)
    found = np.empty(len(mixture.centre))
    for rows, known in _by_certainty(mixture):
        mean = law.mean(known.centre)
        found[rows] = law.below(np.array(bound), mean, mean) @ known.weights
    return found
