"""Users or items of a run by index, sampled or not, and their rows at a saved draw.

The rows that were sampled come first, then those that were added with new ratings or features
(`dsgmcmc.posterior.rows.added`), then those whose names are features
(`dsgmcmc.posterior.rows.name_features`), in the order in which they were first looked up. The index
-1 stands for a row of which nothing is known, which has its prior.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dsgmcmc.posterior.draws import Draw, RowsAtDraw
from dsgmcmc.posterior.index import Names
from dsgmcmc.posterior.rows.added import FoldIn, feature_terms, index_with, rows_without_ratings
from dsgmcmc.posterior.rows.name_features import name_features_of
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Int32, Mask

if TYPE_CHECKING:  # slow to import
    from scipy.sparse import csr_matrix


class Rows:
    """Users or items of a run.

    Parameters
    ----------
    run : Run
        A run with saved draws.
    entity : {"user", "item"}
    added : FoldIn, optional
        Users or items with new ratings; those of the other entity do not matter.
    """

    def __init__(self, run: Run, entity: str, added: FoldIn | None = None) -> None:
        self._run = run
        self._entity = entity
        self._added = added
        self._n_sampled = len(run.vocabulary(entity))
        self._first_named = self._n_sampled
        if added is not None and added.entity == entity:
            self._first_named += len(added.vocabulary)
        self._features = name_features_of(run, entity)
        self._named: dict[Any, int] = {}
        self._matrix: csr_matrix | None = None  # features of the rows that are known by names
        if self._features is not None:
            self._matrix = self._features.matrix([])

    def index_of(self, names: Names) -> Int32:
        """Return indices of users or items by name, (n,); -1 for those of which nothing is known.

        Raises InputError if names have the wrong type.
        """
        vocabulary = self._run.vocabulary(self._entity)
        names = vocabulary.typed(names)
        index = index_with(vocabulary, names, self._added)
        missing = np.flatnonzero(index < 0)
        if self._features is not None and len(missing):
            known = missing[self._features.are_known(names[missing])]
            self._add_named(names[known].tolist())
            index[known] = [self._named[name] for name in names[known].tolist()]
        return index

    def _add_named(self, names: list[Any]) -> None:
        """Give indices to names that are features, as far as they have none."""
        from scipy.sparse import vstack  # slow to import

        new = [name for name in dict.fromkeys(names) if name not in self._named]
        if not new:
            return
        assert self._features is not None
        self._features.check_new(new)
        self._matrix = vstack([self._matrix, self._features.matrix(new)], "csr")
        for name in new:
            self._named[name] = self._first_named + len(self._named)

    def are_sampled(self, index: Int32) -> Mask:
        """Return which rows were sampled."""
        return (index >= 0) & (index < self._n_sampled)

    def at(self, position: int, index: Int32) -> RowsAtDraw:
        """Return rows, (n,) by index, at a saved draw, given its position in `Run.draws`."""
        named = index >= self._first_named
        added = (index >= self._n_sampled) & ~named
        among_added = index[added].astype(np.int64) - self._n_sampled
        if self._added is not None and len(index) and added.all():
            return self._added.rows(position, among_added)
        draw = self._run.draw(position)
        sampled = self.are_sampled(index)
        certain = sampled_rows(self._run, self._entity, draw, index[sampled])
        if sampled.all():
            return certain
        terms = np.zeros((len(index), certain.mean.shape[1]))
        if named.any():
            assert self._matrix is not None
            features = self._matrix[index[named] - self._first_named]
            terms[named] = feature_terms(self._run, draw, self._entity, features)
        rows = rows_without_ratings(self._run, self._entity, position, terms)
        rows = rows.with_rows(sampled, certain)
        if self._added is not None and len(among_added):
            rows = rows.with_rows(added, self._added.rows(position, among_added))
        return rows


def sampled_rows(run: Run, entity: str, draw: Draw, index: Int32) -> RowsAtDraw:
    """Return users (or items) that were sampled, (n,) by index, at a draw."""
    mean = draw.theta[entity][index]
    width = mean.shape[1]
    own = draw.own_parameters(run.config.law, entity)
    return RowsAtDraw(
        mean=mean,
        noise=draw.inverse_scale[entity][index],
        spread_of=np.full(len(index), -1),
        covariance=np.empty((0, width, width)),
        parameters=None if own is None else own[index].astype(np.float64),
    )
