"""Writes predictions and other results as CSV or Parquet.

A file appears under its name only when it is complete.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import duckdb

from dsgmcmc.errors import InputError, WriteError, writing
from dsgmcmc.storage.files import check_target, remove_folder, sync
from dsgmcmc.tables.session import Session, identifier, literal, open_session, system_reason
from dsgmcmc.terminal import pass_on
from dsgmcmc.types import Array

_FORMATS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}
_COPY_OPTIONS = {"csv": "FORMAT csv, HEADER", "parquet": "FORMAT parquet, COMPRESSION zstd"}


def append_results(db: Session, columns: Mapping[str, Array]) -> None:
    """Append rows, given as columns, to the table ``results``; NaN becomes NULL.

    The first call makes the table.
    """
    db.register("chunk", columns)
    selected = []
    for label, values in columns.items():
        name = identifier(label)
        if values.dtype.kind == "O":  # also where all are None
            name = f"{name}::VARCHAR AS {name}"
        if values.dtype.kind == "f":
            name = f"CASE WHEN NOT isnan({name}) THEN {name} END AS {name}"
        selected.append(name)
    rows = f"SELECT {', '.join(selected)} FROM chunk"
    db.execute(f"CREATE TABLE IF NOT EXISTS results AS {rows} LIMIT 0")
    db.execute(f"INSERT INTO results {rows}")
    db.unregister("chunk")


def write_query(db: Session, query: str, out: Path | None) -> None:
    """Write the rows of a query, in order, to a file that appears only when it is complete.

    `out` ends in ``.csv``, ``.parquet`` or ``.pq``; None is standard output, as CSV.
    """
    options = _COPY_OPTIONS[output_format(out)]
    parent = None if out is None else out.parent
    with writing(out or Path(tempfile.gettempdir())):
        folder = Path(tempfile.mkdtemp(prefix=".dsgmcmc-", dir=parent))
    try:
        written = folder / "rows"
        db.execute(f"COPY ({query}) TO {literal(str(written))} ({options})")
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
        remove_folder(folder)


#: Most characters of a float32 in a CSV file, with its comma.
_FLOAT_WIDTH = 20


def convert_csv(path: Path, types: Mapping[str, str], out: Path) -> None:
    """Convert a CSV file of a matrix, with a header, to a Parquet file.

    Parameters
    ----------
    types : dict of str to str
        Types of all columns, by name.
    """
    columns = ", ".join(f"{literal(name)}: {literal(kind)}" for name, kind in types.items())
    with path.open("rb") as file:
        longest = len(file.readline()) + _FLOAT_WIDTH * len(types)
    read = (
        f"read_csv({literal(str(path))}, header = true, delim = ',', quote = '\"',"
        f" columns = {{{columns}}}, max_line_size = {max(longest, 1 << 21)})"
    )
    with open_session(out.parent) as db:
        db.execute("SET threads = 1")  # every thread has buffers for all columns
        write_query(db, f"SELECT * FROM {read}", out)


def output_format(out: Path | None) -> str:
    """Return ``csv`` or ``parquet`` by the suffix of an output.

    Raises InputError for other suffixes, or if the folder is missing.
    """
    if out is None:
        return "csv"
    if out.suffix.lower() not in _FORMATS:
        raise InputError(f"{out}: the suffix of the output must be one of {', '.join(_FORMATS)}")
    if out.exists() and not out.is_file():
        raise InputError(f"{out} cannot be written: it is not a file")
    if not out.parent.is_dir():
        raise InputError(f"{out} cannot be written: the folder {out.parent} does not exist")
    return _FORMATS[out.suffix.lower()]


def write_tables(tables: Iterable[Mapping[str, Array]], out: Path, *, force: bool) -> None:
    """Write tables of equal columns to a CSV or Parquet file, atomically.

    Raises InputError if the suffix is another, or the file exists, unless `force`.
    """
    output_format(out)
    check_target(out, force)
    with writing(out):
        write_blocks(tables, out)


def write_blocks(blocks: Iterable[Mapping[str, Array]], out: Path) -> None:
    """Write blocks of rows, with equal columns, to a CSV or Parquet file."""
    with open_session(out.parent) as db:
        for block in blocks:
            append_results(db, block)
        write_query(db, "SELECT * FROM results", out)
