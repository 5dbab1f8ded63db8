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
from typing import Any

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.prediction import cells_kernel
from dsgmcmc.model.limits import UNLIMITED
from dsgmcmc.model.predictive.base import Prediction, Predictive, PredictorDraws
from dsgmcmc.posterior.cells.unseen_pairs import NewRows, RowIndex, UnseenPairs
from dsgmcmc.posterior.draw_batch import DrawBatch
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.rows.added import FoldIn, index_with
from dsgmcmc.posterior.rows.by_parts import PartRows, name_features_of
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions
from dsgmcmc.types import Array, Float32, Float64, Int32, Int64

#: Pairs that are predicted at a time, so that the components fit in the cache.
BLOCK = 8192


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
        that does not exist (`dsgmcmc.model.log_scale`), and, if requested, ``at_least_4`` and
        ``p_1, p_2`` of levels.

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
        self._index = {entity: self._row_index(entity) for entity in ENTITIES}
        self._summary = self._summary_columns()
        self.names = [name for name in self._summary if name]
        self._probabilities = self._probability_columns()
        self.names += self._probabilities
        self._cells = cells_kernel(run.config.rank, run.config.biases)
        self.limits = UNLIMITED
        if options.clip:
            self.limits = run.limits

    def _row_index(self, entity: str) -> RowIndex:
        """Return what the indices of users or items mean."""
        known = len(self.run.vocabulary(entity))
        first_part_row = known
        if self.newcomers is not None and self.newcomers.entity == entity:
            first_part_row += len(self.newcomers.vocabulary)
        part_rows = None
        features = name_features_of(self.run, entity)
        if features is not None:
            part_rows = PartRows(self.run, entity, features)
        return RowIndex(known, first_part_row, part_rows)

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
        _, first_part_row, part_rows = self._index[entity]
        if part_rows is not None and len(missing):
            positions = part_rows.index_of(names[missing])
            first = np.int32(first_part_row)
            index[missing] = np.where(positions >= 0, positions + first, positions)
        return index

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
        known_users = np.where(self._index["user"].is_new(users), np.int32(-1), users)
        known_items = np.where(self._index["item"].is_new(items), np.int32(-1), items)
        unseen = UnseenPairs.create(users, items, index=self._index, rank=run.config.rank)
        eta = np.empty((len(users), len(positions)), np.float32)
        noise = np.empty_like(eta)
        spread = np.zeros_like(eta)
        effects = np.zeros_like(eta) if run.has_effects else None
        owners, owner = self._owners(users, items)
        folded = self._folded(users, items)
        is_added_to = len(folded) > 0 or unseen is not None or effects is not None
        parameters = []
        column = 0
        for batch in run.batches(positions):
            self._cells(
                np.maximum(known_users, 0),
                np.maximum(known_items, 0),
                batch.theta["user"],
                batch.theta["item"],
                batch.inverse_scale["user"],
                batch.inverse_scale["item"],
                1 / batch.tau,
                column,
                eta,
                noise,
            )
            of_batch = self._parameters(batch, owners)
            numbers = range(0)
            if is_added_to:
                numbers = range(len(batch.tau))
            for number in numbers:
                position = positions[column + number]
                new = self._folded_rows(position, folded)
                if new is not None and of_batch is not None:
                    self._set_folded(of_batch[number], owners, new)
                if unseen is not None:
                    predictors = unseen.at(position, run.draw(position), new)
                    eta[unseen.pairs, column + number] = predictors.mean
                    spread[unseen.pairs, column + number] = predictors.variance
                    noise[unseen.pairs, column + number] = predictors.noise / batch.tau[number]
                if effects is not None:
                    draw = run.draw(position)
                    added, effects[:, column + number] = draw.of_ratings(known_users, known_items)
                    eta[:, column + number] += np.float32(added)
            column += len(batch.tau)
            if of_batch is not None:
                parameters.append(of_batch)
        weights = run.draw_weights[list(positions)]
        has_effects = effects is not None and effects.any()
        return PredictorDraws(
            eta=eta,
            noise=noise,
            spread=spread,
            weights=weights / weights.sum(),
            parameters=np.concatenate(parameters) if parameters else None,
            owner=owner,
            effects=effects if has_effects else None,
        )

    def _owners(self, users: Int32, items: Int32) -> tuple[Int32, Int32 | None]:
        """Return users (or items) with parameters of their own, (n,), and that of each pair, (q,).

        If all share the parameters, one stands for all, and pairs have none.
        """
        entity = self.run.parameter_owner
        if entity is None:
            return np.zeros(1, np.int32), None
        rows = {"user": users, "item": items}[entity]
        owners, owner = np.unique(rows, return_inverse=True)
        return owners, owner.astype(np.int32)

    def _folded(self, users: Int32, items: Int32) -> Int64:
        """Return the rows among users or items that were folded in, by their positions there."""
        if self.newcomers is None:
            return np.zeros(0, np.int64)
        entity = self.newcomers.entity
        index = np.unique({"user": users, "item": items}[entity]).astype(np.int64)
        rows = self._index[entity]
        return index[rows.is_folded(index)] - rows.known

    def _folded_rows(self, position: int, folded: Int64) -> NewRows | None:
        """Return the distributions of rows that were folded in at a draw; None if there are none.

        The draw is at `position` in `Run.draws`.
        """
        if self.newcomers is None or not len(folded):
            return None
        return NewRows(folded, self.newcomers.rows(position, folded))

    def _parameters(self, batch: DrawBatch, owners: Int32) -> Float64 | None:
        """Return the likelihood's parameters for users (or items), (draws, n, m).

        None if it has none. Rows that were not sampled get the shared parameters; so do all if the
        model has no others.
        """
        law = self.run.config.law
        shared = batch.parameters(law)
        if shared is None:
            return None
        parameters = np.repeat(shared[:, np.newaxis], len(owners), axis=1)
        entity = self.run.parameter_owner
        if entity is not None:
            own = batch.own_parameters(law, entity)
            assert own is not None
            known = ~self._index[entity].is_new(owners)
            parameters[:, known] = own[:, owners[known]]
        return parameters

    def _set_folded(self, parameters: Float64, owners: Int32, new: NewRows) -> None:
        """Set the parameters of rows that were folded in, among those of `owners`, (n, m)."""
        entity = self.run.parameter_owner
        if entity is None:
            return
        rows = self._index[entity]
        folded = rows.is_folded(owners)
        if folded.any():
            parameters[folded] = new.at(owners[folded].astype(np.int64) - rows.known).parameters
