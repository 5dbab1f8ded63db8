r"""Recommendations: for each user the items with the highest scores, among those that the user has not rated.

Scores, of the predictor x = mu + a_i + b_j + W_i . H_j, without the noise of a rating:

- ``mean``: E x
- ``ucb``, ``lcb``: E x + z sd(x), E x - z sd(x): the upper bound explores, the lower is cautious
- ``thompson``: x at one draw from the posterior, another for every user [Thompson 1933]

Where ratings are of levels, x is the expected rating given the predictor. With a bound, x is the probability of a
rating of at least so much, given the predictor, noise included.

E and sd are over the saved draws, or from moments by the approximation of `dsgmcmc.posterior.predict`. Thompson
sampling takes a saved draw; from moments it takes every element from its own normal.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.prediction import scores_kernel
from dsgmcmc.posterior.draws import Source
from dsgmcmc.posterior.mixture import Mixture, at_least, level_summary
from dsgmcmc.posterior.predict import Newcomers, Options, Predictor
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Float32, Float64, Int32

Columns = dict[str, npt.NDArray[Any]]
By = Literal["mean", "ucb", "lcb", "thompson"]

_CELLS = 1 << 20  # scores of a block of users: two such blocks stay in the cache


@dataclass(frozen=True)
class Ranking:
    """How items are ranked.

    Attributes
    ----------
    top : int
        Items a user gets at most.
    by : {"mean", "ucb", "lcb", "thompson"}
    z : float
        Sds that the bounds of ucb and lcb lie from the mean.
    source : {"auto", "draws", "moments"}
    seed : int or None
        Of Thompson sampling; None takes another one for every `Ranking`.
    clip : bool
        Whether `recommendations` moves scores and quantiles into the range of the training ratings; the order stays.
    at_least : float or None
        Rank by the probability of a rating of at least so much.
    """

    top: int = 10
    by: By = "mean"
    z: float = 1.0
    source: Source = "auto"
    seed: int | None = None
    clip: bool = True
    at_least: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.top, int | np.integer) or self.top < 1:
            raise InputError(f"{self.top!r} items a user: expected a whole number, at least 1")
        if self.by not in get_args(By):
            raise InputError(f"by {self.by!r}: expected one of {', '.join(get_args(By))}")
        if not self.z >= 0:
            raise InputError(f"z {self.z}: expected a number of sds, not below 0")

    @cached_property
    def entropy(self) -> int:
        """What random numbers follow from: `seed`, or one of this object's own."""
        return secrets.randbits(63) if self.seed is None else self.seed


class Rated:
    """Which items each user rated in training.

    Parameters
    ----------
    ratings : Ratings
        Open ratings file of the run.
    """

    def __init__(self, ratings: Ratings) -> None:
        indptr, indices, _ = ratings.slab("train", 0, ratings.n_rows)
        self._indptr, self._indices = indptr, indices
        if ratings.transposed:  # rows are items
            rows = np.repeat(np.arange(ratings.n_rows, dtype=np.int32), np.diff(indptr))
            order = np.argsort(indices, kind="stable")
            self._indptr = np.append(0, np.cumsum(ratings.column_counts))
            self._indices = rows[order]

    def of(self, user: int) -> Int32:
        """Rows of the items that a user rated."""
        found: Int32 = self._indices[self._indptr[user] : self._indptr[user + 1]]
        return found


def recommend(
    run: Run, users: Int32, ranking: Ranking, rated: Rated | None = None, newcomers: Newcomers | None = None
) -> Iterator[tuple[Int32, Int32, Float32]]:
    """Rank items for users, block by block.

    Parameters
    ----------
    run : Run
    users : (n,) int32
        Rows of users; from the number of known ones on, of `newcomers`.
    ranking : Ranking
    rated : Rated, optional
        Leaves out what a known user rated.
    newcomers : Newcomers, optional
        Users that were folded in; they know what they rated.

    Yields
    ------
    user, item : (m,) int32
        Rows, by user in the order given, best item first.
    score : (m,) float32
        In units of the ratings; a probability, if there is a bound.
    """
    source = run.source(ranking.source)
    scorer = (_DrawScores if source == "draws" else _MomentScores)(run, ranking, newcomers)
    step = max(1, _CELLS // len(run.items))
    known = len(run.users)
    for start in range(0, len(users), step):
        some = users[start : start + step]
        scores = scorer.scores(some, start)
        for local, user in enumerate(some.tolist()):
            if user >= known and newcomers is not None:
                scores[local, newcomers.rated(user - known)] = -np.inf
            elif rated is not None and user < known:
                scores[local, rated.of(user)] = -np.inf
        yield _best(some, scores, ranking.top, np.float32(run.mean if scorer.plain else 0.0))


def recommendations(
    run: Run,
    users: Int32,
    ranking: Ranking,
    rated: Rated | None = None,
    *,
    newcomers: Newcomers | None = None,
    titles: dict[int, str] | None = None,
) -> Iterator[Columns]:
    """Rank items for users, by original names; parameters as of `recommend`.

    Yields
    ------
    dict of str to (m,) array
        Columns ``user_id, item_id, score, rank``; ``sd, q05, q95`` of the predictor, whatever was ranked by;
        ``ratings``, how many the item has in training; and, with `titles` (by row), ``item_name``. Rank 1 is the best.
    """
    source = "draws" if newcomers is not None else ranking.source
    predictor = Predictor(run, Options(source, of_mean=True, clip=ranking.clip), newcomers)
    clip = ranking.clip and ranking.at_least is None  # probabilities are none of the ratings
    limits = (float(run.facts["minimum"]), float(run.facts["maximum"])) if clip else (-np.inf, np.inf)
    counts = run.counts("item")
    names = run.users.ids
    if newcomers is not None:
        names = np.concatenate([names, newcomers.vocabulary.ids])
    for rows, items, score in recommend(run, users, ranking, rated, newcomers):
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        lengths = np.diff(np.append(first, len(rows)))
        columns: Columns = {
            "user_id": names[rows],
            "item_id": run.items.ids[items],
            "score": np.clip(score, *limits, dtype=np.float32),
            "rank": (np.arange(len(rows)) - np.repeat(first, lengths) + 1).astype(np.int32),
        }
        found = predictor(rows, items)
        columns |= {"sd": found.sd, "q05": found.low, "q95": found.high, "ratings": counts[items]}
        if titles is not None:
            columns["item_name"] = np.array([titles.get(item, "") for item in items.tolist()], dtype=object)
        yield columns


def _best(users: Int32, scores: Float32, top: int, mean: np.float32) -> tuple[Int32, Int32, Float32]:
    top = min(top, scores.shape[1])
    some = np.argpartition(scores, -top, axis=1)[:, -top:]
    found = np.take_along_axis(scores, some, axis=1)
    order = np.lexsort((some, -found), axis=1)  # ties by row, so that they are the same everywhere
    some, found = np.take_along_axis(some, order, axis=1), np.take_along_axis(found, order, axis=1)
    open_to = np.isfinite(found)
    return np.repeat(users, open_to.sum(axis=1)), some[open_to].astype(np.int32), found[open_to] + mean


class _Scores:
    def __init__(self, run: Run, ranking: Ranking, newcomers: Newcomers | None) -> None:
        self.run, self.ranking, self.newcomers = run, ranking, newcomers
        self.biases, self.rank = run.config.biases, run.config.rank
        #: Whether the predictor itself is the score.
        self.plain = ranking.at_least is None and not run.config.law.has_levels
        if not self.plain and (newcomers is not None or run.source(ranking.source) == "moments"):
            raise InputError(f"{run.path}: expected levels and probabilities are ranked for known users, from draws")

    def bound(self, mean: Float32, variance: Float32 | Float64) -> Float32:
        """Score from mean and variance."""
        sign = {"mean": 0.0, "ucb": 1.0, "lcb": -1.0}[self.ranking.by]
        if not sign:
            return mean
        return (mean + np.float32(sign * self.ranking.z) * np.sqrt(np.maximum(variance, 0))).astype(np.float32)

    def worth(self, number: int, users: Int32, predictors: Float32) -> Float32:
        """What predictors (n, items) of users at a draw are worth: see the module."""
        run, draw, shape = self.run, self.run.draw(number), predictors.shape
        scale = np.outer(draw.noise_scale["user"][users], draw.noise_scale["item"]).ravel()
        scale = scale if run.config.law.has_levels else np.reciprocal(np.float32(draw.tau) * scale)
        found = Mixture(
            centre=predictors.reshape(-1, 1),
            variance=scale.reshape(-1, 1),
            spread=np.zeros((predictors.size, 1), np.float32),
            weights=np.ones(1),
            thresholds=None if draw.thresholds is None else draw.thresholds[None],
        )
        if self.ranking.at_least is not None:
            return at_least(run, found, self.ranking.at_least).reshape(shape)
        return level_summary(run, found, (0.5, 0.5), of_mean=False).mean.reshape(shape)

    def split(self, theta: Float32) -> tuple[Float32, Float32]:
        """Factors and biases of rows of theta."""
        if not self.biases:
            return theta, np.zeros(len(theta), np.float32)
        return theta[:, : self.rank], np.ascontiguousarray(theta[:, self.rank])


class _DrawScores(_Scores):
    def __init__(self, run: Run, ranking: Ranking, newcomers: Newcomers | None) -> None:
        super().__init__(run, ranking, newcomers)
        self._add = scores_kernel()

    def scores(self, users: Int32, first: int) -> Float32:
        """Scores (n, items) of users, the first of which is number `first` of all."""
        if self.ranking.by == "thompson":
            return self._thompson(users, first)
        shape = (len(users), len(self.run.items))
        mean, square = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        new = np.flatnonzero(users >= len(self.run.users))
        for number, weight in enumerate(self.run.draw_weights.tolist()):
            theta, covariance = self._rows(number, users)
            items, item_bias = self.split(self.run.draw(number).theta["item"])
            factors, bias = self.split(theta)
            score = factors @ items.T
            if not self.plain:
                score = self.worth(number, users, score + bias[:, None] + item_bias)
                bias, item_bias = np.zeros_like(bias), np.zeros_like(item_bias)
            self._add(score, bias, item_bias, weight, mean, square)
            if len(new) and self.ranking.by != "mean":
                across = self.run.draw(number).theta["item"].copy()
                if self.biases:
                    across[:, self.rank] = 1.0
                for local in new.tolist():
                    square[local] += weight * ((across @ covariance[local]) * across).sum(axis=1)
        return self.bound(mean, square - mean * mean)

    def _rows(self, number: int, users: Int32) -> tuple[Float32, Float32]:
        """Rows of users at a draw, and the covariances of those that were folded in."""
        theta = self.run.draw(number).theta["user"]
        known = users < len(theta)
        rows: Float32 = theta[np.where(known, users, 0)]
        if known.all():
            return rows, np.zeros((0, 0, 0), np.float32)
        assert self.newcomers is not None
        found = self.newcomers.rows(number, users[~known].astype(np.intp) - len(theta))
        covariance = np.zeros((len(users), theta.shape[1], theta.shape[1]), np.float32)
        rows[~known], covariance[~known] = found.mean.astype(np.float32), found.covariance.astype(np.float32)
        return rows, covariance

    def _thompson(self, users: Int32, first: int) -> Float32:
        draws = len(self.run.draws)
        scores = np.empty((len(users), len(self.run.items)), np.float32)
        rng = [np.random.default_rng([self.ranking.entropy, 1 + first + local]) for local in range(len(users))]
        chosen = np.array([r.choice(draws, p=self.run.draw_weights) for r in rng])
        for number in np.unique(chosen).tolist():
            which = np.flatnonzero(chosen == number)
            theta, covariance = self._rows(number, users[which])
            for local in np.flatnonzero(users[which] >= len(self.run.users)).tolist():
                theta[local] = rng[which[local]].multivariate_normal(theta[local], covariance[local])
            items, item_bias = self.split(self.run.draw(number).theta["item"])
            factors, bias = self.split(theta)
            predictors = factors @ items.T + bias[:, None] + item_bias
            scores[which] = predictors if self.plain else self.worth(number, users[which], predictors)
        return scores


class _MomentScores(_Scores):
    def scores(self, users: Int32, first: int) -> Float32:
        """Scores (n, items) of users; chains are pooled, as in `dsgmcmc.posterior.predict`."""
        if self.ranking.by == "thompson":
            return self._thompson(users, first)
        means, variances = [], []
        for m in self.run.moments:
            (w, a), (h, b) = self.split(m.mean["user"][users]), self.split(m.mean["item"])
            (vw, va), (vh, vb) = self.split(m.variance["user"][users]), self.split(m.variance["item"])
            means.append(w @ h.T + a[:, None] + b)
            variances.append((w * w) @ vh.T + vw @ (h * h + vh).T + va[:, None] + vb)
        return self.bound(np.mean(means, axis=0), np.mean(variances, axis=0) + np.var(means, axis=0))

    def _thompson(self, users: Int32, first: int) -> Float32:
        m = self.run.moments[self.ranking.entropy % len(self.run.moments)]
        rng = np.random.default_rng([self.ranking.entropy, 0])
        noise = rng.standard_normal(m.mean["item"].shape, np.float32)
        item = (m.mean["item"] + np.sqrt(m.variance["item"]) * noise).astype(np.float32)
        theta: Float32 = m.mean["user"][users]
        for local in range(len(users)):
            own = np.random.default_rng([self.ranking.entropy, 1 + first + local])
            theta[local] += np.sqrt(m.variance["user"][users[local]]) * own.standard_normal(theta.shape[1], np.float32)
        (w, a), (h, b) = self.split(theta), self.split(item)
        return (w @ h.T + a[:, None] + b).astype(np.float32)
