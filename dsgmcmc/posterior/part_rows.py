"""Rows of users or items that a run has not seen, from the parts of their names.

A run with the names (s1, d1) and (s2, d2) knows the station s1 and the day d2, so that it can
predict (s1, d2): the parts of names are features, and the row has the distribution of a new row
with features (`dsgmcmc.posterior.newcomers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dsgmcmc.data.encoding import Encoding
from dsgmcmc.errors import InputError, refusing
from dsgmcmc.posterior.draws import RowDistributions
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Array, Int32, Mask

if TYPE_CHECKING:  # slow to import
    from scipy.sparse import csr_matrix


class PartFeatures:
    """Features of users (or items) of a run from the parts of their names.

    Parameters
    ----------
    run : Run
    entity : {"user", "item"}
        It has features from the parts of its names (`part_features_of`).
    encoding : Encoding
        Encoding of all features of the entity.
    """

    def __init__(self, run: Run, entity: str, encoding: Encoding) -> None:
        self.vocabulary = run.vocabulary(entity)
        self._width = len(encoding.names)
        names = self.vocabulary.ids.tolist()
        self._values = [{name[k] for name in names} for k in range(len(self.vocabulary.parts))]
        self._features: list[dict[str, int]] = [{} for _ in self.vocabulary.parts]
        self._flags: dict[int, float] = {}
        first = 0
        for column in encoding.columns:
            if column.name in self.vocabulary.parts and column.kind == "category":
                part = self.vocabulary.parts.index(column.name)
                self._features[part] = {atom: first + k for k, atom in enumerate(column.atoms)}
            elif column.kind == "flag" and column.mean:
                self._flags[first] = column.mean  # not known of these rows
            first += len(column.features)

    def are_known(self, names: Array) -> Mask:
        """Return a mask of names of which the run knows every part, (n,)."""
        return np.array(
            [
                all(part in values for part, values in zip(name, self._values, strict=True))
                for name in names
            ],
            bool,
        )

    def matrix(self, names: Sequence[tuple[Any, ...]]) -> csr_matrix:
        """Return the features of names, (n, F) float64."""
        from scipy.sparse import csr_matrix  # slow to import

        rows: list[int] = []
        columns: list[int] = []
        values: list[float] = []
        for row, name in enumerate(names):
            found = dict(self._flags)
            for part, features in zip(name, self._features, strict=True):
                if str(part) in features:
                    found[features[str(part)]] = 1.0
            rows += [row] * len(found)
            columns += found.keys()
            values += found.values()
        return csr_matrix((values, (rows, columns)), shape=(len(names), self._width))

    def without_parts(self, encoding: Encoding) -> Encoding:
        """Return the encoding of the other features; raise InputError if there are none."""
        others = tuple(
            column for column in encoding.columns if column.name not in self.vocabulary.parts
        )
        if not others:
            entity = self.vocabulary.entity
            raise InputError(
                f"features of {entity}s are given, but the run has only those of the parts of their"
                " names, which it finds in the names: leave them out"
            )
        return replace(encoding, columns=others)

    def with_parts(self, others: csr_matrix, names: Sequence[tuple[Any, ...]]) -> csr_matrix:
        """Return other features (n, F'), followed by those of the parts of names."""
        from scipy.sparse import hstack  # slow to import

        return hstack([others, self.matrix(names)[:, others.shape[1] :]], "csr")

    def by_name(self, names: Sequence[tuple[Any, ...]]) -> dict[Any, csr_matrix]:
        """Return the features of names, (1, F) each."""
        return dict(zip(names, self.matrix(names), strict=True))


def part_features_of(run: Run, entity: str) -> PartFeatures | None:
    """Return the features from the parts of names; None if the model has none."""
    vocabulary = run.vocabulary(entity)
    if not vocabulary.parts or not run.feature_names(entity):
        return None
    with refusing(f"{run.path} has features of {entity}s that cannot be read", ValueError):
        encoding = Encoding.parse(run.index.encoding(entity)[0])
    if not any(column.name in vocabulary.parts for column in encoding.columns if column.features):
        return None
    return PartFeatures(run, entity, encoding)


class PartRows:
    """Users (or items) that the run has not seen, but of whose names it knows all parts.

    Names get positions, from 0, when they are first looked up.
    """

    def __init__(self, run: Run, entity: str, features: PartFeatures) -> None:
        self._run = run
        self._entity = entity
        self._features = features
        self._position_of: dict[Any, int] = {}
        self._matrix = features.matrix([])

    def index_of(self, names: Array) -> Int32:
        """Return positions of names that the run has not seen, (n,); -1 for an unknown part."""
        from scipy.sparse import vstack  # slow to import

        known = names[self._features.are_known(names)]
        new = [name for name in dict.fromkeys(known.tolist()) if name not in self._position_of]
        if new:
            self._matrix = vstack([self._matrix, self._features.matrix(new)], "csr")
        for name in new:
            self._position_of[name] = len(self._position_of)
        return np.array([self._position_of.get(name, -1) for name in names.tolist()], np.int32)

    def rows(self, position: int, chosen: Array) -> RowDistributions:
        """Return the distributions of rows at a saved draw; they have one covariance, (1, D, D).

        Parameters
        ----------
        position : int
            Position of the draw in the run's `draws`.
        chosen : (q,) int
            Positions from `index_of`.
        """
        draw = self._run.draw(position)
        unseen = draw.unseen[self._entity]
        effects = draw.shared[f"{self._entity}.features.effects"]
        centre = self._run.index.encoding(self._entity)[1]
        return RowDistributions(
            mean=unseen.mean + self._matrix[chosen] @ effects - centre @ effects,
            covariance=unseen.covariance[None].astype(np.float64),
            noise=np.ones(len(chosen)),
        )
