"""Features of users or items that a run has not seen, from their names.

A run with the names (s1, d1) and (s2, d2) knows the station s1 and the day d2, so that it can
predict (s1, d2): the parts of names are features, and the row has the distribution of a new row
with features (`dsgmcmc.posterior.rows.added`). Names that are times are features, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from dsgmcmc.errors import InputError, refusing
from dsgmcmc.features.encoding import Encoding
from dsgmcmc.posterior.index import Vocabulary
from dsgmcmc.posterior.run import Run
from dsgmcmc.ratings.names import array_of
from dsgmcmc.types import Array, Mask

if TYPE_CHECKING:  # slow to import
    from scipy.sparse import csr_matrix


class NameFeatures(ABC):
    """Features of users (or items) of a run from their names."""

    @abstractmethod
    def are_known(self, names: Array) -> Mask:
        """Return a mask of names that have features, (n,)."""

    @abstractmethod
    def matrix(self, names: Sequence[Any]) -> csr_matrix:
        """Return the features of names, (n, F) float64."""

    @abstractmethod
    def check_new(self, names: Sequence[Any]) -> None:
        """Raise InputError if a new name means a user (or item) that the run knows."""

    @abstractmethod
    def without_names(self, encoding: Encoding) -> Encoding:
        """Return the encoding of the other features; raise InputError if there are none."""

    @abstractmethod
    def with_names(self, others: csr_matrix, names: Sequence[Any]) -> csr_matrix:
        """Return other features (n, F'), followed by those of names."""

    def by_name(self, names: Sequence[Any]) -> dict[Any, csr_matrix]:
        """Return the features of names, (1, F) each."""
        return dict(zip(names, self.matrix(names), strict=True))


class TimeFeatures(NameFeatures):
    """Features of users (or items) of a run whose names are times.

    Parameters
    ----------
    vocabulary : Vocabulary
        Names of the entity's users (or items) in the run.
    encoding : Encoding
        Encoding of all features of the entity.
    """

    def __init__(self, vocabulary: Vocabulary, encoding: Encoding) -> None:
        self._vocabulary = vocabulary
        self._entity = vocabulary.entity
        self._encoding = encoding

    @override
    def are_known(self, names: Array) -> Mask:
        from dsgmcmc.features.of_names import times_of_names  # loads DuckDB

        distinct = list(dict.fromkeys(names.tolist()))
        try:
            times = times_of_names(self._entity, array_of(distinct), self._encoding)
        except InputError:  # none is a time
            return np.zeros(len(names), bool)
        is_time = dict(zip(distinct, (~np.isnan(times)).tolist(), strict=True))
        return np.array([is_time[name] for name in names.tolist()], bool)

    @override
    def matrix(self, names: Sequence[Any]) -> csr_matrix:
        from scipy.sparse import csr_matrix  # slow to import

        from dsgmcmc.features.of_names import encode_names  # loads DuckDB

        if not len(names):
            return csr_matrix((0, len(self._encoding.names)))
        return encode_names(self._entity, array_of(names), self._encoding).matrix()

    @override
    def check_new(self, names: Sequence[Any]) -> None:
        from dsgmcmc.features.of_names import times_of_names  # loads DuckDB

        if not len(names):
            return
        times = times_of_names(self._entity, array_of(names), self._encoding)
        for name, time in zip(names, times.tolist(), strict=True):
            known = self._name_at.get(time)
            if known is not None:
                raise InputError(
                    f"the {self._entity} {name} is unknown to the run, but has the time of the"
                    f" {self._entity} {known}: write it so"
                )

    @cached_property
    def _name_at(self) -> dict[float, Any]:
        """Names that the run knows, by their times."""
        from dsgmcmc.features.of_names import times_of_names  # loads DuckDB

        known = self._vocabulary.ids
        times = times_of_names(self._entity, known, self._encoding)
        return dict(zip(times.tolist(), known.tolist(), strict=True))

    @override
    def without_names(self, encoding: Encoding) -> Encoding:
        raise InputError(
            f"features of {self._entity}s are given, but the run has only those of their names,"
            " which are times: leave them out"
        )

    @override
    def with_names(self, others: csr_matrix, names: Sequence[Any]) -> csr_matrix:
        return self.matrix(names)  # there are no others


class PartFeatures(NameFeatures):
    """Features of users (or items) of a run from the parts of their names.

    Parameters
    ----------
    run : Run
    entity : {"user", "item"}
        It has features from the parts of its names (`name_features_of`).
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

    @override
    def are_known(self, names: Array) -> Mask:
        """Return a mask of names of which the run knows every part, (n,)."""
        return np.array(
            [
                all(part in values for part, values in zip(name, self._values, strict=True))
                for name in names
            ],
            bool,
        )

    @override
    def matrix(self, names: Sequence[tuple[Any, ...]]) -> csr_matrix:
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

    @override
    def check_new(self, names: Sequence[tuple[Any, ...]]) -> None:
        pass  # parts are compared as they are written

    @override
    def without_names(self, encoding: Encoding) -> Encoding:
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

    @override
    def with_names(self, others: csr_matrix, names: Sequence[tuple[Any, ...]]) -> csr_matrix:
        from scipy.sparse import hstack  # slow to import

        return hstack([others, self.matrix(names)[:, others.shape[1] :]], "csr")


def name_features_of(run: Run, entity: str) -> NameFeatures | None:
    """Return the features from names, or from their parts; None if the model has none."""
    vocabulary = run.vocabulary(entity)
    if not run.feature_names(entity):
        return None
    stored = run.index.encoding(entity)[0]
    if not stored:
        return None
    with refusing(f"{run.path} has features of {entity}s that cannot be read", ValueError):
        encoding = Encoding.parse(stored)
    if encoding.of_names:
        return TimeFeatures(vocabulary, encoding)
    if not any(column.name in vocabulary.parts for column in encoding.columns if column.features):
        return None
    return PartFeatures(run, entity, encoding)
