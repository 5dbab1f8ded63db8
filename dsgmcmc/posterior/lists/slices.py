"""Slices of a table of three directions, such as all hours of a station on a day.

A slice is named by values of some columns, in any arrangement of the run: ``station=s3,day=d4`` or
a dict. Its cells are the pairs of the users and the items whose names have these values; they are
ranked together by the rules of `dsgmcmc.posterior.lists.ranking`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, permutations
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.cells.fitted_rows import FittedRows, UsersByRow
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.index import Vocabulary, split_labelled
from dsgmcmc.posterior.lists.pairs import best_pairs
from dsgmcmc.posterior.lists.ranking import Columns, Ranking
from dsgmcmc.tables.frames import as_frame
from dsgmcmc.types import Array, Mask


class Slice(NamedTuple):
    """Cells with some values: by column, of the type of the run's names."""

    values: dict[str, Any]

    def __str__(self) -> str:
        return ", ".join(f"{column} {value}" for column, value in self.values.items())


class Slices:
    """Reads slices of a run, and finds their rows.

    Parameters
    ----------
    model : FittedRows
        The rows of a run on a table of three directions.
    """

    def __init__(self, model: FittedRows) -> None:
        self._model = model
        self._run = model.run
        self._values: dict[str, dict[str, Any]] = {}
        newcomers = model.newcomers
        for entity in ENTITIES:
            vocabulary = model.run.vocabulary(entity)
            names = vocabulary.ids
            if newcomers is not None and newcomers.entity == entity:
                names = np.concatenate([names, newcomers.vocabulary.ids])
            for column, values in _by_label(vocabulary, names).items():
                self._values[column] = {str(value): value for value in values.tolist()}

    def read(self, names: Any) -> list[Slice]:
        """Read slices: a text or a dict, a list of these, or a data frame with some of the columns.

        Raises InputError if a value is unknown, or a text may mean several slices.
        """
        frame = as_frame(names)
        if hasattr(frame, "columns"):
            columns = [column for column in self._values if column in list(frame.columns)]
            if not columns:
                raise InputError(f"the data frame has none of the columns {self._listed()}")
            rows = zip(*(np.asarray(frame[column]).tolist() for column in columns), strict=True)
            listed: Sequence[Any] = [dict(zip(columns, row, strict=True)) for row in rows]
        elif isinstance(names, str | Mapping | int | np.integer):
            listed = [names]
        else:
            listed = list(names)
        return [self._read(name) for name in listed]

    def _listed(self) -> str:
        return ", ".join(self._run.directions)

    def _read(self, name: object) -> Slice:
        if isinstance(name, Mapping):
            found = [{str(column): str(value) for column, value in name.items()}]
        else:
            found = list(self._parse(str(name)))
        known = [slice for slice in found if self._is_known(slice)]
        if len(known) == 1:
            values = known[0]
            columns = [column for column in self._run.directions if column in values]
            return Slice({column: self._values[column][values[column]] for column in columns})
        if known:
            raise InputError(f"{name!r} may be {known[0]} or {known[1]}: in Python, give a dict")
        user = self._run.directions[0]
        raise InputError(
            f"{name!r} is unknown to the run: write a {user}, or values of {self._listed()}, such"
            f" as {user}=VALUE,{self._run.directions[2]}=VALUE"
        )

    def _parse(self, text: str) -> Iterator[dict[str, str]]:
        """Yield what a text may mean: a user of the table, or values by column."""
        yield {self._run.directions[0]: text}
        for number in range(1, len(self._run.directions) + 1):
            for chosen in combinations(self._run.directions, number):
                for columns in permutations(chosen):
                    for values in split_labelled(text, columns):
                        by_column = dict(zip(columns, values, strict=True))
                        yield {column: by_column[column] for column in chosen}

    def _is_known(self, values: Mapping[str, str]) -> bool:
        return bool(values) and all(
            value in self._values.get(column, {}) for column, value in values.items()
        )

    def _users(self, chosen: Slice) -> UsersByRow:
        """Return the users of a slice.

        A pair that the run has not seen is known by its parts, if the model has their features.
        Raises InputError if it is not.
        """
        users = self._run.users
        if set(users.labels) <= chosen.values.keys():
            parts = tuple(chosen.values[column] for column in users.labels)
            return self._model.users([users.name_of(parts)])
        return self._model.users_at(np.flatnonzero(_matching(users, chosen.values)))

    def best(self, chosen: Slice, ranking: Ranking, titles: dict[int, str] | None) -> Columns:
        """Return the best cells of a slice, the best first, with a column for each direction.

        Other columns are those of `dsgmcmc.posterior.lists.ranking.recommendations`; ``rank`` is
        that among all cells of the slice.
        """
        run = self._run
        among = _matching(run.items, chosen.values)
        if ranking.among is not None:
            among &= ranking.among
        of_slice = ranking.model_copy(update={"among": among})
        best = best_pairs(self._model, self._users(chosen), of_slice, titles)
        column_of: dict[str, str] = {}
        for entity in ENTITIES:
            vocabulary = run.vocabulary(entity)
            column_of |= dict(zip(vocabulary.labels, vocabulary.columns, strict=True))
        named = {column: best.pop(column_of[column]) for column in run.directions}
        return {**named, **best}


def _by_label(vocabulary: Vocabulary, names: Array) -> dict[str, Array]:
    """Return the parts of names by their columns in the ratings."""
    return dict(zip(vocabulary.labels, vocabulary.table(names).values(), strict=True))


def _matching(vocabulary: Vocabulary, wanted: Mapping[str, Any]) -> Mask:
    """Return which names have the values of a slice, (n,)."""
    matching = np.ones(len(vocabulary), bool)
    for column, values in _by_label(vocabulary, vocabulary.ids).items():
        if column in wanted:
            matching &= values == wanted[column]
    return matching
