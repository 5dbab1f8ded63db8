"""Features of users or items from their own names, which are times.

The columns of a matrix, or its rows, are often times. A name that is not in the ratings then has
features, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.features.described import Description, DescriptionTable, kind_option
from dsgmcmc.features.encoders import apply
from dsgmcmc.features.encoding import Encoding
from dsgmcmc.features.time_columns import read_times
from dsgmcmc.features.values import is_number
from dsgmcmc.input.sources.tables import distinct_names, scalar
from dsgmcmc.ratings.format import Features
from dsgmcmc.settings import named
from dsgmcmc.tables.session import Session, literal, open_small_session
from dsgmcmc.types import Array, Float64


def describe_names(
    db: Session, entity: str, labels: Sequence[str], description: Description
) -> DescriptionTable:
    """Make a description of users or items from their names, with and without ratings.

    `db` has the tables ``raw`` and ``matrix_names``; `labels` are the columns of the names, which
    have a kind by their column, or by `entity`. Raises InputError if names have several parts, or
    are numbers and users did not say that these are times.
    """
    option = f"{named(f'{entity}_features')} names"
    if len(labels) > 1:
        raise InputError(
            f"{option}: names of {entity}s have several parts, which are features by themselves:"
            " leave it out"
        )
    label = labels[0]
    described = _table(entity, label)
    db.execute(
        f"CREATE TABLE {described.name} AS SELECT id, id AS c0 FROM (FROM {distinct_names(entity)}"
        f" UNION SELECT id FROM matrix_names WHERE entity = {literal(entity)})"
    )
    declared = description.kinds.get(label, description.kinds.get(entity))
    kind = declared or "time"
    if kind != "time":
        raise InputError(f"{option} are times, not {kind}: leave one of the two out")
    are_numbers = f"SELECT bool_and({is_number('id')}) FROM {described.name}"
    if declared is None and scalar(db, are_numbers):
        raise InputError(
            f"{option}: the names are numbers, not dates; if they are times, in seconds or another"
            f" unit, give {kind_option(entity, 'time')}"
        )
    return described


def encode_names(entity: str, names: Array, encoding: Encoding) -> Features:
    """Make features of users or items from their names, by an encoding that was learnt.

    Raises InputError if names are no times.
    """
    with _described(entity, names, encoding) as (db, described):
        return apply(db, described, encoding, len(names))


def times_of_names(entity: str, names: Array, encoding: Encoding) -> Float64:
    """Return the times that names are, (n,), in seconds; NaN for names that are no times.

    Raises InputError if none is a time.
    """
    with _described(entity, names, encoding) as (db, described):
        times = read_times(db, described, encoding.columns[0])
    result = np.full(len(names), np.nan)
    result[times.row] = times.time
    return result


@contextmanager
def _described(
    entity: str, names: Array, encoding: Encoding
) -> Iterator[tuple[Session, DescriptionTable]]:
    """Make the tables of names for an encoding that was learnt, in the order of the names."""
    (column,) = encoding.columns
    described = _table(entity, column.name)
    texts = np.array([str(name) for name in names.tolist()], object)
    with open_small_session() as db:
        db.register("new_names", {"id": texts, "k": np.arange(len(texts))})
        db.execute(f"CREATE TABLE {entity}s AS SELECT id::VARCHAR AS id, k FROM new_names")
        copied = f"SELECT id, id AS c0 FROM {entity}s ORDER BY k"
        db.execute(f"CREATE TABLE {described.name} AS {copied}")
        yield db, described


def _table(entity: str, label: str) -> DescriptionTable:
    """Return the table that describes users or items by their names, the column `label`."""
    return DescriptionTable(
        Path(f"{entity} names"),
        entity,
        columns={label: "c0"},
        kinds={label: "time"},
        words={label: []},
        of_names=True,
    )
