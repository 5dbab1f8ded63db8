"""A small set of ratings, which is prepared in several ways, and reading a ratings file back."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from cases import rated_pairs
from support import Result, typed

from dsgmcmc.prepare.prepare import prepare_ratings
from dsgmcmc.prepare.summary import Summary
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import SPLITS

# 5 users, 4 items, half stars; ids as sparse as in real exports
RATINGS = [
    (100200, 7, 4.0, 960),
    (100200, 31, 0.5, 961),
    (100200, 900001, 5.0, 962),
    (3, 7, 3.5, 100),
    (3, 12, 2.0, 101),
    (58, 31, 4.5, 500),
    (58, 12, 1.0, 501),
    (58, 900001, 3.0, 502),
    (999999, 7, 2.5, 300),
    (41, 900001, 1.5, 300),
]
#: Every tuple of some is a name; with any joining character some of them would be one.
ODD = ["a", "a,b", "a=b", 'a"b', "a|b", "a+b", "a\x1fb", "ä ", "b"]


def lines(
    delimiter: str = ",", header: bool = False, end: str = "\n", ratings: list = RATINGS
) -> str:
    """Write ratings as text."""
    rows = [("userId", "movieId", "rating", "timestamp")] if header else []
    return "".join(delimiter.join(map(str, row)) + end for row in [*rows, *ratings])


def csv_of(header: Sequence[str], rows: Iterable[Sequence]) -> str:
    """Write rows under a header as CSV, with quotes where fields need them."""
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    return text.getvalue()


def full_table(places: Sequence, days: Sequence, hours: Sequence) -> list[tuple]:
    """Return a row (place, day, hour, number) for each cell."""
    return [
        (place, day, hour, 1 + (3 * p + 5 * d + 7 * h) % 11)
        for p, place in enumerate(places)
        for d, day in enumerate(days)
        for h, hour in enumerate(hours)
    ]


def case(content: str | bytes, expected: object, name: str = "r.csv", **options: object) -> tuple:
    """A file's content, what comes of it, the file's name, and options of `prepare`."""
    return content, expected, name, options


def prepare(
    folder: Path, text: str | bytes, name: str = "ratings.csv", **options: object
) -> Summary:
    """Write `text` to a file and prepare it as ``out.h5`` in the same folder."""
    data = text.encode() if isinstance(text, str) else text
    (folder / name).write_bytes(data)
    return prepare_ratings([str(folder / name)], folder / "out.h5", force=True, **options)


def prepare_typed(folder: Path, *options: str | Path) -> Result:
    """Run ``dsgmcmc prepare`` on ``r.csv`` in a folder; return the finished command."""
    return typed("prepare", folder / "r.csv", folder / "x.h5", "--force", *options)


def read_back(path: Path) -> dict[str, dict[tuple, float]]:
    """Return {part: {(user, item): rating}} of a ratings file."""
    with Ratings(path) as ratings:
        ratings.verify()
        return {part: rated_pairs(ratings, part) for part in SPLITS}


def bounds_in(path: Path) -> dict[tuple, tuple]:
    """Return bounds of the ratings in a file that are not exact, by user and item."""
    with Ratings(path) as ratings:
        ratings.verify()
        slab = ratings.slab("train", 0, ratings.n_rows)
        names = [
            ratings.ids("rows")[slab.rows].tolist(),
            ratings.ids("cols")[slab.indices].tolist(),
        ]
        if ratings.orientation.transposed:
            names.reverse()
        chosen = slab.bounds.bounded
    found = zip(*names, *map(np.ndarray.tolist, slab.bounds), chosen, strict=True)
    return {(user, item): (low, high) for user, item, low, high, is_bound in found if is_bound}


def everything(path: Path) -> dict[tuple, float]:
    """Return {(user, item): rating} of both parts."""
    parts = read_back(path)
    return parts["train"] | parts["test"]


def features_of(path: Path, entity: str = "user") -> dict[object, dict[str, float]]:
    """Return {name of a user or item: {feature: value}} of a ratings file."""
    with Ratings(path) as ratings:
        ratings.verify()
        side = "rows" if (entity == "item") == ratings.orientation.transposed else "cols"
        ids = ratings.ids(side).tolist()
        features = ratings.feature_slab(side, 0, len(ids))
    ends = features.indptr
    return {
        name: {
            features.names[features.indices[c]]: float(features.values[c])
            for c in range(ends[i], ends[i + 1])
        }
        for i, name in enumerate(ids)
    }
