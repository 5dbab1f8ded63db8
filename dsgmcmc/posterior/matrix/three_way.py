"""Completes a table of three directions: predicts the cells that are not known, in any arrangement.

Cells come as a DataArray of xarray with three dimensions, or as a table with a row for each cell of
all values of the three columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.index import Vocabulary
from dsgmcmc.posterior.matrix.known import KnownCells, as_written
from dsgmcmc.posterior.run import Run
from dsgmcmc.tables.frames import coordinate, is_data_array
from dsgmcmc.tables.result import Table
from dsgmcmc.types import Array, Float64, Int32


def complete_table(predictor: Predictor, cells: KnownCells, *, fitted: bool) -> tuple[Table, Table]:
    """Return a table with a row for each cell, with means and with sds.

    Known cells stay as they were given, with an sd of 0, unless they are `fitted`, too.
    """
    columns = grid_of(predictor.run)
    known = known_in_run(predictor, columns, cells)
    mean, sd = complete_cells(predictor, columns, known, fitted=fitted)
    return Table({**columns, "rating": mean}), Table({**columns, "rating": sd})


def complete_cube(predictor: Predictor, cube: Any, *, fitted: bool) -> tuple[Any, Any]:
    """Return a DataArray with means and one with sds, as `complete_table` does.

    Raises InputError if its dimensions are not the columns of the run.
    """
    columns, known = cells_of_cube(predictor.run, cube)
    mean, sd = complete_cells(predictor, columns, known, fitted=fitted)
    return cube.copy(data=mean.reshape(cube.shape)), cube.copy(data=sd.reshape(cube.shape))


def grid_of(run: Run) -> dict[str, Array]:
    """Return all combinations of the values of the three columns, in the order of the values."""
    values = {}
    for entity in ENTITIES:
        vocabulary = run.vocabulary(entity)
        for number, column in enumerate(vocabulary.labels):
            values[column] = np.unique(_part(vocabulary, number))
    ordered = [values[column] for column in run.directions]
    axes = np.meshgrid(*(np.arange(len(axis)) for axis in ordered), indexing="ij")
    return {
        column: axis[codes.ravel()]
        for column, axis, codes in zip(run.directions, ordered, axes, strict=True)
    }


def _part(vocabulary: Vocabulary, number: int) -> Array:
    if not vocabulary.parts:
        return vocabulary.ids
    return np.array([name[number] for name in vocabulary.ids.tolist()])


def complete_cells(
    predictor: Predictor,
    columns: dict[str, Array],
    known: Float64,
    *,
    fitted: bool,
) -> tuple[Float64, Float64]:
    """Return means and sds of cells, (n,); those that are NaN in `known`, or all, are predicted."""
    mean = known.copy()
    sd = np.zeros(len(known))
    chosen = np.flatnonzero(np.isnan(known) | fitted)
    users, items = indices_of(predictor, {name: column[chosen] for name, column in columns.items()})
    mean[chosen], sd[chosen] = predictor.moments(users, items)
    return mean, sd


def indices_of(predictor: Predictor, columns: dict[str, Array]) -> tuple[Int32, Int32]:
    """Return the indices of the users and the items of cells, (n,) each."""
    found = []
    for entity in ENTITIES:
        vocabulary = predictor.run.vocabulary(entity)
        parts = [columns[column].tolist() for column in vocabulary.labels]
        names = [vocabulary.name_of(of_cell) for of_cell in zip(*parts, strict=True)]
        found.append(predictor.index_of(entity, names))
    users, items = found
    return users, items


def known_in_run(predictor: Predictor, columns: dict[str, Array], cells: KnownCells) -> Float64:
    """Return the known ratings of cells, (n,), as they were written; NaN for others."""
    run = predictor.run
    users, items = indices_of(predictor, columns)
    matrix = cells.of(
        np.arange(len(run.users), dtype=np.int32), np.arange(len(run.items), dtype=np.int32)
    )
    known = np.full(len(users), np.nan)
    rows = predictor.predictors.rows
    is_known = rows["user"].are_sampled(users) & rows["item"].are_sampled(items)
    known[is_known] = as_written(matrix[users[is_known], items[is_known]])
    return known


def cells_of_cube(run: Run, cube: Any) -> tuple[dict[str, Array], Float64]:
    """Return the columns and values of all cells of a DataArray, (n,) each.

    Raises InputError if its dimensions are not the columns of the run.
    """
    dimensions = tuple(map(str, getattr(cube, "dims", ())))
    if not is_data_array(cube) or sorted(dimensions) != sorted(run.directions):
        raise InputError(
            f"the model has three directions: give complete a DataArray of xarray with the"
            f" dimensions {', '.join(run.directions)}, or nothing"
        )
    axes = np.indices(cube.shape)
    columns = {
        str(dimension): coordinate(cube, dimension)[codes.ravel()]
        for dimension, codes in zip(cube.dims, axes, strict=True)
    }
    return columns, np.asarray(cube.values, np.float64).ravel()
