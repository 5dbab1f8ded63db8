r"""Rankings: recommended items by several rules, and similar items or users.

**Rules** give every item a score for a user.

- ``likely`` (default): items that the user will rate *and* like, e_ij P(x_ij >= bound): the exposure e_ij of
  `dsgmcmc.posterior.exposure` times the probability of a rating of at least the bound, by default `liked_from`. For
  clicks, which have no probability, the score is e_ij times the expected score. It orders items, and is no probability.
- ``exposure``: e_ij alone

The other rules use the predictor x = mu + a_i + b_j + W_i . H_j, without the noise of a rating:

- ``mean``: E x
- ``ucb``, ``lcb``: E x + z sd(x) and E x - z sd(x); the upper bound explores, the lower bound is cautious
- ``thompson``: x at one draw from the posterior, drawn anew for every user [Thompson 1933]

If the expected rating differs from the predictor, as for ordinal ratings and counts, x is the expected rating. With a
bound, x is the probability of a rating of at least the bound, given the predictor, noise included.

E and sd are taken over the saved draws; Thompson sampling picks one of these.

**Similarity** of two items, or of two users. At a draw, the similarity of items j and k is the correlation over the
users of the ratings that the factors predict for both,

    s_jk = H_j^T S H_k / sqrt(H_j^T S H_j  H_k^T S H_k),    S the covariance of the rows W_i over the users:

which is also the cosine of H_j and H_k in the metric S. Unlike the plain cosine, it depends on the factors only through
the products W_i . H_j, and not on their rotation or scale. Biases are left out: two items are not similar because
everybody likes both. Items are ranked by the mean similarity over the saved draws; its sd and quantiles are reported,
too. An item with few ratings points in another direction at every draw, so its mean similarity is small.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.prediction import scores_kernel
from dsgmcmc.model.predictive.base import PredictorDraws
from dsgmcmc.posterior.draws import OTHER
from dsgmcmc.posterior.exposure import Rated
from dsgmcmc.posterior.names import unknown_names
from dsgmcmc.posterior.newcomers import FoldIn
from dsgmcmc.posterior.predict import PredictOptions, Predictor, of_owners, owners
from dsgmcmc.posterior.run import Run
from dsgmcmc.settings import named
from dsgmcmc.types import Float32, Float64, Int32, Mask

By = Literal["likely", "exposure", "mean", "ucb", "lcb", "thompson"]

Columns = dict[str, npt.NDArray[Any]]

PATTERN_RULES = ("likely", "exposure")  # rules that use the pattern of the ratings

LIKED = 0.75  # a rating counts as liked from this fraction of the scale, between lowest and highest rating
_CELLS = 1 << 20  # scores in a block of users; two such blocks stay in the cache
_LEAST = 1e-3  # lower limit of scores of clicks before they are multiplied by the exposure


@dataclass(frozen=True)
class Ranking:
    """Options of a ranking of items.

    Attributes
    ----------
    top : int
        Largest number of items per user.
    by : {"likely", "exposure", "mean", "ucb", "lcb", "thompson"}
    z : float
        Number of standard deviations between the mean and the bounds of ucb and lcb.
    seed : int or None
        Seed of Thompson sampling; None draws one for each `Ranking`.
    clip : bool
        Whether `recommendations` clips quantiles to the range of the training ratings. Scores are never clipped,
        because clipping would hide their order.
    at_least : float or None
        Rank by the probability of a rating of at least this value; with ``likely``, the lowest rating that counts as
        liked.
    include_rated : bool
        Also recommend items that the user rated.
    """

    top: int = 10
    by: By = "likely"
    z: float = 1.0
    seed: int | None = None
    clip: bool = True
    at_least: float | None = None
    include_rated: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.top, int | np.integer) or self.top < 1:
            raise InputError(f"{self.top!r} items per user: expected a whole number, at least 1")
        if self.by not in get_args(By):
            raise InputError(f"by {self.by!r}: expected one of {', '.join(get_args(By))}")
        if not isinstance(self.z, float | int | np.number) or not self.z >= 0:
            raise InputError(f"z {self.z!r}: expected a number of standard deviations, not below 0")
        if self.seed is not None and (not isinstance(self.seed, int | np.integer) or self.seed < 0):
            raise InputError(f"seed {self.seed!r}: expected a whole number, not below 0, or None")

    @property
    def of_score(self) -> str:
        """Short description of the score."""
        if self.by in PATTERN_RULES:
            return self.by
        if self.at_least is not None:
            return f"P(rating >= {self.at_least:g})"
        sds = f"{self.z:g} sd"
        return {"mean": "mean", "ucb": f"mean + {sds}", "lcb": f"mean - {sds}", "thompson": "one draw"}[self.by]

    @cached_property
    def entropy(self) -> int:
        """Seed of the random numbers: `seed`, or a random one for this object."""
        return secrets.randbits(63) if self.seed is None else self.seed


def liked_from(run: Run) -> float:
    """Return the lowest rating that counts as liked by default: three quarters up the scale, or any click."""
    low, high = float(run.facts["minimum"]), float(run.facts["maximum"])
    return low + LIKED * (high - low) if run.config.law.can_be_evaluated else low


class Scorer:
    """Scores from saved draws.

    Scores for ``likely`` do not include the exposure, by which they are multiplied later. The rule ``exposure`` needs
    no scorer.

    Parameters
    ----------
    newcomers : FoldIn, optional
        Users that were folded in; their indices follow those of the run's users.

    Attributes
    ----------
    centre : float
        Constant to be added to scores: the training mean if the predictor itself is the score, else 0.
    """

    def __init__(self, run: Run, ranking: Ranking, newcomers: FoldIn | None) -> None:
        run.need_draws()
        self.run, self.ranking, self.newcomers = run, ranking, newcomers
        law = run.config.law
        self.biases, self.rank = run.config.biases, run.config.rank
        #: Least rating whose probability is the score.
        self.at_least = ranking.at_least
        if self.at_least is None and ranking.by == "likely" and law.can_be_evaluated:
            self.at_least = liked_from(run)
        if self.at_least is not None and not law.can_be_evaluated:
            raise InputError(f"{run.path}: {run.config.likelihood} predicts scores, not ratings, without probabilities")
        #: Whether the predictor itself is the score.
        self.plain = self.at_least is None and law.is_linear
        self.centre = run.mean if self.plain else 0.0
        self._add = scores_kernel()

    def bound(self, mean: Float32, variance: Float32 | Float64) -> Float32:
        """Score from mean and variance."""
        sign = {"ucb": 1.0, "lcb": -1.0}.get(self.ranking.by, 0.0)
        if not sign:
            return mean
        return (mean + np.float32(sign * self.ranking.z) * np.sqrt(np.maximum(variance, 0))).astype(np.float32)

    def worth(self, number: int, users: Int32, noise: Float32, predictors: Float32, spread: Float32) -> Float32:
        """Scores at a draw, from predictors (n, items): expected ratings, or probabilities of at least the bound.

        `noise` is 1 / g of the users, (n,); `spread`, (n, items), is the variance of the predictors at the draw.
        """
        run, draw, shape = self.run, self.run.draw(number), predictors.shape
        whose, owner = owners(run, users)
        thresholds = of_owners(draw, whose, self.newcomers, number)
        law_shape = run.config.law.shape_of(draw.shared)
        variance = np.outer(noise, draw.inverse_scale["item"]) / np.float32(draw.tau)
        effects = None
        if run.has_effects and np.any(unknown := self._added(number, users)[1]):
            effects = np.broadcast_to(unknown, shape).astype(np.float32).reshape(-1, 1)
        draws = PredictorDraws(
            eta=predictors.reshape(-1, 1),
            noise=variance.reshape(-1, 1),
            spread=spread.reshape(-1, 1),
            weights=np.ones(1),
            thresholds=None if thresholds is None else thresholds[None],
            owner=np.repeat(owner, shape[1]),
            effects=effects,
            shape=None if law_shape is None else law_shape[None, None],
        )
        scores = np.empty(predictors.size, np.float32)
        for rows, some in draws.by_certainty():
            predicted = run.config.law.predictive(some, run.mean, run.levels)
            scores[rows] = predicted.mean if self.at_least is None else predicted.at_least(self.at_least)
        return scores.reshape(shape)

    def _added(self, number: int, users: Int32) -> tuple[Float32 | float, Float32 | float]:
        """Terms that parts of the model add to predictors of all items at a draw, and their variances, (n, items)."""
        draw, n = self.run.draw(number), len(self.run.items)
        known = np.where(users < len(self.run.users), users, np.int32(-1))
        pairs = np.repeat(known, n), np.tile(np.arange(n, dtype=np.int32), len(known))
        mean, variance = draw.of_ratings(*pairs)
        if np.ndim(mean) == np.ndim(variance) == 0:  # equal for all pairs
            return mean, variance
        whole_mean = np.broadcast_to(mean, len(pairs[0])).astype(np.float32)
        whole_variance = np.broadcast_to(variance, len(pairs[0])).astype(np.float32)
        return whole_mean.reshape(len(users), n), whole_variance.reshape(len(users), n)

    def split(self, theta: Float32) -> tuple[Float32, Float32]:
        """Split rows of theta into factors and biases."""
        if not self.biases:
            return theta, np.zeros(len(theta), np.float32)
        return theta[:, : self.rank], np.ascontiguousarray(theta[:, self.rank])

    def scores(self, users: Int32, first: int) -> Float32:
        """Scores (n, items) of users; `first` is the position of the first of them among all users to be ranked for."""
        if self.ranking.by == "thompson":
            return self._thompson(users, first)
        scores = self.bound(*self.moments(users))
        return scores if self.ranking.by != "likely" or self.at_least is not None else np.maximum(scores, _LEAST)

    def moments(self, users: Int32) -> tuple[Float32, Float32]:
        """Mean and variance of the scores over the draws, (n, items) each."""
        shape = (len(users), len(self.run.items))
        mean, square = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        spread = np.zeros(shape, np.float32)
        new = np.flatnonzero(users >= len(self.run.users))
        for number, weight in enumerate(self.run.draw_weights.tolist()):
            theta, covariance, noise = self._rows(number, users)
            items, item_bias = self.split(self.run.draw(number).theta["item"])
            factors, bias = self.split(theta)
            score = factors @ items.T
            if self.run.has_effects:
                score += np.float32(self._added(number, users)[0])
            if len(new) and not (self.plain and self.ranking.by == "mean"):
                across = self.run.draw(number).theta["item"].copy()
                if self.biases:
                    across[:, self.rank] = 1.0
                for local in new.tolist():
                    spread[local] = ((across @ covariance[local]) * across).sum(axis=1)
            if not self.plain:
                score = self.worth(number, users, noise, score + bias[:, None] + item_bias, spread)
                bias, item_bias = np.zeros_like(bias), np.zeros_like(item_bias)
            self._add(score, bias, item_bias, weight, mean, square)
            if self.plain:
                square += np.float32(weight) * spread
        return mean, square - mean * mean

    def _rows(self, number: int, users: Int32) -> tuple[Float32, Float32, Float32]:
        """Rows of users at a draw, covariances of folded-in users, and noise as in `worth`."""
        draw = self.run.draw(number)
        theta = draw.theta["user"]
        known = users < len(theta)
        places = np.where(known, users, 0)
        rows: Float32 = theta[places]
        noise = draw.inverse_scale["user"][places]
        if known.all():
            return rows, np.zeros((0, 0, 0), np.float32), noise
        assert self.newcomers is not None
        new = self.newcomers.rows(number, users[~known].astype(np.intp) - len(theta))
        covariance = np.zeros((len(users), theta.shape[1], theta.shape[1]), np.float32)
        rows[~known], covariance[~known] = new.mean.astype(np.float32), new.covariance.astype(np.float32)
        noise[~known] = new.noise
        return rows, covariance, noise

    def _thompson(self, users: Int32, first: int) -> Float32:
        draws = len(self.run.draws)
        scores = np.empty((len(users), len(self.run.items)), np.float32)
        rng = [np.random.default_rng([self.ranking.entropy, 1 + first + local]) for local in range(len(users))]
        chosen = np.array([r.choice(draws, p=self.run.draw_weights) for r in rng])
        for number in np.unique(chosen).tolist():
            which = np.flatnonzero(chosen == number)
            theta, covariance, noise = self._rows(number, users[which])
            for local in np.flatnonzero(users[which] >= len(self.run.users)).tolist():
                theta[local] = rng[which[local]].multivariate_normal(theta[local], covariance[local])
            items, item_bias = self.split(self.run.draw(number).theta["item"])
            factors, bias = self.split(theta)
            predictors = factors @ items.T + bias[:, None] + item_bias
            if self.run.has_effects:
                predictors += np.float32(self._added(number, users[which])[0])
            known = np.zeros_like(predictors)  # no variance, as the rows were drawn
            scores[which] = predictors if self.plain else self.worth(number, users[which], noise, predictors, known)
        return scores


def recommend(
    run: Run,
    users: Int32,
    ranking: Ranking,
    rated: Rated | None = None,
    newcomers: FoldIn | None = None,
    among: Mask | None = None,
) -> Iterator[tuple[Int32, Int32, Float32]]:
    """Rank items for users, block by block.

    Parameters
    ----------
    run : Run
    users : (n,) int32
        Rows of users; rows of `newcomers` follow those of known users.
    ranking : Ranking
    rated : Rated, optional
        Used to leave out items that a known user rated; required by `PATTERN_RULES`.
    newcomers : FoldIn, optional
        Users that were folded in, with the items they rated.
    among : (items,) bool, optional
        Mask of items that may be recommended; default all.

    Yields
    ------
    user, item : (m,) int32
        Rows, by user in the order given, best item first.
    score : (m,) float32
        In units of the ratings, or a probability if the ranking has a bound; for ``likely`` and ``exposure`` only the
        order has a meaning.

    Raises
    ------
    InputError
        If the rule is one of `PATTERN_RULES`, some users are users of the run, and `rated` is not given.
    """
    if ranking.by in PATTERN_RULES and rated is None and (users < len(run.users)).any():
        raise InputError(f"{run.path}: ranking by {ranking.by} needs the training ratings: give the ratings file")
    scorer = None if ranking.by == "exposure" else Scorer(run, ranking, newcomers)
    step = max(1, _CELLS // len(run.items))
    for start in range(0, len(users), step):
        some = users[start : start + step]
        rated_items = [_rated_by(user, len(run.users), rated, newcomers) for user in some.tolist()]
        scores = scorer.scores(some, start) if scorer else np.ones((len(some), len(run.items)), np.float32)
        if ranking.by in PATTERN_RULES:
            scores *= run.exposure.of(rated_items)
        if not ranking.include_rated:
            for row, of_user in zip(scores, rated_items, strict=True):
                row[of_user] = -np.inf
        if among is not None:
            scores[:, ~among] = -np.inf
        items, values = best(scores, ranking.top)
        open_to = np.isfinite(values)
        centre = np.float32(scorer.centre if scorer else 0.0)
        yield np.repeat(some, open_to.sum(axis=1)), items[open_to], values[open_to] + centre


def _rated_by(user: int, known: int, rated: Rated | None, newcomers: FoldIn | None) -> Int32:
    if user >= known and newcomers is not None:
        return newcomers.rated(user - known)
    return rated.of(user) if rated is not None and user < known else np.zeros(0, np.int32)


def best(scores: Float32, top: int) -> tuple[Int32, Float32]:
    """Items with the highest scores for each user, in descending order, (users, top), and the scores."""
    top = min(top, scores.shape[1])
    some = np.argpartition(scores, -top, axis=1)[:, -top:]
    values = np.take_along_axis(scores, some, axis=1)
    order = np.lexsort((some, -values), axis=1)  # ties are ordered by row, for reproducibility
    return np.take_along_axis(some, order, axis=1).astype(np.int32), np.take_along_axis(values, order, axis=1)


def those_among(run: Run, candidates: Any = None, exclude: Any = None) -> Mask | None:
    """Mask of items that may be recommended, (items,) bool: `candidates` (default all) without `exclude`, by name.

    Unknown names are ignored. Raises InputError if the run knows none of the candidates.
    """
    if candidates is None and exclude is None:
        return None
    among = np.full(len(run.items), candidates is None)
    for names, admit in ((candidates, True), (exclude, False)):
        if names is not None:
            rows = run.items.index_of(names)
            if admit and not (rows >= 0).any():
                raise unknown_names("item", list(names))
            among[rows[rows >= 0]] = admit
    return among


def recommendations(
    run: Run,
    users: Int32,
    ranking: Ranking,
    rated: Rated | None = None,
    *,
    newcomers: FoldIn | None = None,
    titles: dict[int, str] | None = None,
    among: Mask | None = None,
) -> Iterator[Columns]:
    """Rank items for users, and return original names; parameters as for `recommend`.

    Yields
    ------
    dict of str to (m,) array
        Columns ``user_id, item_id, score, rank`` (1 for the best item); ``sd, q05, q95`` of the predictor under every
        rule; ``ratings``, the number of training ratings of the item; and, with `titles` (by row), ``item_name``.
    """
    run.keep_to_rank()
    predictor = Predictor(run, PredictOptions(of_mean=True, clip=ranking.clip), newcomers)
    counts = run.counts("item")
    names = run.users.ids
    if newcomers is not None:
        names = np.concatenate([names, newcomers.vocabulary.ids])
    for rows, items, score in recommend(run, users, ranking, rated, newcomers, among):
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        lengths = np.diff(np.append(first, len(rows)))
        columns: Columns = {
            "user_id": names[rows],
            "item_id": run.items.ids[items],
            "score": score.astype(np.float32),
            "rank": (np.arange(len(rows)) - np.repeat(first, lengths) + 1).astype(np.int32),
        }
        prediction = predictor(rows, items)
        columns |= {"sd": prediction.sd, "q05": prediction.low, "q95": prediction.high, "ratings": counts[items]}
        if titles is not None:
            columns["item_name"] = np.array([titles.get(item, "") for item in items.tolist()], dtype=object)
        yield columns


def similarities(run: Run, kind: str, row: int) -> Float32:
    """Similarity of one user (or item) to all users (or items) at every saved draw, (draws, n) float32."""
    run.need_draws()
    rank = run.config.rank
    if not rank:
        raise InputError(
            f"{run.path} has biases only ({named('rank')} 0), and similarity is of factors: sample with "
            f"{named('rank')} 1 or more"
        )
    similarity = np.empty((len(run.draws), len(run.vocabulary(kind))), np.float32)
    for number in range(len(run.draws)):
        theta = run.draw(number).theta
        metric = np.atleast_2d(np.cov(theta[OTHER[kind]][:, :rank], rowvar=False)).astype(np.float32)
        rows = theta[kind][:, :rank]
        lengths = np.sqrt(np.maximum(((rows @ metric) * rows).sum(axis=1), np.finfo(np.float32).tiny))
        similarity[number] = rows @ (metric @ rows[row]) / (lengths * lengths[row])
    return similarity


def similar(run: Run, kind: str, name: Any, n: int = 10) -> Columns:
    """Return the items (or users) that are most similar to a given one.

    Parameters
    ----------
    run : Run
        A run with saved draws.
    kind : {"user", "item"}
        Whether items or users are compared.
    name
        Original name of the item (or user).
    n : int
        Number of items (or users).

    Returns
    -------
    dict of str to (m,) array
        Columns ``item_id`` (or ``user_id``), ``similarity`` (its posterior mean), ``rank``, ``sd, q05, q95`` and
        ``ratings``, the number of training ratings.

    Raises
    ------
    InputError
        If the name is unknown, or the run has no draws or no factors.
    """
    vocabulary = run.vocabulary(kind)
    if np.ndim(name):
        raise InputError(f"{name!r}: expected the name of one {kind}")
    row = int(vocabulary.index_of([name], refuse=True)[0])
    draws, weights = similarities(run, kind, row), run.draw_weights
    mean = weights @ draws
    mean[row] = -np.inf
    best = np.argsort(-mean, kind="stable")[: min(n, len(mean) - 1)]
    of_best = draws[:, best]
    low, high = _quantiles(of_best, weights)
    return {
        f"{kind}_id": vocabulary.ids[best],
        "similarity": mean[best].astype(np.float32),
        "rank": np.arange(1, len(best) + 1, dtype=np.int32),
        "sd": np.sqrt(weights @ (of_best - mean[best]) ** 2).astype(np.float32),
        "q05": low,
        "q95": high,
        "ratings": run.counts(kind)[best],
    }


def _quantiles(draws: Float32, weights: Float64) -> tuple[Float32, Float32]:
    """5 % and 95 % quantiles of the columns of draws (draws, n)."""
    order = np.argsort(draws, axis=0)
    below = np.cumsum(weights[order], axis=0)
    ordered = np.take_along_axis(draws, order, axis=0)
    places = [np.minimum((below < level).sum(axis=0), len(draws) - 1) for level in (0.05, 0.95)]
    low, high = (np.take_along_axis(ordered, place[None], axis=0)[0] for place in places)
    return low, high
