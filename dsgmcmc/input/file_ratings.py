"""Reads a file of new ratings into memory, as `prepare` reads one of training ratings."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from pathlib import Path

from dsgmcmc.input.arrays import RatingArrays, read_table
from dsgmcmc.input.load import open_long, open_ratings
from dsgmcmc.input.sources.labelled import Choice
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.tables.session import Session, interruptible, open_session
from dsgmcmc.tables.usual import Columns


def read_ratings_file(
    path: Path,
    columns_for: Callable[[Set[str]], Columns | None],
    integers: Mapping[str, Sequence[bool]],
    reading: Reading,
) -> RatingArrays:
    """Read a file in any format that `prepare` reads.

    Ratings are in the order of the file, also those of one pair.

    Parameters
    ----------
    columns_for : callable
        Returns columns by role, given the names of all columns; none without a header. None means
        that the file is a matrix with a row for each user.
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
    columns_for: Callable[[Set[str]], Columns | None],
    integers: Mapping[str, Sequence[bool]],
    *,
    reading: Reading,
) -> RatingArrays:
    """Read a file as `read_ratings_file` does, in a session."""
    choice = Choice(
        reading.variable, reading.unstored, first_line=reading.first_line, ignored=reading.ignore
    )
    file = open_long(db, path, {}, choice)
    names = set(file.names) if file.header and not file.is_matrix else set()
    columns = columns_for(names)
    is_matrix = columns is None
    table = open_ratings(
        db,
        path,
        columns=columns or {},
        timed=False,
        missing=reading.missing if is_matrix else None,
        choice=choice,
    )
    return read_table(db, table, reading.missing, integers)
