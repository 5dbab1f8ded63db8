"""Draws of matrices: predictors of all pairs of some users and some items at one draw.

`dsgmcmc.posterior.cells.predictors` has single pairs at all draws. Here, a block of a matrix has
its predictors by one product of matrices, and rows that are not part of the draw are drawn from
their distribution at the draw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from dsgmcmc.model.predictive.base import PredictorDraws
from dsgmcmc.posterior.rows.rows import Rows
from dsgmcmc.posterior.run import Run
from dsgmcmc.targets.state import RandomStream
from dsgmcmc.types import Float32, Float64, Int32, Int64, Purpose

#: First part of the random numbers of rows, and of columns, that are not in the run.
NEW_ROWS = 1 << 32
NEW_COLUMNS = 1 << 33


@dataclass(frozen=True)
class MatrixDraws:
    """Draws of a matrix with users as rows and items as columns.

    Attributes
    ----------
    run : Run
    rows : dict of entity to Rows
    items : (J,) int32
        Rows of the items in the run, -1 for items without ratings.
    """

    run: Run
    rows: Mapping[str, Rows]
    items: Int32

    def drawn(self, position: int, users: Int32, first: int, number: int) -> PredictorDraws:
        """Return the predictors of a block at a saved draw, row by row.

        Rows that are not part of the draw are drawn.

        Parameters
        ----------
        position : int
            Position of the draw in `Run.draws`.
        users : (n,) int32
            Indices of users, -1 for users without ratings.
        first : int
            Position of the first user in the matrix.
        number : int
            Number of the matrix that is drawn, from 0.
        """
        run = self.run
        law = run.config.law
        draw = run.draw(position)
        of_users = self.rows["user"].at(position, users)
        of_items = self.rows["item"].at(position, self.items)
        parts = self._parts(users, first)[of_users.uncertain]
        user_rows = of_users.drawn([self.generator(number, part) for part in parts.tolist()])
        parts = NEW_COLUMNS + of_items.uncertain
        item_rows = of_items.drawn([self.generator(number, part) for part in parts.tolist()])
        n_users = len(user_rows)
        n_items = len(item_rows)
        eta = self._products(user_rows, item_rows).reshape(-1, 1)
        user_noise = of_users.noise.astype(np.float32) / np.float32(draw.tau)
        noise = np.outer(user_noise, of_items.noise.astype(np.float32)).reshape(-1, 1)
        effects = None
        if run.has_effects:
            pairs = (np.repeat(users, n_items), np.tile(self.items, n_users))
            added, variance = draw.of_ratings(*pairs)
            eta[:, 0] += np.float32(added)
            effects = np.broadcast_to(np.float32(variance), n_users * n_items).reshape(-1, 1)
        parameters = draw.one_set(law)
        owner = None
        if of_users.parameters is not None:
            parameters = of_users.parameters[np.newaxis]
            owner = np.repeat(np.arange(n_users, dtype=np.int32), n_items)
        if of_items.parameters is not None:
            parameters = of_items.parameters[np.newaxis]
            owner = np.tile(np.arange(n_items, dtype=np.int32), n_users)
        return PredictorDraws(
            eta=eta,
            noise=noise,
            spread=np.zeros_like(eta),
            weights=np.ones(1),
            parameters=parameters,
            owner=owner,
            effects=effects,
        )

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
        return np.where(self.rows["user"].are_sampled(users), users, in_matrix)

    def _products(self, users: Float32, items: Float32) -> Float32:
        """Return the predictors of all pairs of rows, (n, J)."""
        rank = self.run.config.rank
        eta: Float32 = users[:, :rank] @ items[:, :rank].T
        if self.run.config.biases:
            eta += users[:, rank, np.newaxis]
            eta += items[:, rank]
        return eta
