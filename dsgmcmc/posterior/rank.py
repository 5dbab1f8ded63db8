r"""Rankings: recommended items by several rules.

A rule gives every item a score for a user.

- ``likely`` (default): items that the user will rate *and* like, e_ij P(r_ij >= bound): the
  exposure e_ij of `dsgmcmc.posterior.exposure` times the probability that the rating r_ij is at
  least the bound, by default `dsgmcmc.posterior.liked.liked_from`. Models of clicks have e_ij times
  the expected value. Logarithms are compared, so that tiny probabilities are no ties.
- ``exposure``: e_ij

The other rules use the predictor x = mu + a_i + b_j + W_i . H_j, without the noise of a rating; for
ordinal ratings and counts, x is the expected rating:

- ``mean``: E x
- ``ucb``, ``lcb``: E x + z sd(x) and E x - z sd(x)
- ``thompson``: x at one draw from the posterior, drawn again for every user [Thompson 1933]

With a bound, ``mean`` and ``thompson`` rank by the probability of a rating of at least the bound.

[Thompson 1933] W. R. Thompson. On the likelihood that one unknown probability exceeds another,
Biometrika 25.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.model.predictive.base import TINY, Predictive
from dsgmcmc.posterior.exposure import Rated
from dsgmcmc.posterior.liked import liked_from
from dsgmcmc.posterior.names import unknown_names
from dsgmcmc.posterior.newcomers import FoldIn
from dsgmcmc.posterior.predict import PredictOptions, Predictor
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Array, Float32, Float64, Int32, Mask

By = Literal["likely", "exposure", "mean", "ucb", "lcb", "thompson"]

Columns = dict[str, Array]

#: Rules that use the pattern of the ratings.
PATTERN_RULES = ("likely", "exposure")
#: Signs of the sd in the scores of the rules that use it.
BOUNDS = {"ucb": 1.0, "lcb": -1.0}

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
            is_number = isinstance(self.at_least, float | int | np.number)
            if not is_number or not np.isfinite(self.at_least):
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
        if self.by == "ucb":
            return f"mean + {self.z:g} sd"
        if self.by == "lcb":
            return f"mean - {self.z:g} sd"
        if self.by == "thompson":
            return "one draw"
        return "mean"

    @cached_property
    def entropy(self) -> int:
        """Seed of the random numbers: `seed`, or a random one for this object."""
        if self.seed is None:
            return secrets.randbits(63)
        return self.seed


class Scorer:
    """Scores from saved draws, without the exposure; probabilities are given by their logarithms.

    Parameters
    ----------
    run : Run
    ranking : Ranking
    newcomers : FoldIn, optional
        Users that were folded in; their indices follow the indices of the run's users.
    items : (n,) int32, optional
        Rows of the items that are scored, -1 for an item that nobody rated; default all items of
        the run.
    """

    def __init__(
        self, run: Run, ranking: Ranking, newcomers: FoldIn | None, items: Int32 | None = None
    ) -> None:
        self.run = run
        self.ranking = ranking
        if items is None:
            items = np.arange(len(run.items), dtype=np.int32)
        self.items = items
        #: Lowest rating whose probability is the score; None if the score comes from the expected
        #: rating.
        self.at_least = ranking.at_least
        if self.at_least is None and ranking.by == "likely" and run.config.law.can_be_evaluated:
            self.at_least = liked_from(run)
        options = PredictOptions(of_mean=self.at_least is None, at_least=self.at_least)
        self.predictor = Predictor(run, options, newcomers)

    def scores(self, users: Int32, first: int) -> Float64:
        """Return scores of users, (n, items).

        `first` is the first user's position among all users of the ranking.
        """
        if self.ranking.by == "thompson":
            return self._thompson(users, first)
        scores = self._scores(self.predictor, users)
        if self.ranking.by == "likely" and self.at_least is None:  # clicks
            return np.log(np.maximum(scores, _MIN_SCORE))
        return scores

    def _scores(
        self, predictor: Predictor, users: Int32, draw_positions: list[int] | None = None
    ) -> Float64:
        """Return scores (n, items) from all draws, or from those at positions in `Run.draws`."""
        items = len(self.items)
        scores = np.empty(len(users) * items)
        users_of_pairs = np.repeat(users, items)
        items_of_pairs = np.tile(self.items, len(users))
        for rows, predictive in predictor.distributions(
            users_of_pairs, items_of_pairs, draw_positions
        ):
            scores[rows] = self._score(predictive)
        return scores.reshape(len(users), items)

    def _score(self, predictive: Predictive) -> Float64:
        """Return the scores of pairs, given their predictive distributions."""
        if self.at_least is None:
            sds = BOUNDS.get(self.ranking.by, 0.0) * self.ranking.z
            if sds:
                return predictive.mean + sds * predictive.sd
            return predictive.mean
        levels = predictive.levels
        if levels is not None and not predictive.whole and self.at_least > levels[-1]:
            raise InputError(f"at_least {self.at_least:g}: the highest rating is {levels[-1]:g}")
        return predictive.log_at_least(self.at_least)

    def _thompson(self, users: Int32, first: int) -> Float64:
        """Return scores (n, items) from one draw for each user.

        The factor rows of new users are also drawn.
        """
        weights = self.run.draw_weights
        entropy = self.ranking.entropy
        chosen = np.empty(len(users), np.int64)
        for local in range(len(users)):
            rng = np.random.default_rng([entropy, 1 + first + local])
            chosen[local] = rng.choice(len(weights), p=weights)
        scores = np.empty((len(users), len(self.items)))
        for position in np.unique(chosen).tolist():
            newcomers = self.predictor.newcomers
            if newcomers is not None:
                rng = np.random.default_rng([entropy, 0, position])
                newcomers = newcomers.drawn(position, rng)
            at_draw = Predictor(self.run, self.predictor.options, newcomers)
            of_draw = np.flatnonzero(chosen == position)
            scores[of_draw] = self._scores(at_draw, users[of_draw], [position])
        return scores


class RankedItems(NamedTuple):
    """Items that are recommended to some users, (m,) each.

    Attributes
    ----------
    users, items : int32
        Rows; the items of a user are in descending order of the score.
    scores : float32
        In units of the ratings, or a probability if the ranking has a bound; for ``likely`` and
        ``exposure``, only the order of scores has a meaning.
    """

    users: Int32
    items: Int32
    scores: Float32


def recommend(
    run: Run,
    users: Int32,
    ranking: Ranking,
    rated: Rated | None = None,
    *,
    newcomers: FoldIn | None = None,
) -> Iterator[RankedItems]:
    """Rank items for users, and yield them in blocks of users, in the order of `users`.

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

    Raises
    ------
    InputError
        If the rule is one of `PATTERN_RULES`, a user is in the run, and `rated` is not given; or if
        the ranking has a bound and the likelihood gives no probabilities.
    """
    uses_pattern = ranking.by in PATTERN_RULES
    if uses_pattern and rated is None and (users < len(run.users)).any():
        raise InputError(
            f"{run.path}: ranking by {ranking.by} needs the training ratings: give the ratings file"
        )
    scorer = None
    if ranking.by != "exposure":
        scorer = Scorer(run, ranking, newcomers)
    step = max(1, _BLOCK_SCORES // len(run.items))
    for start in range(0, max(len(users), 1), step):  # without users, one empty block
        block = users[start : start + step]
        rated_items = [_rated_by(user, len(run.users), rated, newcomers) for user in block.tolist()]
        scores = np.zeros((len(block), len(run.items)))
        if scorer is not None:
            scores = scorer.scores(block, start)
        if uses_pattern:
            scores += np.log(np.maximum(run.exposure.of(rated_items), TINY, dtype=np.float64))
        if not ranking.include_rated:
            for row, items in zip(scores, rated_items, strict=True):
                row[items] = -np.inf
        if ranking.among is not None:
            scores[:, ~ranking.among] = -np.inf
        items, values = _best(scores, ranking.top)
        allowed = np.isfinite(values)
        if uses_pattern or (scorer is not None and scorer.at_least is not None):
            values = np.exp(values)  # scores are logarithms
        yield RankedItems(
            users=np.repeat(block, allowed.sum(axis=1)),
            items=items[allowed],
            scores=values[allowed].astype(np.float32),
        )


def _rated_by(user: int, known: int, rated: Rated | None, newcomers: FoldIn | None) -> Int32:
    """Return the rows of the items that a user rated; `known` is the number of users in the run."""
    if user >= known and newcomers is not None:
        return newcomers.rated(user - known)
    if user < known and rated is not None:
        return rated.of(user)
    return np.zeros(0, np.int32)


def _best(scores: Float64, top: int) -> tuple[Int32, Float64]:
    """Return the items with the highest scores for each user, (users, top), and the scores.

    They are in descending order; items with equal scores are in the order of rows.
    """
    items = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    return items.astype(np.int32), np.take_along_axis(scores, items, axis=1)


def positions_in_lists(users: Int32) -> Int32:
    """Return the position of each item, from 0, in the list of its user (`RankedItems.users`)."""
    starts = np.flatnonzero(np.diff(users, prepend=-1))
    lengths = np.diff(np.append(starts, len(users)))
    return (np.arange(len(users)) - np.repeat(starts, lengths)).astype(np.int32)


def allowed_items(
    run: Run, candidates: Any = None, exclude: Any = None
) -> tuple[Mask | None, list[str]]:
    """Return the mask (items,) of items that may be recommended, and notes on unknown names.

    They are `candidates` (default all) without `exclude`, by name; unknown names are left out. The
    mask is None if neither is given. Raises InputError if the run knows none of the candidates.
    """
    if candidates is None and exclude is None:
        return None, []
    notes = []
    among = np.ones(len(run.items), bool)
    if candidates is not None:
        if not len(candidates):
            raise InputError("candidates has no items")
        rows, unknown = _known_items(run, candidates)
        if not len(rows):
            raise unknown_names("item", unknown)
        if unknown:
            notes.append(f"candidates: {unknown_names('item', unknown)}")
        among[:] = False
        among[rows] = True
    if exclude is not None:
        rows, unknown = _known_items(run, exclude)
        if unknown:
            notes.append(f"exclude: {unknown_names('item', unknown)}")
        among[rows] = False
    return among, notes


def _known_items(run: Run, names: Any) -> tuple[Int32, list[Any]]:
    """Return the rows of items that the run knows, and the other names."""
    rows = run.items.index_of(names)
    unknown = [name for name, row in zip(list(names), rows.tolist(), strict=True) if row < 0]
    return rows[rows >= 0], unknown


def recommendations(
    run: Run,
    users: Int32,
    ranking: Ranking,
    rated: Rated | None = None,
    *,
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
    counts = run.counts("item")
    names = run.users.ids
    if newcomers is not None:
        names = np.concatenate([names, newcomers.vocabulary.ids])
    for ranked in recommend(run, users, ranking, rated, newcomers=newcomers):
        prediction = predictor(ranked.users, ranked.items)
        columns: Columns = {
            "user_id": names[ranked.users],
            "item_id": run.items.ids[ranked.items],
            "score": ranked.scores,
            "rank": positions_in_lists(ranked.users) + np.int32(1),
            "sd": prediction.sd,
            "q05": prediction.low,
            "q95": prediction.high,
            "ratings": counts[ranked.items],
        }
        if titles is not None:
            item_names = [titles.get(item, "") for item in ranked.items.tolist()]
            columns["item_name"] = np.array(item_names, dtype=object)
        yield columns
