"""Refuses files of one call that do not go together, and matrices whose names do not tell cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dsgmcmc.errors import InputError
from dsgmcmc.input.load import RatingsTable
from dsgmcmc.input.roles import MEASURES, NO_COLUMN
from dsgmcmc.settings import named
from dsgmcmc.tables.usual import joined, shortened


def refuse_unlike(tables: Sequence[RatingsTable], inputs: int, duplicates: str | None) -> None:
    """Raise InputError if tables do not go together; the last ones, after `inputs`, are tests.

    `duplicates` says which of equal cells counts, if users have said so.
    """
    _refuse_unlike_matrices(tables[:inputs])
    if duplicates in (None, "error"):
        for table in tables:
            _refuse_equal_items(table)
    _refuse_differences(tables)


def _refuse_differences(tables: Sequence[RatingsTable]) -> None:
    """Raise InputError if some tables have ratings, and others only pairs of users and items.

    Pairs beside ratings would become ratings of 1.
    """
    for table in tables[1:]:
        if table.measures != tables[0].measures:
            raise InputError(
                f"{table.file.path} has other columns than {tables[0].file.path}, of those of"
                f" {joined(MEASURES)}: prepare ratings with the same columns"
            )
    with_ratings = [table for table in tables if table.has_ratings]
    pairs = [table for table in tables if not table.has_ratings]
    if not with_ratings or not pairs:
        return
    path = pairs[0].file.path
    message = f"{path} has no column of ratings, unlike {with_ratings[0].file.path}"
    if pairs[0].test:
        raise InputError(
            f"{message}: test ratings are needed; to predict the pairs of {path.name}, leave it out"
            " here, and give it to `predict`"
        )
    raise InputError(
        f"{message}: prepare ratings and clicks apart; or name the column of ratings, or leave it"
        f" out of all files ({named('columns')} rating={NO_COLUMN})"
    )


def _refuse_unlike_matrices(tables: Sequence[RatingsTable]) -> None:
    """Raise InputError if several matrices have no names of rows, or only some name their columns.

    Row 1 of two files is not the same user, and column 1 need not be the first name.
    """
    matrices = [table for table in tables if table.is_wide or _is_dense(table)]
    without_names = [table for table in matrices if _is_dense(table) or "user" not in table.columns]
    if len(without_names) > 1:
        raise InputError(
            "several matrices need names of rows: the first column, or"
            f" {named('columns')} user=NAME; {without_names[1].file.path.name} has none"
        )
    with_header = [table for table in matrices if table.file.header]
    others = [table for table in matrices if not table.file.header]
    if with_header and others:
        raise InputError(
            f"line 1 of {others[0].file.path} does not name the items, unlike that of"
            f" {with_header[0].file.path}: write the same names above it"
        )


def _is_dense(table: RatingsTable) -> bool:
    """Whether a table is an array in a file of NumPy, whose rows have numbers."""
    file = table.file
    return file.is_in_memory and not file.is_labelled and file.path.suffix.lower() == ".npz"


def _refuse_equal_items(table: RatingsTable) -> None:
    """Raise InputError if columns of a matrix have the same name."""
    if not table.is_wide or not table.file.header:
        return
    items = [name for k, name in enumerate(table.file.names) if k not in table.columns.values()]
    numbers = {name: number for name, number in Counter(items).items() if number > 1 and name}
    if numbers:
        found = [f"{number} columns are named {name}" for name, number in list(numbers.items())[:3]]
        raise InputError(
            f"{table.file.path}: {joined(found)}: if they are different items, rename them; if they"
            f" measure the same, {named('duplicates')} mean or keep says so"
        )


def refuse_repeated_rows(tables: Sequence[RatingsTable], number: int) -> None:
    """Raise InputError if cells of matrices have the user and the item of `number` other cells."""
    if not number or not any(table.is_wide for table in tables):
        return
    files = shortened([table.file.path.name for table in tables])
    raise InputError(
        f"{number:,} cells of {files} have the names of a row and a column that another cell has:"
        " if these rows are other users, give them other names, such as the name of the file and"
        " the name of the row; if they are the same users, say which cell counts:"
        f" {named('duplicates')} last, first, mean or keep"
    )
