"""Predictors of all pairs of some users and some items at one draw, by products of matrices.

`dsgmcmc.posterior.cells.predict` predicts single pairs at all draws. Here a block of a matrix has
its predictors at one draw. Rows that are part of the draw are known. Users and items without
ratings have their prior at the draw; users (or items) that were folded in have their distribution
at the draw. These rows have a mean and a covariance, or are drawn from their distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from dsgmcmc.model.predictive.base import PredictorDraws
from dsgmcmc.posterior.rows.added import FoldIn
from dsgmcmc.posterior.run import Run
from dsgmcmc.targets.state import RandomStream
from dsgmcmc.types import Array, Float32, Float64, Int32, Int64, Purpose

#: First part of the random numbers of rows, and of columns, that are not in the run.
NEW_ROWS = 1 << 32
NEW_COLUMNS = 1 << 33


class RowsAtDraw(NamedTuple):
    """Rows of users or items at a draw.

    Attributes
    ----------
    mean : (n, D) float32
    noise : (n,) float32
        1 / g of each row.
    uncertain : (m,) int64
        Positions of the rows that are not part of the draw.
    covariance : (m, D, D) float64
        Covariances of these rows.
    parameters : (n, m) float64 or None
        Parameters of the likelihood for each row, if rows have their own.
    """

    mean: Float32
    noise: Float32
    uncertain: Int64
    covariance: Float64
    parameters: Float64 | None = None

    def drawn(self, generators: list[Generator]) -> RowsAtDraw:
        """Return rows without uncertainty, drawn by one generator each."""
        if not len(self.uncertain):
            return self
        values, vectors = np.linalg.eigh(self.covariance)
        normals = np.array([rng.standard_normal(self.mean.shape[1]) for rng in generators])
        scaled = np.sqrt(np.maximum(values, 0.0)) * normals
        mean = self.mean.copy()
        mean[self.uncertain] += np.einsum("nij,nj->ni", vectors, scaled)
        nobody = np.zeros(0, np.int64)
        return self._replace(mean=mean, uncertain=nobody, covariance=self.covariance[:0])


@dataclass(frozen=True)
class MatrixDraws:
    """Draws of a matrix with users as rows and items as columns.

    Attributes
    ----------
    run : Run
    newcomers : FoldIn or None
        Rows that were folded in; their indices follow those of the run's rows.
    items : (J,) int32
        Rows of the items in the run, -1 for items without ratings.
    """

    run: Run
    newcomers: FoldIn | None
    items: Int32

    def expected(self, position: int, users: Int32) -> PredictorDraws:
        """Return the predictors of a block at a saved draw, row by row.

        Parameters
        ----------
        position : int
            Position of the draw in `Run.draws`.
        users : (n,) int32
            Indices of users, -1 for users without ratings.
        """
        of_users = self._rows(position, "user", users)
        of_items = self._rows(position, "item", self.items)
        return self._predictors(position, users, of_users=of_users, of_items=of_items)

    def drawn(self, position: int, users: Int32, first: int, number: int) -> PredictorDraws:
        """Return the predictors of a block if rows that are not part of the draw are drawn.

        Parameters
        ----------
        first : int
            Position of the first user in the matrix.
        number : int
            Number of the matrix that is drawn, from 0.
        """
        of_users = self._rows(position, "user", users)
        of_items = self._rows(position, "item", self.items)
        parts = self._parts(users, first)[of_users.uncertain]
        of_users = of_users.drawn([self.generator(number, part) for part in parts.tolist()])
        parts = NEW_COLUMNS + of_items.uncertain
        of_items = of_items.drawn([self.generator(number, part) for part in parts.tolist()])
        return self._predictors(position, users, of_users=of_users, of_items=of_items)

    def uniforms(self, users: Int32, first: int, number: int) -> Float64:
        """Return uniform random numbers of a block's cells, (n, J) in (0, 1).

        Those of a user and an item of the run depend only on the two and on `number`.
        """
        width = len(self.run.items) + len(self.items)
        places = np.where(
            self.items >= 0, self.items, len(self.run.items) + np.arange(len(self.items))
        )
        uniforms = np.empty((len(users), len(self.items)))
        for row, part in enumerate(self._parts(users, first).tolist()):
            # the row itself may have been drawn by the same generator before
            rng = self.generator(number, part, cells=True)
            uniforms[row] = rng.random(width)[places]
        return np.maximum(uniforms, 2.0**-54, out=uniforms)

    def generator(self, number: int, part: int, *, cells: bool = False) -> Generator:
        """Return the generator of a row of the matrix `number`: of its cells, or of the row."""
        stream = RandomStream(self.run.config.seed, chain=int(cells), iteration=number)
        return stream.generator(Purpose.IMPUTATION, part)

    def _parts(self, users: Int32, first: int) -> Int64:
        """Return what addresses the random numbers of each row of a block."""
        in_matrix = NEW_ROWS + first + np.arange(len(users))
        known = (users >= 0) & (users < len(self.run.users))
        return np.where(known, users, in_matrix)

    def _rows(self, position: int, entity: str, index: Int32) -> RowsAtDraw:
        """Return rows of one entity at a draw."""
        draw = self.run.draw(position)
        theta = draw.theta[entity]
        known = (index >= 0) & (index < len(theta))
        stored = np.where(known, index, 0)
        mean = theta[stored]
        noise = draw.inverse_scale[entity][stored]
        parameters = self._own_parameters(position, entity, stored)
        uncertain = np.flatnonzero(~known)
        width = theta.shape[1]
        covariance = np.empty((len(uncertain), width, width))
        unknown = index[uncertain] < 0
        if unknown.any():
            prior = draw.unseen[entity]
            mean[uncertain[unknown]] = prior.mean
            noise[uncertain[unknown]] = 1.0
            covariance[unknown] = prior.covariance
            if parameters is not None:
                parameters[uncertain[unknown]] = self.run.config.law.parameters_of(draw.shared)
        folded = ~unknown
        if folded.any():
            assert self.newcomers is not None
            chosen = index[uncertain[folded]].astype(np.int64) - len(theta)
            rows = self.newcomers.rows(position, chosen)
            mean[uncertain[folded]] = rows.mean
            noise[uncertain[folded]] = rows.noise
            covariance[folded] = rows.covariance
            if parameters is not None:
                parameters[uncertain[folded]] = rows.parameters
        return RowsAtDraw(mean, noise, uncertain, covariance, parameters)

    def _own_parameters(self, position: int, entity: str, rows: Array) -> Float64 | None:
        """Return the likelihood's parameters for known rows at a draw, if rows have their own."""
        own = self.run.draw(position).own_parameters(self.run.config.law, entity)
        if own is None:
            return None
        return own[rows].astype(np.float64)

    def _predictors(
        self, position: int, users: Int32, *, of_users: RowsAtDraw, of_items: RowsAtDraw
    ) -> PredictorDraws:
        """Return the predictors of all pairs of users and items."""
        run = self.run
        draw = run.draw(position)
        shape = (len(of_users.mean), len(of_items.mean))
        eta = self._products(of_users, of_items)
        spread = self._spread(of_users, of_items)
        effects = None
        if run.has_effects:
            added, variance = draw.of_ratings(
                np.repeat(users, shape[1]).astype(np.int32), np.tile(self.items, shape[0])
            )
            eta += np.broadcast_to(np.asarray(added, np.float32).reshape(-1), eta.size).reshape(
                shape
            )
            effects = np.broadcast_to(np.asarray(variance, np.float32), eta.size).reshape(-1, 1)
        parameters = draw.one_set(run.config.law)
        owner = None
        if of_users.parameters is not None:
            parameters = of_users.parameters[np.newaxis]
            owner = np.repeat(np.arange(shape[0], dtype=np.int32), shape[1])
        if of_items.parameters is not None:
            parameters = of_items.parameters[np.newaxis]
            owner = np.tile(np.arange(shape[1], dtype=np.int32), shape[0])
        noise = np.outer(of_users.noise / np.float32(draw.tau), of_items.noise)
        return PredictorDraws(
            eta=eta.reshape(-1, 1),
            noise=noise.astype(np.float32, copy=False).reshape(-1, 1),
            spread=spread.reshape(-1, 1),
            weights=np.ones(1),
            parameters=parameters,
            owner=owner,
            effects=effects,
        )

    def _products(self, of_users: RowsAtDraw, of_items: RowsAtDraw) -> Float32:
        """Return the mean predictors of all pairs, (n, J)."""
        rank = self.run.config.rank
        eta: Float32 = of_users.mean[:, :rank] @ of_items.mean[:, :rank].T
        if self.run.config.biases:
            eta += of_users.mean[:, rank, np.newaxis]
            eta += of_items.mean[:, rank]
        return eta

    def _spread(self, of_users: RowsAtDraw, of_items: RowsAtDraw) -> Float32:
        """Return the variances of the predictors of all pairs, (n, J)."""
        rank = self.run.config.rank
        spread = np.zeros((len(of_users.mean), len(of_items.mean)), np.float32)
        if len(of_users.uncertain):
            across = self._covariates(of_items)
            for k, row in enumerate(of_users.uncertain.tolist()):
                spread[row] += ((across @ of_users.covariance[k]) * across).sum(axis=1)
        if len(of_items.uncertain):
            across = self._covariates(of_users)
            for k, column in enumerate(of_items.uncertain.tolist()):
                spread[:, column] += ((across @ of_items.covariance[k]) * across).sum(axis=1)
        if len(of_users.uncertain) and len(of_items.uncertain):
            both = np.einsum(
                "nij,mij->nm",
                of_users.covariance[:, :rank, :rank],
                of_items.covariance[:, :rank, :rank],
            )
            spread[np.ix_(of_users.uncertain, of_items.uncertain)] += both
        return spread

    def _covariates(self, rows: RowsAtDraw) -> Float64:
        """Return what the rows of the other side are multiplied by: the factors, and ones."""
        covariates = rows.mean.astype(np.float64)
        if self.run.config.biases:
            covariates[:, self.run.config.rank] = 1.0
        return covariates
