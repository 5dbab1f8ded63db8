r"""Predictive distributions of single ratings, and predictions of a file of pairs.

The distribution of a rating is the mixture over the saved draws d of N(mu + a_i + b_j + W_i . H_j, 1 / (tau g_i g'_j)),
with all parameters from draw d, and the weights of the draws. Mean, variance and quantiles are those of the mixture,
without a normal approximation. For the predictor alone (``of_mean``) the components are points, and the quantiles are
sample quantiles.

An unknown user or item has its prior distribution given each draw. This is exact if one side of the pair is unknown; if
both sides are, the product has the exact mean and variance but is taken to be normal. The noise scale g of an unknown
user or item is taken to be 1.

For ordinal ratings the mixture is over the probabilities of the levels; mean, sd and quantiles are those of the
mixture, and ``of_mean`` predicts the expected rating. A predictor that is itself uncertain is integrated over.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.prediction import cells_kernel
from dsgmcmc.model.predictive.base import Prediction, Predictive, PredictorDraws
from dsgmcmc.posterior.draws import KINDS, Draw, Rows
from dsgmcmc.posterior.names import unknown_names
from dsgmcmc.posterior.newcomers import FoldIn
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Array, Float32, Float64, Int32

if TYPE_CHECKING:  # slow to import
    import duckdb

    from dsgmcmc.data.pairs import PairsTable

BLOCK = 8192  # pairs that are predicted at a time, so that the components fit in the cache
_KNOWN = np.int32(-2)  # stands for all users, or items, that the run knows


@dataclass(frozen=True)
class PredictOptions:
    """Options of a prediction.

    Attributes
    ----------
    of_mean : bool
        Predict the expected rating, without noise.
    interval : float
        Probability between the two quantiles.
    clip : bool
        Clip means and quantiles to the range of the training ratings; sds do not change.
    at_least : float or None
        Also predict the probability of a rating of at least this value.
    probabilities : bool
        Also predict the probability of every level.
    """

    of_mean: bool = False
    interval: float = 0.9
    clip: bool = False
    at_least: float | None = None
    probabilities: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.interval < 1:
            raise InputError(f"interval {self.interval}: expected a probability between 0 and 1")
        if self.of_mean and (self.at_least is not None or self.probabilities):
            raise InputError(
                "--of-mean predicts the expected rating, which has no probabilities: leave one of them out"
            )

    @property
    def levels(self) -> tuple[float, float]:
        """Probabilities of the two quantiles."""
        tail = round((1 - self.interval) / 2, 12)
        return tail, 1 - tail

    @property
    def columns(self) -> tuple[str, str, str, str]:
        """Names of the predicted columns, such as ``mean, sd, q05, q95``."""
        low, high = (f"q{np.format_float_positional(round(level, 10))[2:].ljust(2, '0')}" for level in self.levels)
        return "mean", "sd", low, high

    @property
    def with_probabilities(self) -> bool:
        """Whether probabilities are predicted, too."""
        return self.at_least is not None or self.probabilities


class Predictor:
    """Predicts ratings of pairs of users and items, which are given by index.

    Parameters
    ----------
    run : Run
    options : PredictOptions
    newcomers : FoldIn, optional
        New users (or items), whose indices follow those of the known ones.

    Raises
    ------
    InputError
        If the run does not support the options.
    """

    def __init__(self, run: Run, options: PredictOptions, newcomers: FoldIn | None = None) -> None:
        run.need_draws()
        self.run, self.options, self.newcomers = run, options, newcomers
        config = run.config
        self._law, self._biases, self._rank = config.law, config.biases, config.rank
        rated = config.law.can_be_evaluated
        if options.with_probabilities and not rated:
            raise InputError(f"{run.path}: {config.likelihood} predicts scores, not ratings, without probabilities")
        if options.probabilities and run.levels is None:
            raise InputError(f"{run.path}: its ratings have no levels, so there are no probabilities of levels")
        self._cells = cells_kernel(self._rank, self._biases)
        self._clip = options.clip and rated
        self._range = run.facts["minimum"], run.facts["maximum"]

    def __call__(self, users: Int32, items: Int32) -> Prediction:
        """Predict pairs.

        Parameters
        ----------
        users, items : (q,) int32
            Indices from `index_of`; -1 for an unknown user or item, which has its prior.

        Returns
        -------
        Prediction
            In units of the ratings.
        """
        columns = self.columns(users, items)
        return Prediction(*(columns[name] for name in self.options.columns))

    def columns(self, users: Int32, items: Int32) -> dict[str, Float32]:
        """Predict pairs as `__call__` does, and the requested probabilities; (q,) float32 by column name."""
        columns = {name: np.empty(len(users), np.float32) for name in self.names}
        for rows, predictive in self.distributions(users, items):
            for name, values in zip(self.options.columns, predictive.summary(*self.options.levels), strict=True):
                columns[name][rows] = np.clip(values, *self._range) if self._clip and name != "sd" else values
            probabilities = [] if self.options.at_least is None else [predictive.at_least(self.options.at_least)]
            probabilities += [*predictive.probabilities().T] if self.options.probabilities else []
            for name, probability in zip(self.names[4:], probabilities, strict=True):
                columns[name][rows] = probability
        return columns

    @property
    def names(self) -> list[str]:
        """Names of the columns: ``mean, sd, q05, q95`` and, if requested, ``at_least_4`` and ``p_1, p_2`` of levels."""
        options, levels = self.options, self.run.levels
        names = [*options.columns, *([] if options.at_least is None else [f"at_least_{options.at_least:g}"])]
        shown = [] if levels is None or not options.probabilities else levels.tolist()
        return names + [f"p_{level:g}" for level in shown]

    def probabilities(self, users: Int32, items: Int32) -> Float32:
        """Requested probabilities, (q, m) float32: of a rating of at least the bound, and of every level."""
        return np.stack(list(self.columns(users, items).values())[4:], axis=1)

    def index_of(self, kind: str, names: Any) -> Int32:
        """Indices of users or items by name; -1 for names that are neither in the run nor among the newcomers."""
        vocabulary = self.run.vocabulary(kind)
        index = vocabulary.index_of(names)
        if self.newcomers and self.newcomers.kind == kind:
            new = self.newcomers.vocabulary.index_of(names)
            index = np.where(new >= 0, new + np.int32(len(vocabulary)), index)
        return index

    def distributions(
        self, users: Int32, items: Int32, numbers: Sequence[int] | None = None
    ) -> Iterator[tuple[npt.NDArray[np.intp], Predictive]]:
        """Yield positions of pairs and their predictive distributions, in batches; parameters as for `draws`."""
        users, items = np.ascontiguousarray(users, np.int32), np.ascontiguousarray(items, np.int32)
        make = self._law.expectation if self.options.of_mean else self._law.predictive
        for start in range(0, len(users), BLOCK):
            part = slice(start, start + BLOCK)
            for rows, some in self.draws(users[part], items[part], numbers).by_certainty():
                yield start + rows, make(some, self.run.mean, self.run.levels)

    # ------------------------------------------------------------------ draws of the predictors

    def draws(self, users: Int32, items: Int32, numbers: Sequence[int] | None = None) -> PredictorDraws:
        """Draws of the predictors of pairs: all saved draws, or those at the positions `numbers`."""
        run, numbers = self.run, range(len(self.run.draws)) if numbers is None else numbers
        new_user = (users < 0) | (users >= len(run.users))
        new_item = (items < 0) | (items >= len(run.items))
        known_users, known_items = np.where(new_user, np.int32(-1), users), np.where(new_item, np.int32(-1), items)
        unseen = _alike(np.where(new_user, users, _KNOWN), np.where(new_item, items, _KNOWN))
        eta = np.empty((len(users), len(numbers)), np.float32)
        noise, spread = np.empty_like(eta), np.zeros_like(eta)
        effects = np.zeros_like(eta) if run.has_effects else None
        whose, owner = owners(run, users)
        thresholds, shapes = [], []
        for column, number in enumerate(numbers):
            draw = run.draw(number)
            self._cells(
                *(np.maximum(known_users, 0), np.maximum(known_items, 0), draw.theta["user"], draw.theta["item"]),
                *(draw.inverse_scale["user"], draw.inverse_scale["item"], 1 / draw.tau, column, eta, noise),
            )
            for some in unseen:
                user, item = self._rows(number, "user", users[some]), self._rows(number, "item", items[some])
                eta[some, column], spread[some, column] = self._join(user, item)
                noise[some, column] = user.noise * item.noise / draw.tau
            if effects is not None:
                added, effects[:, column] = draw.of_ratings(known_users, known_items)
                eta[:, column] += np.float32(added)
            thresholds.append(of_owners(draw, whose, self.newcomers, number))
            shapes.append(self._law.shape_of(draw.shared))
        weights = run.draw_weights[list(numbers)]
        return PredictorDraws(
            eta=eta,
            noise=noise,
            spread=spread,
            weights=weights / weights.sum(),
            thresholds=None if thresholds[0] is None else np.array(thresholds),
            owner=None if thresholds[0] is None else owner,
            effects=effects if effects is not None and effects.any() else None,
            shape=None if shapes[0] is None else np.array(shapes)[None],
        )

    def _rows(self, number: int, kind: str, index: Int32) -> Rows:
        """Rows of one side at a draw: known ones, (q, D), or the distribution that all of `index` share, (1, D)."""
        draw, first = self.run.draw(number), int(index[0])
        theta = draw.theta[kind]
        if 0 <= first < len(theta):
            known = theta[index].astype(np.float64)
            noise = draw.inverse_scale[kind][index].astype(np.float64)
            return Rows(known, np.zeros((1, known.shape[1], known.shape[1])), noise)
        if first < 0:
            prior = draw.unseen[kind]
            return Rows(prior.mean[None], prior.covariance[None], np.ones(1))
        assert self.newcomers is not None
        return self.newcomers.rows(number, np.array([first - len(theta)]))

    def _join(self, user: Rows, item: Rows) -> tuple[Float64, Float64]:
        """Mean and variance of the predictor of pairs whose rows are independent."""
        k = self._rank
        centre = (user.mean[:, :k] * item.mean[:, :k]).sum(axis=1)
        spread = (user.covariance[0, :k, :k] * item.covariance[0, :k, :k]).sum()
        if self._biases:
            centre = centre + user.mean[:, k] + item.mean[:, k]
        for side, other in ((user, item), (item, user)):
            across = other.mean.copy()
            if self._biases:
                across[:, k] = 1.0
            spread = spread + ((across @ side.covariance[0]) * across).sum(axis=1)
        return centre, spread


def _alike(users: Int32, items: Int32) -> list[npt.NDArray[np.intp]]:
    """Positions of pairs with an unknown or folded-in side, in groups with the same such sides; others are `_KNOWN`."""
    new = np.flatnonzero((users != _KNOWN) | (items != _KNOWN))
    if not len(new):
        return []
    order = new[np.lexsort((items[new], users[new]))]
    change = np.any(np.diff([users[order], items[order]]) != 0, axis=0)
    return np.split(order, np.flatnonzero(change) + 1)


def owners(run: Run, users: Int32) -> tuple[Int32, Int32]:
    """Distinct users whose thresholds are needed (one if shared), and the position of each of `users` among them."""
    if run.config.thresholds == "shared":
        return np.zeros(1, np.int32), np.zeros(len(users), np.int32)
    whose, owner = np.unique(users, return_inverse=True)
    return whose, owner.astype(np.int32)


def of_owners(drawn: Draw, whose: Int32, newcomers: FoldIn | None, number: int) -> Float64 | None:
    """Thresholds of users at a draw, (m, R - 1); None if ratings are not ordinal.

    Unknown users get the shared thresholds; so do all users if the model has no thresholds per user.
    """
    if drawn.thresholds is None:
        return None
    thresholds = np.tile(drawn.thresholds, (len(whose), 1))
    if drawn.own_thresholds is not None:
        known = (whose >= 0) & (whose < len(drawn.own_thresholds))
        thresholds[known] = drawn.own_thresholds[whose[known]]
        new = whose >= len(drawn.own_thresholds)
        if newcomers is not None and new.any():
            thresholds[new] = newcomers.rows(number, whose[new].astype(np.intp) - len(drawn.own_thresholds)).cuts
    return thresholds


# ---------------------------------------------------------------------- a file of pairs


def predict_table(
    run: Run,
    pairs: Path,
    out: Path | None,
    options: PredictOptions,
    *,
    unknown: Literal["refuse", "prior"] = "refuse",
    columns: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Predict a file of pairs in bounded memory, and write the predictions to a file atomically.

    Parameters
    ----------
    out : Path or None
        CSV or Parquet, by the suffix; None writes CSV to standard output.
    unknown : {"refuse", "prior"}
        Treatment of unknown users and items: raise an error that names the first five, or predict from the prior.
    columns : dict of "user" and "item" to str, optional
        Columns of users and items, by name or position from 1; detected by default.

    Returns
    -------
    dict
        ``pairs``, the number of pairs, and ``unknown``, the number of pairs with an unknown side.

    Raises
    ------
    InputError
        If an argument is invalid; then no file is written.
    """
    from dsgmcmc.data.pairs import chunks, load_pairs
    from dsgmcmc.data.session import interruptible, open_session
    from dsgmcmc.data.tables import append_results, output_format, write_query

    output_format(out)
    predictor = Predictor(run, options)
    integers = run.users.integers, run.items.integers

    def work(db: duckdb.DuckDBPyConnection) -> dict[str, int]:
        table = load_pairs(db, pairs, columns or {})
        taken = {name.lower() for name in table.columns} & set(predictor.names)
        if taken:
            raise InputError(f"{table.file.path} has a column {min(taken)!r}, which the predictions need: rename it")
        if unknown == "refuse":
            _refuse_unknown(table, chunks(db, table, integers), predictor)
        counts = {"pairs": 0, "unknown": 0}
        for names in chunks(db, table, integers):
            users, items = (predictor.index_of(kind, ids) for kind, ids in zip(KINDS, names, strict=True))
            append_results(db, predictor.columns(users, items))
            counts["pairs"] += len(users)
            counts["unknown"] += int(np.count_nonzero((users < 0) | (items < 0)))
        write_query(db, "SELECT pairs.*, results.* FROM pairs POSITIONAL JOIN results", out)
        return counts

    with open_session(out.parent if out else Path(tempfile.gettempdir())) as db:
        return interruptible(db, lambda: work(db))


def _refuse_unknown(table: PairsTable, chunks: Iterable[list[Array]], predictor: Predictor) -> None:
    """Raise InputError if users or items are unknown, before predictions begin."""
    missing: dict[str, Counter[Any]] = {kind: Counter() for kind in KINDS}
    for names in chunks:
        for kind, ids in zip(KINDS, names, strict=True):
            missing[kind].update(ids[predictor.index_of(kind, ids) < 0].tolist())
    messages = [str(unknown_names(kind, list(names))) for kind, names in missing.items() if names]
    if messages:
        raise InputError(
            f"{table.file.path}: {'; '.join(messages)}. Take them out, or predict them with --unknown prior{table.hint}"
        )
