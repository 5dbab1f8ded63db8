r"""Rankings: recommended items by several rules.

A rule gives every item a score for a user.

- ``likely`` (default): items that the user will rate *and* like, e_ij P(r_ij >= bound): the
  exposure e_ij of `dsgmcmc.posterior.lists.exposure` times the probability that the rating r_ij is
  at least the bound, by default `dsgmcmc.posterior.lists.liked.liked_from`. Models of clicks have
  e_ij times the expected value. Logarithms are compared, so that tiny probabilities are no ties.
- ``explore``: the same product, with the probability at one draw from the posterior, drawn again
  for every user [Thompson 1933]
- ``exposure``: e_ij

The other rules use the predictor x = mu + a_i + b_j + W_i . H_j, without the noise of a rating; for
ordinal ratings and counts, x is the expected rating:

- ``mean``: E x
- ``ucb``, ``lcb``: E x + z sd(x) and E x - z sd(x)
- ``thompson``: x at one draw, drawn as for ``explore``

With a bound, ``mean`` and ``thompson`` rank by the probability of a rating of at least the bound.

[Thompson 1933] W. R. Thompson. On the likelihood that one unknown probability exceeds another,
Biometrika 25.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.candidates import find_candidates
from dsgmcmc.model.predictive.base import TINY, Predictive
from dsgmcmc.posterior.cells.fitted_rows import FittedRows, UsersByRow
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.index import shown, unknown_names
from dsgmcmc.posterior.lists.caps import Caps, Ranked, positions_in_lists
from dsgmcmc.posterior.lists.exposure_of_run import exposure_of, exposures
from dsgmcmc.posterior.lists.liked import liked_from
from dsgmcmc.posterior.lists.screen import Bounds, Screen
from dsgmcmc.posterior.rated import Rated
from dsgmcmc.posterior.rows.added import FoldIn, number_of_users
from dsgmcmc.posterior.run import Run, once
from dsgmcmc.posterior.settings import PATTERN_RULES, PredictOptions, RankingOptions
from dsgmcmc.ratings.pairs import select
from dsgmcmc.terminal import warn
from dsgmcmc.types import Array, Float32, Float64, Int32, Int64, Mask

Columns = dict[str, Array]

#: Rules that score a user at one draw from the posterior.
DRAWN_RULES = ("thompson", "explore")
#: Signs of the sd in the scores of the rules that use it.
BOUNDS = {"ucb": 1.0, "lcb": -1.0}

_BLOCK_SCORES = 1 << 22  # scores in a block of users
_MARGIN = 1e-6  # by which logarithms of probabilities may be above 0
_SHARE = 0.1  # share of the items that are scored one by one at most
_MIN_SCORE = 1e-3  # lower limit of scores of clicks before they are multiplied by the exposure


class Ranking(RankingOptions):
    """Options for a ranking of items.

    Scores are never clipped, because clipping would hide their order.

    Attributes
    ----------
    among : (items,) bool or None
        Mask of the run's items that may be recommended; default all.
    excluded : dict of int to (m,) int32, optional
        Rows of the items that must not be recommended to a user, by row.
    """

    among: Any = None
    excluded: Any = None

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
        if self.by == "sd":
            return "sd"
        return "mean"

    @property
    def needs_ratings(self) -> bool:
        """Whether the ranking uses which items users rated."""
        return not self.include_rated or self.by in PATTERN_RULES

    @property
    def sign(self) -> float:
        """Sign of the scores by which the largest ones are listed first."""
        return -1.0 if self.lowest else 1.0

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
        is_likely = ranking.by in ("likely", "explore")
        if self.at_least is None and is_likely and run.config.law.can_be_evaluated:
            self.at_least = liked_from(run)
        #: Whether scores are logarithms of expected clicks.
        self._is_clicked = is_likely and self.at_least is None
        options = PredictOptions(of_mean=self.at_least is None, at_least=self.at_least)
        self.predictor = Predictor(run, options, newcomers)
        #: Number of standard deviations that are added to the expected rating.
        self.sds = BOUNDS.get(ranking.by, 0.0) * ranking.z

    @cached_property
    def screen(self) -> Screen | None:
        """Bounds of the scores of all items; None if there are none."""
        return Screen.of_run(self.run, at_least=self.at_least, sds=self.sds)

    def scores(self, users: Int32, first: int) -> Float64:
        """Return scores (n, items) for users.

        `first` is the position of the first user among all users of the ranking.
        """
        if self.ranking.by in DRAWN_RULES:
            return self._at_one_draw(self._rows_of(users), first)
        rows = np.repeat(users, len(self.items))
        items = np.tile(self.items, len(users))
        return self.scores_of_pairs(rows, items).reshape(len(users), len(self.items))

    def scores_of_pairs(self, users: Int32, items: Int32) -> Float64:
        """Return the scores of pairs of a user and an item, (n,) float64."""
        return self._scores(self.predictor, self._rows_of(users), items)

    def _rows_of(self, users: Int32) -> Int32:
        return scored_rows(self.run, users, self.predictor.newcomers)

    def are_known(self, users: Int32) -> bool:
        """Return whether all users have rows at saved draws."""
        rows = self._rows_of(users)
        return bool(((rows >= 0) & (rows < len(self.run.users))).all())

    def bounds(self, users: Int32) -> Bounds:
        """Return bounds of the scores of all items for users that the run knows."""
        assert self.screen is not None
        low, high = self.screen.bounds(users)
        if self.at_least is not None:
            low = np.log(low, where=low > 0, out=np.full_like(low, -np.inf))
            high = np.log(high)
        elif self._is_clicked:
            low, high = (np.log(np.maximum(scores, _MIN_SCORE)) for scores in (low, high))
        if self.ranking.lowest:
            return Bounds(-high, -low)
        return Bounds(low, high)

    def _scores(
        self,
        predictor: Predictor,
        users: Int32,
        items: Int32,
        draw_positions: list[int] | None = None,
    ) -> Float64:
        """Return scores of pairs from all draws, or from those at positions in `Run.draws`."""
        scores = np.empty(len(users))
        for rows, predictive in predictor.distributions(users, items, draw_positions):
            scores[rows] = self._score(predictive)
        if self._is_clicked:
            scores = np.log(np.maximum(scores, _MIN_SCORE))
        return self.ranking.sign * scores

    def _score(self, predictive: Predictive) -> Float64:
        """Return the scores of pairs, given their predictive distributions."""
        if self.ranking.by == "sd":
            return predictive.sd
        if self.at_least is None:
            if self.sds:
                return predictive.mean + self.sds * predictive.sd
            return predictive.mean
        levels = predictive.levels
        if levels is not None and not predictive.has_counts and self.at_least > levels[-1]:
            raise InputError(f"at_least {self.at_least:g}: the highest rating is {levels[-1]:g}")
        return predictive.log_at_least(self.at_least)

    def _at_one_draw(self, users: Int32, first: int) -> Float64:
        """Return scores (n, items) from one draw for each user, by its row.

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
                newcomers = newcomers.drawn([entropy, 0, position])
            at_draw = Predictor(self.run, self.predictor.options, newcomers)
            of_draw = np.flatnonzero(chosen == position)
            rows = np.repeat(users[of_draw], len(self.items))
            items = np.tile(self.items, len(of_draw))
            of_pairs = self._scores(at_draw, rows, items, [position])
            scores[of_draw] = of_pairs.reshape(len(of_draw), len(self.items))
        return scores


def scored_rows(run: Run, users: Int32, newcomers: FoldIn | None) -> Int32:
    """Return the rows by which users are scored: -1, the prior, if nothing is known of them.

    Such users have no training ratings, and no features. Their rows at saved draws are draws from
    the prior, so that their lists would differ by chance.
    """
    is_unknown = users >= number_of_users(run, newcomers)
    if not run.feature_names("user"):
        sampled = np.flatnonzero(users < len(run.users))
        is_unknown[sampled] = run.counts("user")[users[sampled]] == 0
    return np.where(is_unknown, np.int32(-1), users)


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
    caps = None
    if ranking.at_most is not None:
        caps = once(run, (Caps, ranking.at_most), partial(Caps.of_run, run, ranking.at_most))
    step = max(1, _BLOCK_SCORES // len(run.items))
    for start in range(0, max(len(users), 1), step):  # without users, one empty block
        of_block = users[start : start + step]
        history = History(len(run.users), rated, newcomers)
        block = Block(of_block, start, _log_exposures(run, ranking, of_block, history))
        if caps is None:
            ranked = _ranked(scorer, block, ranking.top)
        else:
            ranked = _capped(scorer, block, caps, ranking.top)
        # the last bits of a pair's score depend on the pairs beside it
        values = ranking.sign * _rounded(ranked.scores)
        if uses_pattern or (scorer is not None and scorer.at_least is not None):
            values = np.exp(values)  # scores are logarithms
        yield RankedItems(of_block[ranked.positions], ranked.items, values.astype(np.float32))


class Block(NamedTuple):
    """Users who are ranked together.

    Attributes
    ----------
    users : (n,) int32
    first : int
        Position of the first of them among all users of the ranking.
    added : (n, items) float
        What is added to the scores; without a scorer it is the score.
    """

    users: Int32
    first: int
    added: Array


def _capped(scorer: Scorer | None, block: Block, caps: Caps, top: int) -> Ranked:
    """Return the best items of users that their categories allow."""
    if scorer is not None and not _can_be_screened(scorer, block.users, top):
        block = block._replace(added=scorer.scores(block.users, block.first) + block.added)
        scorer = None

    def rank(chosen: Int64, added: Array, number: int) -> Ranked:
        return _ranked(scorer, Block(block.users[chosen], block.first, added), number)

    return caps.fill(block.added, top, rank)


def _ranked(scorer: Scorer | None, block: Block, top: int) -> Ranked:
    """Return the best items of users."""
    if scorer is None:
        return _best(block.added, top)
    if _can_be_screened(scorer, block.users, top):
        return _best_of_candidates(scorer, block.users, block.added, top)
    return _best(scorer.scores(block.users, block.first) + block.added, top)


class History(NamedTuple):
    """Ratings of known users, whose number is `n_known`, and of users that were folded in."""

    n_known: int
    rated: Rated | None
    newcomers: FoldIn | None

    def of_users(self, users: Int32, bound: float | None = None) -> list[Int32]:
        """Return the rows of the items that each user rated (with a bound: at least that high)."""
        return [self._of_user(user, bound) for user in users.tolist()]

    def _of_user(self, user: int, bound: float | None) -> Int32:
        position = user - self.n_known
        if self.newcomers is not None and 0 <= position < len(self.newcomers.vocabulary):
            return self.newcomers.rated(position, bound)
        if user < self.n_known and self.rated is not None:
            return self.rated.items_of(user, bound)
        return np.zeros(0, np.int32)


def _log_exposures(run: Run, ranking: Ranking, users: Int32, history: History) -> Array:
    """Return what rules add to the scores of all items, (users, items).

    That is the logarithm of the exposure, if the rule uses it, and minus infinity for items that
    are not recommended.
    """
    if ranking.by in PATTERN_RULES:
        liked = exposure_of(run, ranking.exposure).liked
        exposure = exposures(run, ranking.exposure, history.of_users(users, liked))
        added: Array = np.log(np.maximum(exposure, TINY, dtype=np.float64))
    else:
        added = np.zeros((len(users), len(run.items)), np.float32)
    if not ranking.include_rated:
        for row, items in zip(added, history.of_users(users), strict=True):
            row[items] = -np.inf
    if ranking.excluded:
        for row, user in zip(added, users.tolist(), strict=True):
            row[ranking.excluded.get(user, [])] = -np.inf
    if ranking.among is not None:
        added[:, ~ranking.among] = -np.inf
    return added


def _can_be_screened(scorer: Scorer, users: Int32, top: int) -> bool:
    """Return whether bounds of scores save the scores of most items.

    New users have no rows at saved draws, so that only their exposure bounds scores.
    """
    if scorer.ranking.by in (*DRAWN_RULES, "sd"):
        return False
    if not scorer.are_known(users) and not _is_bounded_by_exposure(scorer):
        return False
    return 2 * top <= len(scorer.run.items)


def _is_bounded_by_exposure(scorer: Scorer) -> bool:
    """Return whether exposure is an upper bound of scores: it is multiplied by a probability."""
    return scorer.at_least is not None and scorer.ranking.by == "likely"


def _best_of_candidates(scorer: Scorer, users: Int32, added: Array, top: int) -> Ranked:
    """Return what `_best` returns; only items that may be among the best are scored.

    `added` is added to the scores.
    """
    known = None
    if _is_bounded_by_exposure(scorer):
        known = _scores_of_exposed(scorer, users, added, top)
    positions, columns = np.nonzero(_may_be_best(scorer, users, added, known, top=top))
    items = columns.astype(np.int32)
    scores = np.full(len(items), -np.inf)
    if known is not None:
        scores = known[positions, items]
    missing = np.isneginf(scores)
    scores[missing] = scorer.scores_of_pairs(users[positions[missing]], items[missing])
    scores += added[positions, items]
    return _first(Ranked(positions, items, scores), _rounded(scores), top)


def _may_be_best(
    scorer: Scorer, users: Int32, added: Array, known: Float64 | None, *, top: int
) -> Mask:
    """Return which items may be among the best of every user, (users, items) bool.

    `known` has logarithms of probabilities, and minus infinity for items that were not scored.
    """
    if known is not None:
        candidates = find_candidates(known, np.full_like(known, _MARGIN), added, top)
        is_few = candidates.sum() < _SHARE * candidates.size
        if is_few or not scorer.are_known(users):
            return candidates
    if scorer.screen is None:
        return np.isfinite(added)
    low, high = scorer.bounds(users)
    return find_candidates(low, high, added, top)


def _scores_of_exposed(scorer: Scorer, users: Int32, added: Array, top: int) -> Float64:
    """Return the scores of the items to which every user is exposed most, (users, items).

    They are minus infinity for other items.
    """
    number = 2 * top
    none = np.zeros(added.shape)
    positions, columns = np.nonzero(find_candidates(none, none, added, number))
    first = positions_in_lists(positions) < number  # items may be exposed equally
    positions = positions[first]
    items = columns[first].astype(np.int32)
    scores = np.full(added.shape, -np.inf)
    scores[positions, items] = scorer.scores_of_pairs(users[positions], items)
    return scores


def _largest(values: Array, n: int) -> Array:
    """Return the n-th largest value of every row, (rows, 1)."""
    kth = values.shape[1] - n
    return np.partition(values, kth, axis=1)[:, kth : kth + 1]


def _rounded(values: Float64) -> Float64:
    """Round finite numbers to 40 binary digits."""
    shifted = values * (2.0**13 + 1)
    return shifted - (shifted - values)


def _best(scores: Float64, top: int) -> Ranked:
    """Return the best items of every user, in descending order of their scores.

    Scores are (users, items); items of minus infinity are left out. Equal scores are in the order
    of rows.
    """
    if 2 * top < scores.shape[1]:
        chosen = (scores >= _largest(scores, top)) & np.isfinite(scores)
    else:
        chosen = np.isfinite(scores)
    positions, items = np.nonzero(chosen)
    values = scores[positions, items]
    return _first(Ranked(positions, items.astype(np.int32), values), values, top)


def _first(ranked: Ranked, keys: Float64, top: int) -> Ranked:
    """Return the items of every user with the largest keys, in their order; equal ones by row."""
    order = np.lexsort((ranked.items, -keys, ranked.positions))
    return select(ranked, order[positions_in_lists(ranked.positions[order]) < top])


def allowed_items(
    run: Run,
    candidates: Sequence[Any] | None,
    exclude: Sequence[Any] | None,
    tell: Callable[[str], None] = warn,
) -> Mask:
    """Return the mask (items,) of items that may be recommended.

    They are `candidates` (None: all) without `exclude`, by name; `tell` gets a note on unknown
    names, which are left out. Raises InputError if the run knows none of the candidates.
    """
    among = np.ones(len(run.items), bool)
    if candidates is not None:
        if not len(candidates):
            raise InputError("candidates has no items")
        rows = run.items.index_of(candidates)
        if (rows < 0).all():
            raise unknown_names("item", run.items.typed(candidates).tolist())
        among[:] = False
        among[_known(run, "candidates", candidates, tell)] = True
    if exclude is not None:
        among[_known(run, "exclude", exclude, tell)] = False
    return among


def _known(run: Run, option: str, names: Sequence[Any], tell: Callable[[str], None]) -> Int32:
    """Return the rows of the items that the run knows; `tell` gets a note on other names."""
    rows = run.items.index_of(names)
    unknown = run.items.typed(names)[rows < 0].tolist()
    if unknown:
        tell(f"{option}: {unknown_names('item', unknown)}")
    return rows[rows >= 0]


def recommendations(
    model: FittedRows, users: UsersByRow, ranking: Ranking, titles: dict[int, str] | None = None
) -> Iterator[Columns]:
    """Rank items for users, and yield tables with original names, in the order of `users`.

    Yields
    ------
    dict of str to (m,) array
        Columns ``user_id, item_id, score, rank`` (1 for the best item); ``sd, q05, q95`` of the
        predictor under every rule; ``ratings``, the number of training ratings of the item; with
        `titles` (by row), ``item_name``; and, with reasons, ``because``, the rated item that
        exposes the user most to this one, and ``because_name``. Names of several parts have a
        column for each part.

    Raises
    ------
    InputError
        As `recommend`, or if the ratings file is needed, and missing.
    """
    run = model.run
    newcomers = users.newcomers
    rated = None
    if ranking.needs_ratings:
        rated = model.rated(users.rows)
    predictor = Predictor(run, PredictOptions(of_mean=True, clip=ranking.clip), newcomers)
    counts = run.counts("item")
    names = run.users.ids
    if newcomers is not None:
        names = np.concatenate([names, newcomers.vocabulary.ids])
    if users.unknown:
        names = np.concatenate([names, run.users.typed(users.unknown)])
    history = History(len(run.users), rated, newcomers)
    for ranked in recommend(run, users.rows, ranking, rated, newcomers=newcomers):
        prediction = predictor(scored_rows(run, ranked.users, newcomers), ranked.items)
        columns: Columns = {
            **run.users.table(names[ranked.users]),
            **run.items.table(run.items.ids[ranked.items]),
            "score": ranked.scores,
            "rank": positions_in_lists(ranked.users) + np.int32(1),
            "sd": prediction.sd,
            "q05": prediction.low,
            "q95": prediction.high,
            "ratings": counts[ranked.items],
        }
        if titles is not None:
            columns["item_name"] = _looked_up(titles, ranked.items)
        if ranking.reasons:
            columns |= _reasons(run, ranking, ranked, history, titles=titles)
        yield columns


def _reasons(
    run: Run,
    ranking: Ranking,
    ranked: RankedItems,
    history: History,
    *,
    titles: dict[int, str] | None,
) -> Columns:
    """Return the columns ``because`` and, with titles, ``because_name``; empty without a reason."""
    exposure = exposure_of(run, ranking.exposure)
    reasons = np.full(len(ranked.items), -1, np.int32)
    for user in np.unique(ranked.users).tolist():
        of_user = ranked.users == user
        (rated,) = history.of_users(np.array([user], np.int32), exposure.liked)
        reasons[of_user] = exposure.reason(rated, ranked.items[of_user])
    names = {row: shown(run.items.ids[row]) for row in set(reasons.tolist()) - {-1}}
    columns = {"because": _looked_up(names, reasons)}
    if titles is not None:
        columns["because_name"] = _looked_up(titles, reasons)
    return columns


def _looked_up(texts: dict[int, str], rows: Int32) -> Array:
    """Return the texts of rows, (m,) object; empty where there is none."""
    return np.array([texts.get(row, "") for row in rows.tolist()], object)
