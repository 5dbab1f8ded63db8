"""Scores of predictions of the ratings in a file."""

from __future__ import annotations

from collections.abc import Set
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.cells.evaluate import evaluate_ratings, refuse_clicks
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.index import refuse_unknown_in
from dsgmcmc.posterior.rated import read_rated
from dsgmcmc.posterior.rows.columns import column_of_users, columns_of_file
from dsgmcmc.posterior.rows.new_ratings import with_clicks
from dsgmcmc.posterior.run import Run, integer_parts
from dsgmcmc.posterior.settings import EvaluateSettings, PredictOptions
from dsgmcmc.ratings.names import names_of
from dsgmcmc.types import Int32

if TYPE_CHECKING:  # loads DuckDB
    from dsgmcmc.input.file_ratings import FileColumns
    from dsgmcmc.tables.usual import Columns
    from dsgmcmc.types import Array


def read_rated_file(
    run: Run, path: Path, columns: Columns, missing: object = None
) -> dict[str, Array]:
    """Read new ratings of a run from a file, in `columns` or those that its own ratings had.

    It may also be a matrix with a row for each user, if its columns are named like items, or the
    run's ratings were one. Values in `missing`, by default those of the run, are no ratings.
    """
    from dsgmcmc.input.file_ratings import read_ratings_file
    from dsgmcmc.input.sources.anndata import is_annotated_file
    from dsgmcmc.input.sources.limits import limits_of_annotated
    from dsgmcmc.input.values import parse_missing

    reading = run.reading
    if missing is not None:
        reading = reading._replace(missing=parse_missing(missing))
    if is_annotated_file(path):
        columns = {**limits_of_annotated(run.columns), **columns}
        reading = reading._replace(columns=columns)
    read = read_ratings_file(path, partial(_columns_of, run, columns), integer_parts(run), reading)
    return with_clicks(run, read)


def _columns_of(run: Run, columns: Columns, names: Set[str]) -> FileColumns:
    """Return columns of a file by role, and whether it is a matrix.

    It is one if most of its columns are items, or if the run's ratings were one and no columns have
    usual names of users and items; then users, at most, are named by a column.
    """
    from dsgmcmc.input.file_ratings import FileColumns
    from dsgmcmc.input.roles import names_pairs

    items = {str(name) for name in run.items.ids.tolist()}
    is_matrix = bool(run.reading.matrix) and not names_pairs(names)
    is_matrix |= 2 * len(names & items) > len(names)
    if is_matrix and columns.keys() <= {"user"}:
        return FileColumns(columns or column_of_users(run, names), is_matrix=True)
    return FileColumns(columns_of_file(run, columns, names))


def evaluate_file(run: Run, path: Path, settings: EvaluateSettings) -> dict[str, Any]:
    """Score the predictions of the ratings in a file.

    Returns
    -------
    dict
        As of `evaluate_ratings`, with ``unknown``, the number of ratings of an unknown user or
        item, and ``trained``, the number of ratings whose pair was in training; None if the run's
        ratings file is missing.

    Raises
    ------
    InputError
        If the file cannot be read, names are unknown and refused, the run predicts clicks, or
        the ratings file that settings name is not the run's.
    """
    from dsgmcmc.input.roles import parse_columns

    refuse_clicks(run, "dsgmcmc evaluate RUN")
    rated = read_rated_file(run, path, parse_columns(settings.columns), settings.missing)
    predictor = Predictor(run, PredictOptions(clip=True))
    names = {entity: names_of(rated, entity) for entity in ENTITIES}
    users, items = (predictor.index_of(entity, names[entity]) for entity in ENTITIES)
    if settings.unknown == "refuse":
        unknown = {"user": names["user"][users < 0], "item": names["item"][items < 0]}
        refuse_unknown_in(path, {entity: found.tolist() for entity, found in unknown.items()})
    scores = evaluate_ratings(predictor, users, items, rated)
    is_known = (users >= 0) & (items >= 0)
    trained = _count_trained(run, users[is_known], items[is_known])
    return {**scores, "unknown": int(np.count_nonzero(~is_known)), "trained": trained}


def _count_trained(run: Run, users: Int32, items: Int32) -> int | None:
    """Return how many pairs were in training; None if the ratings file is missing, and not given.

    Raises InputError as `Run.open_ratings` if `data` is given.
    """
    try:
        return read_rated(run, users).count(users, items)
    except InputError:
        if run.data is not None:
            raise
        return None
