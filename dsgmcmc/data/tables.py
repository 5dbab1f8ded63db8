"""Reads tables from files (`open_table`) and writes predictions as CSV or Parquet (`write_query`).

Text, JSON and Parquet are read by DuckDB, .npz by SciPy; formats of other tools are in
`dsgmcmc.data.layouts`. All but Parquet and .npz may be compressed with gzip. The format is detected
from the content, except for .npz, which is known by its suffix. An output file appears under its
name only when it is complete.

DuckDB's detection of delimiters and headers is not used: if one line at the end of its sample has
too many columns, DuckDB takes all earlier lines for comments and skips them.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import glob
import gzip
import io
import itertools
import re
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import duckdb
import numpy as np

from dsgmcmc.data.columns import find_column
from dsgmcmc.data.layouts import Layout, blank_separated, find_layout, read_smurff, refuse_size
from dsgmcmc.data.session import (
    Session,
    identifier,
    literal,
    memory_of,
    open_session,
    reading,
    system_reason,
)
from dsgmcmc.errors import InputError, WriteError, refusing, writing
from dsgmcmc.storage.files import remove_folder, sync
from dsgmcmc.terminal import pass_on
from dsgmcmc.types import Array

SHOWN = 5  # bad lines that a message lists
_AS_STORED = (  # without columns that DuckDB derives from folders named COLUMN=VALUE
    "hive_partitioning = false"
)
_BLANKS = "blanks"  # any number of spaces and tabs
_KONECT = "% *(?:sym|asym|bip) "  # the first line of a network of KONECT
_RECBOLE = "[^:]+:(?:token|float|token_seq|float_seq)"  # names of columns in files of RecBole
_DELIMITERS = ("::", "\t", ",", ";", "|", " ")
_NO_DELIMITER = "\1"  # of a file whose lines are read whole
_SAMPLE_BYTES = 1 << 16  # bytes from which delimiter and header are detected
_BLOCK_BYTES = 1 << 20
_LONGEST_LINE = 1 << 21  # bytes of the longest line that DuckDB reads
_LINE_END = r"\r\n|\n|\r"
_MAX_REJECTS = 1000  # bad lines that DuckDB collects; each takes kilobytes
_DAMAGE_ERRORS = (
    OSError,
    EOFError,
    zlib.error,
)  # raised on opening or reading a file, by gzip if it is damaged
_FORMATS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}


def scalar(db: Session, query: str) -> Any:
    """Return the first value of a query's first row."""
    return db.execute(query).fetchall()[0][0]


def first_column(db: Session, query: str) -> list[Any]:
    """Return the first value of each row of a query."""
    return [row[0] for row in db.execute(query).fetchall()]


def _quoted(path: Path) -> str:
    """Return a path as an SQL string in which wildcards are literal."""
    return literal(glob.escape(str(path.absolute())))


class TableFile(NamedTuple):
    """Format and columns of a table: a file whose rows have not been read, or arrays in memory.

    In SQL the columns are c0, c1, ... by position: their own names may have a meaning in DuckDB, as
    ``rowid`` has, or differ only in case.

    Attributes
    ----------
    path : Path
        The file; for arrays, a name to use in messages.
    kind : {"text", "lines", "json", "parquet", "matrix", "arrays"}
        The lines of "lines", and of a "matrix" in text, are parsed as `layout` says.
    names : list of str
        Names of the columns; ``column 1`` and so on if the file has no header.
    header : bool
        Whether the file names its columns.
    first_line : int
        Line number of the first row; 0 if rows are not lines.
    types : sequence of str
        DuckDB types of the columns of a Parquet file, or of parsed lines.
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
    """

    path: Path
    kind: str
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

    @classmethod
    def of_arrays(cls, path: Path, arrays: Mapping[str, Array]) -> TableFile:
        """Make a table of named columns, (n,) arrays of numbers or of objects that are text or
        None.
        """
        return cls(path, "arrays", list(arrays), arrays=arrays)

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.names)

    def where(self, row: int) -> str:
        """Return the position of a row (from 0) in the file, for messages; later blank lines are
        not counted.
        """
        if self.first_line:
            return f"line {row + self.first_line}"
        return f"{'entry' if self.kind == 'matrix' else 'row'} {row + 1}"

    def name(self, k: int) -> str:
        """Return SQL for a column of names as text; a float that may be a rounded integer gets an
        exponent.
        """
        if self.types[k : k + 1] == ["FLOAT"]:
            return (
                f"CASE WHEN abs(c{k}) >= {2**24} THEN format('{{:e}}', c{k}) ELSE c{k}::VARCHAR END"
            )
        return f"c{k}::VARCHAR"

    def create(self, db: Session, query: str, number: int | None = None) -> None:
        """Run a query whose ``{table}`` is this table, such as ``CREATE TABLE t AS SELECT c0 FROM
        {table}``.

        Columns of text and JSON files are read as text, except for the column at position `number`
        of a text file, which is read as float64. JSON columns that the query does not name are not
        read. Raises InputError if the file is damaged, or if lines have a wrong number of columns
        or text in place of a number. The error gives the number of bad lines and the first five.
        """
        if not self.layout and (self.packed or self.kind == "text"):
            self._check_end()
        arrays = self.arrays
        if self.layout:
            self._parse(db, self.layout)
        elif self.kind == "matrix" and arrays is None:
            matrix = _read_npz(db, self.path)
            arrays = {"row": matrix.row, "col": matrix.col, "value": matrix.data}
        if arrays is not None:
            db.register("arrays", {f"c{k}": array for k, array in enumerate(arrays.values())})
        with reading(self.path):
            try:
                db.execute(query.replace("{table}", self._sql(query, number, self.mixed)))
            except duckdb.InvalidInputException:
                if self.kind != "text":
                    raise
                # DuckDB raises this error if some lines end in \r\n and others in \n
                db.execute("DROP TABLE IF EXISTS reject_errors; DROP TABLE IF EXISTS reject_scans")
                db.execute(query.replace("{table}", self._sql(query, number, mixed_ends=True)))
        if self.layout:
            db.execute("DROP TABLE lines")
        if self.kind == "text":
            self._refuse_rejected(db)
        if number is not None:
            self._refuse_underscores(db, number)

    def rows(self, db: Session) -> Iterator[Sequence[str | None]]:
        """Yield the cells of each row as text, in little memory for any width.

        Raises InputError if the file is damaged, or a line has a wrong number of columns.
        """
        if self.kind != "text":
            cells = ", ".join(f"c{k}::VARCHAR" for k in range(self.width))
            cursor = db.cursor()  # other queries run between two fetches
            with reading(self.path):
                cursor.execute(f"SELECT {cells} FROM {self._sql(cells, None)}")
                while rows := cursor.fetchmany(max(1, _SAMPLE_BYTES // self.width)):
                    yield from rows
            return
        number = 0
        with _opened(self.path) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
            for _ in range(self.first_line - 1):
                text.readline()
            try:
                for row in filter(None, csv.reader(text, delimiter=self.delimiter)):
                    if len(row) != self.width:
                        raise ValueError(f"it has {len(row)} columns: expected {self.width}")
                    yield row
                    number += 1
            except (ValueError, csv.Error) as error:
                raise InputError(
                    f"{self.path}: {self.where(number)} cannot be read: {error}"
                ) from error

    def _sql(self, query: str, number: int | None, mixed_ends: bool = False) -> str:
        """Return SQL for the table; `mixed_ends` says that lines of text end in different ways.

        Mixed line ends need DuckDB's non-strict mode, which ignores surplus columns. Therefore a
        second scan of the file, with one more column, raises an error at the first line with a
        surplus column.
        """
        if self.layout:
            return f"({self.layout.rows})"
        if self.kind in ("arrays", "matrix"):
            return "arrays"
        if self.kind == "parquet":
            columns = ", ".join(f"c{k}" for k in range(self.width))
            return f"read_parquet({_quoted(self.path)}, {_AS_STORED}) AS t({columns})"
        compression = "gzip" if self.packed else "uncompressed"
        if self.kind == "json":
            selected = [k for k in range(self.width) if re.search(rf"\bc{k}\b", query)]
            columns = ", ".join(f"{literal(self.names[k])}: 'VARCHAR'" for k in selected)
            source = f"read_json({_quoted(self.path)}, {_AS_STORED}, columns = {{{columns}}}, "
            return (
                f"{source}compression = '{compression}') AS"
                f" t({', '.join(f'c{k}' for k in selected)})"
            )
        quote = "" if self.delimiter in ("::", _NO_DELIMITER) else '"'
        fields = ", ".join(
            f"c{k}: '{'DOUBLE' if k == number else 'VARCHAR'}'" for k in range(self.width)
        )
        source = (
            f"read_csv({_quoted(self.path)}, auto_detect = false, header = false, skip ="
            f" {self.first_line - 1}, delim = {literal(self.delimiter)}, quote = '{quote}', escape"
            f" = '{quote}', compression = '{compression}', encoding = '{self.encoding}',"
            f" {_AS_STORED}, "
        )
        rejects = f"store_rejects = true, rejects_limit = {_MAX_REJECTS}"
        if not mixed_ends:
            return f"{source}{rejects}, columns = {{{fields}}})"
        source += "strict_mode = false, parallel = false, "
        surplus = literal(f"a line has more than {self.width} columns, and begins with ")
        return (
            f"(SELECT * FROM {source}{rejects}, columns = {{{fields}}}) WHERE (SELECT"
            f" count(error({surplus} || c0)) FROM {source}ignore_errors = true, null_padding ="
            f" true, columns = {{{fields}, more: 'VARCHAR'}}) WHERE more IS NOT NULL) = 0)"
        )

    def _parse(self, db: Session, layout: Layout) -> None:
        """Parse all lines into the table ``lines``; raise InputError if some cannot be read."""
        whole = self._replace(
            kind="text", names=["line"], first_line=layout.skipped + 1, layout=None
        )
        whole.create(db, f"CREATE OR REPLACE TABLE lines AS {layout.query}")
        query = (
            "SELECT rowid, bad, count(*) OVER () FROM lines WHERE bad IS NOT NULL ORDER BY rowid"
        )
        if bad := db.execute(f"{query} LIMIT {SHOWN}").fetchall():
            shown = "".join(
                f"\n  line {row + layout.skipped + 1}: {line.strip()[:60]!r}"
                for row, line, _ in bad
            )
            number = f"{bad[0][-1]} line{'s' * (len(bad) > 1)}"
            raise InputError(
                f"{self.path}: {number} cannot be read; expected {layout.expected}{shown}"
            )
        if fault := scalar(db, f"SELECT {layout.fault} FROM lines"):
            raise InputError(f"{self.path} cannot be read: {fault}")

    def _check_end(self) -> None:
        """Refuse two faults that DuckDB overlooks: damaged compression, and a last line of text
        that is too long.
        """
        end = b""
        with _opened(self.path) as file:
            if not self.packed:
                file.seek(max(0, file.seek(0, io.SEEK_END) - _LONGEST_LINE))
            while block := file.read(_BLOCK_BYTES):
                end = (end + block)[-_LONGEST_LINE:]
        if (
            self.kind == "text"
            and len(end) == _LONGEST_LINE
            and b"\n" not in end
            and b"\r" not in end
        ):
            raise InputError(
                f"{self.path} is not a table: its last line has more than {_LONGEST_LINE:,} bytes"
            )

    def _refuse_rejected(self, db: Session) -> None:
        """Raise InputError if DuckDB could not read some lines."""
        bad = db.execute(
            "SELECT line, first(column_name), first(error_message), first(csv_line), sum(count(*))"
            " OVER () FROM reject_errors GROUP BY line ORDER BY line"
        ).fetchall()
        db.execute("DROP TABLE reject_errors; DROP TABLE reject_scans")
        if bad:
            more = " or more" if bad[0][-1] >= _MAX_REJECTS else ""
            number = f"{len(bad)}{more} line{'s' if len(bad) > 1 else ''}"
            message = f"{self.path}: {number} cannot be read; correct or remove them"
            if any("convert string" in error for _, _, error, _, _ in bad):
                message += (
                    ": write numbers with a point for decimals, and no other comma, sign or unit"
                )
            for line, column, error, content, _ in bad[:SHOWN]:
                name = self.names[int(column[1:])] if column else ""
                reason = error.splitlines()[0].replace(f'"{column}"', f'"{name}"')
                message += f"\n  line {line}: {reason} ({str(content).strip()[:60]!r})"
            raise InputError(message)

    def _refuse_underscores(self, db: Session, number: int) -> None:
        """Raise InputError if a column of numbers in a text file has underscores, which DuckDB
        reads over.
        """
        query = f"SELECT row_number() OVER () - 1 AS row, c{number} AS text FROM {{table}}"
        self.create(
            db, f"CREATE OR REPLACE TABLE odd AS FROM ({query}) WHERE contains(text, '_') LIMIT 1"
        )
        for row, text in db.execute("FROM odd").fetchall():
            raise InputError(
                f"{self.path}: {self.names[number]} in {self.where(row)} is not a number: {text!r}"
            )


def open_table(
    db: Session, path: Path, is_header: Callable[[list[str]], bool], *, latin1: bool = False
) -> TableFile:
    """Detect the format and the columns of a file from its beginning.

    Raises InputError if the file cannot be read, or is text with fewer than two columns.

    Parameters
    ----------
    is_header : callable
        Returns whether the fields in the first line of a text file are column names.
    latin1 : bool
        Read text as Latin-1 if any part of the file is not UTF-8.
    """
    if not path.is_file():
        raise InputError(f"{path} is not a file" if path.exists() else f"{path} does not exist")
    matrix = TableFile(path, "matrix", ["row", "col", "value"])
    if path.suffix.lower() == ".npz":
        return matrix
    with _opened(path) as file:
        head = file.read(_SAMPLE_BYTES)
        while (
            head.count(b"\n") < 3
            and len(head) < 2 * _LONGEST_LINE
            and (more := file.read(_SAMPLE_BYTES))
        ):
            head += more  # lines of a wide table are long
        packed = isinstance(file, gzip.GzipFile)
        if smurff := read_smurff(path, file, head, memory_of(db)):
            return matrix._replace(shape=smurff[0], arrays=smurff[1])
        if head.startswith(b"PAR1"):
            with reading(path):
                columns = db.execute(
                    f"DESCRIBE FROM read_parquet({_quoted(path)}, {_AS_STORED})"
                ).fetchall()
            names, types = ([str(column[k]) for column in columns] for k in (0, 1))
            return TableFile(path, "parquet", names, types)
        encoding = "latin-1" if latin1 and not _is_utf8(file) else "utf-8"
    is_matrix_market = head[:14].lower() == b"%%matrixmarket"
    text = _decode(
        path, head, "latin-1" if is_matrix_market else encoding
    )  # any encoding in comments
    lines = re.split(_LINE_END, text)
    mixed = len(set(re.findall(_LINE_END, text))) > 1
    if layout := find_layout(path, lines):
        parsed = matrix._replace(
            packed=packed, delimiter=_NO_DELIMITER, mixed=mixed, layout=layout, shape=layout.shape
        )
        if "value" in layout.columns:
            return parsed
        types = ["DOUBLE" if name == "rating" else "VARCHAR" for name in layout.columns]
        return parsed._replace(kind="lines", names=list(layout.columns), types=types)
    if text.lstrip()[0] in "[{":
        source = (
            f"read_json_objects({_quoted(path)}, compression ="
            f" '{'gzip' if packed else 'uncompressed'}')"
        )
        with reading(path):  # any of the first objects may lack a key
            keys = first_column(
                db, f"SELECT unnest(json_keys(json)) FROM (FROM {source} LIMIT 1000)"
            )
        return TableFile(path, "json", list(dict.fromkeys(keys)), packed=packed)
    if not text.endswith("\n") and any(map(str.strip, lines[:-1])):
        lines.pop()  # the sample may end within this line
    table = _open_lines(path, lines, is_header)._replace(
        packed=packed, encoding=encoding, mixed=mixed
    )
    if table.delimiter != _BLANKS:
        return table
    layout = blank_separated(table.width, table.first_line - 1)
    return table._replace(
        kind="lines", types=["VARCHAR"] * table.width, delimiter=_NO_DELIMITER, layout=layout
    )


def _open_lines(path: Path, lines: list[str], is_header: Callable[[list[str]], bool]) -> TableFile:
    """Return the table that a text file has, by its first lines."""
    filled = [k for k, line in enumerate(lines) if line.strip()]
    body = (
        list(itertools.dropwhile(lambda k: lines[k].lstrip().startswith(("#", "%")), filled))
        or filled
    )
    marked = [lines[k].lstrip() for k in filled if k < body[0]]
    rows = [lines[k] for k in body[:50]]
    delimiter = _BLANKS if marked and re.match(_KONECT, marked[0]) else _detect_delimiter(rows)
    first_line, header = body[0] + 1, False
    if marked:
        fields, header = _commented_header(path, marked, rows, delimiter, is_header)
    if not header:
        fields = [field.strip() for field in _split(rows[0], delimiter)]
        header = is_header(fields)
        first_line += header
        del rows[:header]
    sample = [_split(row, delimiter) for row in rows]
    if (
        header
        and {len(row) for row in sample} == {len(fields) + 1}
        and len({row[0] for row in sample}) == len(sample)
    ):
        fields.insert(
            0, ""
        )  # R's write.table leaves the column of row names, which are distinct, without a name
    if len(fields) < 2:
        raise InputError(f"{path} has one column: expected several, with a delimiter between them")
    if header and all(re.fullmatch(_RECBOLE, field) for field in fields):
        fields = [field.partition(":")[0] for field in fields]
    names = fields if header else [f"column {k + 1}" for k in range(len(fields))]
    return TableFile(
        path, "text", names, (), header, first_line, delimiter=delimiter, sample=sample
    )


def _commented_header(
    path: Path,
    marked: list[str],
    rows: list[str],
    delimiter: str,
    is_header: Callable[[list[str]], bool],
) -> tuple[list[str], bool]:
    """Return the names of columns if they are in a comment before the rows, and whether they are.

    `marked` are lines that begin with # or %. The last one names the columns if it has as many
    fields as the rows, and among them a usual name of users or items, or no blanks between them.
    Other lines are comments. Raises InputError if the first one may be a row.
    """
    widths = {len(_split(row, delimiter)) for row in rows}
    fields = [field.strip() for field in _split(marked[-1].lstrip("#%").lstrip(" "), delimiter)]
    usual = any(find_column(fields, role) is not None for role in ("user", "item"))
    is_last = bool(widths & {len(fields), len(fields) + 1}) and is_header(fields)
    if is_last and (usual or delimiter not in (_BLANKS, "\t", " ")):
        return fields, True
    if {len(_split(marked[-1], delimiter))} == widths and not re.match("[#%]+[ \t]", marked[-1]):
        advice = "Remove it, or write the names of columns above it"
        raise InputError(
            f"{path}: is {marked[-1][:60]!r} at its beginning a comment, or a row? {advice}"
        )
    return [], False


def _split(line: str, delimiter: str) -> list[str]:
    """Return the fields of a line."""
    if delimiter in ("::", _BLANKS):
        return line.split(None if delimiter == _BLANKS else delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # more than 128 KiB without a delimiter
        return [line]


def _detect_delimiter(lines: list[str]) -> str:
    """Return the delimiter that splits all lines into the same number of fields, at least two.

    If several delimiters do so, the delimiter with the most fields is returned. The first line may
    have one field fewer, as in files of R's write.table. If no delimiter does so, because lines are
    bad or names contain line ends, the first delimiter that splits the first line is returned.
    Several blanks may delimit columns if nothing else does.
    """
    counts = {
        delimiter: [len(_split(line, delimiter)) for line in lines]
        for delimiter in (*_DELIMITERS, _BLANKS)
    }
    consistent = [
        delimiter
        for delimiter, (first, *others) in counts.items()
        if first > 1 and (set(others) <= {first} or set(others) == {first + 1})
    ]
    blanks = _BLANKS in consistent and not any(re.search('[",;|]|::', line) for line in lines)
    most = max(
        consistent or [""],
        key=lambda delimiter: (delimiter != _BLANKS, counts.get(delimiter, [0])[0]),
    )
    if blanks and (
        most == _BLANKS
        or (most == " " and any("\t" in line or "" in line.split(" ") for line in lines))
    ):
        return _BLANKS
    if most and most != _BLANKS:
        return most
    return next(
        (delimiter for delimiter in _DELIMITERS if counts[delimiter][0] > 1), _DELIMITERS[0]
    )


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that may be compressed with gzip; raises InputError if reading it within the
    context fails.
    """
    with refusing(f"{path} cannot be read", *_DAMAGE_ERRORS):
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with cast("IO[bytes]", gzip.open(path)) if packed else path.open("rb") as file:
            yield file


def _is_utf8(file: IO[bytes]) -> bool:
    """Whether an open file is UTF-8."""
    file.seek(0)
    try:
        for _ in codecs.iterdecode(iter(lambda: file.read(_BLOCK_BYTES), b""), "utf-8"):
            pass
    except UnicodeDecodeError:
        return False
    return True


def _decode(path: Path, head: bytes, encoding: str) -> str:
    """Return the beginning of a text file; raise InputError if it is empty, or not text."""
    try:
        text = codecs.getincrementaldecoder(
            "utf-8-sig" if encoding == "utf-8" else encoding
        )().decode(head)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        advice = (
            "read other formats into a data frame, and give the data frame to BPMF, or write it as"
            " Parquet"
        )
        found = "is neither UTF-8 text nor in another known format"
        raise InputError(f"{path} {found}: convert text with iconv; {advice}")
    if not text.strip():
        raise InputError(f"{path} is empty")
    return text


def is_number(text: str) -> bool:
    """Whether a text is a finite number; Python alone takes 1_0 and other digits than 0 to 9."""
    try:
        return text.isascii() and "_" not in text and bool(np.isfinite(float(text)))
    except ValueError:
        return False


def read_matrix(db: Session, table: TableFile) -> tuple[Any, int]:
    """Read a matrix as scipy.sparse.coo_array or coo_matrix; also return the number of its first
    row and column.

    This is 0 in .npz, and 1 in MatrixMarket and files of SMURFF. Raises InputError if the file is
    damaged.
    """
    import scipy.sparse  # slow to import

    if table.path.suffix.lower() == ".npz":
        return _read_npz(db, table.path), 0
    table.create(db, "CREATE OR REPLACE TABLE entries AS SELECT c0, c1, c2 FROM {table}")
    row, col, value = db.execute("FROM entries").fetchnumpy().values()
    db.execute("DROP TABLE entries")
    return scipy.sparse.coo_matrix((value, (row - 1, col - 1)), shape=table.shape), 1


def _read_npz(db: Session, path: Path) -> Any:
    """Read a matrix that SciPy has saved; only the formats in which every stored entry is a rating
    are read.
    """
    import scipy.sparse

    # zipfile, NumPy and SciPy raise errors of many types
    with refusing(f"{path} is not a sparse matrix that can be read", Exception):
        with zipfile.ZipFile(path) as archive:
            refuse_size(path, sum(info.file_size for info in archive.infolist()), memory_of(db))
        matrix = scipy.sparse.load_npz(path)
        layout = getattr(matrix, "format", "dense")
        if layout in ("csr", "csc"):
            matrix.check_format(full_check=True)  # tocoo trusts the index pointer
        elif layout != "coo":  # in other formats a zero may or may not be a rating
            raise ValueError(f"its format is {layout}, not csr, csc or coo")
        matrix = matrix.tocoo()
        if matrix.data.dtype.kind not in "fiub":
            raise ValueError(f"its values are {matrix.data.dtype}, not real numbers")
    return matrix


def holds(db: Session, condition: str, table: str) -> bool:
    """Whether a condition in SQL is true for all rows of a table; the first row usually tells that
    it is not.
    """
    first = db.execute(f"SELECT {condition} FROM {table} LIMIT 1").fetchall()
    return first == [(True,)] and bool(scalar(db, f"SELECT bool_and({condition}) FROM {table}"))


def trim_names(db: Session, table: str, column: str, first: int = 0) -> None:
    """Strip spaces from the names in a column of a DuckDB table if all names have them, and ``.0``
    if all are integers.

    Spaces may follow every delimiter, and pandas writes a column of integers as floats if a value
    is missing. Only rows from `first` on are considered: those of one file.
    """
    spaces = f"trim({column}) != {column}", f"trim({column})"
    zeros = f"regexp_full_match({column}, '-?[0-9]+[.]0')", f"left({column}, -2)"
    for condition, stripped in (spaces, zeros):
        if holds(db, condition, f"(FROM {table} WHERE rowid >= {first})"):
            db.execute(f"UPDATE {table} SET {column} = {stripped} WHERE rowid >= {first}")


def append_results(db: Session, columns: Mapping[str, Array]) -> None:
    """Append rows, given as columns, to the table ``results``, made by the first call; NaN becomes
    NULL.
    """
    db.register("chunk", columns)
    names = ((identifier(name), column.dtype.kind) for name, column in columns.items())
    picked = ", ".join(
        f"CASE WHEN NOT isnan({n}) THEN {n} END AS {n}" if kind == "f" else n for n, kind in names
    )
    db.execute(f"CREATE TABLE IF NOT EXISTS results AS SELECT {picked} FROM chunk LIMIT 0")
    db.execute(f"INSERT INTO results SELECT {picked} FROM chunk")
    db.unregister("chunk")


def write_query(db: Session, query: str, out: Path | None) -> None:
    """Write the rows of a query, in order, to a file that appears only when complete, or to
    standard output as CSV.

    `out` ends in ``.csv``, ``.parquet`` or ``.pq``, or is None for standard output.
    """
    how = (
        "FORMAT csv, HEADER" if output_format(out) == "csv" else "FORMAT parquet, COMPRESSION zstd"
    )
    with writing(out or Path(tempfile.gettempdir())):
        new = Path(tempfile.mkdtemp(prefix=".dsgmcmc-", dir=out and out.parent))
    try:
        written = new / "rows"
        db.execute(f"COPY ({query}) TO {literal(str(written))} ({how})")
        if out is None:
            with written.open("rb") as file:
                pass_on(file)
        else:
            with writing(out):
                sync(written)
                written.replace(out)
    except duckdb.IOException as error:
        raise WriteError(
            f"{out or 'standard output'} cannot be written: {system_reason(error)}"
        ) from error
    finally:
        remove_folder(new)


def output_format(out: Path | None) -> str:
    """Return ``csv`` or ``parquet`` by the suffix; raise InputError for other suffixes, or if the
    folder is missing.
    """
    if out is None:
        return "csv"
    if out.suffix.lower() not in _FORMATS:
        raise InputError(f"{out}: the suffix of the output must be one of {', '.join(_FORMATS)}")
    if not out.parent.is_dir() or (out.exists() and not out.is_file()):
        reason = "it is not a file" if out.exists() else f"the folder {out.parent} does not exist"
        raise InputError(f"{out} cannot be written: {reason}")
    return _FORMATS[out.suffix.lower()]


def write_blocks(blocks: Iterable[Mapping[str, Array]], out: Path) -> None:
    """Write blocks of rows to a CSV or Parquet file; each block maps column names, equal in all
    blocks, to arrays.
    """
    with open_session(out.parent) as db:
        for block in blocks:
            append_results(db, block)
        write_query(db, "SELECT * FROM results", out)
