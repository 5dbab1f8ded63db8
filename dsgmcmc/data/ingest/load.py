"""Reads every kind of file into one DuckDB table ``raw`` and refuses bad rows."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from functools import partial
from typing import Any

import duckdb
import numpy as np

from dsgmcmc.data.ingest.columnar import open_columns
from dsgmcmc.data.ingest.complaints import bad_row, complain_of_rows, explain_text
from dsgmcmc.data.ingest.npz import read_npz
from dsgmcmc.data.ingest.packed import check
from dsgmcmc.data.ingest.sources import RatingsInput
from dsgmcmc.data.session import identifier, literal, memory_of, reading
from dsgmcmc.errors import InputError

_ENTRIES = 2_000_000  # of an .npz at a time


def create_raw(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the empty table: names as text, rating, time in seconds or NULL, whether it is a test rating."""
    columns = "user_id VARCHAR, item_id VARCHAR, rating FLOAT, time DOUBLE, test BOOLEAN"
    connection.execute(f"CREATE TABLE raw ({columns})")


def scalar(connection: duckdb.DuckDBPyConnection, query: str) -> Any:
    """Return the first value of a query's first row."""
    return connection.execute(query).fetchall()[0][0]


def load(connection: duckdb.DuckDBPyConnection, source: RatingsInput, test: bool) -> None:
    """Append a file's ratings to ``raw``, in their order.

    Raises InputError if the file cannot be read, holds no ratings, or has rows with missing, non-numeric, infinite or
    NaN values: their number and the first five with line numbers.
    """
    before = scalar(connection, "SELECT count(*) FROM raw")
    with reading(source.path, partial(explain_text, source)):
        if source.kind == "npz":
            _load_npz(connection, source, test)
        elif source.kind == "columnar":
            given = open_columns(connection, source.path)
            connection.register("given", given)
            _insert(connection, source, f"SELECT {_columns(source, list(source.names))} FROM given", test)
            connection.unregister("given")
        else:
            check(source.path, not source.array)
            _insert(connection, source, _selection(source), test, [glob.escape(str(source.path.absolute()))])
    n_bad = scalar(connection, f"SELECT count(*) FROM raw WHERE rowid >= {before} AND {bad_row(source)}")
    if n_bad:
        raise complain_of_rows(connection, source, n_bad, before)
    n = scalar(connection, "SELECT count(*) FROM raw") - before
    if n == 0:
        raise InputError(f"{source.path} has {'a header but ' if source.header else ''}no ratings")
    if source.kind == "mtx":
        _check_declared(connection, source, before, n)


def whole_names(connection: duckdb.DuckDBPyConnection) -> None:
    """Write names that are all whole numbers with ``.0`` without it: pandas makes them where an integer is missing."""
    for column in ("user_id", "item_id"):
        whole = f"regexp_full_match({column}, '-?[0-9]+[.]0')"
        first = scalar(connection, f"SELECT {whole} FROM raw LIMIT 1")
        if first and scalar(connection, f"SELECT bool_and({whole}) FROM raw"):
            connection.execute(f"UPDATE raw SET {column} = left({column}, -2)")


def _insert(
    connection: duckdb.DuckDBPyConnection,
    source: RatingsInput,
    selection: str,
    test: bool,
    parameters: list[str] | None = None,
) -> None:
    """Append what a query selects from a file."""
    time = "NULL"
    if "timestamp" in source.columns:
        time = "coalesce(try_cast(time AS DOUBLE), epoch(try_cast(time AS TIMESTAMPTZ)))"
    values = f"user_id, item_id, try_cast(rating AS FLOAT), {time}, {test}"
    connection.execute(
        f"INSERT INTO raw (user_id, item_id, rating, time, test) SELECT {values} FROM ({selection})",
        parameters,
    )


def _selection(source: RatingsInput) -> str:
    """Return SQL that selects the columns of a text file, which is its parameter."""
    if source.kind == "mtx":
        return _matrix_market(source)
    if source.kind == "text":
        names = [f"c{k}" for k in range(source.width)]
        table = read_csv(names, source.delimiter, source.skip, source.packed)
    else:
        names = list(source.names)
        wanted = [names[k] for k in sorted(source.columns.values())]
        layout = "array" if source.array else "newline_delimited"
        table = f"read_json(?, format = '{layout}', {_texts(wanted, source.packed)})"
    return f"SELECT {_columns(source, names)} FROM {table}"


def _texts(names: Iterable[str], packed: bool) -> str:
    """Options of DuckDB's readers: these columns, as text; and how it unpacks, see `readable`."""
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names)
    return f"columns = {{{columns}}}, compression = '{'gzip' if packed else 'none'}'"


def read_csv(names: Iterable[str], delimiter: str, skip: int, packed: bool, more: str = "", quoted: bool = True) -> str:
    """Return SQL that reads the columns of delimited text, all as text, from the file that is its parameter.

    Files with ``::`` have no quotes. `more` are other options, ``, NAME = VALUE``.
    """
    quote = '"' if quoted and delimiter != "::" else ""
    return (
        f"read_csv(?, auto_detect = false, header = false, skip = {skip}, delim = {literal(delimiter)}, "
        f"quote = '{quote}', escape = '{quote}', {_texts(names, packed)}{more})"
    )


def _columns(source: RatingsInput, names: list[str]) -> str:
    """Return the select list that gives the columns `names` of a file their roles."""
    roles = {"user": "user_id", "item": "item_id", "rating": "rating", "timestamp": "time"}
    selected = [f"{identifier(names[k])}::VARCHAR AS {roles[role]}" for role, k in source.columns.items()]
    return ", ".join(selected if "rating" in source.columns else [*selected, "1 AS rating"])


def _matrix_market(source: RatingsInput) -> str:
    """Select the entries of a MatrixMarket file, whose fields any white space separates."""
    skip, _, pattern = _declared(source)
    rating = "CASE WHEN len(f) = 2 THEN 1 END" if pattern else "CASE WHEN len(f) = 3 THEN f[3] END"
    lines = read_csv(["line"], "\1", skip, source.packed, quoted=False)
    return (
        f"SELECT {_index('f[1]')} AS user_id, {_index('f[2]')} AS item_id, "
        f"{rating} AS rating "
        f"FROM (SELECT string_split_regex(trim(line), '\\s+') AS f FROM {lines} WHERE trim(line) <> '')"
    )


def _index(field: str) -> str:
    """Return SQL for a whole number in its usual form, or NULL (a cast alone would round)."""
    return f"CASE WHEN regexp_full_match({field}, '[0-9]+') THEN try_cast({field} AS BIGINT)::VARCHAR END"


def _declared(source: RatingsInput) -> tuple[int, tuple[int, int, int], bool]:
    """Return the lines before the entries, the rows, columns and entries declared, and whether they have no values."""
    lines = source.lines()
    words = next(lines, "").lower().split()
    if words[:3] != ["%%matrixmarket", "matrix", "coordinate"] or len(words) != 5:
        raise InputError(f"{source.path} is not a MatrixMarket file of a sparse matrix (coordinate format)")
    if words[3] not in ("real", "integer", "pattern") or words[4] != "general":
        raise InputError(f"{source.path} is {words[3]} {words[4]}: a matrix of ratings is real general")
    for number, line in enumerate(lines, 2):
        if line.strip() and not line.startswith("%"):
            sizes = line.split()
            if len(sizes) == 3 and all(size.isdecimal() and len(size) < 20 for size in sizes):
                return number, (int(sizes[0]), int(sizes[1]), int(sizes[2])), words[3] == "pattern"
            raise InputError(f"{source.path}, line {number}: expected the sizes, found {line.strip()[:60]!r}")
    raise InputError(f"{source.path} has no sizes after its header")


def _check_declared(connection: duckdb.DuckDBPyConnection, source: RatingsInput, before: int, n: int) -> None:
    _, (rows, columns, entries), _ = _declared(source)
    if n != entries:
        raise InputError(f"{source.path} declares {entries} entries and has {n}: cut short?")
    outside = connection.execute(
        f"SELECT user_id, item_id FROM raw WHERE rowid >= {before} "
        f"AND NOT (user_id::BIGINT BETWEEN 1 AND {rows} AND item_id::BIGINT BETWEEN 1 AND {columns}) LIMIT 1"
    ).fetchall()
    if outside:
        raise InputError(f"{source.path}: entry {outside[0]} lies outside the {rows} x {columns} matrix")


def _load_npz(connection: duckdb.DuckDBPyConnection, source: RatingsInput, test: bool) -> None:
    """Append the entries of a SciPy matrix, which has to fit into memory; its indices are the names."""
    matrix = read_npz(source.path, memory_of(connection))
    for start in range(0, matrix.nnz, _ENTRIES):
        part = slice(start, start + _ENTRIES)
        entries = {
            "row": matrix.row[part].astype(np.int64),
            "col": matrix.col[part].astype(np.int64),
            "value": matrix.data[part].astype(np.float64),
        }
        connection.register("entries", entries)
        connection.execute(
            "INSERT INTO raw (user_id, item_id, rating, test) "
            f"SELECT row::VARCHAR, col::VARCHAR, try_cast(value AS FLOAT), {test} FROM entries"
        )
        connection.unregister("entries")
