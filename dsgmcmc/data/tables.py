"""Reads tables from files (`open_table`) and writes predictions as CSV or Parquet (`write_query`).

Text with a delimiter, JSON and Parquet are read by DuckDB, sparse matrices (`read_matrix`) by SciPy. Text and JSON may
be compressed with gzip. The format is detected from the content, except for .npz, which is known by its suffix. An
output file appears under its name only when it is complete.

DuckDB's detection of delimiters and headers is not used: if one line at the end of its sample has too many columns, it
takes all earlier lines for comments and skips them.
"""

from __future__ import annotations

import codecs
import csv
import glob
import gzip
import io
import re
import secrets
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import duckdb

from dsgmcmc.data.session import default_memory, identifier, in_short, literal, open_session, reading
from dsgmcmc.errors import InputError, WriteError, writing
from dsgmcmc.storage.files import sync
from dsgmcmc.terminal import pass_on
from dsgmcmc.types import Array

SHOWN = 5  # bad lines in a message
_DELIMITERS = ("::", "\t", ",", ";", "|", " ")
_SAMPLE = 1 << 16  # bytes from which delimiter and header are detected
_BLOCK = 1 << 20
_LONGEST = 1 << 21  # bytes of the longest line that DuckDB reads
_LINE_END = r"\r\n|\n|\r"
_MOST_REJECTS = 1000  # bad lines that DuckDB collects; each takes kilobytes
_DAMAGED = (OSError, EOFError, zlib.error)  # errors that gzip raises for damaged files
_COPIES = 4  # bytes of memory needed per byte of entries while a matrix is read
_FORMATS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}


def scalar(db: duckdb.DuckDBPyConnection, query: str) -> Any:
    """Return the first value of a query's first row."""
    return db.execute(query).fetchall()[0][0]


def _quoted(path: Path) -> str:
    """Return a path as an SQL string in which wildcards stand for themselves."""
    return literal(glob.escape(str(path.absolute())))


@dataclass(frozen=True)
class TableFile:
    """Format and columns of a table in a file whose rows have not been read.

    Attributes
    ----------
    path : Path
    kind : {"text", "json", "parquet"}
    names : list of str
        Names of the columns; ``column 1`` and so on if the file has no header.
    header : bool
        Whether the file names its columns.
    first_line : int
        Line number of the first row; 0 if rows are not lines.
    types : list of str
        DuckDB types of the columns.
    """

    path: Path
    kind: str
    names: list[str]
    header: bool
    first_line: int
    types: list[str]
    packed: bool = False
    delimiter: str = ","
    encoding: str = "utf-8"

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.names)

    def where(self, row: int) -> str:
        """Return the position of a row (from 0) in the file, for messages; blank lines are not counted."""
        return f"line {row + self.first_line}" if self.first_line else f"row {row + 1}"

    def column(self, position: int) -> str:
        """Return the SQL name of a column."""
        return f"c{position}" if self.kind == "text" else identifier(self.names[position])

    def create(self, db: duckdb.DuckDBPyConnection, query: str, numbers: Mapping[int, str] | None = None) -> None:
        """Run a query whose ``{table}`` is this table, such as ``CREATE TABLE t AS SELECT c0 FROM {table}``.

        Columns of text and JSON files are read as text; in text files, `numbers` maps the positions of other columns to
        their DuckDB types. JSON columns that the query does not name are not read. Raises InputError if the file is
        damaged, or if lines have a wrong number of columns or text in place of a number. The error gives the number of
        bad lines and the first five.
        """
        if self.packed or self.kind == "text":
            _check_whole(self.path, self.packed, self.kind == "text")
        if self.kind == "text":
            self._create_from_text(db, query, numbers or {})
            return
        if self.kind == "parquet":
            source = f"read_parquet({_quoted(self.path)})"
        else:
            wanted = [name for name in self.names if identifier(name) in query]
            columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in wanted)
            source = f"read_json({_quoted(self.path)}, columns = {{{columns}}}, compression = '{self._compression}')"
        with reading(self.path):
            db.execute(query.replace("{table}", source))

    @property
    def _compression(self) -> str:
        return "gzip" if self.packed else "none"

    def _create_from_text(self, db: duckdb.DuckDBPyConnection, query: str, numbers: Mapping[int, str]) -> None:
        quote = "" if self.delimiter == "::" else '"'
        fields = [f"c{k}: '{numbers.get(k, 'VARCHAR')}'" for k in range(self.width)]
        options = (
            f"{_quoted(self.path)}, auto_detect = false, header = false, skip = {self.first_line - 1}, "
            f"delim = {literal(self.delimiter)}, quote = '{quote}', escape = '{quote}', "
            f"compression = '{self._compression}', encoding = '{self.encoding}', "
            f"store_rejects = true, rejects_limit = {_MOST_REJECTS}"
        )
        strict = f"read_csv({options}, columns = {{{', '.join(fields)}}})"
        with reading(self.path):
            try:
                db.execute(query.replace("{table}", strict))
            except duckdb.InvalidInputException:  # some lines end in \r\n and others in \n
                db.execute("DROP TABLE IF EXISTS reject_errors; DROP TABLE IF EXISTS reject_scans")
                db.execute(query.replace("{table}", self._tolerant(options, fields)))
        self._refuse_rejected(db)

    def _tolerant(self, options: str, fields: list[str]) -> str:
        """Return SQL that reads lines with mixed line ends, and fails at surplus columns, which DuckDB then ignores."""
        beyond = f"c{self.width}"
        columns = ", ".join([*fields, f"{beyond}: 'VARCHAR'"])
        complaint = literal(f"a line has more than {self.width} columns, and begins with ")
        return (
            f"(SELECT * FROM read_csv({options}, columns = {{{columns}}}, strict_mode = false, null_padding = true, "
            f"parallel = false) WHERE CASE WHEN {beyond} IS NULL THEN true ELSE error({complaint} || c0) END)"
        )

    def _refuse_rejected(self, db: duckdb.DuckDBPyConnection) -> None:
        """Raise InputError if DuckDB could not read some lines."""
        bad = db.execute(
            "SELECT line, first(column_name), first(error_message), first(csv_line) FROM reject_errors "
            "GROUP BY line ORDER BY line"
        ).fetchall()
        rejects = scalar(db, "SELECT count(*) FROM reject_errors")
        db.execute("DROP TABLE reject_errors; DROP TABLE reject_scans")
        if not bad:
            return
        shown = ""
        for line, column, message, content in bad[:SHOWN]:
            reason = message.splitlines()[0]
            if column is not None:
                reason = reason.replace(f'"{column}"', f'"{self.names[int(column[1:])]}"')
            if re.search(r'"-?\d+,\d+"', reason):
                reason += " (a decimal comma: write a point)"
            shown += f"\n  line {line}: {reason} ({str(content).strip()[:60]!r})"
        more = " or more" if rejects >= _MOST_REJECTS else ""
        number = f"{len(bad)}{more} line{'s' if len(bad) > 1 else ''}"
        raise InputError(f"{self.path}: {number} cannot be read; correct or remove them{shown}")


def open_table(
    db: duckdb.DuckDBPyConnection,
    path: Path,
    is_header: Callable[[list[str]], bool],
    *,
    least: int = 2,
    latin1: bool = False,
) -> TableFile:
    """Detect the format and the columns of a file, without reading its rows.

    Raises InputError if the file is no table of at least two columns.

    Parameters
    ----------
    is_header : callable
        Tells from the fields of the first line of a text file whether they are column names.
    least : int
        Smallest number of columns that the delimiter must yield.
    latin1 : bool
        Read text that is not UTF-8 as Latin-1.
    """
    head = _read_head(path)
    if head.startswith(b"PAR1"):
        names, types = _describe(db, path, f"read_parquet({_quoted(path)})")
        return TableFile(path, "parquet", names, True, 0, types)
    packed = head.startswith(b"\x1f\x8b")
    encoding = "latin-1" if latin1 and not _is_utf8(path) else "utf-8"
    text = _decode_head(path, encoding)
    if text.lstrip()[0] in "[{":
        compression = "gzip" if packed else "none"
        source = f"read_json({_quoted(path)}, sample_size = 1, compression = '{compression}')"
        names, types = _describe(db, path, source)
        return TableFile(path, "json", names, True, 0, types, packed)
    if len(text) >= _SAMPLE // 4 and not re.search(_LINE_END, text):
        raise InputError(f"{path} is no table: its first line has more than {len(text):,} characters")
    return _look_at_text(path, text, is_header, least, packed, encoding)


def _describe(db: duckdb.DuckDBPyConnection, path: Path, source: str) -> tuple[list[str], list[str]]:
    """Names and types of the columns of a Parquet or JSON file."""
    with reading(path):
        columns = db.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    return [str(column[0]) for column in columns], [str(column[1]) for column in columns]


def _look_at_text(
    path: Path,
    text: str,
    is_header: Callable[[list[str]], bool],
    least: int,
    packed: bool,
    encoding: str,
) -> TableFile:
    """Detect delimiter and header in the beginning of a text; lines with # before the header are comments."""
    lines = re.split(_LINE_END, text)
    filled = [k for k, line in enumerate(lines) if line.strip()]
    if len(filled) > 1 and not text.endswith("\n"):
        filled.pop()  # the sample may end within this line
    plain = [k for k in filled if not lines[k].startswith("#")] or filled
    delimiter = _detect_delimiter([lines[k] for k in plain[:50]], least)
    widths = [len(_split(lines[k], delimiter)) for k in plain[:50]]
    # the names of the columns may begin with #
    start = next(k for k in filled if k == plain[0] or len(_split(lines[k], delimiter)) == widths[0])
    fields = [field.strip() for field in _split(lines[start], delimiter)]
    header = is_header(fields)
    if header and set(widths[1:]) == {len(fields) + 1}:
        fields.insert(0, "")  # R's write.table gives the column of row names no name
    if len(fields) < 2:
        raise InputError(f"{path} has one column: expected several, with a delimiter between them")
    names = fields if header else [f"column {k + 1}" for k in range(len(fields))]
    first_line = start + 1 + header
    return TableFile(path, "text", names, header, first_line, ["VARCHAR"] * len(names), packed, delimiter, encoding)


def _split(line: str, delimiter: str) -> list[str]:
    """Return the fields of a line."""
    if delimiter == "::":
        return line.split("::")
    return next(csv.reader([line], delimiter=delimiter), [])


def _detect_delimiter(lines: list[str], least: int) -> str:
    """Return the first delimiter that splits all lines into the same number of fields, at least `least`.

    The first line may have one field less, as in files of R's write.table. If no delimiter qualifies, some lines are
    bad, and the delimiter is chosen by the first line alone.
    """
    counts = {delimiter: [len(_split(line, delimiter)) for line in lines] for delimiter in _DELIMITERS}
    for delimiter, numbers in counts.items():
        same = len(set(numbers[1:] or numbers)) == 1
        if same and numbers[0] >= least and numbers[-1] - numbers[0] in (0, 1):
            return delimiter
    return max(_DELIMITERS, key=lambda delimiter: min(counts[delimiter][0], least))


def is_number(field: str) -> bool:
    """Whether a text field is a number."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def _read_head(path: Path) -> bytes:
    """Return the first bytes of a file; raise InputError if it is empty, or no file."""
    if not path.is_file():
        pipe = " but a pipe: write what comes through it to a file first" if path.is_fifo() else ""
        raise InputError(f"{path} is not a file{pipe}" if path.exists() else f"{path} does not exist")
    try:
        with path.open("rb") as file:
            head = file.read(_SAMPLE)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if not head:
        raise InputError(f"{path} is empty")
    return head


def _unpacked(path: Path) -> IO[bytes]:
    """Open a file that may be compressed with gzip. Reading a damaged file raises one of `_DAMAGED`."""
    packed = _read_head(path).startswith(b"\x1f\x8b")
    return cast("IO[bytes]", gzip.open(path)) if packed else path.open("rb")


def _decode_head(path: Path, encoding: str) -> str:
    """Return the beginning of a text file; raise InputError if it is empty, or not text."""
    try:
        with _unpacked(path) as file:
            head = file.read(_SAMPLE)
    except _DAMAGED as error:
        raise InputError(f"{path} is not a whole gzip file: {error}") from error
    refuse_utf16(path, head)
    if b"\0" in head:
        raise InputError(
            f"{path} is neither text nor JSON, Parquet, MatrixMarket or a SciPy matrix in .npz: read it into a data "
            "frame, and give that to BPMF, or write it as Parquet"
        )
    try:
        text = codecs.getincrementaldecoder("utf-8-sig" if encoding == "utf-8" else encoding)().decode(head)
    except UnicodeDecodeError as error:
        line = head[: error.start].count(b"\n") + 1
        raise InputError(
            f"{path}, line {line}: neither UTF-8 text nor another format that is read. Convert text with iconv; read "
            "anything else into a data frame, and write it as Parquet"
        ) from error
    if not text.strip():
        raise InputError(f"{path} is empty")
    return text


def refuse_utf16(path: Path, head: bytes) -> None:
    """Raise InputError for UTF-16 text, which spreadsheets write."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{path} is UTF-16: convert it to UTF-8, e.g. with `iconv -f UTF-16 -t UTF-8`")


def _is_utf8(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with _unpacked(path) as file:
            while block := file.read(_BLOCK):
                decoder.decode(block)
    except UnicodeDecodeError:
        return False
    except _DAMAGED as error:
        raise InputError(f"{path} is not a whole gzip file: {error}") from error
    return True


def _check_whole(path: Path, packed: bool, lines: bool) -> None:
    """Refuse two faults that DuckDB overlooks: damaged compression and, if `lines`, a last line that is too long."""
    end = b""
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            if not packed:
                file.seek(max(0, file.seek(0, io.SEEK_END) - _LONGEST))
            while block := file.read(_BLOCK):
                end = (end + block)[-_LONGEST:]
    except _DAMAGED as error:
        raise InputError(f"{path} is not a whole gzip file: {error}") from error
    if lines and len(end) == _LONGEST and b"\n" not in end and b"\r" not in end:
        raise InputError(f"{path} is no table: its last line has more than {_LONGEST:,} bytes")


def is_matrix(path: Path) -> bool:
    """Whether a file is a sparse matrix, to be read by `read_matrix`."""
    if path.suffix.lower() == ".npz":
        return True
    try:
        with _unpacked(path) as file:
            return file.read(14).lower() == b"%%matrixmarket"
    except _DAMAGED:
        return False


def read_matrix(path: Path, memory: int) -> Any:
    """Read a sparse matrix of real numbers, .npz or MatrixMarket, as scipy.sparse.coo_array or coo_matrix.

    Raises InputError if the file is no such matrix, or if reading it takes more than `memory` bytes.
    """
    import scipy.io  # slow to import
    import scipy.sparse

    archive = path.suffix.lower() == ".npz"
    try:
        size = _unpacked_bytes(path) if archive else _declared_bytes(path)
        if _COPIES * size > memory:
            raise InputError(
                f"{path} declares {size / 1e6:,.0f} MB of entries, and about {_COPIES} times as much memory is needed: "
                "raise --memory, or write its entries as Parquet"
            )
        matrix = scipy.sparse.load_npz(path) if archive else scipy.io.mmread(path)
        if matrix.format in ("csr", "csc"):
            matrix.check_format(full_check=True)  # tocoo trusts the index pointer
        elif matrix.format != "coo":
            raise ValueError(f"its format is {matrix.format}, not csr, csc or coo")
        matrix = matrix.tocoo()
        if matrix.data.dtype.kind not in "fiub":
            raise ValueError(f"its values are {matrix.data.dtype}")
    except InputError:
        raise
    except Exception as error:  # zipfile, NumPy and SciPy raise many types
        raise InputError(f"{path} is not a sparse matrix: {error}") from error
    return matrix


def _unpacked_bytes(path: Path) -> int:
    """Bytes of the arrays in an .npz file."""
    with zipfile.ZipFile(path) as archive:
        return sum(info.file_size for info in archive.infolist())


def _declared_bytes(path: Path) -> int:
    """Bytes of the entries that the header of a MatrixMarket file declares."""
    import scipy.io

    _, _, entries, layout, _, symmetry = scipy.io.mminfo(path)
    if layout != "coordinate" or symmetry != "general":
        raise ValueError(f"it is {layout} {symmetry}: a matrix of ratings is coordinate general")
    return 16 * int(entries)


def append_results(db: duckdb.DuckDBPyConnection, columns: Mapping[str, Array]) -> None:
    """Append columns to the table ``results``, creating it on the first call; NaN becomes NULL."""
    db.register("chunk", columns)
    names = ((identifier(name), column.dtype.kind) for name, column in columns.items())
    picked = ", ".join(f"CASE WHEN NOT isnan({n}) THEN {n} END AS {n}" if kind == "f" else n for n, kind in names)
    db.execute(f"CREATE TABLE IF NOT EXISTS results AS SELECT {picked} FROM chunk LIMIT 0")
    db.execute(f"INSERT INTO results SELECT {picked} FROM chunk")
    db.unregister("chunk")


def write_query(db: duckdb.DuckDBPyConnection, query: str, out: Path | None, scratch: Path) -> None:
    """Write a query's rows, in order, to a file that appears only when complete, or to standard output as CSV.

    Parameters
    ----------
    out : Path or None
        ``.csv``, ``.parquet`` or ``.pq``; None for standard output.
    scratch : Path
        Folder for a temporary copy of the rows that go to standard output.
    """
    kind = output_format(out)
    folder = scratch if out is None else out.parent
    temporary = folder / f".{'stdout' if out is None else out.name}.{secrets.token_hex(4)}"
    how = "FORMAT csv, HEADER" if kind == "csv" else "FORMAT parquet, COMPRESSION zstd"
    try:
        db.execute(f"COPY ({query}) TO {literal(str(temporary))} ({how})")
        if out is None:
            with temporary.open("rb") as file:
                pass_on(file)
        else:
            with writing(out):
                sync(temporary)
                temporary.replace(out)
    except duckdb.IOException as error:
        raise WriteError(f"{out or 'standard output'} cannot be written: {in_short(error)}") from error
    finally:
        temporary.unlink(missing_ok=True)


def output_format(out: Path | None) -> str:
    """Return ``csv`` or ``parquet``, by suffix. Raises InputError for other suffixes or if the folder is missing."""
    if out is None:
        return "csv"
    if out.suffix.lower() not in _FORMATS:
        raise InputError(f"{out}: the output is written as {', '.join(_FORMATS)}, by its suffix")
    if not out.parent.is_dir():
        raise InputError(f"the folder {out.parent} does not exist")
    return _FORMATS[out.suffix.lower()]


def write_blocks(blocks: Iterable[Mapping[str, Array]], out: Path) -> None:
    """Write blocks of rows, columns by name (equal in all blocks), to a CSV or Parquet file."""
    with open_session(out.parent, default_memory()) as (db, _):
        for block in blocks:
            append_results(db, block)
        write_query(db, "SELECT * FROM results", out, out.parent)
