r"""Predictive distributions of single ratings.

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

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.prediction import cells_kernel
from dsgmcmc.model.limits import UNLIMITED
from dsgmcmc.model.predictive.base import Prediction, Predictive, PredictorDraws
from dsgmcmc.posterior.draws import ENTITIES, RowDistributions
from dsgmcmc.posterior.newcomers import FoldIn, index_with
from dsgmcmc.posterior.part_rows import PartRows, name_features_of
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions
from dsgmcmc.types import Array, Float32, Float64, Int32, Int64

#: Pairs that are predicted at a time, so that the components fit in the cache.
BLOCK = 8192
#: Stands for any user or item that the run knows.
_KNOWN = np.int32(-2)


class NewRows(NamedTuple):
    """Distributions of rows that were folded in, at one draw.

    Attributes
    ----------
    positions : (n,) int64
        Positions of the rows in the vocabulary of `FoldIn`, ascending.
    rows : RowDistributions
    """

    positions: Int64
    rows: RowDistributions

    def at(self, positions: Int64) -> RowDistributions:
        """Return the distributions of the rows at some positions."""
        return self.rows.at(np.searchsorted(self.positions, positions))


class Predictor:
    """Predicts ratings of pairs of users and items, which are given by index.

    Parameters
    ----------
    run : Run
    options : PredictOptions
    newcomers : FoldIn, optional
        New users (or items), whose indices follow the indices of the known users (or items). The
        indices of those that are known by the parts of their names (`PartRows`) come last.

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
        self.run = run
        self.options = options
        self.newcomers = newcomers
        self._part_rows: dict[str, PartRows] = {}
        for entity in ENTITIES:
            features = name_features_of(run, entity)
            if features is not None:
                self._part_rows[entity] = PartRows(run, entity, features)
        self._summary = self._summary_columns()
        self.names = [name for name in self._summary if name]
        self._probabilities = self._probability_columns()
        self.names += self._probabilities
        self._cells = cells_kernel(run.config.rank, run.config.biases)
        self.limits = UNLIMITED
        if options.clip:
            self.limits = run.limits

    def _summary_columns(self) -> tuple[str, str | None, str, str]:
        """Return the names of mean, sd and quantiles; None for an sd that does not exist."""
        if self.options.of_mean or self.run.config.law.transform.point_name == "mean":
            return self.options.predicted_columns
        _, _, low, high = self.options.predicted_columns
        return "median", None, low, high

    def _probability_columns(self) -> list[str]:
        """Return the names of the requested probabilities."""
        run = self.run
        options = self.options
        if not run.config.law.can_be_evaluated and (
            options.at_least is not None or options.probabilities
        ):
            raise InputError(
                f"{run.path}: {run.config.likelihood} predicts scores, not ratings or their"
                " probabilities"
            )
        names = []
        if options.at_least is not None:
            names.append(f"at_least_{options.at_least:g}")
        if options.probabilities:
            if run.levels is None:
                raise InputError(
                    f"{run.path}: its ratings have no levels, so there are no probabilities of"
                    " levels"
                )
            for level in run.levels.astype(np.float32):
                names.append(f"p_{str(level).removesuffix('.0')}")
        return names

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
        """Return all predictions of pairs, each (q,) float32, by column name (`names`)."""
        columns = {name: np.empty(len(users), np.float32) for name in self.names}
        for rows, predictive in self.distributions(users, items):
            summary = predictive.summary(*self.options.levels)
            for name, values in zip(self._summary, summary, strict=True):
                if name == "sd":
                    columns[name][rows] = values
                elif name:
                    columns[name][rows] = self.limits.clip(values)
            probabilities = self._probabilities_of(predictive)
            for name, probability in zip(self._probabilities, probabilities, strict=True):
                columns[name][rows] = probability
        return columns

    def _probabilities_of(self, predictive: Predictive) -> list[Float64]:
        """Return the requested probabilities, (q,) each."""
        probabilities = []
        if self.options.at_least is not None:
            probabilities.append(predictive.at_least(self.options.at_least))
        if self.options.probabilities:
            probabilities += [*predictive.probabilities().T]
        return probabilities

    def probabilities(self, users: Int32, items: Int32) -> Float32:
        """Return the requested probabilities of pairs, (q, m) float32.

        They are that of a rating of at least the bound, and that of every level.
        """
        columns = self.columns(users, items)
        return np.stack([columns[name] for name in self._probabilities], axis=1)

    def index_of(self, entity: str, names: Any) -> Int32:
        """Return indices of users or items by name.

        -1 for names that are neither in the run nor folded in, nor known by all their parts.
        """
        vocabulary = self.run.vocabulary(entity)
        names = vocabulary.typed(names)
        index = index_with(vocabulary, names, self.newcomers)
        missing = np.flatnonzero(index < 0)
        if entity in self._part_rows and len(missing):
            positions = self._part_rows[entity].index_of(names[missing])
            first = np.int32(self._first_part_row(entity))
            index[missing] = np.where(positions >= 0, positions + first, positions)
        return index

    def _first_part_row(self, entity: str) -> int:
        """Return the index of the first row that is known by the parts of its name."""
        first = len(self.run.vocabulary(entity))
        if self.newcomers is not None and self.newcomers.entity == entity:
            first += len(self.newcomers.vocabulary)
        return first

    def distributions(
        self,
        users: Int32,
        items: Int32,
        positions: Sequence[int] | None = None,
        weights: Float64 | None = None,
    ) -> Iterator[tuple[Array, Predictive]]:
        """Yield row numbers of pairs and their predictive distributions, in batches.

        `weights`, (q,), are the relative precisions of the ratings, by default those of average
        ratings. Other parameters are as for `draws`.
        """
        users = np.ascontiguousarray(users, np.int32)
        items = np.ascontiguousarray(items, np.int32)
        law = self.run.config.law
        make = law.expectation if self.options.of_mean else law.predictive
        order = np.arange(len(users))
        if self.newcomers is not None:  # pairs of a new row come together, so it is computed once
            by_entity = {"user": users, "item": items}
            order = np.argsort(by_entity[self.newcomers.entity], kind="stable")
        for start in range(0, len(users), BLOCK):
            part = order[start : start + BLOCK]
            of_pairs = self.draws(users[part], items[part], positions)
            if weights is not None:
                inverse: Float32 = (1 / weights[part, None]).astype(np.float32)
                of_pairs = of_pairs._replace(noise=of_pairs.noise * inverse)
            for rows, draws in of_pairs.by_certainty():
                yield part[rows], make(draws, self.run.mean, self.run.levels)

    # ------------------------------------------------------------------ draws of the predictors

    def draws(
        self, users: Int32, items: Int32, positions: Sequence[int] | None = None
    ) -> PredictorDraws:
        """Return draws of the predictors of pairs.

        At all saved draws, or at `positions` in `Run.draws`.
        """
        run = self.run
        if positions is None:
            positions = range(len(run.draws))
        new_user = (users < 0) | (users >= len(run.users))
        new_item = (items < 0) | (items >= len(run.items))
        known_users = np.where(new_user, np.int32(-1), users)
        known_items = np.where(new_item, np.int32(-1), items)
        # rows that are known by the parts of their names are computed together
        one_user = np.minimum(users, self._first_part_row("user")).astype(np.int32)
        one_item = np.minimum(items, self._first_part_row("item")).astype(np.int32)
        unseen = _grouped(
            np.where(new_user, one_user, _KNOWN), np.where(new_item, one_item, _KNOWN)
        )
        eta = np.empty((len(users), len(positions)), np.float32)
        noise = np.empty_like(eta)
        spread = np.zeros_like(eta)
        effects = np.zeros_like(eta) if run.has_effects else None
        owners, owner = self._owners_of_thresholds(users, items)
        folded = self._folded(users, items)
        thresholds = []
        shapes = []
        for column, position in enumerate(positions):
            draw = run.draw(position)
            new = None
            if self.newcomers is not None:
                new = NewRows(folded, self.newcomers.rows(position, folded))
            self._cells(
                np.maximum(known_users, 0),
                np.maximum(known_items, 0),
                draw.theta["user"],
                draw.theta["item"],
                draw.inverse_scale["user"],
                draw.inverse_scale["item"],
                1 / draw.tau,
                column,
                eta,
                noise,
            )
            for pairs in unseen:
                user = self._rows(position, "user", users[pairs], new)
                item = self._rows(position, "item", items[pairs], new)
                eta[pairs, column], spread[pairs, column] = self._join(user, item)
                noise[pairs, column] = user.noise * item.noise / draw.tau
            if effects is not None:
                added, effects[:, column] = draw.of_ratings(known_users, known_items)
                eta[:, column] += np.float32(added)
            thresholds.append(self._thresholds(position, owners, new))
            shapes.append(run.config.law.shape_of(draw.shared))
        weights = run.draw_weights[list(positions)]
        has_thresholds = thresholds[0] is not None
        has_effects = effects is not None and effects.any()
        return PredictorDraws(
            eta=eta,
            noise=noise,
            spread=spread,
            weights=weights / weights.sum(),
            thresholds=np.array(thresholds) if has_thresholds else None,
            owner=owner if has_thresholds else None,
            effects=effects if has_effects else None,
            shape=None if shapes[0] is None else np.array(shapes)[None],
        )

    def _owners_of_thresholds(self, users: Int32, items: Int32) -> tuple[Int32, Int32]:
        """Return users (or items) with thresholds of their own, (m,), and that of each pair, (q,).

        If all share thresholds, one stands for all.
        """
        if self.run.config.thresholds == "shared":
            return np.zeros(1, np.int32), np.zeros(len(users), np.int32)
        rows = {"user": users, "item": items}[self.run.config.thresholds]
        owners, owner = np.unique(rows, return_inverse=True)
        return owners, owner.astype(np.int32)

    def _folded(self, users: Int32, items: Int32) -> Int64:
        """Return the rows among users or items that were folded in, by their positions there."""
        if self.newcomers is None:
            return np.zeros(0, np.int64)
        entity = self.newcomers.entity
        index = np.unique({"user": users, "item": items}[entity]).astype(np.int64)
        known = len(self.run.vocabulary(entity))
        return index[(index >= known) & (index < self._first_part_row(entity))] - known

    def _rows(
        self, position: int, entity: str, index: Int32, new: NewRows | None
    ) -> RowDistributions:
        """Return rows of one entity at a draw; `new` has the new rows.

        Either all rows in `index` are known, or known by the parts of their names, and are returned
        as (q, D); or all are one unknown or new row, whose distribution is returned as (1, D).
        """
        draw = self.run.draw(position)
        theta = draw.theta[entity]
        first = int(index[0])
        if 0 <= first < len(theta):
            known = theta[index].astype(np.float64)
            width = known.shape[1]
            return RowDistributions(
                mean=known,
                covariance=np.zeros((1, width, width)),
                noise=draw.inverse_scale[entity][index].astype(np.float64),
            )
        if first < 0:
            prior = draw.unseen[entity]
            return RowDistributions(prior.mean[None], prior.covariance[None], np.ones(1))
        first_part_row = self._first_part_row(entity)
        if first >= first_part_row:
            return self._part_rows[entity].rows(position, index - first_part_row)
        assert new is not None
        return new.at(np.array([first - len(theta)]))

    def _thresholds(self, position: int, owners: Int32, new: NewRows | None) -> Float64 | None:
        """Return the thresholds of users (or items) at a draw, (m, R - 1).

        None if ratings are not ordinal. Unknown rows get the shared thresholds; so do all if the
        model has no others.
        """
        draw = self.run.draw(position)
        if draw.thresholds is None:
            return None
        thresholds = np.tile(draw.thresholds, (len(owners), 1))
        if self.run.config.thresholds == "shared":
            return thresholds
        entity = self.run.config.thresholds
        own = draw.thresholds_of(entity)
        assert own is not None
        first = len(own)
        known = (owners >= 0) & (owners < first)
        thresholds[known] = own[owners[known]]
        folded = (owners >= first) & (owners < self._first_part_row(entity))
        if new is not None and folded.any():
            thresholds[folded] = new.at(owners[folded].astype(np.int64) - first).cuts
        return thresholds

    def _join(self, user: RowDistributions, item: RowDistributions) -> tuple[Float64, Float64]:
        """Return the mean and variance of the predictor of pairs whose rows are independent."""
        k = self.run.config.rank
        biases = self.run.config.biases
        centre = (user.mean[:, :k] * item.mean[:, :k]).sum(axis=1)
        spread = (user.covariance[0, :k, :k] * item.covariance[0, :k, :k]).sum()
        if biases:
            centre = centre + user.mean[:, k] + item.mean[:, k]
        for rows, others in ((user, item), (item, user)):
            across = others.mean.copy()
            if biases:
                across[:, k] = 1.0
            spread = spread + ((across @ rows.covariance[0]) * across).sum(axis=1)
        return centre, spread


def _grouped(users: Int32, items: Int32) -> list[Array]:
    """Group pairs with the same user and item; return the positions of the pairs in every group.

    `_KNOWN` replaces every user and item that the run knows; pairs of two of them are in no group.
    """
    new = np.flatnonzero((users != _KNOWN) | (items != _KNOWN))
    if not len(new):
        return []
    order = new[np.lexsort((items[new], users[new]))]
    change = np.any(np.diff([users[order], items[order]]) != 0, axis=0)
    return np.split(order, np.flatnonzero(change) + 1)
