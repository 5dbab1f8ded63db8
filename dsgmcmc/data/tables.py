"""Tables as files: CSV or Parquet, by the suffix, that appear whole, written block by block or from a DuckDB query."""

from __future__ import annotations

import errno
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

import duckdb

from dsgmcmc.data.session import default_memory, identifier, in_short, literal, open_session
from dsgmcmc.errors import InputError, WriteError, writing
from dsgmcmc.storage.files import NOT_READ_BACK, sync
from dsgmcmc.terminal import pass_on
from dsgmcmc.types import Array, Float32

_FORMATS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}


def append_results(db: duckdb.DuckDBPyConnection, columns: dict[str, Float32]) -> None:
    """Append columns of numbers to the table ``results``; NaN becomes NULL."""
    names = [identifier(name) for name in columns]
    db.execute(f"CREATE TABLE IF NOT EXISTS results ({', '.join(f'{name} FLOAT' for name in names)})")
    db.register("chunk", columns)
    picked = ", ".join(f"CASE WHEN isnan({name}) THEN NULL ELSE {name} END" for name in names)
    db.execute(f"INSERT INTO results SELECT {picked} FROM chunk")
    db.unregister("chunk")


def write_query(db: duckdb.DuckDBPyConnection, query: str, out: Path | None, scratch: Path) -> None:
    """Write a query's rows, in their order, to a file that appears whole, or to standard output as CSV.

    Parameters
    ----------
    out : Path or None
        ``.csv``, ``.parquet`` or ``.pq``; None for standard output.
    scratch : Path
        Folder for what goes to standard output.
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
                if kind == "parquet":
                    _read_back(db, query, temporary)
                temporary.replace(out)
    except duckdb.IOException as error:
        raise WriteError(f"{out or 'standard output'} cannot be written: {in_short(error)}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _read_back(db: duckdb.DuckDBPyConnection, query: str, path: Path) -> None:
    """Compare a Parquet file with what was to be written, by sums of hashes of each column; raises OSError."""
    file = f"read_parquet({literal(str(path))})"
    try:
        types = db.execute(f"DESCRIBE SELECT * FROM {file}").fetchall()
        names = ", ".join(f"c{number}" for number in range(len(types)))
        sums = ", ".join(f"sum(hash(c{number}::{kind}))" for number, (_, kind, *_) in enumerate(types))
        written, read = (
            db.execute(f"SELECT count(*), {sums} FROM {source} t({names})").fetchone()
            for source in (f"({query})", file)
        )
    except duckdb.Error as error:
        raise OSError(errno.EIO, f"{NOT_READ_BACK}: {str(error).splitlines()[0]}") from error
    if read != written:
        raise OSError(errno.EIO, NOT_READ_BACK)


def output_format(out: Path | None) -> str:
    """``csv`` or ``parquet``, by the suffix. Raises InputError if it is another, or the folder does not exist."""
    if out is None:
        return "csv"
    if out.suffix.lower() not in _FORMATS:
        raise InputError(f"{out}: the output is written as {', '.join(_FORMATS)}, by its suffix")
    if not out.parent.is_dir():
        raise InputError(f"the folder {out.parent} does not exist")
    return _FORMATS[out.suffix.lower()]


def write_blocks(blocks: Iterable[Mapping[str, Array]], out: Path) -> None:
    """Write columns that come block by block, all with the same names, to CSV or Parquet; see `write_query`."""
    with open_session(out.parent, default_memory()) as (db, _):
        for number, block in enumerate(blocks):
            db.register("block", block)
            db.execute(
                "INSERT INTO results SELECT * FROM block" if number else "CREATE TABLE results AS SELECT * FROM block"
            )
            db.unregister("block")
        write_query(db, "SELECT * FROM results", out, out.parent)
