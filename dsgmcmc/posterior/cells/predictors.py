r"""Predictors of pairs of users and items at saved draws.

If both rows of a pair were sampled, its predictor at a draw is a number. A row that was not sampled
has a distribution given a draw: its prior, if nothing is known of it, or what follows from its
features or its ratings. With independent rows u and v of means m and n and covariances S and T, the
predictor u . v has the mean m . n and the variance tr(S T) + n' S n + m' T m.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dsgmcmc.kernels.prediction import PairedRows, cells_kernel, join_rows
from dsgmcmc.model.predictive.base import PredictorDraws
from dsgmcmc.posterior.draw_batch import DrawBatch
from dsgmcmc.posterior.draws import ENTITIES, RowsAtDraw
from dsgmcmc.posterior.rows.added import FoldIn
from dsgmcmc.posterior.rows.rows import Rows
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Int32, Int64


class RowsOfPairs(NamedTuple):
    """Rows on one side of some pairs: the distinct indices, ascending, and that of each pair."""

    distinct: Int32
    of_pair: Int64

    @classmethod
    def of(cls, index: Int32) -> RowsOfPairs:
        """Return the rows of pairs with these indices, (p,)."""
        distinct, of_pair = np.unique(index, return_inverse=True)
        return cls(distinct, of_pair.astype(np.int64))

    def paired(self, rows: RowsAtDraw) -> PairedRows:
        """Return the distinct rows at a draw, and those of the pairs."""
        mean = rows.mean.astype(np.float64)
        return PairedRows(self.of_pair, mean, rows.spread_of, rows.covariance)


@dataclass(frozen=True)
class _Pairs:
    """Pairs of users and items, by index.

    Attributes
    ----------
    known : dict of entity to (q,) int32
        Indices of rows that were sampled, -1 for others.
    new : (p,) int64
        Positions of the pairs of which at least one row was not sampled.
    of_new : dict of entity to RowsOfPairs
        Rows of these pairs, if there are any.
    owners : (n,) int32
        Rows with parameters of the likelihood; one stands for all if they share the parameters.
    owner : (q,) int32 or None
        Position of the owner of each pair among them; None if all share the parameters.
    """

    known: dict[str, Int32]
    new: Int64
    of_new: dict[str, RowsOfPairs]
    owners: Int32
    owner: Int32 | None


class Predictors:
    """Predictors of pairs of users and items.

    Parameters
    ----------
    run : Run
        A run with saved draws.
    added : FoldIn, optional
        New users (or items), whose indices follow the indices of the known users (or items).

    Attributes
    ----------
    rows : dict of entity to Rows
    """

    def __init__(self, run: Run, added: FoldIn | None = None) -> None:
        self._run = run
        self.rows = {entity: Rows(run, entity, added) for entity in ENTITIES}
        self._cells = cells_kernel(run.config.rank, run.config.biases)

    def at(
        self, users: Int32, items: Int32, positions: Sequence[int] | None = None
    ) -> PredictorDraws:
        """Return the predictors of pairs, (q,) by index, at all saved draws, or at some.

        `positions` are those of the draws in `Run.draws`.
        """
        run = self._run
        if positions is None:
            positions = range(len(run.draws))
        pairs = self._pairs({"user": users, "item": items})
        draws = self._allocated(pairs, positions)
        is_added_to = bool(pairs.of_new) or draws.effects is not None
        column = 0
        for batch in run.batches(positions):
            self._set_sampled(draws, column, batch, pairs)
            if is_added_to:
                for number in range(column, column + len(batch.tau)):
                    self._add_at(draws, number, positions[number], pairs)
            column += len(batch.tau)
        if draws.effects is not None and not draws.effects.any():
            return draws._replace(effects=None)
        return draws

    def _pairs(self, index: dict[str, Int32]) -> _Pairs:
        """Return pairs, given the indices of their users and items."""
        known = {}
        for entity, rows in index.items():
            known[entity] = np.where(self.rows[entity].are_sampled(rows), rows, np.int32(-1))
        new = np.flatnonzero((known["user"] < 0) | (known["item"] < 0))
        of_new = {}
        if len(new):
            of_new = {entity: RowsOfPairs.of(rows[new]) for entity, rows in index.items()}
        owners = np.zeros(1, np.int32)
        owner = None
        if self._run.parameter_owner is not None:
            owners, of_pair = np.unique(index[self._run.parameter_owner], return_inverse=True)
            owner = of_pair.astype(np.int32)
        return _Pairs(
            known=known,
            new=new,
            of_new=of_new,
            owners=owners,
            owner=owner,
        )

    def _allocated(self, pairs: _Pairs, positions: Sequence[int]) -> PredictorDraws:
        """Return predictors that are to be set."""
        run = self._run
        shape = (len(pairs.known["user"]), len(positions))
        effects = None
        if run.has_effects:
            effects = np.zeros(shape, np.float32)
        parameters = None
        shared = run.config.law.parameters_of(run.draw(positions[0]).shared)
        if shared is not None:
            parameters = np.empty((len(positions), len(pairs.owners), len(shared)))
        weights = run.draw_weights[list(positions)]
        return PredictorDraws(
            eta=np.empty(shape, np.float32),
            noise=np.empty(shape, np.float32),
            spread=np.zeros(shape, np.float32),
            weights=weights / weights.sum(),
            parameters=parameters,
            owner=pairs.owner,
            effects=effects,
        )

    def _set_sampled(
        self, draws: PredictorDraws, column: int, batch: DrawBatch, pairs: _Pairs
    ) -> None:
        """Set the columns of a batch of draws, from `column` on, as if all rows were sampled."""
        self._cells(
            np.maximum(pairs.known["user"], 0),
            np.maximum(pairs.known["item"], 0),
            batch.theta["user"],
            batch.theta["item"],
            batch.inverse_scale["user"],
            batch.inverse_scale["item"],
            1 / batch.tau,
            column,
            draws.eta,
            draws.noise,
        )
        if draws.parameters is None:
            return
        of_batch = draws.parameters[column : column + len(batch.tau)]
        law = self._run.config.law
        entity = self._run.parameter_owner
        if entity is None:
            of_batch[:, 0] = batch.parameters(law)
            return
        own = batch.own_parameters(law, entity)
        assert own is not None
        sampled = self.rows[entity].are_sampled(pairs.owners)
        of_batch[:, sampled] = own[:, pairs.owners[sampled]]

    def _add_at(self, draws: PredictorDraws, column: int, position: int, pairs: _Pairs) -> None:
        """Set pairs with rows that were not sampled, and add effects, at one draw."""
        draw = self._run.draw(position)
        if pairs.of_new:
            rows = {}
            for entity, of_pairs in pairs.of_new.items():
                rows[entity] = self.rows[entity].at(position, of_pairs.distinct)
            of_users = pairs.of_new["user"].paired(rows["user"])
            of_items = pairs.of_new["item"].paired(rows["item"])
            mean, variance = join_rows(of_users, of_items, self._run.config.rank)
            scales = rows["user"].noise[of_users.of_pair] * rows["item"].noise[of_items.of_pair]
            draws.eta[:, column][pairs.new] = mean
            draws.spread[:, column][pairs.new] = variance
            draws.noise[:, column][pairs.new] = scales / draw.tau
            owner = self._run.parameter_owner
            if owner is not None:
                assert draws.parameters is not None
                owners = np.searchsorted(pairs.owners, pairs.of_new[owner].distinct)
                draws.parameters[column, owners] = rows[owner].parameters
        if draws.effects is not None:
            added, unknown = draw.of_ratings(pairs.known["user"], pairs.known["item"])
            draws.eta[:, column] += np.float32(added)
            draws.effects[:, column] = unknown
