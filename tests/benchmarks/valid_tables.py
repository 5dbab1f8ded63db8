"""Made-up tables of valid ratings: read from a file by a command, and from memory, they are equal.

`compare_readings` writes the table of a seed as CSV, and reads it by ``dsgmcmc prepare``, as a data
frame of pandas and, if it is installed, of polars. Either all give the same users, items
and ratings, of which the last one of a pair counts, or all refuse the table.

    python tests/benchmarks/valid_tables.py FOLDER 0 200    # the tables of seeds 0 to 199
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from bench import folder_and_seeds
from support import typed

from dsgmcmc.errors import InputError
from dsgmcmc.input.arrays import ratings_source
from dsgmcmc.input.roles import parse_columns
from dsgmcmc.input.values import parse_missing
from dsgmcmc.prepare.prepare import prepare_ratings
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.reading import Reading

Triples = dict[tuple[str, str], float]
_USERS = ("user", "userId", "user_id", "customer", "reviewerID", "patient")
_ITEMS = ("item", "itemId", "movieId", "product_id", "asin", "question")
_RATINGS = ("rating", "Rating", "score", "stars", "value")
_TIMES = ("timestamp", "time", "date", "ts")
_COUNTRIES = ["NA", "DE", "FR", "null", "None", "Österreich", "a b", 'with "quotes"', "x,y", "-"]


class MadeTable(NamedTuple):
    """A table, and how it is read.

    Attributes
    ----------
    frame : pandas.DataFrame
    columns : str, optional
        Columns by role, such as ``user=U,item=I``.
    matrix : bool
        Whether it has a row for each user.
    missing : str, optional
        Values that mean "not rated".
    """

    frame: pd.DataFrame
    columns: str | None = None
    matrix: bool = False
    missing: str | None = None


def make_table(seed: int) -> MadeTable:
    """Make a table of random shape: columns, types, roles, codes, dates and order of rows."""
    rng = np.random.default_rng([80, seed])
    if rng.random() < 0.2:
        return _make_matrix(rng)
    n = int(rng.integers(5, 120))
    user = str(rng.choice(_USERS))
    item = str(rng.choice(_ITEMS))
    columns: dict[str, Any] = {
        user: _names(rng, n, int(rng.integers(2, 30))),
        item: _names(rng, n, int(rng.integers(2, 20))),
    }
    missing = None
    rating = ""
    if rng.random() < 0.85:
        rating = str(rng.choice(_RATINGS))
        columns[rating] = _ratings(rng, n)
        missing = rng.choice([None, None, "99", "", "99,"])
    if rng.random() < 0.6:
        columns[str(rng.choice(_TIMES))] = _times(rng, n)
    for label in ("age", "comment", "group"):
        if rng.random() < 0.25 and rating:
            columns[label] = _names(rng, n, 9)
    labels = [str(label) for label in rng.permutation(list(columns))]
    frame = pd.DataFrame({label: columns[label] for label in labels})
    roles = None
    if rng.random() < 0.3:
        roles = f"user={user},item={item}"
        if rating:
            roles += f",rating={rating}"
    return MadeTable(frame.iloc[rng.permutation(n)], roles, missing=missing)


def _make_matrix(rng: np.random.Generator) -> MadeTable:
    shape = (int(rng.integers(3, 30)), int(rng.integers(3, 15)))
    values = rng.normal(5, 2, shape).round(int(rng.integers(0, 3)))
    values[rng.random(shape) < 0.3] = np.nan
    frame = pd.DataFrame(values, columns=[f"g{k}" for k in range(shape[1])])
    # rows without names are numbered from 1 in files, and from 0 in memory
    names = [f"{rng.choice(['c', 'CHEMBL', 'x '])}{k}" for k in rng.permutation(shape[0])]
    frame.insert(0, str(rng.choice(["compound", "user", "name"])), names)
    return MadeTable(frame, matrix=True)


def _names(rng: np.random.Generator, n: int, size: int) -> Any:
    """Return names of one of many types."""
    numbers = rng.integers(0, size, n)
    makers = {
        "integers": lambda: numbers + 1,
        "negative": lambda: numbers - size // 2,
        "large": lambda: numbers + 76561197960265728,
        "int32": lambda: numbers.astype(np.int32),
        "whole floats": lambda: numbers.astype(float),
        "text": lambda: [f"u{k}" for k in numbers],
        "zeros": lambda: [f"{k:05d}" for k in numbers],
        "digits": lambda: [str(k) for k in numbers],
        "uuids": lambda: [f"{k:08x}-9f3a-4bd2" for k in numbers],
        "countries": lambda: [_COUNTRIES[k % len(_COUNTRIES)] for k in numbers],
        "mixed": lambda: [k if k % 2 else f"n{k}" for k in numbers.tolist()],
        "categories": lambda: pd.Categorical([f"k{k}" for k in numbers]),
        "dates": lambda: [f"2021-01-{1 + k % 28:02d}" for k in numbers],
        "spaces": lambda: [f" {k} b " for k in numbers],
    }
    return makers[str(rng.choice(list(makers)))]()


def _ratings(rng: np.random.Generator, n: int) -> Any:
    """Return ratings of one of many types; some have codes or gaps."""
    stars = rng.integers(1, 6, n)
    makers = {
        "stars": lambda: stars,
        "half stars": lambda: stars / 2,
        "measured": lambda: rng.normal(5, 2, n),
        "counts": lambda: rng.poisson(3, n),
        "truth": lambda: stars > 3,
        "yes": lambda: np.where(stars > 3, "yes", "no"),
        "T": lambda: np.where(stars > 3, "T", "F"),
        "text": lambda: [str(k) for k in stars],
        "codes": lambda: np.where(rng.random(n) < 0.1, 99, stars),
        "gaps": lambda: np.where(rng.random(n) < 0.1, np.nan, stars),
        "float32": lambda: rng.normal(5, 2, n).astype(np.float32),
        "Int64": lambda: pd.array(stars, dtype="Int64"),
        "exponents": lambda: [f"{k}e-1" for k in stars],
    }
    return makers[str(rng.choice(list(makers)))]()


def _times(rng: np.random.Generator, n: int) -> Any:
    """Return times of one of many types."""
    seconds = rng.permutation(n) * 86_400 + 1_600_000_000
    dates = pd.to_datetime(seconds, unit="s")
    makers = {
        "seconds": lambda: seconds,
        "milliseconds": lambda: seconds * 1000,
        "dates": lambda: dates,
        "ISO": lambda: dates.strftime("%Y-%m-%d %H:%M:%S"),
        "European": lambda: dates.strftime("%d/%m/%Y"),
        "American": lambda: dates.strftime("%m/%d/%Y"),
        "zone": lambda: dates.tz_localize("UTC"),
        "datetime.date": lambda: list(dates.date),
        "gaps": lambda: pd.Series(dates).where(rng.random(n) > 0.1),
        "words": lambda: ["some day"] * n,
    }
    return makers[str(rng.choice(list(makers)))]()


# ---------------------------------------------------------------------- readings


def compare_readings(seed: int, folder: Path) -> str:
    """Read the table of a seed in all ways; return how the results differ, or an empty text."""
    made = make_table(seed)
    folder.mkdir(parents=True, exist_ok=True)
    read = {"command": _by_command(made, folder), "pandas": _in_memory(made.frame, made, folder)}
    if find_spec("polars") is not None:
        read["polars"] = _in_memory(_as_polars(made.frame), made, folder)
    expected = read["command"]
    for name, found in read.items():
        both_refused = isinstance(expected, str) and isinstance(found, str)
        if found != expected and not both_refused:
            return f"seed {seed}: {name} {_shortened(found)}; command {_shortened(expected)}"
    return ""


def _by_command(made: MadeTable, folder: Path) -> Triples | str:
    made.frame.to_csv(folder / "r.csv", index=False)
    options = []
    if made.columns is not None:
        options += ["--columns", made.columns]
    if made.missing is not None:
        options += ["--missing", made.missing]
    if made.matrix:
        options.append("--matrix")
    result = typed("prepare", folder / "r.csv", folder / "r.h5", "--force", *options)
    if result.code:
        return result.err
    return _triples(folder / "r.h5")


def _in_memory(frame: Any, made: MadeTable, folder: Path) -> Triples | str:
    missing = None
    if made.missing is not None:
        missing = made.missing.split(",")
    form = Reading(parse_columns(made.columns), made.matrix or None, parse_missing(made.missing))
    try:
        source = ratings_source(frame, None, form)
        prepare_ratings([source], folder / "m.h5", missing=missing, force=True)
    except InputError as error:
        return str(error)
    return _triples(folder / "m.h5")


def _as_polars(frame: pd.DataFrame) -> Any:
    import polars

    columns = {}
    for label in frame:
        values = frame[label].astype(object).tolist()
        values = [None if pd.isna(value) else value for value in values]
        columns[label] = polars.Series(label, values, strict=False)
    return polars.DataFrame(columns)


def _triples(path: Path) -> Triples:
    """Return all ratings of a ratings file by the names of user and item."""
    triples: Triples = {}
    with Ratings(path) as ratings:
        rows = ratings.ids("rows").tolist()
        columns = ratings.ids("cols").tolist()
        for split in ("train", "test"):
            slab = ratings.slab(split, 0, ratings.n_rows)
            counts = np.diff(slab.indptr)
            numbers = np.repeat(np.arange(ratings.n_rows), counts)
            for row, column, value in zip(numbers, slab.indices, slab.values, strict=True):
                pair = (str(rows[row]), str(columns[column]))
                if ratings.orientation.transposed:
                    pair = pair[::-1]
                triples[pair] = float(value)
    return triples


def _shortened(found: Triples | str) -> str:
    if isinstance(found, str):
        return f"refuses: {' '.join(found.split())[:300]}"
    first = dict(sorted(found.items())[:5])
    return f"reads {len(found)} ratings {first}"


def main() -> None:
    """Print the differences of the tables of some seeds as JSON."""
    folder, seeds = folder_and_seeds(__doc__)
    found = [compare_readings(seed, folder) for seed in seeds]
    print(json.dumps([difference for difference in found if difference]))


if __name__ == "__main__":
    main()
