r"""Predictive distributions of single ratings, and predictions of a file of pairs.

The distribution of a rating is a mixture over the saved draws, with the weights of the draws.
Component d is N(mu + a_i + b_j + W_i . H_j, 1 / (tau g_i g'_j)), with all parameters from draw d.
Mean, variance and quantiles are computed from the mixture, without a normal approximation. For the
linear predictor alone (``of_mean``) the components are point masses, and the quantiles are sample
quantiles.

An unknown user or item has its prior distribution given each draw. The prediction is exact if only
one side of the pair is unknown. If both sides are unknown, the product has the exact mean and
variance but is taken to be normal. The noise scale g of an unknown user or item is taken to be 1.

For ordinal ratings the probabilities of the levels are mixed; mean, sd and quantiles are computed
from the mixture, and ``of_mean`` predicts the expected rating. If the linear predictor itself is
uncertain at a draw, because a side of the pair is unknown or new, the probabilities are integrated
over its distribution.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.prediction import cells_kernel
from dsgmcmc.model.predictive.base import Prediction, Predictive, PredictorDraws
from dsgmcmc.posterior.draws import ENTITIES, RowDistributions
from dsgmcmc.posterior.names import unknown_names
from dsgmcmc.posterior.newcomers import FoldIn
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Array, Float32, Float64, Int32

BLOCK = 8192  # pairs that are predicted at a time, so that the components fit in the cache
_KNOWN = np.int32(-2)  # stands for any user or item that the run knows


@dataclass(frozen=True)
class PredictOptions:
    """Options for predictions.

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
        if not 1e-9 <= self.interval <= 1 - 1e-9:
            raise InputError(f"interval {self.interval}: expected a probability between 0 and 1")
        if self.at_least is not None and not np.isfinite(self.at_least):
            raise InputError(f"at_least {self.at_least}: expected a finite number")
        if self.of_mean and (self.at_least is not None or self.probabilities):
            raise InputError(
                "--of-mean cannot be combined with --at-least or --probabilities: leave it out"
            )

    @property
    def levels(self) -> tuple[float, float]:
        """Probabilities of the two quantiles."""
        tail = round((1 - self.interval) / 2, 12)
        return tail, 1 - tail

    @property
    def columns(self) -> tuple[str, str, str, str]:
        """Names of the predicted columns, such as ``mean, sd, q05, q95``."""
        low, high = (
            f"q{np.format_float_positional(round(level, 10))[2:].ljust(2, '0')}"
            for level in self.levels
        )
        return "mean", "sd", low, high


class Predictor:
    """Predicts ratings of pairs of users and items, which are given by index.

    Parameters
    ----------
    run : Run
    options : PredictOptions
    newcomers : FoldIn, optional
        New users (or items), whose indices follow the indices of the known users (or items).

    Attributes
    ----------
    names : list of str
        Names of the columns: ``mean, sd, q05, q95``, with scale log ``median`` in place of a mean
        that does not exist (`dsgmcmc.model.scale`), and, if requested, ``at_least_4`` and ``p_1,
        p_2`` of levels.

    Raises
    ------
    InputError
        If the run does not support the options.
    """

    def __init__(self, run: Run, options: PredictOptions, newcomers: FoldIn | None = None) -> None:
        run.need_draws()
        self.run, self.options = run, options
        self.newcomers = newcomers
        config = run.config
        scores_only = not config.law.can_be_evaluated
        has_mean = options.of_mean or config.law.point_name == "mean"
        self._summary = options.columns if has_mean else ("median", None, *options.columns[2:])
        self.names = [name for name in self._summary if name]
        self._summarised = len(self.names)
        if scores_only and (options.at_least is not None or options.probabilities):
            raise InputError(
                f"{run.path}: {config.likelihood} predicts scores, not ratings or their"
                " probabilities"
            )
        if options.at_least is not None:
            self.names.append(f"at_least_{options.at_least:g}")
        if options.probabilities:
            if run.levels is None:
                raise InputError(
                    f"{run.path}: its ratings have no levels, so there are no probabilities of"
                    " levels"
                )
            self.names += [
                f"p_{str(level).removesuffix('.0')}" for level in run.levels.astype(np.float32)
            ]
        self._cells = cells_kernel(config.rank, config.biases)
        self._clip = options.clip and not scores_only
        self._range = run.facts["minimum"], run.facts["maximum"]

    def __call__(self, users: Int32, items: Int32) -> Prediction:
        """Predict pairs.

        Parameters
        ----------
        users, items : (q,) int32
            Indices from `index_of`; -1 for an unknown user or item, which is predicted from the
            prior.

        Returns
        -------
        Prediction
            In units of the ratings.
        """
        columns = self.columns(users, items)
        absent = np.full(len(users), np.nan, np.float32)
        return Prediction(*(columns[name] if name else absent for name in self._summary))

    def columns(self, users: Int32, items: Int32) -> dict[str, Float32]:
        """Return the predictions of `__call__` and the requested probabilities, each (q,) float32,
        by column name.
        """
        columns = {name: np.empty(len(users), np.float32) for name in self.names}
        for rows, predictive in self.distributions(users, items):
            for name, values in zip(
                self._summary, predictive.summary(*self.options.levels), strict=True
            ):
                if name:
                    clipped = self._clip and name != "sd"
                    columns[name][rows] = np.clip(values, *self._range) if clipped else values
            probabilities = (
                []
                if self.options.at_least is None
                else [predictive.at_least(self.options.at_least)]
            )
            probabilities += [*predictive.probabilities().T] if self.options.probabilities else []
            for name, probability in zip(
                self.names[self._summarised :], probabilities, strict=True
            ):
                columns[name][rows] = probability
        return columns

    def probabilities(self, users: Int32, items: Int32) -> Float32:
        """Return the requested probabilities, (q, m) float32: of a rating of at least the bound,
        and of every level.
        """
        return np.stack(list(self.columns(users, items).values())[self._summarised :], axis=1)

    def index_of(self, entity: str, names: Any) -> Int32:
        """Return indices of users or items by name; -1 for names that are neither in the run nor
        folded in.
        """
        vocabulary = self.run.vocabulary(entity)
        index = vocabulary.index_of(names)
        if self.newcomers and self.newcomers.entity == entity:
            new = self.newcomers.vocabulary.index_of(names)
            index = np.where(new >= 0, new + np.int32(len(vocabulary)), index)
        return index

    def distributions(
        self, users: Int32, items: Int32, positions: Sequence[int] | None = None
    ) -> Iterator[tuple[Array, Predictive]]:
        """Yield row numbers of pairs and their predictive distributions, in batches; parameters as
        for `draws`.
        """
        users, items = np.ascontiguousarray(users, np.int32), np.ascontiguousarray(items, np.int32)
        law = self.run.config.law
        make = law.expectation if self.options.of_mean else law.predictive
        for start in range(0, len(users), BLOCK):
            part = slice(start, start + BLOCK)
            for rows, draws in self.draws(users[part], items[part], positions).by_certainty():
                yield start + rows, make(draws, self.run.mean, self.run.levels)

    # ------------------------------------------------------------------ draws of the predictors

    def draws(
        self, users: Int32, items: Int32, positions: Sequence[int] | None = None
    ) -> PredictorDraws:
        """Return draws of the predictors of pairs at all saved draws, or at `positions` in
        `Run.draws`.
        """
        run, positions = self.run, range(len(self.run.draws)) if positions is None else positions
        new_user = (users < 0) | (users >= len(run.users))
        new_item = (items < 0) | (items >= len(run.items))
        known_users, known_items = (
            np.where(new_user, np.int32(-1), users),
            np.where(new_item, np.int32(-1), items),
        )
        unseen = _grouped(np.where(new_user, users, _KNOWN), np.where(new_item, items, _KNOWN))
        eta = np.empty((len(users), len(positions)), np.float32)
        noise, spread = np.empty_like(eta), np.zeros_like(eta)
        effects = np.zeros_like(eta) if run.has_effects else None
        by_user = run.config.thresholds != "shared"
        owners, owner = np.unique(users if by_user else np.zeros_like(users), return_inverse=True)
        thresholds, shapes = [], []
        for column, position in enumerate(positions):
            draw = run.draw(position)
            self._cells(
                *(
                    np.maximum(known_users, 0),
                    np.maximum(known_items, 0),
                    draw.theta["user"],
                    draw.theta["item"],
                ),
                *(
                    draw.inverse_scale["user"],
                    draw.inverse_scale["item"],
                    1 / draw.tau,
                    column,
                    eta,
                    noise,
                ),
            )
            for pairs in unseen:
                user, item = (
                    self._rows(position, "user", users[pairs]),
                    self._rows(position, "item", items[pairs]),
                )
                eta[pairs, column], spread[pairs, column] = self._join(user, item)
                noise[pairs, column] = user.noise * item.noise / draw.tau
            if effects is not None:
                added, effects[:, column] = draw.of_ratings(known_users, known_items)
                eta[:, column] += np.float32(added)
            thresholds.append(self._thresholds(position, owners))
            shapes.append(run.config.law.shape_of(draw.shared))
        weights = run.draw_weights[list(positions)]
        cuts = None if thresholds[0] is None else np.array(thresholds)
        cut_by = None if cuts is None else owner.astype(np.int32)
        effects = effects if effects is not None and effects.any() else None
        shape = None if shapes[0] is None else np.array(shapes)[None]
        return PredictorDraws(
            eta, noise, spread, weights / weights.sum(), cuts, cut_by, effects, shape
        )

    def _rows(self, position: int, entity: str, index: Int32) -> RowDistributions:
        """Return rows of one entity at a draw: known rows, (q, D), or the distribution of an unknown
        or new row, (1, D).

        Either all rows in `index` are known, or all are one unknown or new row.
        """
        draw, first = self.run.draw(position), int(index[0])
        theta = draw.theta[entity]
        if 0 <= first < len(theta):
            known = theta[index].astype(np.float64)
            noise = draw.inverse_scale[entity][index].astype(np.float64)
            return RowDistributions(known, np.zeros((1, known.shape[1], known.shape[1])), noise)
        if first < 0:
            prior = draw.unseen[entity]
            return RowDistributions(prior.mean[None], prior.covariance[None], np.ones(1))
        assert self.newcomers is not None
        return self.newcomers.rows(position, np.array([first - len(theta)]))

    def _thresholds(self, position: int, users: Int32) -> Float64 | None:
        """Return the thresholds of users at a draw, (m, R - 1); None if ratings are not ordinal.

        Unknown users get the shared thresholds; so do all users if the model has no thresholds per
        user.
        """
        draw = self.run.draw(position)
        if draw.thresholds is None:
            return None
        thresholds = np.tile(draw.thresholds, (len(users), 1))
        if draw.user_thresholds is not None:
            first = len(draw.user_thresholds)
            known, new = (users >= 0) & (users < first), users >= first
            thresholds[known] = draw.user_thresholds[users[known]]
            if self.newcomers is not None and new.any():
                thresholds[new] = self.newcomers.rows(
                    position, users[new].astype(np.intp) - first
                ).cuts
        return thresholds

    def _join(self, user: RowDistributions, item: RowDistributions) -> tuple[Float64, Float64]:
        """Return the mean and variance of the predictor of pairs whose rows are independent."""
        k, biases = self.run.config.rank, self.run.config.biases
        centre = (user.mean[:, :k] * item.mean[:, :k]).sum(axis=1)
        spread = (user.covariance[0, :k, :k] * item.covariance[0, :k, :k]).sum()
        if biases:
            centre = centre + user.mean[:, k] + item.mean[:, k]
        for side, other in ((user, item), (item, user)):
            across = other.mean.copy()
            if biases:
                across[:, k] = 1.0
            spread = spread + ((across @ side.covariance[0]) * across).sum(axis=1)
        return centre, spread


def _grouped(users: Int32, items: Int32) -> list[Array]:
    """Group pairs with the same user and item, where `_KNOWN` replaces every user and item that the
    run knows.

    Returns the positions of the pairs in every group; pairs of a known user and a known item are in
    no group.
    """
    new = np.flatnonzero((users != _KNOWN) | (items != _KNOWN))
    if not len(new):
        return []
    order = new[np.lexsort((items[new], users[new]))]
    change = np.any(np.diff([users[order], items[order]]) != 0, axis=0)
    return np.split(order, np.flatnonzero(change) + 1)


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
        Treatment of unknown users and items: raise an error that names the first five, or predict
        from the prior.
    columns : dict of "user" and "item" to str, optional
        Columns of users and items, by name or position from 1; detected by default.

    Returns
    -------
    dict
        ``pairs``, the number of pairs, and ``unknown``, the number of pairs with an unknown user or
        item.

    Raises
    ------
    InputError
        If an argument is invalid; then no file is written.
    """
    from dsgmcmc.data.pairs import chunks, load_pairs
    from dsgmcmc.data.results import append_results, output_format, write_query
    from dsgmcmc.data.session import identifier, interruptible, open_session

    output_format(out)
    if out is not None and out.resolve() == pairs.resolve():
        raise InputError(f"{out} is the input; give another name for the output")
    predictor = Predictor(run, options)
    integers = run.users.integers, run.items.integers
    with open_session(out.parent if out else Path(tempfile.gettempdir())) as db:

        def work() -> dict[str, int]:
            table = load_pairs(db, pairs, columns or {})
            if clashing := {name.lower() for name in table.columns} & set(predictor.names):
                has = f"has a column {min(clashing)!r}, the name of a predicted column"
                raise InputError(f"{table.file.path} {has}: rename it")
            if unknown == "refuse" and (
                names := _describe_unknown(chunks(db, table, integers), predictor)
            ):
                advice = f"Take them out, or predict them with --unknown prior{table.hint}"
                raise InputError(f"{table.file.path}: {names}. {advice}")
            counts = {"pairs": 0, "unknown": 0}
            for chunk in chunks(db, table, integers):
                users, items = (
                    predictor.index_of(entity, ids)
                    for entity, ids in zip(ENTITIES, chunk, strict=True)
                )
                known = users >= 0, items >= 0
                is_unnamed = not (counts["pairs"] or columns or table.file.header)
                if is_unnamed and np.any(known) and not (known[0][0] or known[1][0]):
                    names = ", ".join(str(ids[0]) for ids in chunk)
                    found = (
                        f"the run knows neither name in line 1 ({names}), but names in other lines"
                    )
                    advice = f"{table.hint.strip()}; if it is a pair, give --columns user=1,item=2"
                    raise InputError(f"{table.file.path}: {found}. {advice}")
                append_results(db, predictor.columns(users, items))
                counts["pairs"] += len(users)
                counts["unknown"] += int(np.count_nonzero((users < 0) | (items < 0)))
            named = ", ".join(f"c{k} AS {identifier(name)}" for k, name in enumerate(table.columns))
            write_query(db, f"SELECT {named}, results.* FROM pairs POSITIONAL JOIN results", out)
            return counts

        return interruptible(db, work)


def _describe_unknown(chunks: Iterable[list[Array]], predictor: Predictor) -> str:
    """Return text with the first users and items that are unknown to the run; empty if there are
    none.
    """
    missing: dict[str, Counter[Any]] = {entity: Counter() for entity in ENTITIES}
    for chunk in chunks:
        for entity, ids in zip(ENTITIES, chunk, strict=True):
            missing[entity].update(ids[predictor.index_of(entity, ids) < 0].tolist())
    return "; ".join(
        str(unknown_names(entity, list(names))) for entity, names in missing.items() if names
    )
