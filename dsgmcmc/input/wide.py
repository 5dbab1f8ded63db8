"""Reads matrices that are tables, with a row a user and a column an item; filled cells are ratings.

Rows are read a few at a time, so that memory depends neither on their number nor on their width.
DuckDB's UNPIVOT would need a scan of the whole file for every few hundred columns to keep within
its memory.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.check import skip_advice
from dsgmcmc.input.detect import open_table
from dsgmcmc.input.header import Head, judge_first_line
from dsgmcmc.input.odd_columns import (
    NOTHING,
    OddColumns,
    describe_ignored,
    find_odd_columns,
)
from dsgmcmc.input.roles import Heading, find_named, locate
from dsgmcmc.input.sources.base import Source
from dsgmcmc.input.sources.columns import MemoryTable
from dsgmcmc.input.sources.marks import (
    describe_mark,
    is_by_other_mark,
    mark_of,
    marks_advice,
)
from dsgmcmc.input.sources.numbers import Numbers, are_codes, missing_words
from dsgmcmc.input.sources.tables import SHOWN, add_columns
from dsgmcmc.input.values import are_truth
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.settings import named
from dsgmcmc.tables.frames import texts_of
from dsgmcmc.tables.session import Session, memory_of
from dsgmcmc.tables.usual import Columns, find_column, shortened
from dsgmcmc.types import Array, Float64, Mask

Reporter = Callable[[str], None]

#: Columns of the entries of a matrix, by role.
ENTRIES = {"user": 0, "item": 1, "rating": 2}
#: Columns in which R and pandas write the names of rows.
_NAMELESS = ("", "Unnamed: 0", "__index_level_0__")
_SAMPLE = 100  # rows from which the first column is judged
_FEW = 5  # rows or names whose order says little
_MANY = 8  # rows that do not ascend by chance
_MORE = 20  # rows that do not have whole numbers by chance
_OTHER_SCALE = 5.0  # ratio of a column's size to those of all others
_CELLS = 250_000  # that are in memory at a time
_WORD = -np.inf  # number of cells with a word for what is not known, while they are counted


class _BadCells:
    """Cells that have no number, or no name of a user or an item.

    Parameters
    ----------
    table : Source
    items : (J,) array of str
    """

    def __init__(self, table: Source, items: Array) -> None:
        self._table = table
        self._items = items
        self._number = 0
        self._shown = ""
        self._texts: list[str] = []
        self._texts_below: list[str] = []  # of other rows than the first
        self._rows = set[int]()
        self._columns = set[int]()

    def add(
        self, rows: Sequence[Sequence[str | None]], users: Array, bad: Array, n_before: int
    ) -> None:
        """Take note of the bad cells among those of some rows, (n, J)."""
        for k, j in np.argwhere(bad)[: max(0, SHOWN - self._number)].tolist():
            where = self._table.where(n_before + k)
            cell = f"item {self._items[j]}: {rows[k][j]!r} (user {users[k]})"
            self._shown += f"\n  {where}, {cell}"
            self._texts.append(rows[k][j] or "")
        if len(self._texts_below) < SHOWN:
            below = [
                (k, j) for k, j in np.argwhere(bad)[: len(self._items) + SHOWN] if n_before + k
            ]
            self._texts_below += [rows[k][j] or "" for k, j in below[:SHOWN]]
        if len(self._rows) < 2:
            self._rows |= set((n_before + np.flatnonzero(bad.any(axis=1))[:2]).tolist())
        if len(self._columns) < 2:
            self._columns |= set(np.flatnonzero(bad.any(axis=0))[:2].tolist())
        self._number += int(bad.sum())

    def refuse(self) -> None:
        """Raise InputError, with the first cells, if there are any."""
        if self._number:
            raise InputError(
                f"{self._table.path}: {self._number:,} cell(s) have no number, or no name of a user"
                f" or an item; {self._advice()}{self._shown}"
            )

    def _advice(self) -> str:
        """Return what to do with the cells."""
        mark = self._table.mark
        texts = self._texts_below or self._texts  # the first row may be another header
        if texts and all(is_by_other_mark(text, mark) for text in texts):
            return marks_advice()
        general = (
            f"correct them, or give {named('missing')} VALUE,... if they mean not rated ('' for an"
            " empty name)"
        )
        if any(re.fullmatch("[+-]?inf(inity)?", text.strip().lower()) for text in self._texts):
            return f"write what is beyond a limit as a bound, such as >2000; or {general}"
        if self._rows == {0} and 2 * self._number > len(self._items):
            where = self._table.where(0)
            return f"if {where} has units or is another header, {skip_advice(where)}; or {general}"
        if len(self._columns) == 1 and self._number > 1:
            (column,) = self._columns
            name = self._items[column]
            return f"leave out the column by {named('ignore')} {name}; or {general}"
        return general


class _WordCells:
    """Cells with words for true and false: they have no number, unless these fill their columns.

    Parameters
    ----------
    table : Source
    items : (J,) array of str
    """

    def __init__(self, table: Source, items: Array) -> None:
        self._table = table
        self._items = items
        self._has_numbers = np.zeros(len(items), bool)
        self._counts = np.zeros(len(items), np.int64)
        self._words: dict[int, set[str]] = {}  # of columns that have some
        self._first: dict[int, str] = {}  # where the first word of a column is

    def add(
        self,
        rows: Sequence[Sequence[str | None]],
        filled: Mask,
        words: Set[str],
        n_before: int,
    ) -> None:
        """Take note of the cells of some rows (n, J), given which are filled, and their words."""
        if not words:
            self._has_numbers |= filled.any(axis=0)
            return
        is_word = np.array([[text in words for text in row] for row in rows], bool) & filled
        self._counts += is_word.sum(axis=0)
        self._has_numbers |= (filled & ~is_word).any(axis=0)
        for column in np.flatnonzero(is_word.any(axis=0)).tolist():
            found = np.flatnonzero(is_word[:, column]).tolist()
            text = rows[found[0]][column]
            where = self._table.where(n_before + found[0])
            self._first.setdefault(column, f"{where}, item {self._items[column]}: {text!r}")
            texts = {str(rows[row][column]).strip().lower() for row in found}
            self._words[column] = self._words.get(column, set()) | texts

    def refuse(self) -> None:
        """Raise InputError if words stand among numbers, or one word alone in their columns."""
        alone = [words for column, words in self._words.items() if not self._has_numbers[column]]
        bad = list(self._first)
        if are_truth(set().union(*alone)):
            bad = [column for column in bad if self._has_numbers[column]]
        if not bad:
            return
        shown = "".join(f"\n  {self._first[column]}" for column in bad[:SHOWN])
        raise InputError(
            f"{self._table.path}: {self._counts[bad].sum():,} cell(s) have a word among numbers,"
            " or one word alone, which is not taken for true or false: write numbers, such as 1 and"
            f" 0, or leave out such cells by {named('missing')} WORD,...{shown}"
        )


def inspect_wide(db: Session, path: Path, choice: Reading) -> tuple[Source, dict[str, int]] | None:
    """Return the table in a file, and the positions of its columns that are no items, by role.

    The role "user" has names of rows, and "count" the number of ratings of each row. The array in
    an .npz file of NumPy is a table of "user", "item" and "rating"; files that DuckDB or SciPy read
    as a matrix give None. Names of rows are in the column that users name; or else in
    a column without a name, or with a usual name; or else in the first column, unless it has
    numbers. Raises InputError if the file is no table, or the first column may have names or
    ratings.
    """
    is_header = partial(_is_header, path=path, choice=choice)
    table = open_table(db, path, is_header, choice=choice)
    if table.is_labelled:
        return table, columns_of_entries(table)
    if table.is_matrix:
        dense = _read_dense(db, path)
        if dense is None:
            return None
        return dense, ENTRIES
    if table.is_parsed or table.delimiter == "::":
        raise InputError(f"{path} has a line for each rating: leave out {named('matrix')}")
    table = replace(table, mark=_mark_in(table.sample, choice))
    if table.first_line:
        _refuse_title(table, choice.missing)
    if table.header and choice.first_line is None:
        _refuse_second_header(table, choice.missing)
    heading = Heading.of(table)
    ignored = ignored_columns(heading, choice.ignore)
    if choice.columns:
        return table, _position_in(heading, choice.columns) | ignored
    return table, _find_position(db, table, choice.missing) | ignored


def columns_of_entries(table: Source) -> dict[str, int]:
    """Return the positions of the columns of entries by role; those of bounds, if any, are last."""
    columns = dict(ENTRIES)
    for k in range(len(ENTRIES), table.width):
        columns[table.names[k]] = k
    return columns


def ignored_columns(heading: Heading, ignore: Sequence[str]) -> dict[str, int]:
    """Return the positions of columns of a matrix that users leave out, by role."""
    return {
        f"ignored {name}": find_named(heading, named("ignore"), name)
        for name in ignore
        if name != NOTHING
    }


def _position_in(heading: Heading, columns: Columns) -> dict[str, int]:
    """Return the position of the column of names that users name, by role."""
    positions = locate(heading, columns, ("user",))
    if len(positions) > 1:
        raise InputError(
            f"{heading.where}: a matrix has one column of names; names of several parts need a"
            " table with a line for each rating"
        )
    return positions


def _find_position(db: Session, table: Source, missing: Sequence[str]) -> dict[str, int]:
    """Return the position of the column of names, or of counts, by role; nothing without one."""
    position = _find_names(table)
    if position is not None:
        return {"user": position}
    return _judge_first(db, table, missing)


def _refuse_title(table: Source, missing: Sequence[str]) -> None:
    """Raise InputError if the first line has one text, and a later one the names."""
    lines = list(table.sample)
    if table.header:
        lines.insert(0, list(table.names))
    filled = [sum(field not in _NAMELESS for field in line) for line in lines]
    first_full = next((k for k, number in enumerate(filled) if 2 * number > table.width), 0)
    if not first_full or filled[0] > 1 or table.width < _FEW:
        return
    head = _head(lines[first_full], lines[first_full + 1 :], missing, table.mark)
    if not head.has_names():
        return
    last = table.where(first_full - 1 - table.header)
    above = "1"
    if first_full > 1:
        above = f"1-{last.removeprefix('line ')}"
    raise InputError(
        f"{table.path}: line 1 has one text alone, and names stand below"
        f" ({shortened(lines[first_full])}): if it is a title above the table, remove it, or"
        f" leave it out by {named('skip_rows')} {above}"
    )


def _refuse_second_header(table: Source, missing: Sequence[str]) -> None:
    """Raise InputError if the first row below the header may be a second one, of numbers."""
    if len(table.sample) < 2:
        return
    fields = table.sample[0]
    if _head(fields, table.sample[1:], missing, table.mark).may_be_second_header():
        where = table.where(0)
        raise InputError(
            f"{table.path}: {where} ({shortened(list(fields))}) has whole numbers above decimals:"
            f" if it is a second header, {skip_advice(where)}; if it has ratings,"
            f" {named('first_line')} names says that line 1 alone has names"
        )


def _find_names(table: Source) -> int | None:
    """Return the position of the column with names of rows, by its own name; None without one."""
    if not table.header:
        return None
    searched = table.names if table.has_index_anywhere else table.names[:1]
    for k, name in enumerate(searched):
        if name in _NAMELESS:
            return k
    return find_column(searched, "user")


def _judge_first(db: Session, table: Source, missing: Sequence[str]) -> dict[str, int]:
    """Return the role of the first column by its values; it has none if it is an item.

    The first column of a Parquet file is the first one of text, if any has text.
    """
    first = next((k for k, column_type in enumerate(table.types) if column_type == "VARCHAR"), 0)
    rows = list(islice(table.rows(db), _SAMPLE))
    cells = np.roll(Numbers(missing, table.mark).table(rows, table.width), -first, axis=1)
    if are_names(cells[:, 0]):
        return {"user": first}
    if counts_cells(cells):
        return {"count": first}
    name = table.names[first] if table.header else 1
    refuse_names(cells, f"{table.path}: {table.names[first]}", f"{named('columns')} user={name}")
    return {}


def are_names(first: Float64) -> bool:
    """Whether the first column of a matrix has names, given its numbers.

    They are infinite where a cell has no number. Words among decimals are no names: they stand for
    what is not known.
    """
    numbers = first[np.isfinite(first)]
    return bool(np.isinf(first).sum() > np.count_nonzero(numbers % 1))


def counts_cells(cells: Float64) -> bool:
    """Whether the first column of a matrix has the number of filled cells of each row.

    Equal numbers in all rows do not tell.
    """
    first = cells[:, 0]
    return bool(np.ptp(first) and (first == np.isfinite(cells[:, 1:]).sum(axis=1)).all())


def refuse_names(cells: Float64, what: str, advice: str) -> None:
    """Raise InputError if the first column of a matrix may be names or coordinates of its rows.

    `cells` are some rows of the matrix, with NaN for empty cells; `what` names the column, and
    `advice` tells how to say that it has names.
    """
    reason = _differs(cells)
    if reason:
        raise InputError(
            f"{what} {reason}: if it names the users, {advice}; if it has ratings, put another"
            " column first; otherwise leave it out"
        )


def _differs(cells: Float64) -> str:
    """Say how the first column of a matrix differs from all others, as a coordinate does.

    All its cells are filled; and they are different whole numbers, ascend or descend, are whole
    numbers beside decimals, or have another scale. Returns an empty text if it does not differ.
    """
    first = cells[:, 0]
    others = [column[np.isfinite(column)] for column in cells[:, 1:].T]
    others = [column for column in others if len(column) >= _FEW]
    if len(first) < _FEW or not others or not np.isfinite(first).all():
        return ""
    if _may_be_names(first) and not any(map(_may_be_names, cells[:, 1:].T)):
        return "has a different whole number in every row, as no other column has"
    if len(first) < _MANY:
        return ""
    if _is_monotone(first) and not any(map(_is_monotone, others)):
        return "ascends or descends from row to row, as no other column does"
    if len(first) >= _MORE and _is_whole(first) and not any(map(_is_whole, others)):
        return "has whole numbers alone, as no other column has"
    if len(others) >= _FEW and _has_other_scale(first, others):
        return "has a quite different scale from all other columns"
    return ""


def _may_be_names(column: Float64) -> bool:
    different = len(np.unique(column)) == len(column)
    return bool(np.isfinite(column).all() and _is_whole(column) and different)


def _is_whole(column: Float64) -> bool:
    return not np.any(column % 1)


def _is_monotone(column: Float64) -> bool:
    steps = np.diff(column)
    return bool((steps > 0).all() or (steps < 0).all())


def _has_other_scale(first: Float64, others: Sequence[Float64]) -> bool:
    """Whether the size of a column is farther from all others than these from one another.

    Sizes are root mean squares, and their logarithms are compared.
    """
    sizes = [float(np.sqrt(np.mean(column**2))) for column in (first, *others)]
    if min(sizes) == 0:
        return False
    own, *logs = np.log(sizes).tolist()
    distance = max(own - max(logs), min(logs) - own)
    return bool(distance > max(np.log(_OTHER_SCALE), max(logs) - min(logs)))


def _is_header(fields: list[str], rows: list[list[str]], *, path: Path, choice: Reading) -> bool:
    """Whether the first line of a file has names of items: as users say, or as it shows.

    They say so if they name the column of users, and not its position.
    """
    user = choice.columns.get("user")
    if choice.first_line is not None:
        return choice.first_line == "names"
    if user in fields and not str(user).isdecimal():
        return True
    head = _head(fields, rows, choice.missing, _mark_in(rows, choice))
    return judge_first_line(path, head, fields)


def _head(
    fields: Sequence[str], rows: Sequence[Sequence[str]], missing: Sequence[str], mark: str
) -> Head:
    """Return a line, and the rows below, whose numbers have a mark before their decimals."""
    return Head(fields, rows, Numbers(missing, mark).table, mark=mark)


def _mark_in(rows: Iterable[Sequence[str]], choice: Reading) -> str:
    """Return the mark of decimals in all cells of some rows of a matrix."""
    return mark_of(choice.decimal, chain.from_iterable(rows))


class WideRows(NamedTuple):
    """What is known of a matrix that was read.

    Attributes
    ----------
    left_out : int
        Number of cells with a word for what is not known, or whose user or item has one.
    odd : OddColumns
        Columns that may be no items, by the first rows.
    """

    left_out: int
    odd: OddColumns


def load_wide(
    db: Session, matrix: WideMatrix, *, test: bool, missing: Sequence[str], report: Reporter
) -> WideRows:
    """Append the filled cells of a matrix to the table ``raw``.

    Names of all rows and columns are appended to the table ``matrix_names``, in their order.
    `report` is called with the number of rows that have been read.
    """
    words = missing_words(missing)
    items = matrix.items
    n_read = 0
    n_left_out = 0
    first: Float64 | None = None
    for users, cells in matrix.blocks:
        n_left_out += cells.n_left_out
        insert_names(db, "user", users, words)
        row, col = np.nonzero(~np.isnan(cells.values))
        bounds = None
        if cells.bounds is not None:
            bounds = cells.bounds[:, row, col]
        found = {"u": users[row], "i": items[col], "x": cells.values[row, col]}
        _insert_cells(db, found, bounds, test=test)
        if first is None:
            first = cells.values
        n_read += len(users)
        report(f"{n_read:,} rows")
    insert_names(db, "item", items, words)
    return WideRows(n_left_out, _odd_columns(first, matrix.labels, missing))


def _odd_columns(
    first: Float64 | None, labels: Sequence[object], missing: Sequence[str]
) -> OddColumns:
    """Find columns that may be no items in the first rows, (n, J), without codes in `missing`."""
    if first is None:
        return OddColumns()
    return find_odd_columns(np.where(are_codes(first, missing), np.nan, first), labels)


class Cells(NamedTuple):
    """Cells of some rows of a matrix.

    Attributes
    ----------
    values : (n, J) float64
        NaN where a cell is not rated.
    bounds : (2, n, J) float64 or None
        Lower and upper bounds of cells that are known only by bounds, infinite on an open side; NaN
        in others. None if no cell has been known by bounds. `values` are between them.
    n_left_out : int
        Number of cells with a word for what is not known, or whose user or item has one.
    """

    values: Float64
    bounds: Float64 | None = None
    n_left_out: int = 0


class CellReader:
    """Reads the cells of a matrix, some rows at a time, and notes what is wrong with them.

    Parameters
    ----------
    table : Source
        The matrix, for messages.
    items : (J,) array of str
    words : sequence of str
        Words for what is not known.
    columns : sequence of int
        Positions of the items in the rows.
    """

    def __init__(
        self, table: Source, items: Array, words: Sequence[str], *, columns: Sequence[int]
    ) -> None:
        self._words = words
        self._columns = list(columns)
        self._numbers = Numbers(words, table.mark, left_out=_WORD)
        self._nameless = _nameless(items)
        self._left_out = _are_words(items, words)
        self._bad = _BadCells(table, items)
        self._of_words = _WordCells(table, items)

    def read(self, rows: Sequence[Sequence[str | None]], users: Array, n_before: int) -> Cells:
        """Return the cells of rows of texts, given the names of their users."""
        width = len(rows[0])
        values = self._numbers.table(rows, width)[:, self._columns]
        of_words = values == _WORD
        values[of_words] = np.nan
        cells = self._note(values, users, rows, n_before)
        bounds = None
        if self._numbers.has_bounds:
            bounds = self._numbers.bounds(rows, width)[:, :, self._columns]
            bounds[:, np.isnan(cells.values)] = np.nan
        n_left_out = cells.n_left_out + int(of_words.sum())
        return cells._replace(bounds=bounds, n_left_out=n_left_out)

    def read_all(self, table: Array, users: Array) -> Cells:
        """Return the cells of all rows of an array of numbers, or of objects.

        Raises InputError if cells are wrong.
        """
        if table.dtype == object and table.size:
            texts = texts_of(table.ravel()).reshape(table.shape)
            cells = self.read(texts.tolist(), users, 0)
        else:
            cells = self._note(table[:, self._columns].astype(np.float64), users, table, 0)
        self.refuse()
        return cells

    def _note(self, values: Float64, users: Array, rows: Any, n_before: int) -> Cells:
        """Return cells given their numbers (n, J), and take note of those that are wrong."""
        filled = ~np.isnan(values)
        left_out = filled & (_are_words(users, self._words)[:, None] | self._left_out)
        values[left_out] = np.nan
        filled &= ~left_out
        bad = np.isinf(values) | (filled & (_nameless(users)[:, None] | self._nameless))
        if bad.any():
            self._bad.add(_columns_of(rows, self._columns), users, bad, n_before)
        texts: Sequence[Sequence[str | None]] = []
        if self._numbers.words:
            texts = _columns_of(rows, self._columns)
        self._of_words.add(texts, filled, self._numbers.words, n_before)
        return Cells(values, None, int(left_out.sum()))

    def refuse(self) -> None:
        """Raise InputError if cells have no number."""
        self._bad.refuse()
        self._of_words.refuse()


class Block(NamedTuple):
    """Some rows of a matrix: the names of their users, (n,), and their cells."""

    users: Array
    cells: Cells


class WideMatrix(NamedTuple):
    """A matrix that is read some rows at a time.

    Attributes
    ----------
    items : (J,) array
        Names of the columns.
    labels : sequence
        What users call the columns.
    blocks : iterable of Block
    """

    items: Array
    labels: Sequence[object]
    blocks: Iterable[Block]


def matrix_of_file(
    db: Session, table: Source, roles: Mapping[str, int], missing: Sequence[str]
) -> WideMatrix:
    """Return the matrix in a file; `roles` as from `inspect_wide`.

    Rows without names have the numbers 1, 2, ..., and so have items without names. Cells of users
    and items whose names are words in `missing` are left out. Its blocks raise InputError if cells
    have text or infinity, or names are missing. The error gives their number, and the first five
    with line and column.
    """
    others = [k for k in range(table.width) if k not in roles.values()]
    items = np.array(_item_names(table, others), object)
    labels = items.tolist()
    if not table.header:  # users name such columns by their position
        labels = [k + 1 for k in others]
    # numbers that mean "not rated" are counted when they are deleted
    reader = CellReader(table, items, missing_words(missing), columns=others)
    return WideMatrix(items, labels, _blocks(db, table, roles, reader))


def _blocks(
    db: Session, table: Source, roles: Mapping[str, int], reader: CellReader
) -> Iterator[Block]:
    """Yield the rows of a file, at most `_CELLS` fields at a time."""
    rows = table.rows(db)
    n_read = 0
    while piece := list(islice(rows, max(1, _CELLS // table.width))):
        users = np.array(_user_names(piece, roles, n_read), object)
        yield Block(users, reader.read(piece, users, n_read))
        n_read += len(piece)
    reader.refuse()


def _columns_of(rows: Any, columns: Sequence[int]) -> list[list[str | None]]:
    """Return the fields of some columns, as texts."""
    return [[None if row[k] is None else str(row[k]) for k in columns] for row in rows]


def _insert_cells(
    db: Session, cells: Mapping[str, Array], bounds: Float64 | None, *, test: bool
) -> None:
    """Append cells to ``raw``: arrays u, i and x of users, items and ratings, and (2, q) bounds."""
    columns = "user_id, item_id, rating, time, test"
    values = f"u, i, x, NULL, {test}"
    arrays = dict(cells)
    if bounds is not None:
        arrays |= {"l": bounds[0], "h": bounds[1]}
        columns += ", lower, upper"
        values += "".join(f", CASE WHEN isfinite({bound}) THEN {bound} END" for bound in "lh")
        add_columns(db, {"lower": "DOUBLE", "upper": "DOUBLE"})
    db.register("arrays", arrays)
    db.execute(f"INSERT INTO raw ({columns}) SELECT {values} FROM arrays")


def insert_names(db: Session, entity: str, names: Array, words: Sequence[str] = ()) -> None:
    """Append names of rows or columns of a matrix, with and without ratings, to their table.

    Names that are missing, or in `words`, are left out.
    """
    texts = texts_of(names)
    texts = texts[~(_nameless(texts) | _are_words(texts, words))]
    if len(texts):
        db.register("labels", {"id": texts})
        db.execute(f"INSERT INTO matrix_names SELECT '{entity}', trim(id) FROM labels")


def _item_names(table: Source, columns: Sequence[int]) -> list[str]:
    """Return the names of the columns that are items: 1, 2, ... without a header."""
    if table.header:
        return [table.names[k] for k in columns]
    return [str(number) for number in range(1, len(columns) + 1)]


def _user_names(
    rows: Sequence[Sequence[str | None]], roles: Mapping[str, int], n_before: int
) -> list[str | None]:
    """Return the names of rows: their numbers from 1, `n_before` of them read, without a column."""
    if "user" in roles:
        return [row[roles["user"]] for row in rows]
    return [str(n_before + k) for k in range(1, len(rows) + 1)]


def _nameless(names: Iterable[str | None]) -> Array:
    """Return a mask of names that are empty, or would end at a NUL byte."""
    return np.array([not name or not name.strip() or "\0" in name for name in names], bool)


def _are_words(names: Iterable[str | None], words: Sequence[str]) -> Array:
    """Return a mask of names that are words for what is not known; None is an empty one."""
    return np.array([(name or "").strip().lower() in words for name in names], bool)


def _read_dense(db: Session, path: Path) -> Source | None:
    """Return the cells that are not NaN of the array (I, J) in an .npz file of NumPy, or None."""
    if path.suffix.lower() != ".npz":
        return None
    try:
        with np.load(path) as archive:
            size = sum(info.file_size for info in archive.zip.infolist())
            if len(archive.files) != 1 or 4 * size >= memory_of(db):
                return None
            array = archive[archive.files[0]]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None
    if array.ndim != 2 or array.dtype.kind not in "iufb":
        return None
    row, col = np.nonzero(~np.isnan(array))
    values = array[row, col].astype(np.float64)
    return MemoryTable.of(path, {"row": row, "col": col, "value": values})


def describe_wide(table: Source, roles: Mapping[str, int]) -> str:
    """Describe how a matrix in a file was read, so that users can check it."""
    others = [name for k, name in enumerate(table.names) if k not in roles.values()]
    users = "numbered"
    if "user" in roles:
        users = f"named by {table.names[roles['user']] or 'the first column'}"
    text = describe_matrix(others, users, table.mark, has_names=table.header)
    text += describe_ignored(
        [table.names[k] for role, k in roles.items() if role.startswith("ignored ")]
    )
    if "count" in roles:
        text += f"; {table.names[roles['count']]} counts the ratings of a row: left out"
    return text


def describe_matrix(
    items: Sequence[object], users: str, mark: str, *, has_names: bool = True
) -> str:
    """Describe how a matrix was read; `users` says how users are named."""
    named_items = "numbered"
    if has_names and len(items) > 1:
        named_items = f"named {items[0]}, {items[1]}, ..."
    text = f"a row a user ({users}), {len(items):,} columns the items ({named_items})"
    return text + describe_mark(mark)
