"""Reads a file of new ratings into memory, as `prepare` reads one of training ratings."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dsgmcmc.input.arrays import read_table
from dsgmcmc.input.load import open_long, open_ratings
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.tables.session import Session, interruptible, open_session
from dsgmcmc.tables.usual import Columns
from dsgmcmc.types import Array


class FileColumns(NamedTuple):
    """Columns of a file by role, and whether it is a matrix with a row for each user."""

    columns: Columns
    is_matrix: bool = False


def read_ratings_file(
    path: Path,
    columns_for: Callable[[Set[str]], FileColumns],
    integers: Mapping[str, Sequence[bool]],
    reading: Reading,
) -> dict[str, Array]:
    """Read a file in any format that `prepare` reads.

    Ratings are in the order of the file, also those of one pair.

    Parameters
    ----------
    columns_for : callable
        Returns columns by role, given the names of all columns; none without a header.
    integers : dict of str to sequence of bool
        By role, which parts of the run's names are integers: zeros after their decimal point do
        not count.
    reading : Reading
        What users have said of the ratings.

    Raises
    ------
    InputError
        If the file cannot be read, lacks a column, or has rows with missing or wrong values.
    """
    with open_session(Path(tempfile.gettempdir())) as db:
        return interruptible(db, partial(_read, db, path, columns_for, integers, reading=reading))


def _read(
    db: Session,
    path: Path,
    columns_for: Callable[[Set[str]], FileColumns],
    integers: Mapping[str, Sequence[bool]],
    *,
    reading: Reading,
) -> dict[str, Array]:
    """Read a file as `read_ratings_file` does, in a session."""
    file = open_long(db, path, reading)
    names = set(file.names) if file.header and not file.is_matrix else set()
    columns, is_matrix = columns_for(names)
    reading = reading._replace(columns=columns, matrix=is_matrix)
    table = open_ratings(db, path, reading, timed=False)
    return read_table(db, table, reading, integers)
