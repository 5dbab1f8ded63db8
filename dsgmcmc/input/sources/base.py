"""A table whose rows have not been read: what all formats have in common."""

from __future__ import annotations

import contextlib
import glob
import gzip
import io
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, ClassVar, cast

from dsgmcmc.errors import refusing
from dsgmcmc.input.sources.marks import number_sql, with_point_sql
from dsgmcmc.tables.session import Session, literal, reading

#: Option without which DuckDB derives columns from folders named COLUMN=VALUE.
AS_STORED = "hive_partitioning = false"
SAMPLE_BYTES = 1 << 16  # bytes from which delimiter and header are detected
BLOCK_BYTES = 1 << 20
_MAX_EXACT_FLOAT = 2**24  # larger integers in single precision may be rounded
#: Raised on opening or reading a file, by gzip if it is damaged.
_DAMAGE_ERRORS = (OSError, EOFError, zlib.error)


@dataclass(frozen=True)
class Source(ABC):
    """Format and columns of a table: a file whose rows have not been read, or columns in memory.

    In SQL the columns are c0, c1, ... by position: their own names may have a meaning in DuckDB, as
    ``rowid`` has, or differ only in case.

    Attributes
    ----------
    path : Path
        The file; for columns in memory, a name to use in messages.
    names : list of str
        Names of the columns; ``column 1`` and so on if the file has no header.
    types : sequence of str
        DuckDB types of the columns; VARCHAR if numbers are parsed. Unknown in memory.
    header : bool
        Whether the file names its columns.
    first_line : int
        Line number of the first row; 0 if rows are not lines.
    first_row : int
        Number of the first row if rows are not lines; 0 in Python.
    delimiter : str
        Delimiter between the columns of a text file.
    shape : tuple of int
        Rows and columns of a matrix, otherwise 0; unknown, and 0, for .npz.
    sample : sequence of list of str
        The first rows of a text file.
    about : str
        What rows, columns and values of a matrix are.
    mark : str
        The mark before the decimals of its numbers; "" for a point, and nothing between thousands.
    skipped : str
        A hash of the lines that are left out as no rows; "" if none are.
    """

    #: Whether rows are entries of a matrix: a row, a column and a value.
    is_matrix: ClassVar[bool] = False
    #: Whether it is a text file with a delimiter between columns, or blanks.
    is_text: ClassVar[bool] = False
    #: Whether lines are parsed: each has a rating.
    is_parsed: ClassVar[bool] = False
    #: Whether the columns are in memory.
    is_in_memory: ClassVar[bool] = False
    #: Whether any column may have the names of rows, and not the first alone, in a matrix.
    has_index_anywhere: ClassVar[bool] = False

    path: Path
    names: list[str]
    types: Sequence[str] = ()
    header: bool = True
    first_line: int = 0
    first_row: int = 1
    delimiter: str = ","
    shape: tuple[int, int] = (0, 0)
    sample: Sequence[list[str]] = ()
    about: str = ""
    mark: str = ""
    skipped: str = ""

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.names)

    @property
    def is_labelled(self) -> bool:
        """Whether it is a matrix that has names of its rows and columns."""
        return False

    @property
    def has_ratings(self) -> bool:
        """Whether values are ratings; else all are 1, as clicks are."""
        return True

    def has_integers(self, k: int) -> bool:
        """Whether a column has integers by its type, that of int64 or a smaller one."""
        return False

    # ---------------------------------------------------------------------------------- places

    def where(self, row: int) -> str:
        """Return the position of a row (from 0) in the file, for messages."""
        return self.places([row])[0]

    def places(self, rows: Sequence[int]) -> list[str]:
        """Return the positions of some rows (from 0, ascending) in the file, for messages."""
        if self.first_line:
            return [f"line {number}" for number in self._line_numbers(rows)]
        if not self.first_row:
            return [f"row {row} (the first is row 0)" for row in rows]
        kind = "entry" if self.is_matrix else "row"
        return [f"{kind} {row + self.first_row}" for row in rows]

    def _line_numbers(self, rows: Sequence[int]) -> Iterator[int]:
        """Yield the numbers of the lines of some rows; blank lines are no rows."""
        with opened(self.path) as file, io.TextIOWrapper(file, "latin-1") as lines:
            filled = (k for k, line in enumerate(lines, 1) if k >= self.first_line and line.strip())
            n_read = 0
            for row in rows:
                yield next(islice(filled, row - n_read, None))
                n_read = row + 1

    # ------------------------------------------------------------------------------------- SQL

    def name(self, k: int) -> str:
        """Return SQL for a column of names as text.

        A float that may be a rounded integer gets an exponent.
        """
        text = f"c{k}::VARCHAR"
        if self.types[k : k + 1] != ["FLOAT"]:
            return text
        return (
            f"CASE WHEN abs(c{k}) >= {_MAX_EXACT_FLOAT} THEN format('{{:e}}', c{k}) ELSE {text} END"
        )

    def number(self, k: int) -> str:
        """Return SQL for a column of numbers; NULL for what is none."""
        if self._has_texts(k):
            return self.number_of_text(k)
        return f"try_cast(c{k} AS DOUBLE)"

    def number_of_text(self, k: int) -> str:
        """Return SQL for a column of numbers as their decimals say, also in single precision."""
        mark = self.mark if self._has_texts(k) else ""
        return number_sql(f"c{k}::VARCHAR", mark)

    def _has_texts(self, k: int) -> bool:
        """Whether a column has texts by its type."""
        return "VARCHAR" in self.types[k : k + 1]

    @abstractmethod
    def sql(self, query: str) -> str:
        """Return SQL for the table in a query, which may name fewer columns than it has."""

    def create(self, db: Session, query: str) -> None:
        """Run a query whose ``{table}`` is this table, as in ``CREATE TABLE t AS FROM {table}``.

        Columns of text and JSON files are read as text. JSON columns that the query does not name
        are not read. Raises InputError if the file is damaged, or if lines have a wrong number of
        columns. The error gives the number of bad lines and the first five.
        """
        with reading(self.path):
            db.execute(query.replace("{table}", self.sql(query)))

    def insert_texts(self, db: Session, table: str, k: int, first: int) -> None:
        """Insert the texts of a column that are no numbers into a table (row, text).

        Rows are counted from `first`. Numbers in bounds have decimal points.
        """
        text = with_point_sql(f"trim(c{k}::VARCHAR)", self.mark)
        rows = f"SELECT row_number() OVER () - 1 + {first} AS row, {text} AS text"
        self.create(
            db,
            f"INSERT INTO {table} SELECT row, text FROM ({rows}, {self.number(k)} AS number"
            f" FROM {{table}}) WHERE text IS NOT NULL AND number IS NULL",
        )

    def rows(self, db: Session) -> Iterator[Sequence[str | None]]:
        """Yield the cells of each row as text, in little memory for any width.

        Raises InputError if the file is damaged, or a line has a wrong number of columns.
        """
        cells = ", ".join(f"c{k}::VARCHAR" for k in range(self.width))
        cursor = db.cursor()  # other queries run between two fetches
        with reading(self.path):
            cursor.execute(f"SELECT {cells} FROM {self.sql(cells)}")
            while rows := cursor.fetchmany(max(1, SAMPLE_BYTES // self.width)):
                yield from rows


@contextlib.contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that may be compressed with gzip.

    Raises InputError if opening it, or reading it within the context, fails.
    """
    with refusing(f"{path} cannot be read", *_DAMAGE_ERRORS):
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with cast("IO[bytes]", gzip.open(path)) if packed else path.open("rb") as file:
            yield file


def quoted(path: Path) -> str:
    """Return a path as an SQL string in which wildcards are literal."""
    return literal(glob.escape(str(path.absolute())))


def compression(packed: bool) -> str:
    """Return the option of DuckDB for a file that is `packed` by gzip, or is not."""
    return "compression = 'gzip'" if packed else "compression = 'uncompressed'"
