"""Makes a ratings file from other files, within a memory limit; if this fails, no file is written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import duckdb
import numpy as np

from dsgmcmc.data import arrange
from dsgmcmc.data.columns import parse_columns
from dsgmcmc.data.features import Description, Encoded, check_kinds, encode, load_description
from dsgmcmc.data.load import RatingsFile, create_raw, find_files, inspect, load, whole_names
from dsgmcmc.data.ratings import SIDES, SPLITS, RatingsWriter, Side, Times, open_ratings, row_slabs
from dsgmcmc.data.session import Report, Watch, default_memory, open_session
from dsgmcmc.data.tables import scalar
from dsgmcmc.errors import InputError
from dsgmcmc.settings import named
from dsgmcmc.types import Int64

_SLAB = 1_000_000  # ratings in NumPy arrays at a time
_NAME_BYTES = 1 << 26  # bytes of names in NumPy arrays at a time
MASS, FAR_ABOVE = 0.1, 5  # least share of zeros, and their least ratio to the next level, in `_not_rated`


@dataclass(frozen=True)
class Summary:
    """Summary of a prepared ratings file; `columns` are the roles of columns in the first input file.

    Attributes
    ----------
    features : dict
        By "user" or "item", if they have features: ``groups``, the number of features in each group; ``unknown``, the
        number without features; ``unrated``, the number without ratings; ``notes`` for users (`Encoded.notes`).
    timestamps : bool
        Whether the file has the order of ratings in time.
    not_rated : float
        Share of zeros among the ratings if they probably mean "not rated", else 0.
    duplicates : int
        Number of ratings that were left out or averaged because another rating has the same user and item.
    """

    path: str
    users: int
    items: int
    ratings: int
    train: int
    test: int
    density: float
    mean: float
    minimum: float
    maximum: float
    transposed: bool
    bytes: int
    content_sha256: str
    columns: str
    features: dict[str, dict[str, Any]] = field(default_factory=dict)
    timestamps: bool = False
    not_rated: float = 0.0
    duplicates: int = 0


def prepare_ratings(
    inputs: Sequence[str],
    out: str | os.PathLike[str],
    *,
    columns: str | None = None,
    test_fraction: float | None = None,
    seed: int = 0,
    split: Literal["random", "temporal"] = "random",
    test: str | None = None,
    timestamps: bool = False,
    duplicates: str = "last",
    drop_zeros: bool = False,
    described: Mapping[str, Description] | None = None,
    memory: int | None = None,
    temp_dir: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    force: bool = False,
    report: Report = lambda stage, fraction: None,
) -> Summary:
    """Make a ratings file from other files. Parameters not listed here are options of ``dsgmcmc prepare``.

    Raises InputError if an argument or an input file is invalid; then no file is written.

    Parameters
    ----------
    inputs : files, folders or globs
    test_fraction : float
        Share of the ratings, in [0, 1), that become test ratings; default 0.1.
    described : dict of str to Description
        Files with features, by "user" and "item". The users and items in them belong to the matrix, rated or not.
    memory : int
        Memory limit of the process in bytes; default `default_memory`.
    report : callable(stage, fraction done)
        Called as work proceeds.
    """
    if test is not None and (test_fraction is not None or split == "temporal"):
        raise InputError("--test has the test ratings: leave out --test-fraction and --split")
    described = described or {}
    fraction = 0.1 if test_fraction is None else test_fraction
    if not 0 <= fraction < 1:
        raise InputError(f"{named('test_fraction')} {fraction}: expected at least 0 and less than 1")
    out = Path(out)
    names = parse_columns(columns)
    parts = [(find_files(inputs), False), (find_files([test] if test else []), True)]
    for path in (path for paths, _ in parts for path in paths):
        if path.resolve() == out.resolve():
            raise InputError(f"{out} is one of the inputs; give another name for the output")
    if {path.resolve() for path in parts[0][0]} & {path.resolve() for path in parts[1][0]}:
        raise InputError(f"--test {test} is one of the training files, too")
    RatingsWriter.check_target(out, force)
    temporal = split == "temporal"
    memory = default_memory() if memory is None else memory
    with open_session(Path(temp_dir) if temp_dir else out.parent, memory, threads, report) as (db, watch):
        files = [
            (inspect(db, path, names, temporal or timestamps), held_out) for paths, held_out in parts for path in paths
        ]
        not_rated = _read(db, files, drop_zeros, watch)
        watch.stage("numbering users and items", 0.25, 0.3)
        tables = {entity: load_description(db, entity, given) for entity, given in described.items()}
        check_kinds(tables, described)
        described_by = {entity: table.name for entity, table in tables.items()}
        sizes = dict(zip(("user", "item"), arrange.number_entities(db, seed, described_by), strict=True))
        encoded = {entity: encode(db, tables[entity], given, sizes[entity]) for entity, given in described.items()}
        rows, cols = ("item", "user") if sizes["item"] > sizes["user"] else ("user", "item")
        watch.stage("matching names", 0.3, 0.6)
        arrange.make_cells(db, seed, rows, cols)
        merged = arrange.merge_duplicates(db, seed, duplicates, rows, cols)
        db.execute("DROP TABLE raw")
        watch.stage("splitting", 0.6, 0.65)
        is_test = "test" if test else arrange.split(db, fraction, temporal)
        watch.stage("sorting", 0.65, 0.8)
        indptr, n_test = arrange.sort_cells(db, is_test, sizes[rows], timestamps, temporal)
        attributes: dict[str, Any] = {"seed": seed, "transposed": rows == "item", "force": force}
        attributes |= _origin([file.path for file, _ in files])
        sides = zip(SIDES, (rows, cols), strict=True)
        attributes["features"] = {side: encoded[entity].features for side, entity in sides if entity in encoded}
        _write(db, out, indptr, n_test, (rows, cols), watch, attributes)
    return _summarise(out, files[0][0].roles, encoded, not_rated, merged)


def _read(
    db: duckdb.DuckDBPyConnection, files: Sequence[tuple[RatingsFile, bool]], drop_zeros: bool, watch: Watch
) -> float:
    """Read files, each with a flag for test ratings, into ``raw``; return the result of `_not_rated`."""
    create_raw(db)
    for k, (file, held_out) in enumerate(files):
        watch.stage(f"reading {file.path.name}", 0.25 * k / len(files), 0.25 * (k + 1) / len(files))
        load(db, file, held_out)
    if drop_zeros:
        db.execute("DELETE FROM raw WHERE rating = 0")
        if not scalar(db, "SELECT count(*) FROM raw WHERE NOT test"):
            raise InputError("--drop-zeros leaves no ratings: all are 0")
    whole_names(db)
    return _not_rated(db)


def _not_rated(db: duckdb.DuckDBPyConnection) -> float:
    """Return the share of zeros if they probably mean "not rated", else 0.

    Zeros probably mean this if 0 is the lowest rating, they are a tenth or more of the ratings, they are at least five
    times as frequent as the next level, and this level is not the most frequent level above 0. In counts, 1 is the
    most frequent level above 0.
    """
    levels = db.execute("SELECT rating, count(*) FROM raw GROUP BY rating ORDER BY rating LIMIT 1000").fetchall()
    (lowest, zeros), above = levels[0], [number for _, number in levels[1:]]
    share = float(zeros / scalar(db, "SELECT count(*) FROM raw"))
    apart = lowest == 0 and len(above) > 1 and zeros >= FAR_ABOVE * above[0] and above[0] < max(above)
    return share if apart and share >= MASS else 0.0


def _origin(paths: list[Path]) -> dict[str, str]:
    """Return the names of the input files, and the SHA-256 of the only file or of the hashes of several files."""
    hashes = []
    for path in paths:
        with path.open("rb") as file:
            hashes.append(hashlib.file_digest(file, "sha256").hexdigest())
    total = hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()
    names = ", ".join(path.name for path in paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
    return {"source": names, "source_sha256": total}


def _write(
    db: duckdb.DuckDBPyConnection,
    out: Path,
    indptr: Int64,
    n_test: int,
    sides: tuple[str, str],
    watch: Watch,
    attributes: dict[str, Any],
) -> None:
    """Write the table ``sorted`` and the names of users and items to a ratings file."""
    n_rows, n_cols, nnz = (
        len(indptr) - 1,
        int(scalar(db, f"SELECT count(*) FROM {sides[1]}s")),
        int(indptr[-1]) - n_test,
    )
    with RatingsWriter(out, n_rows=n_rows, n_cols=n_cols, nnz=nnz, nnz_test=n_test, **attributes) as writer:
        for side, entity in zip(SIDES, sides, strict=True):
            _write_names(db, writer, side, entity)
        for start, stop in row_slabs(indptr, _SLAB):
            watch.stage(f"writing {out.name}", *(0.8 + 0.2 * row / len(indptr) for row in (start, stop)))
            cells = db.execute(
                f"SELECT * FROM sorted WHERE row >= {start} AND row < {stop} ORDER BY row, col"
            ).fetchnumpy()
            row, col = cells["row"], cells["col"]
            for part, mask in zip(SPLITS, (~cells["test"], cells["test"]), strict=True):
                own = np.zeros(stop - start + 1, dtype=np.int64)
                np.cumsum(np.bincount(row[mask] - start, minlength=stop - start), out=own[1:])
                times = None
                if "rows_place" in cells:
                    times = {side: Times(*(cells[f"{side}_{what}"][mask] for what in Times._fields)) for side in SIDES}
                ages = cells["age"][mask] if "age" in cells and part == "train" else None
                writer.append(part, own, col[mask], cells["value"][mask], times, ages)


def _write_names(db: duckdb.DuckDBPyConnection, writer: RatingsWriter, side: Side, entity: str) -> None:
    """Write names: int64 if all are integers in canonical form, else UTF-8 padded to the longest name."""
    integers = "bool_and(coalesce(try_cast(id AS BIGINT)::VARCHAR = id, false))"
    n, whole, longest = db.execute(f"SELECT count(*), {integers}, max(strlen(id)) FROM {entity}s").fetchall()[0]
    step = max(1, _NAME_BYTES // (longest + 64))
    for start in range(0, n, step):
        names = db.execute(
            f"SELECT id::{'BIGINT' if whole else 'VARCHAR'} AS id FROM {entity}s "
            f"WHERE k >= {start} AND k < {start + step} ORDER BY k"
        ).fetchnumpy()["id"]
        writer.ids(side, names if whole else np.array([name.encode() for name in names], dtype=f"S{longest}"))


def _summarise(out: Path, columns: str, encoded: Mapping[str, Encoded], not_rated: float, duplicates: int) -> Summary:
    with open_ratings(out) as ratings:
        users, items = ratings.n_rows, ratings.n_cols
        if ratings.transposed:
            users, items = items, users
        total = ratings.nnz + ratings.nnz_test
        return Summary(
            path=str(out),
            users=users,
            items=items,
            ratings=total,
            train=ratings.nnz,
            test=ratings.nnz_test,
            density=total / (users * items),
            mean=ratings.mean,
            minimum=ratings.minimum,
            maximum=ratings.maximum,
            transposed=ratings.transposed,
            bytes=out.stat().st_size,
            content_sha256=ratings.digest,
            columns=columns,
            features={entity: each.summary() for entity, each in encoded.items()},
            timestamps=ratings.times is not None,
            not_rated=not_rated,
            duplicates=duplicates,
        )
