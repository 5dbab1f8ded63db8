"""The rows and columns of the matrix of a run's ratings, in the order of its file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.index import Vocabulary
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Array, Int32


class Axis(NamedTuple):
    """Users or items of a matrix.

    Attributes
    ----------
    names : (n,) int64 or object array
    rows : (n,) int32
        Rows in the run; -1 for names without ratings.
    heading : str
        Column, or dimension, of the names.
    """

    names: Array
    rows: Int32
    heading: str

    @property
    def integers(self) -> bool:
        """Whether all names are integers."""
        return self.names.dtype == np.int64


def axis_of(run: Run, entity: str) -> Axis:
    """Return all users or items in the order of the matrix that was read, or else of names.

    Those of the matrix that have no ratings are among them.
    """
    vocabulary = run.vocabulary(entity)
    in_order = vocabulary.rows_in_order().astype(np.int32)
    layout = run.index.layout(entity)
    if not layout:
        return Axis(vocabulary.ids[in_order], in_order, vocabulary.heading)
    row_of = {str(vocabulary.ids[row]): row for row in in_order.tolist()}
    of_matrix = set(layout)
    of_features = [name for name in row_of if name not in of_matrix]
    names = [*layout, *of_features]
    rows = np.array([row_of.get(name, -1) for name in names], np.int32)
    return Axis(_typed(vocabulary, names), rows, vocabulary.heading)


def names_in_order(run: Run, entity: str) -> Array | None:
    """Return the names of `axis_of` that the run can look up; None if the order is unknown."""
    if not run.index.layout(entity):
        return None
    axis = axis_of(run, entity)
    if axis.integers == run.vocabulary(entity).integers:
        return axis.names
    return axis.names[axis.rows >= 0]


def _typed(vocabulary: Vocabulary, names: Sequence[str]) -> Array:
    """Return names as the run has them; as text if one without ratings cannot be so."""
    try:
        return vocabulary.typed(names)
    except InputError:
        return np.array(names, object)
