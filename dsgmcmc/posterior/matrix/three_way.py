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
from dsgmcmc.posterior.matrix.known import KnownCells, as_written, since_the_fit
from dsgmcmc.posterior.run import Run
from dsgmcmc.tables.frames import coordinate, is_data_array
from dsgmcmc.tables.result import Table
from dsgmcmc.types import Array, Float32, Float64


def complete_table(predictor: Predictor, cells: KnownCells, *, fitted: bool) -> tuple[Table, Table]:
    """Return a table with a row for each cell, with means and with sds.

    Known cells stay as they were given, with an sd of 0, unless they are `fitted`, too.
    """
    columns = grid_of(predictor.run)
    known = as_written(known_in_run(predictor.run, columns, cells))
    mean, sd = complete_cells(predictor, columns, known, fitted=fitted)
    return Table({**columns, "rating": mean}), Table({**columns, "rating": sd})


def complete_cube(
    predictor: Predictor, cube: Any, cells: KnownCells | None, *, fitted: bool
) -> tuple[Any, Any]:
    """Return a DataArray with means and one with sds, as `complete_table` does.

    `cells` are those of a run that was fitted to the DataArray, of which some may be new. Raises
    InputError if its dimensions are not the columns of the run.
    """
    columns, known = cells_of_cube(predictor.run, cube)
    if cells is not None:
        known = since_the_fit(known, known_in_run(predictor.run, columns, cells))
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
    of_chosen = {name: column[chosen] for name, column in columns.items()}
    users, items = [
        predictor.index_of(entity, names) for entity, names in names_of(predictor.run, of_chosen)
    ]
    mean[chosen], sd[chosen] = predictor.moments(users, items)
    return mean, sd


def names_of(run: Run, columns: dict[str, Array]) -> list[tuple[str, list[Any]]]:
    """Return the names of the users, and of the items, of cells, (n,) each."""
    found = []
    for entity in ENTITIES:
        vocabulary = run.vocabulary(entity)
        parts = [columns[column].tolist() for column in vocabulary.labels]
        found.append(
            (entity, [vocabulary.name_of(of_cell) for of_cell in zip(*parts, strict=True)])
        )
    return found


def known_in_run(run: Run, columns: dict[str, Array], cells: KnownCells) -> Float32:
    """Return the known ratings of cells, (n,) float32; NaN for others.

    Those of users and items that were folded in are among them.
    """
    users, items = [
        run.vocabulary(entity).index_of(names) for entity, names in names_of(run, columns)
    ]
    rows, row = np.unique(users, return_inverse=True)
    places, place = np.unique(items, return_inverse=True)
    return cells.of(rows, places)[row, place]


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
    return columns, np.array(cube.values, np.float64).ravel()
