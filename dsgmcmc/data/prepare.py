"""Makes a ratings file from other files or from arrays, within a memory limit; if this fails, no file is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import duckdb
import numpy as np

from dsgmcmc.data import arrange
from dsgmcmc.data.columns import parse_columns
from dsgmcmc.data.features import Description, check_kinds, encode, load_description
from dsgmcmc.data.load import RatingsFile, create_raw, inspect, load
from dsgmcmc.data.ratings import SIDES, SPLITS, Sizes, Slab, Times, check_target, open_ratings, row_slabs, write_slabs
from dsgmcmc.data.session import interruptible, open_session
from dsgmcmc.data.tables import TableFile, scalar, whole_names
from dsgmcmc.errors import InputError
from dsgmcmc.settings import named
from dsgmcmc.types import Array, Int64

Report = Callable[[str], None]

_SLAB = 1_000_000  # ratings in NumPy arrays at a time
_NAME_BYTES = 1 << 26  # bytes of names in NumPy arrays at a time
#: Least share of zeros, and their least ratio to the next level, in `_share_not_rated`.
LEAST_ZEROS, ZEROS_TO_NEXT_LEVEL = 0.1, 5


@dataclass(frozen=True)
class Summary:
    """Summary of a prepared ratings file; `columns` are the roles of columns in the first input file.

    Attributes
    ----------
    features : dict
        By "user" or "item", if they have features: ``groups``, the number of features in each group; ``unknown``, the
        number without features; ``unrated``, the number without ratings; ``notes`` for users on columns left out.
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
    mean: float
    minimum: float
    maximum: float
    content_sha256: str
    columns: str
    features: dict[str, dict[str, Any]] = field(default_factory=dict)
    not_rated: float = 0.0
    duplicates: int = 0


def prepare_ratings(
    inputs: Sequence[str | Path | TableFile],
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
    force: bool = False,
    report: Report = lambda stage: None,
) -> Summary:
    """Make a ratings file from other files. Parameters not listed here are options of ``dsgmcmc prepare``.

    Raises InputError if an argument or an input file is invalid; then no file is written.

    Parameters
    ----------
    inputs : files, or tables of arrays
    test_fraction : float
        Share of the ratings, in [0, 1), that become test ratings; default 0.1.
    described : dict of str to Description
        Features by "user" and "item". The users and items in them belong to the matrix, rated or not.
    memory : int
        Memory limit of the process in bytes; default `dsgmcmc.data.session.default_memory`.
    report : callable(stage)
        Called as a stage of the work begins.
    """
    if test is not None and (test_fraction is not None or split == "temporal"):
        raise InputError("--test has the test ratings: leave out --test-fraction and --split")
    fraction = 0.1 if test_fraction is None else test_fraction
    if not 0 <= fraction < 1:
        raise InputError(f"{named('test_fraction')} {fraction}: expected at least 0 and less than 1")
    out, names, temporal, described = Path(out), parse_columns(columns), split == "temporal", described or {}
    given = [(each if isinstance(each, TableFile) else Path(each), False) for each in inputs]
    given += [(Path(test), True)] if test else []
    if any(isinstance(each, Path) and each.resolve() == out.resolve() for each, _ in given):
        raise InputError(f"{out} is one of the inputs; give another name for the output")
    check_target(out, force)

    def work(db: duckdb.DuckDBPyConnection) -> Summary:
        files = [(inspect(db, each, names, temporal or timestamps), held_out) for each, held_out in given]
        _read(db, files, drop_zeros, report)
        not_rated = _share_not_rated(db)
        report("numbering users and items")
        tables = {entity: load_description(db, entity, each) for entity, each in described.items()}
        check_kinds(tables, described)
        lengths = arrange.number_entities(db, seed, {entity: table.name for entity, table in tables.items()})
        encoded = {entity: encode(db, tables[entity], each, lengths[entity]) for entity, each in described.items()}
        rows, cols = ("item", "user") if lengths["item"] > lengths["user"] else ("user", "item")
        report("matching names")
        merged = arrange.make_cells(db, seed, duplicates, rows, cols)
        db.execute("DROP TABLE raw")
        report("splitting")
        is_test = "test" if test else arrange.split(db, fraction, temporal)
        report("sorting")
        indptr, n_test = arrange.sort_cells(db, is_test, lengths[rows], timestamps, temporal)
        report(f"writing {out.name}")
        sides = dict(zip(SIDES, (rows, cols), strict=True))
        write_slabs(
            out,
            Sizes(lengths[rows], lengths[cols], int(indptr[-1]) - n_test, n_test),
            {side: _names(db, entity) for side, entity in sides.items()},
            _slabs(db, indptr),
            features={side: encoded[entity][0] for side, entity in sides.items() if entity in encoded},
            seed=seed,
            transposed=rows == "item",
            source=", ".join(file.path.name for file, _ in files),
            force=force,
        )
        features = {entity: about for entity, (_, about) in encoded.items()}
        with open_ratings(out) as ratings:
            return Summary(
                path=str(out),
                users=lengths["user"],
                items=lengths["item"],
                ratings=ratings.nnz + ratings.nnz_test,
                train=ratings.nnz,
                test=ratings.nnz_test,
                mean=ratings.mean,
                minimum=ratings.minimum,
                maximum=ratings.maximum,
                content_sha256=ratings.digest,
                columns=files[0][0].roles,
                features=features,
                not_rated=not_rated,
                duplicates=merged,
            )

    with open_session(out.parent, memory) as db:
        return interruptible(db, lambda: work(db))


def _read(
    db: duckdb.DuckDBPyConnection, files: Sequence[tuple[RatingsFile, bool]], drop_zeros: bool, report: Report
) -> None:
    """Read files, each with a flag for test ratings, into ``raw``."""
    create_raw(db)
    for file, held_out in files:
        report(f"reading {file.path.name}")
        load(db, file, held_out)
    if drop_zeros:
        db.execute("DELETE FROM raw WHERE rating = 0")
        if not scalar(db, "SELECT count(*) FROM raw WHERE NOT test"):
            raise InputError("--drop-zeros leaves no ratings: all are 0")
    for column in ("user_id", "item_id"):
        whole_names(db, "raw", column)


def _share_not_rated(db: duckdb.DuckDBPyConnection) -> float:
    """Return the share of zeros if they probably mean "not rated", else 0.

    Zeros probably mean this if 0 is the lowest rating, they are a tenth or more of the ratings, they are at least five
    times as frequent as the next level, and this level is not the most frequent level above 0. In counts, 1 is the
    most frequent level above 0.
    """
    levels = db.execute("SELECT rating, count(*) FROM raw GROUP BY rating ORDER BY rating LIMIT 1000").fetchall()
    (lowest, zeros), above = levels[0], [number for _, number in levels[1:]]
    share = float(zeros / scalar(db, "SELECT count(*) FROM raw"))
    apart = lowest == 0 and len(above) > 1 and zeros >= ZEROS_TO_NEXT_LEVEL * above[0] and above[0] < max(above)
    return share if apart and share >= LEAST_ZEROS else 0.0


def _slabs(db: duckdb.DuckDBPyConnection, indptr: Int64) -> Iterator[Slab]:
    """Read the table ``sorted`` piece by piece."""
    for start, stop in row_slabs(indptr, _SLAB):
        cells = db.execute(f"SELECT * FROM sorted WHERE row >= {start} AND row < {stop} ORDER BY row, col").fetchnumpy()
        row, col = cells["row"], cells["col"]
        for part, mask in zip(SPLITS, (~cells["test"], cells["test"]), strict=True):
            own = np.append(0, np.cumsum(np.bincount(row[mask] - start, minlength=stop - start)))
            times = None
            if "rows_place" in cells:
                times = {side: Times(*(cells[f"{side}_{what}"][mask] for what in Times._fields)) for side in SIDES}
            ages = cells["age"][mask] if "age" in cells and part == "train" else None
            yield Slab(part, own, col[mask], cells["value"][mask], times, ages)


def _names(db: duckdb.DuckDBPyConnection, entity: str) -> Iterator[Array]:
    """Read names: int64 if all are integers in canonical form, else UTF-8 padded to the longest name."""
    integers = "bool_and(coalesce(try_cast(id AS BIGINT)::VARCHAR = id, false))"
    n, whole, longest = db.execute(f"SELECT count(*), {integers}, max(strlen(id)) FROM {entity}s").fetchall()[0]
    step = max(1, _NAME_BYTES // (longest + 64))
    for start in range(0, n, step):
        names = db.execute(
            f"SELECT id::{'BIGINT' if whole else 'VARCHAR'} AS id FROM {entity}s "
            f"WHERE k >= {start} AND k < {start + step} ORDER BY k"
        ).fetchnumpy()["id"]
        yield names if whole else np.array([name.encode() for name in names], dtype=f"S{longest}")
