"""Reads the rows of tables: files of text, JSON or Parquet, sparse matrices, and arrays in memory.

`dsgmcmc.input.detect.open_table` detects the format of a file. Text, JSON and Parquet are read
by DuckDB, .npz by SciPy. All but Parquet and .npz may be compressed with gzip.
"""

from __future__ import annotations

import contextlib
import csv
import glob
import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import duckdb
import numpy as np

from dsgmcmc.errors import InputError, refusing
from dsgmcmc.input.sources.formats import Layout, refuse_size
from dsgmcmc.ratings.names import join_sql, part_sql
from dsgmcmc.tables.session import Session, as_number, literal, memory_of, reading
from dsgmcmc.types import Array

SHOWN = 5  # bad lines that a message lists
#: Option without which DuckDB derives columns from folders named COLUMN=VALUE.
_AS_STORED = "hive_partitioning = false"
#: Types of integers that an int64 holds.
_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"}
NO_DELIMITER = "\1"  # of a file whose lines are read whole
SAMPLE_BYTES = 1 << 16  # bytes from which delimiter and header are detected
BLOCK_BYTES = 1 << 20
LONGEST_LINE = 1 << 21  # bytes of the longest line that DuckDB reads
_MAX_REJECTS = 1000  # bad lines that DuckDB collects; each takes kilobytes
_MAX_EXACT_FLOAT = 2**24  # larger integers in single precision may be rounded
#: Raised on opening or reading a file, by gzip if it is damaged.
_DAMAGE_ERRORS = (OSError, EOFError, zlib.error)


def scalar(db: Session, query: str) -> Any:
    """Return the first value of a query's first row."""
    return db.execute(query).fetchall()[0][0]


def first_column(db: Session, query: str) -> list[Any]:
    """Return the first value of each row of a query."""
    return [row[0] for row in db.execute(query).fetchall()]


def distinct_names(entity: str) -> str:
    """Return SQL for the names of users or items in the table ``raw``, as texts ``id``."""
    return f"(SELECT id::VARCHAR AS id FROM (SELECT DISTINCT {entity}_id AS id FROM raw))"


def add_columns(db: Session, types: Mapping[str, str]) -> None:
    """Add columns of these types to the table ``raw``, unless it has them."""
    for name, sql_type in types.items():
        db.execute(f"ALTER TABLE raw ADD COLUMN IF NOT EXISTS {name} {sql_type}")


def _quoted(path: Path) -> str:
    """Return a path as an SQL string in which wildcards are literal."""
    return literal(glob.escape(str(path.absolute())))


def _compression(packed: bool) -> str:
    return "compression = 'gzip'" if packed else "compression = 'uncompressed'"


def columns_of_parquet(path: Path) -> str:
    """Return SQL for a Parquet file with the names and types of its columns."""
    return f"read_parquet({_quoted(path)}, {_AS_STORED})"


def objects_of_json(path: Path, *, packed: bool) -> str:
    """Return SQL for a JSON file as a table with one column, ``json``."""
    return f"read_json_objects({_quoted(path)}, {_compression(packed)})"


class TableFile(NamedTuple):
    """Format and columns of a table: a file whose rows have not been read, or arrays in memory.

    In SQL the columns are c0, c1, ... by position: their own names may have a meaning in DuckDB, as
    ``rowid`` has, or differ only in case.

    Attributes
    ----------
    path : Path
        The file; for arrays, a name to use in messages.
    format : {"text", "lines", "json", "parquet", "matrix", "arrays"}
        The lines of "lines", and of a "matrix" in text, are parsed as `layout` says.
    names : list of str
        Names of the columns; ``column 1`` and so on if the file has no header.
    types : sequence of str
        DuckDB types of the columns of a Parquet file, or of parsed lines.
    header : bool
        Whether the file names its columns.
    first_line : int
        Line number of the first row; 0 if rows are not lines.
    packed : bool
        Whether the file is compressed with gzip.
    delimiter, encoding : str
        Delimiter between the columns of a text file, and its encoding.
    mixed : bool
        Whether lines at the beginning of a text file end in different ways, which DuckDB skips
        wrongly.
    arrays : dict of str to array, optional
        Columns in memory, by name.
    layout : Layout, optional
        How lines become rows.
    shape : tuple of int
        Rows and columns of a matrix, otherwise 0; unknown, and 0, for .npz.
    sample : sequence of list of str
        The first rows of a text file.
    axes : tuple of (n,) and (m,) object, optional
        Names of the rows and the columns of a matrix whose `arrays` have positions from 0.
    about : str
        What rows, columns and values of a matrix are.
    """

    path: Path
    format: str
    names: list[str]
    types: Sequence[str] = ()
    header: bool = True
    first_line: int = 0
    packed: bool = False
    delimiter: str = ","
    encoding: str = "utf-8"
    mixed: bool = False
    arrays: Mapping[str, Array] | None = None
    layout: Layout | None = None
    shape: tuple[int, int] = (0, 0)
    sample: Sequence[list[str]] = ()
    axes: tuple[Array, Array] | None = None
    about: str = ""

    @classmethod
    def of_arrays(cls, path: Path, arrays: Mapping[str, Array]) -> TableFile:
        """Make a table of named columns: (n,) arrays of numbers, or of texts and None as object."""
        return cls(path, "arrays", list(arrays), arrays=arrays)

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.names)

    def where(self, row: int) -> str:
        """Return the position of a row (from 0) in the file, for messages."""
        return self.places([row])[0]

    def places(self, rows: Sequence[int]) -> list[str]:
        """Return the positions of some rows (from 0, ascending) in the file, for messages."""
        if self.first_line:
            return [f"line {number}" for number in self._line_numbers(rows)]
        kind = "entry" if self.format == "matrix" else "row"
        return [f"{kind} {row + 1}" for row in rows]

    def _line_numbers(self, rows: Sequence[int]) -> Iterator[int]:
        """Yield the numbers of the lines of some rows; blank lines are no rows."""
        with opened(self.path) as file, io.TextIOWrapper(file, "latin-1") as lines:
            filled = (k for k, line in enumerate(lines, 1) if k >= self.first_line and line.strip())
            n_read = 0
            for row in rows:
                yield next(islice(filled, row - n_read, None))
                n_read = row + 1

    def has_integers(self, k: int) -> bool:
        """Whether a column has integers by its type, that of int64 or a smaller one."""
        if self.axes is not None:  # whose positions stand for texts
            return False
        if self.arrays is not None:
            dtype = list(self.arrays.values())[k].dtype
            return dtype.kind in "iu" and np.can_cast(dtype, np.int64)
        return self.format == "parquet" and self.types[k] in _INTEGERS

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
        if self.format in ("text", "json") or self.types[k : k + 1] == ["VARCHAR"]:
            return as_number(f"c{k}::VARCHAR")
        return f"try_cast(c{k} AS DOUBLE)"

    def insert_texts(self, db: Session, table: str, k: int, first: int) -> None:
        """Insert the texts of a column that are no numbers into a table (row, text).

        Rows are counted from `first`.
        """
        rows = f"SELECT row_number() OVER () - 1 + {first} AS row, trim(c{k}::VARCHAR) AS text"
        self.create(
            db,
            f"INSERT INTO {table} SELECT * FROM ({rows} FROM {{table}})"
            f" WHERE text IS NOT NULL AND {as_number('text')} IS NULL",
        )

    def create(self, db: Session, query: str) -> None:
        """Run a query whose ``{table}`` is this table, as in ``CREATE TABLE t AS FROM {table}``.

        Columns of text and JSON files are read as text. JSON columns that the query does not name
        are not read. Raises InputError if the file is damaged, or if lines have a wrong number of
        columns. The error gives the number of bad lines and the first five.
        """
        if not self.layout and (self.packed or self.format == "text"):
            self._check_end()
        if self.layout:
            self._parse(db, self.layout)
        elif self.arrays is not None:
            _register(db, self._columns_in_memory(self.arrays))
        elif self.format == "matrix":
            matrix = _read_npz(db, self.path)
            _register(db, [matrix.row, matrix.col, matrix.data])
        with reading(self.path):
            self._execute(db, query)
        if self.layout:
            db.execute("DROP TABLE lines")
        if self.format == "text":
            self._refuse_rejected(db)

    def _execute(self, db: Session, query: str) -> None:
        """Run a query; again, if it fails, for lines of text that end in different ways."""
        table = self._sql(query, mixed_ends=self.mixed)
        try:
            db.execute(query.replace("{table}", table))
        except duckdb.InvalidInputException:
            if self.format != "text":
                raise
            # DuckDB raises this error if some lines end in \r\n and others in \n
            db.execute("DROP TABLE IF EXISTS reject_errors; DROP TABLE IF EXISTS reject_scans")
            db.execute(query.replace("{table}", self._sql(query, mixed_ends=True)))

    def rows(self, db: Session) -> Iterator[Sequence[str | None]]:
        """Yield the cells of each row as text, in little memory for any width.

        Raises InputError if the file is damaged, or a line has a wrong number of columns.
        """
        if self.format == "text":
            yield from self._rows_of_text()
            return
        if self.arrays is not None:
            yield from _rows_of_columns(list(self.arrays.values()))
            return
        cells = ", ".join(f"c{k}::VARCHAR" for k in range(self.width))
        cursor = db.cursor()  # other queries run between two fetches
        with reading(self.path):
            cursor.execute(f"SELECT {cells} FROM {self._sql(cells)}")
            while rows := cursor.fetchmany(max(1, SAMPLE_BYTES // self.width)):
                yield from rows

    def _columns_in_memory(self, arrays: Mapping[str, Array]) -> list[Array]:
        """Return the columns of arrays, with names in place of positions in a labelled matrix."""
        columns = list(arrays.values())
        if self.axes is not None:
            rows, cols = self.axes
            columns[0] = rows[columns[0]]
            columns[1] = cols[columns[1]]
        return columns

    def _rows_of_text(self) -> Iterator[Sequence[str]]:
        """Yield the fields of each row of a text file."""
        number = 0
        with opened(self.path) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
            for _ in range(self.first_line - 1):
                text.readline()
            try:
                for row in csv.reader(text, delimiter=self.delimiter):
                    if not row:
                        continue
                    if len(row) != self.width:
                        raise ValueError(f"it has {len(row)} columns: expected {self.width}")
                    yield row
                    number += 1
            except (ValueError, csv.Error) as error:
                raise InputError(
                    f"{self.path}: {self.where(number)} cannot be read: {error}"
                ) from error

    # -------------------------------------------------------------------------------------- SQL

    def _sql(self, query: str, *, mixed_ends: bool = False) -> str:
        """Return SQL for the table; `mixed_ends` says that lines of text end in different ways."""
        if self.layout:
            return f"({self.layout.rows})"
        if self.format in ("arrays", "matrix"):
            return "arrays"
        if self.format == "parquet":
            columns = ", ".join(f"c{k}" for k in range(self.width))
            return f"{columns_of_parquet(self.path)} AS t({columns})"
        if self.format == "json":
            return self._json_sql(query)
        return self._text_sql(mixed_ends)

    def _json_sql(self, query: str) -> str:
        """Return SQL for a JSON file, with the columns that a query names."""
        selected = [k for k in range(self.width) if re.search(rf"\bc{k}\b", query)]
        types = ", ".join(f"{literal(self.names[k])}: 'VARCHAR'" for k in selected)
        columns = ", ".join(f"c{k}" for k in selected)
        return (
            f"read_json({_quoted(self.path)}, {_AS_STORED}, columns = {{{types}}},"
            f" {_compression(self.packed)}) AS t({columns})"
        )

    def _text_sql(self, mixed_ends: bool) -> str:
        """Return SQL for a text file.

        Mixed line ends need DuckDB's non-strict mode, which ignores surplus columns. Therefore a
        second scan of the file, with one more column, raises an error at the first line with a
        surplus column.
        """
        quote = "" if self.delimiter in ("::", NO_DELIMITER) else '"'
        fields = ", ".join(f"c{k}: 'VARCHAR'" for k in range(self.width))
        source = (
            f"read_csv({_quoted(self.path)}, auto_detect = false, header = false,"
            f" skip = {self.first_line - 1}, delim = {literal(self.delimiter)},"
            f" quote = '{quote}', escape = '{quote}', {_compression(self.packed)},"
            f" encoding = '{self.encoding}', {_AS_STORED}, "
        )
        rejects = f"store_rejects = true, rejects_limit = {_MAX_REJECTS}"
        if not mixed_ends:
            return f"{source}{rejects}, columns = {{{fields}}})"
        source += "strict_mode = false, parallel = false, "
        surplus = literal(f"a line has more than {self.width} columns, and begins with ")
        surplus_lines = (
            f"SELECT count(error({surplus} || c0)) FROM {source}ignore_errors = true,"
            f" null_padding = true, columns = {{{fields}, more: 'VARCHAR'}}) WHERE more IS NOT NULL"
        )
        rows = f"SELECT * FROM {source}{rejects}, columns = {{{fields}}})"
        return f"({rows} WHERE ({surplus_lines}) = 0)"

    # ----------------------------------------------------------------------------------- checks

    def _parse(self, db: Session, layout: Layout) -> None:
        """Parse all lines into the table ``lines``; raise InputError if some cannot be read."""
        lines = self._replace(
            format="text", names=["line"], first_line=layout.skipped + 1, layout=None
        )
        lines.create(db, f"CREATE OR REPLACE TABLE lines AS {layout.query}")
        bad = db.execute(
            "SELECT rowid, bad, count(*) OVER () FROM lines WHERE bad IS NOT NULL ORDER BY rowid"
            f" LIMIT {SHOWN}"
        ).fetchall()
        if bad:
            n_bad = bad[0][-1]
            message = (
                f"{self.path}: {_count_lines(n_bad)} cannot be read; expected {layout.expected}"
            )
            for row, line, _ in bad:
                message += f"\n  line {row + layout.skipped + 1}: {line.strip()[:60]!r}"
            raise InputError(message)
        if fault := scalar(db, f"SELECT {layout.fault} FROM lines"):
            raise InputError(f"{self.path} cannot be read: {fault}")

    def _check_end(self) -> None:
        """Raise InputError for damaged compression, or a last line of text that is too long.

        DuckDB overlooks these two faults.
        """
        end = b""
        with opened(self.path) as file:
            if not self.packed:
                file.seek(max(0, file.seek(0, io.SEEK_END) - LONGEST_LINE))
            while block := file.read(BLOCK_BYTES):
                end = (end + block)[-LONGEST_LINE:]
        if self.format != "text" or len(end) < LONGEST_LINE:
            return
        if b"\n" not in end and b"\r" not in end:
            raise InputError(
                f"{self.path} is not a table: its last line has more than {LONGEST_LINE:,} bytes"
            )

    def _refuse_rejected(self, db: Session) -> None:
        """Raise InputError if DuckDB could not read some lines."""
        bad = db.execute(
            "SELECT line, first(column_name), first(error_message), first(csv_line), sum(count(*))"
            " OVER () FROM reject_errors GROUP BY line ORDER BY line"
        ).fetchall()
        db.execute("DROP TABLE reject_errors; DROP TABLE reject_scans")
        if not bad:
            return
        n_lines = _count_lines(len(bad))
        if bad[0][-1] >= _MAX_REJECTS:
            n_lines = f"{len(bad)} or more lines"
        message = f"{self.path}: {n_lines} cannot be read; correct or remove them"
        for line, column, error, content, _ in bad[:SHOWN]:
            name = self.names[int(column[1:])] if column else ""
            reason = error.splitlines()[0].replace(f'"{column}"', f'"{name}"')
            message += f"\n  line {line}: {reason} ({str(content).strip()[:60]!r})"
        raise InputError(message)


def _rows_of_columns(columns: Sequence[Array]) -> Iterator[list[str | None]]:
    """Yield the rows of columns in memory as texts; what is missing is None."""
    lists = [column.tolist() for column in columns]
    for row in zip(*lists, strict=True):
        yield [None if cell is None else str(cell) for cell in row]


def _register(db: Session, columns: Sequence[Array]) -> None:
    """Make columns in memory the table ``arrays``."""
    db.register("arrays", {f"c{k}": column for k, column in enumerate(columns)})


def _count_lines(n: int) -> str:
    return "1 line" if n == 1 else f"{n} lines"


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


def is_number(text: str) -> bool:
    """Whether a text is a finite number; Python alone takes 1_0 and other digits than 0 to 9."""
    try:
        return text.isascii() and "_" not in text and bool(np.isfinite(float(text)))
    except ValueError:
        return False


def read_matrix(db: Session, table: TableFile) -> tuple[Any, int]:
    """Read a matrix as scipy.sparse.coo_array or coo_matrix; also return its first row's number.

    This is 0 in .npz, and 1 in MatrixMarket and files of SMURFF; columns are numbered likewise.
    Raises InputError if the file is damaged.
    """
    import scipy.sparse  # slow to import

    if table.path.suffix.lower() == ".npz":
        return _read_npz(db, table.path), 0
    table.create(db, "CREATE OR REPLACE TABLE entries AS SELECT c0, c1, c2 FROM {table}")
    row, col, value = db.execute("FROM entries").fetchnumpy().values()
    db.execute("DROP TABLE entries")
    return scipy.sparse.coo_matrix((value, (row - 1, col - 1)), shape=table.shape), 1


def _read_npz(db: Session, path: Path) -> Any:
    """Read a matrix that SciPy has saved, in a format in which every stored entry is a rating."""
    import scipy.sparse

    # zipfile, NumPy and SciPy raise errors of many types
    with refusing(f"{path} is not a sparse matrix that can be read", Exception):
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
            refuse_size(path, size, memory_of(db))
        matrix = scipy.sparse.load_npz(path)
        layout = getattr(matrix, "format", "dense")
        if layout in ("csr", "csc"):
            matrix.check_format(full_check=True)  # tocoo trusts the index pointer
        elif layout not in ("coo", "bsr"):  # in other formats a zero may or may not be a rating
            raise ValueError(f"its format is {layout}: save matrix.tocsr()")
        matrix = stored_cells(matrix)
        if matrix.data.dtype.kind not in "fiub":
            raise ValueError(f"its values are {matrix.data.dtype}, not real numbers")
    return matrix


def stored_cells(matrix: Any) -> Any:
    """Return the cells that a SciPy sparse matrix stores, as a coo_array or coo_matrix.

    A block cannot leave out a cell, so that the zeros of a matrix in blocks (BSR) say nothing.
    """
    entries = matrix.tocoo()
    if matrix.format == "bsr":
        entries.eliminate_zeros()
    return entries


def holds(db: Session, condition: str, table: str) -> bool:
    """Whether a condition in SQL is true for all rows of a table.

    The first row usually tells that it is not.
    """
    first = db.execute(f"SELECT {condition} FROM {table} LIMIT 1").fetchall()
    return first == [(True,)] and bool(scalar(db, f"SELECT bool_and({condition}) FROM {table}"))


def trim_names(db: Session, table: str, column: str, first: int = 0, *, n_parts: int = 1) -> None:
    """Strip spaces from the names in a column if all have them, and ``.0`` if all are integers.

    Spaces may follow every delimiter, and pandas writes a column of integers as floats if a value
    is missing. Only rows from `first` on are considered: those of one file. Each part of names of
    several parts is considered by itself (`dsgmcmc.ratings.names`).
    """
    parts = [part_sql(column, k, n_parts) for k in range(n_parts)]
    for k, part in enumerate(parts):
        rules = [
            (f"trim({part}) != {part}", f"trim({part})"),
            (f"regexp_full_match({part}, '-?[0-9]+[.]0')", f"left({part}, -2)"),
        ]
        for rule, stripped in rules:
            condition = f"({column} IS NULL OR {rule})"
            if holds(db, condition, f"(FROM {table} WHERE rowid >= {first})"):
                name = join_sql([*parts[:k], stripped, *parts[k + 1 :]])
                db.execute(f"UPDATE {table} SET {column} = {name} WHERE rowid >= {first}")
