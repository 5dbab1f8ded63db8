"""Recommendations: for each user the items that rank highest, by one of the rules of `dsgmcmc.posterior.rules`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.foldin import FoldIn
from dsgmcmc.posterior.names import unknown_names
from dsgmcmc.posterior.predict import PredictOptions, Predictor
from dsgmcmc.posterior.rated import Rated
from dsgmcmc.posterior.rules import PATTERN_RULES, Ranking, Scorer
from dsgmcmc.posterior.saved import SavedRun
from dsgmcmc.types import Float32, Int32, Mask

Columns = dict[str, npt.NDArray[Any]]

_CELLS = 1 << 20  # scores of a block of users: two such blocks stay in the cache


def recommend(
    run: SavedRun,
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
        Rows of users; those of `newcomers` follow the known ones.
    ranking : Ranking
    rated : Rated, optional
        For leaving out items that a known user rated; rules that use who rated what need it.
    newcomers : FoldIn, optional
        Users that were folded in, with the items that they rated.
    among : (items,) bool, optional
        Which items may be recommended; default all.

    Yields
    ------
    user, item : (m,) int32
        Rows, by user in the order given, best item first.
    score : (m,) float32
        In units of the ratings; a probability if the ranking has a bound; of ``likely`` and ``exposure`` for the
        order only.

    Raises
    ------
    InputError
        If the rule uses who rated what, users of the run are to be ranked for, and `rated` is not given.
    """
    if ranking.by in PATTERN_RULES and rated is None and (users < len(run.users)).any():
        raise InputError(f"{run.path}: ranking by {ranking.by} needs the training ratings: give the ratings file")
    scorer = None if ranking.by == "exposure" else Scorer(run, ranking, newcomers)
    step = max(1, _CELLS // len(run.items))
    for start in range(0, len(users), step):
        some = users[start : start + step]
        own = [_rated_by(user, len(run.users), rated, newcomers) for user in some.tolist()]
        scores = scorer.scores(some, start) if scorer else np.ones((len(some), len(run.items)), np.float32)
        if ranking.by in PATTERN_RULES:
            scores *= run.exposure.of(own)
        if not ranking.include_rated:
            leave_out(scores, own)
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


def leave_out(scores: Float32, items: Sequence[Int32]) -> None:
    """Make the scores of some items of each user, (users, items), so low that they are not recommended."""
    for own, rows in zip(scores, items, strict=True):
        own[rows] = -np.inf


def best(scores: Float32, top: int) -> tuple[Int32, Float32]:
    """Items with the highest scores of each user, the highest first, (users, top), and their scores."""
    top = min(top, scores.shape[1])
    some = np.argpartition(scores, -top, axis=1)[:, -top:]
    values = np.take_along_axis(scores, some, axis=1)
    order = np.lexsort((some, -values), axis=1)  # ties by row, so that they are the same everywhere
    return np.take_along_axis(some, order, axis=1).astype(np.int32), np.take_along_axis(values, order, axis=1)


def those_among(run: SavedRun, candidates: Any = None, exclude: Any = None) -> Mask | None:
    """Which items may be recommended, (items,) bool: `candidates` (default all) without `exclude`, given by name.

    Unknown names are ignored; raises InputError if the run knows none of the candidates.
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
    run: SavedRun,
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
        Columns ``user_id, item_id, score, rank``; ``sd, q05, q95`` of the predictor, by whatever rule items are ranked;
        ``ratings``, the number of training ratings of the item; and, with `titles` (by row), ``item_name``. Rank 1 is
        the best.
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
