r"""Rankings: recommended items by several rules, and similar items or users.

**Rules.** A rule gives every item a score for a user.

- ``likely`` (default): items that the user will rate *and* like, e_ij P(r_ij >= bound): the
  exposure e_ij of `dsgmcmc.posterior.exposure` times the probability that the rating r_ij is at
  least the bound, by default `liked_from`. Models of clicks give no such probability; their score
  is e_ij times the expected value. The score orders items, but is not a probability. Logarithms are
  compared, so that tiny probabilities are no ties.
- ``exposure``: e_ij

The other rules use the predictor x = mu + a_i + b_j + W_i . H_j, without the noise of a rating:

- ``mean``: E x
- ``ucb``, ``lcb``: E x + z sd(x) and E x - z sd(x); the upper bound explores, the lower bound is
  cautious
- ``thompson``: x at one draw from the posterior, drawn again for every user [Thompson 1933]

If the expected rating differs from the predictor, as for ordinal ratings and counts, x is the
expected rating. With a bound, ``mean`` and ``thompson`` rank by the probability of a rating of at
least the bound, noise included.

E and sd are taken over the saved draws; Thompson sampling picks one of these draws.

**Similarity** of two items, or of two users. In each draw, the similarity of items j and k is the
correlation, over the users, between the ratings of j and of k that are predicted from the factors
alone,

    s_jk = H_j^T S H_k / sqrt(H_j^T S H_j  H_k^T S H_k),

where S is the covariance of the rows W_i over the users. This is the cosine of H_j and H_k in the
metric S. Unlike the plain cosine, it depends on the factors only through the products W_i . H_j,
and not on their rotation or scale. Biases are left out, because two items that everybody likes need
not be similar. Items are ranked by the mean similarity over the saved draws, and the sd of the
similarity is also reported. The vector H_j of an item with few ratings has a different direction in
each draw, so its mean similarity is small.

[Thompson 1933] W. R. Thompson. On the likelihood that one unknown probability exceeds another in
view of the evidence of two samples. Biometrika 25, 1933
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods.base import Levels
from dsgmcmc.model.likelihoods.ordinal import MAX_LEVELS, MAX_THRESHOLDS
from dsgmcmc.model.predictive.base import TINY
from dsgmcmc.posterior.draws import OTHER
from dsgmcmc.posterior.exposure import Rated
from dsgmcmc.posterior.names import unknown_names
from dsgmcmc.posterior.newcomers import FoldIn
from dsgmcmc.posterior.predict import PredictOptions, Predictor
from dsgmcmc.posterior.run import Run
from dsgmcmc.settings import named
from dsgmcmc.types import Array, Float32, Float64, Int32, Mask

By = Literal["likely", "exposure", "mean", "ucb", "lcb", "thompson"]

Columns = dict[str, Array]

PATTERN_RULES = ("likely", "exposure")  # rules that use the pattern of the ratings

LIKED = 0.75  # a level is liked from this fraction of the way from the lowest to the highest level
SCALE_SHARE = 0.05  # least share of the training ratings that reach this place of a scale
LIKED_SHARE = (
    0.25  # share of the training ratings that are liked, if ratings are not levels of a scale
)
RARE = 0.01  # share of the training ratings below which likes are too few to rank by
_BLOCK_SCORES = 1 << 20  # scores in a block of users
_MIN_SCORE = 1e-3  # lower limit of scores of clicks before they are multiplied by the exposure


@dataclass(frozen=True)
class Ranking:
    """Options for a ranking of items.

    Attributes
    ----------
    top : int
        Largest number of items per user.
    by : {"likely", "exposure", "mean", "ucb", "lcb", "thompson"}
    z : float
        Number of standard deviations between the mean and the bounds of ucb and lcb.
    seed : int or None
        Seed for Thompson sampling; None draws a seed for every `Ranking`.
    clip : bool
        Whether `recommendations` clips quantiles to the range of the training ratings. Scores are
        never clipped, because clipping would hide their order.
    at_least : float or None
        With ``likely``, the lowest rating that counts as liked; with ``mean`` and ``thompson``,
        rank by the probability of a rating of at least this value; other rules do not allow it.
    include_rated : bool
        Whether to recommend also items that the user rated.
    among : (items,) bool or None
        Mask of the run's items that may be recommended; default all.
    """

    top: int = 10
    by: By = "likely"
    z: float = 1.0
    seed: int | None = None
    clip: bool = True
    at_least: float | None = None
    include_rated: bool = False
    among: Mask | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.top, int | np.integer) or self.top < 1:
            raise InputError(f"{self.top!r} items per user: expected a whole number, at least 1")
        if self.by not in get_args(By):
            raise InputError(f"by {self.by!r}: expected one of {', '.join(get_args(By))}")
        if not isinstance(self.z, float | int | np.number) or not 0 <= self.z < np.inf:
            raise InputError(f"z {self.z!r}: expected a number of standard deviations, not below 0")
        if self.at_least is not None:
            if not isinstance(self.at_least, float | int | np.number) or not np.isfinite(
                self.at_least
            ):
                raise InputError(f"at_least {self.at_least!r}: expected a finite number")
            if self.by in ("exposure", "ucb", "lcb"):
                raise InputError(
                    f"by {self.by!r} does not use at_least: leave it out, or rank by mean"
                )
        if self.seed is not None and (not isinstance(self.seed, int | np.integer) or self.seed < 0):
            raise InputError(f"seed {self.seed!r}: expected a whole number, not below 0, or None")

    @property
    def score_name(self) -> str:
        """Short description of the score."""
        if self.by in PATTERN_RULES:
            return self.by
        if self.at_least is not None:
            return f"P(rating >= {self.at_least:g})"
        sds = f"{self.z:g} sd"
        return {
            "mean": "mean",
            "ucb": f"mean + {sds}",
            "lcb": f"mean - {sds}",
            "thompson": "one draw",
        }[self.by]

    @cached_property
    def entropy(self) -> int:
        """Seed of the random numbers: `seed`, or a random one for this object."""
        return secrets.randbits(63) if self.seed is None else self.seed


def liked_facts(ratings: Ratings) -> dict[str, float]:
    """Return facts about a run: ``liked`` (`liked_from`), and ``rare``, which `RARE` of the
    training ratings reach.

    Liked are levels from three quarters up the scale on. Other values have no such place, nor have
    up to `MAX_THRESHOLDS` levels of which few ratings reach it, such as small counts, or stars with
    a stray value. Of these the upper quarter of the training ratings is liked, but never the lowest
    rating.
    """
    if (levels := ratings.levels(MAX_LEVELS)) is None:
        values = np.sort(np.concatenate([*ratings.values("train")]))
        counts = np.ones(len(values), np.int64)
    else:  # reading in pieces saves memory
        values, counts = Levels.from_ratings(ratings)
    reached = (
        np.cumsum(counts[::-1])[::-1] / ratings.nnz
    )  # share of the ratings that are at least each value
    low, high = float(values[0]), float(values[-1])
    liked = low + LIKED * (high - low)
    if (
        levels is None
        or len(levels) > MAX_THRESHOLDS
        or counts[values >= liked].sum() < SCALE_SHARE * ratings.nnz
    ):
        quarter, lowest = (
            int(np.count_nonzero(reached >= LIKED_SHARE)),
            int(np.count_nonzero(values == low)),
        )
        liked = float(values[min(max(quarter - 1, lowest), len(values) - 1)])
    return {"liked": liked, "rare": float(values[np.count_nonzero(reached >= RARE) - 1])}


def _liked_facts_of(run: Run) -> Mapping[str, float]:
    """Return the `liked_facts` of a run; runs of earlier versions do not record them."""
    if "liked" in run.facts:
        return run.facts
    with run.open_ratings() as ratings:
        return liked_facts(ratings)


def liked_from(run: Run) -> float:
    """Return the lowest rating that counts as liked by default: any click, or else as in
    `liked_facts`.
    """
    return (
        _liked_facts_of(run)["liked"]
        if run.config.law.can_be_evaluated
        else float(run.facts["minimum"])
    )


def warn_of_few(run: Run, by: By, bound: float | None) -> Iterator[str]:
    """Yield a warning if a rule ranks by a bound that less than the share `RARE` of the training
    ratings reaches.

    If `bound` is None, the bound of ``likely`` is `liked_from`.
    """
    if run.config.law.can_be_evaluated and (by == "likely" or bound is not None):
        bound = liked_from(run) if bound is None else bound
        if bound > _liked_facts_of(run)["rare"]:
            few = f"fewer than {100 * RARE:g} % of the training ratings are {bound:g} or more"
            yield f"{few}, so the run knows little about what is liked: a lower bound ranks better"


class Scorer:
    """Scores from saved draws, without the exposure; scores that are probabilities are given by
    their logarithms.

    Parameters
    ----------
    newcomers : FoldIn, optional
        Users that were folded in; their indices follow the indices of the run's users.
    items : (n,) int32, optional
        Rows of the items that are scored, -1 for an item that nobody rated; default all items of
        the run.
    """

    def __init__(
        self, run: Run, ranking: Ranking, newcomers: FoldIn | None, items: Int32 | None = None
    ) -> None:
        self.run, self.ranking = run, ranking
        self.items = np.arange(len(run.items), dtype=np.int32) if items is None else items
        #: Lowest rating whose probability is the score; None if the score comes from the expected
        #: rating.
        self.at_least = ranking.at_least
        if self.at_least is None and ranking.by == "likely" and run.config.law.can_be_evaluated:
            self.at_least = liked_from(run)
        options = PredictOptions(of_mean=self.at_least is None, at_least=self.at_least)
        self.predictor = Predictor(run, options, newcomers)

    def scores(self, users: Int32, first: int) -> Float64:
        """Return scores (n, items) for users; `first` is the first user's position among all users
        of the ranking.
        """
        if self.ranking.by == "thompson":
            return self._thompson(users, first)
        scores = self._scores(self.predictor, users)
        clicked = self.ranking.by == "likely" and self.at_least is None
        return np.log(np.maximum(scores, _MIN_SCORE)) if clicked else scores

    def _scores(
        self, predictor: Predictor, users: Int32, draw_positions: list[int] | None = None
    ) -> Float64:
        """Return scores (n, items) from all draws, or from the draws at `draw_positions` in
        `Run.draws`.
        """
        items, sds = (
            len(self.items),
            {"ucb": 1.0, "lcb": -1.0}.get(self.ranking.by, 0.0) * self.ranking.z,
        )
        scores = np.empty(len(users) * items)
        pairs = np.repeat(users, items), np.tile(self.items, len(users))
        for rows, predictive in predictor.distributions(*pairs, draw_positions):
            if self.at_least is not None:
                if (
                    predictive.levels is not None
                    and self.at_least > predictive.levels[-1]
                    and not predictive.whole
                ):
                    raise InputError(
                        f"at_least {self.at_least:g}: the highest rating is"
                        f" {predictive.levels[-1]:g}"
                    )
                scores[rows] = predictive.log_at_least(self.at_least)
            else:
                scores[rows] = predictive.mean + (sds * predictive.sd if sds else 0.0)
        return scores.reshape(len(users), items)

    def _thompson(self, users: Int32, first: int) -> Float64:
        """Return scores (n, items) from one draw for each user; factor rows of new users are also
        drawn.
        """
        weights, entropy = self.run.draw_weights, self.ranking.entropy
        scores = np.empty((len(users), len(self.items)))
        generators = [
            np.random.default_rng([entropy, 1 + first + local]) for local in range(len(users))
        ]
        chosen = np.array([rng.choice(len(weights), p=weights) for rng in generators])
        for draw_position in np.unique(chosen).tolist():
            local, newcomers = np.flatnonzero(chosen == draw_position), self.predictor.newcomers
            if newcomers is not None:
                newcomers = newcomers.drawn(
                    draw_position, np.random.default_rng([entropy, 0, draw_position])
                )
            at_draw = Predictor(self.run, self.predictor.options, newcomers)
            scores[local] = self._scores(at_draw, users[local], [draw_position])
        return scores


def recommend(
    run: Run,
    users: Int32,
    ranking: Ranking,
    rated: Rated | None = None,
    newcomers: FoldIn | None = None,
) -> Iterator[tuple[Int32, Int32, Float32]]:
    """Rank items for users, block by block.

    Parameters
    ----------
    run : Run
    users : (n,) int32
        Rows of users; rows of `newcomers` follow the rows of known users.
    ranking : Ranking
    rated : Rated, optional
        Items that known users rated, to leave them out and to compute the exposure. `PATTERN_RULES`
        require it if any user is known.
    newcomers : FoldIn, optional
        Users that were folded in, with the items they rated.

    Yields
    ------
    user, item : (m,) int32
        Rows; users are in the order of `users`, and the items of a user are in descending order of
        the score.
    score : (m,) float32
        In units of the ratings, or a probability if the ranking has a bound; for ``likely`` and
        ``exposure``, only the order of scores has a meaning.

    Raises
    ------
    InputError
        If the rule is one of `PATTERN_RULES`, a user is in the run, and `rated` is not given; or if
        the ranking has a bound and the likelihood gives no probabilities.
    """
    if ranking.by in PATTERN_RULES and rated is None and (users < len(run.users)).any():
        raise InputError(
            f"{run.path}: ranking by {ranking.by} needs the training ratings: give the ratings file"
        )
    scorer = None if ranking.by == "exposure" else Scorer(run, ranking, newcomers)
    step = max(1, _BLOCK_SCORES // len(run.items))
    for start in range(0, max(len(users), 1), step):  # without users, one empty block
        block = users[start : start + step]
        rated_items = [_rated_by(user, len(run.users), rated, newcomers) for user in block.tolist()]
        scores = scorer.scores(block, start) if scorer else np.zeros((len(block), len(run.items)))
        if ranking.by in PATTERN_RULES:
            scores += np.log(np.maximum(run.exposure.of(rated_items), TINY, dtype=np.float64))
        if not ranking.include_rated:
            for row, items in zip(scores, rated_items, strict=True):
                row[items] = -np.inf
        if ranking.among is not None:
            scores[:, ~ranking.among] = -np.inf
        items, values = _best(scores, ranking.top)
        allowed = np.isfinite(values)
        if scorer is None or ranking.by == "likely" or scorer.at_least is not None:
            values = np.exp(values)
        yield (
            np.repeat(block, allowed.sum(axis=1)),
            items[allowed],
            values[allowed].astype(np.float32),
        )


def _rated_by(user: int, known: int, rated: Rated | None, newcomers: FoldIn | None) -> Int32:
    """Return the rows of the items that a user rated; `known` is the number of users in the run."""
    if user >= known and newcomers is not None:
        return newcomers.rated(user - known)
    return rated.of(user) if rated is not None and user < known else np.zeros(0, np.int32)


def _best(scores: Float64, top: int) -> tuple[Int32, Float64]:
    """Return the items with the highest scores for each user, in descending order, (users, top),
    and the scores.
    """
    items = np.argsort(-scores, axis=1, kind="stable")[
        :, :top
    ]  # items with equal scores are in the order of rows
    return items.astype(np.int32), np.take_along_axis(scores, items, axis=1)


def places(users: Int32) -> Int32:
    """Return the place of each item, from 0, in the list of its user; `users` is as yielded by
    `recommend`.
    """
    first = np.flatnonzero(np.diff(users, prepend=-1))
    return (np.arange(len(users)) - np.repeat(first, np.diff(np.append(first, len(users))))).astype(
        np.int32
    )


def allowed_items(
    run: Run, candidates: Any = None, exclude: Any = None
) -> tuple[Mask | None, list[str]]:
    """Return the mask (items,) of items that may be recommended: `candidates` (default all) without
    `exclude`, by name.

    The mask is None if neither is given. Also returns notes on unknown names, which are left out.
    Raises InputError if the run knows none of the candidates.
    """
    notes = list[str]()
    if candidates is None and exclude is None:
        return None, notes
    among = np.full(len(run.items), candidates is None)
    for names, role in ((candidates, "candidates"), (exclude, "exclude")):
        if names is not None:
            if not len(names) and role == "candidates":
                raise InputError("candidates has no items")
            rows = run.items.index_of(names)
            unknown = [
                name for name, row in zip(list(names), rows.tolist(), strict=True) if row < 0
            ]
            if len(unknown) == len(rows) and role == "candidates":
                raise unknown_names("item", unknown)
            notes += [f"{role}: {unknown_names('item', unknown)}"] if unknown else []
            among[rows[rows >= 0]] = role == "candidates"
    return among, notes


def recommendations(
    run: Run,
    users: Int32,
    ranking: Ranking,
    rated: Rated | None = None,
    newcomers: FoldIn | None = None,
    titles: dict[int, str] | None = None,
) -> Iterator[Columns]:
    """Rank items for users, and yield tables with original names; parameters as for `recommend`.

    Yields
    ------
    dict of str to (m,) array
        Columns ``user_id, item_id, score, rank`` (1 for the best item); ``sd, q05, q95`` of the
        predictor under every rule; ``ratings``, the number of training ratings of the item; and,
        with `titles` (by row), ``item_name``.
    """
    predictor = Predictor(run, PredictOptions(of_mean=True, clip=ranking.clip), newcomers)
    counts, names = run.counts("item"), run.users.ids
    if newcomers is not None:
        names = np.concatenate([names, newcomers.vocabulary.ids])
    for rows, items, score in recommend(run, users, ranking, rated, newcomers):
        prediction = predictor(rows, items)
        columns: Columns = {
            "user_id": names[rows],
            "item_id": run.items.ids[items],
            "score": score,
            "rank": places(rows) + np.int32(1),
            "sd": prediction.sd,
            "q05": prediction.low,
            "q95": prediction.high,
            "ratings": counts[items],
        }
        if titles is not None:
            columns["item_name"] = np.array(
                [titles.get(item, "") for item in items.tolist()], dtype=object
            )
        yield columns


def similarities(run: Run, entity: str, row: int) -> Float32:
    """Return the similarity of one user (or item) to all users (or items) at every saved draw,
    (draws, n) float32.
    """
    run.need_draws()
    rank = run.config.rank
    if not rank:
        found = f"{run.path} has biases only ({named('rank')} 0)"
        raise InputError(
            f"{found}, and similarity needs factors: sample with {named('rank')} 1 or more"
        )
    similarity = np.empty((len(run.draws), len(run.vocabulary(entity))), np.float32)
    for draw_position in range(len(run.draws)):
        theta = run.draw(draw_position).theta
        metric = np.atleast_2d(np.cov(theta[OTHER[entity]][:, :rank], rowvar=False)).astype(
            np.float32
        )
        rows = theta[entity][:, :rank]
        lengths = np.sqrt(
            np.maximum(((rows @ metric) * rows).sum(axis=1), np.finfo(np.float32).tiny)
        )
        similarity[draw_position] = rows @ (metric @ rows[row]) / (lengths * lengths[row])
    return similarity


def similar(run: Run, entity: str, name: Any, n: int = 10) -> Columns:
    """Return the items (or users) that are most similar to a given one.

    Parameters
    ----------
    run : Run
        A run with saved draws.
    entity : {"user", "item"}
        Whether items or users are compared.
    name
        Original name of the item (or user).
    n : int
        Largest number of items (or users).

    Returns
    -------
    dict of str to (m,) array
        Columns ``item_id`` (or ``user_id``), ``similarity`` (its posterior mean), ``rank``, ``sd``
        and ``ratings``, the number of training ratings.

    Raises
    ------
    InputError
        If the name is unknown, or the run has no draws or no factors.
    """
    vocabulary = run.vocabulary(entity)
    if np.ndim(name):
        raise InputError(f"{name!r}: expected the name of one {entity}")
    row = int(vocabulary.index_of([name], refuse=True)[0])
    draws, weights = similarities(run, entity, row), run.draw_weights
    mean = weights @ draws
    mean[row] = -np.inf
    best = np.argsort(-mean, kind="stable")[
        : min(Ranking(n).top, len(mean) - 1)
    ]  # Ranking checks n
    return {
        f"{entity}_id": vocabulary.ids[best],
        "similarity": mean[best].astype(np.float32),
        "rank": np.arange(1, len(best) + 1, dtype=np.int32),
        "sd": np.sqrt(weights @ (draws[:, best] - mean[best]) ** 2).astype(np.float32),
        "ratings": run.counts(entity)[best],
    }
