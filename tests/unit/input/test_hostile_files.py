"""Damaged and hostile files are read, or refused with their name, within the memory limit."""

import gzip
import random
from collections.abc import Callable
from pathlib import Path

import duckdb
import fuzzer
import numpy as np
import pytest
import scipy.sparse

from dsgmcmc.errors import InputError
from dsgmcmc.features.described import Description, read_description
from dsgmcmc.input.load import create_raw, load, open_ratings
from dsgmcmc.input.pairs import load_pairs
from dsgmcmc.input.titles import read_titles
from dsgmcmc.ratings.reading import NOTHING_SAID
from dsgmcmc.tables.session import MIN_MEMORY, open_session

Read = Callable[[duckdb.DuckDBPyConnection, Path], object]


def read_ratings(db: duckdb.DuckDBPyConnection, path: Path) -> object:
    """Read a file of ratings as `prepare` does."""
    table = open_ratings(db, path, NOTHING_SAID, timed=False)
    create_raw(db, [table])
    return load(db, table, timed=False)


READERS: dict[str, Read] = {
    "ratings": read_ratings,
    "features": lambda db, path: read_description(db, "user", Description(path)),
    "pairs": lambda db, path: load_pairs(db, path, {}),
    "titles": lambda db, path: read_titles(path),
}


def refusal(read: Read, path: Path) -> str:
    """Return the error of a reader in a session with little memory, or an empty text."""
    try:
        with open_session(path.parent, MIN_MEMORY) as db:
            read(db, path)
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", list(READERS)[:3])
def test_damaged_parquet(tmp_path: Path, name: str) -> None:
    """DuckDB raises many kinds of errors; each becomes one line with the file's name."""
    path = tmp_path / "damaged.parquet"
    choice = random.Random(7)
    duckdb.sql(
        "COPY (SELECT i % 41 AS user, i % 53 AS item, i % 5 AS rating, 'a' || i % 3 AS job FROM"
        f" range(400) t(i)) TO '{path}' (FORMAT parquet)"
    )
    undamaged = path.read_bytes()
    refused = 0
    for _ in range(40):
        path.write_bytes(fuzzer.mutate(undamaged, choice)[1])
        first, *more = refusal(READERS[name], path).split("\n")
        assert not first or path.name in first
        assert all(line.startswith("  row ") for line in more)
        refused += bool(first)
    assert refused > 16


def test_a_name_of_a_column_that_is_no_text(tmp_path: Path) -> None:
    """A column name that is not UTF-8, for which DuckDB raises an error of another class, is
    refused with the file.
    """
    path = tmp_path / "r.parquet"
    duckdb.sql(f"COPY (SELECT 1 AS user, 2 AS item, 3 AS rating) TO '{path}' (FORMAT parquet)")
    path.write_bytes(path.read_bytes().replace(b"item", b"it\xffm"))
    for read in READERS.values():
        assert "r.parquet cannot be read" in refusal(read, path)


def test_many_columns_of_features(tmp_path: Path) -> None:
    """Missing values in 600 columns are read with little memory."""
    names = [f"c{k}" for k in range(600)]
    lines = [
        ",".join(["user", *names]),
        *(",".join([str(u), *(" NA " for _ in names)]) for u in range(3)),
    ]
    (path := tmp_path / "f.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with open_session(tmp_path, MIN_MEMORY) as db:
        table = read_description(db, "user", Description(path))
        assert db.execute(
            f"SELECT count(*), count(c1), count(c600) FROM {table.name}"
        ).fetchall() == [(3, 0, 0)]


def test_a_matrix_of_features_with_few_rows_of_very_many(tmp_path: Path) -> None:
    """Empty rows take no memory, and a matrix with too many columns is refused."""
    rows = 2**40
    path = tmp_path / "f.npz"
    scipy.sparse.save_npz(
        path, scipy.sparse.coo_matrix(([1.0, 2.0], ([5, rows - 1], [0, 1])), shape=(rows, 3))
    )
    with open_session(tmp_path, MIN_MEMORY) as db:
        table = read_description(db, "user", Description(path))
        assert db.execute(f"SELECT id, r FROM {table.name} ORDER BY r").fetchall() == [
            ("5", 0),
            (str(rows - 1), 1),
        ]
    np.testing.assert_array_equal(table.matrix.toarray(), [[1, 0, 0], [0, 2, 0]])
    scipy.sparse.save_npz(path, scipy.sparse.coo_matrix(([1.0], ([0], [5])), shape=(3, 2**40)))
    assert "1099511627776 features" in refusal(READERS["features"], path)


@pytest.mark.parametrize("name", READERS)
def test_half_a_file_and_other_text(tmp_path: Path, name: str) -> None:
    """A file that was cut short is refused, and so is UTF-16, in which no name would be known if
    read as Latin-1.
    """
    text = "user,item,rating,title\n1,2,3,x\n"
    for content in (
        gzip.compress(text.encode())[:-8],
        text.encode("utf-16"),
        text.encode("utf-16-be"),
    ):
        (path := tmp_path / "x.csv").write_bytes(content)
        assert str(path) in refusal(READERS[name], path)
    (path := tmp_path / "x.csv").write_bytes(gzip.compress(text.encode()))
    assert not refusal(READERS[name], path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", READERS)
def test_a_last_line_without_an_end(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes]
) -> None:
    """DuckDB passes over a last line of 50 MB, so that the ratings before it would have been all
    ratings.
    """
    path = tmp_path / "long.csv"
    head = b"user,item,rating\n" + b"".join(b"%d,%d,3\n" % (k, k) for k in range(9))
    path.write_bytes(pack(head + b"9," + b"8" * 50_000_000))
    said = refusal(READERS[name], path)
    assert str(path) in said
    assert "line" in said
