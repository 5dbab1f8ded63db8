"""Files of the same planted ratings in the formats that people of this field have: `write_cases`.

30 users rate about half of 20 items with 1 to 5 stars, which a matrix of rank 2 determines. All
that a file can say is the same in every format: which of the ratings it has is in the table of the
page on files.
"""

import datetime
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas
import pyreadstat
import scipy.io
import scipy.sparse
import xarray
from science_files import R, r_frame, write_h5ad, write_rds, write_tenx

from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import RowRatings, Split

N = 30
M = 20
RNG = np.random.default_rng(2)
SCORES = 3 + RNG.normal(size=(N, 2)) @ RNG.normal(size=(2, M))
STARS = np.clip(np.rint(SCORES), 1, 5).astype(int)
RATED = RNG.random((N, M)) < 0.5
RATED_PAIRS = RNG.permutation(np.argwhere(RATED))
#: Ratings in the order of all files: user and item from 0, stars, time in seconds.
ROWS = [
    (int(u), int(i), int(STARS[u, i]), 1_400_000_000 + 60 * k)
    for k, (u, i) in enumerate(RATED_PAIRS)
]
BY_ITEM = sorted(ROWS, key=lambda row: row[1])


def _lines(form: str, rows: Iterable[tuple[int, int, int, int]] = ROWS) -> list[str]:
    """Write ratings with a format of u, i, r and t, and of v and j, which are u and i from 1."""
    return [form.format(u=u, i=i, r=r, t=t, v=u + 1, j=i + 1, k=N + i) for u, i, r, t in rows]


def _netflix() -> list[str]:
    """Ratings as the Netflix prize has them: the number of an item and a colon, then its users."""
    lines = []
    last = -1
    for u, i, r, t in BY_ITEM:
        lines += [f"{i + 1}:"] if i != last else []
        lines.append(f"{6 * u + 7},{r},{datetime.date.fromtimestamp(t)}")
        last = i
    return lines


def _market(banner: str) -> list[str]:
    return [f"%%MatrixMarket matrix {banner}", "% written by a program", f"{N} {M} {len(ROWS)}"]


def _matrix(empty: str) -> list[list[str]]:
    """Cells of a matrix with a row for each user."""
    return [[str(STARS[u, i]) if RATED[u, i] else empty for i in range(M)] for u in range(N)]


#: Lines of text files by name.
TEXTS = {
    "ratings.csv": ["userId,movieId,rating,timestamp", *_lines("{u},{i},{r},{t}")],
    "u.data": _lines("{u}\t{i}\t{r}\t{t}"),
    "ratings.dat": _lines("{u}::{i}::{r}::{t}"),
    "ratings.inter": [
        "user_id:token\titem_id:token\trating:float\ttimestamp:float",
        *_lines("u{u}\ti{i}\t{r}\t{t}"),
    ],
    "out.stars": ["% bip weighted", f"% {len(ROWS)} {N} {M}", *_lines("{v} {j} {r}  {t}")],
    "combined_data_1.txt": _netflix(),
    "ratings.libfm": _lines("{r} {u}:1 {k}:1"),
    "plays.tsv": _lines("{u:08x}\tmb-{i}\tThe Band, {i}\t{r}"),
    "ratings.mtx": _market("coordinate real general") + _lines("{v} {j} {r}.0D+00"),
    "matrix.csv": [
        ",".join(['""', *(f'"item, {i}"' for i in range(M))]),
        *(",".join([f'"u{u}"', *cells]) for u, cells in enumerate(_matrix("NA"))),
    ],
    "jokes.csv": [",".join([str(RATED[u].sum()), *cells]) for u, cells in enumerate(_matrix("99"))],
    "coded.csv": [
        "user,item,rating",
        *_lines("{u},{i},{r}"),
        *(f"{u},{i},-1" for u, i in np.argwhere(~RATED)),
    ],
    "clicks.mtx": _market("coordinate pattern general") + _lines("{v} {j}"),
    "ratings.jsonl": _lines(
        '{{"reviewerID": "U{u}", "asin": "A{i}", "overall": {r}.0, "unixReviewTime": {t}}}'
    ),
}


def pairs_of(ratings: Ratings, slab: RowRatings) -> list[tuple]:
    """Return (user, item) of every rating of a slab that begins with the first row."""
    names = [
        ratings.ids("rows")[slab.rows].tolist(),
        ratings.ids("cols")[slab.indices].tolist(),
    ]
    if ratings.orientation.transposed:
        names.reverse()
    return list(zip(*names, strict=True))


def rated_pairs(ratings: Ratings, part: Split) -> dict[tuple, float]:
    """Return {(user, item): rating} of a part of a ratings file."""
    slab = ratings.slab(part, 0, ratings.n_rows)
    return dict(zip(pairs_of(ratings, slab), slab.values.tolist(), strict=True))


def _write_science(folder: Path) -> None:
    """Write the files of the sciences; pyreadstat writes those of surveys."""
    holes = np.where(RATED, STARS, np.nan)
    users = [f"u{u}" for u in range(N)]
    items = [f"i{i}" for i in range(M)]
    with write_h5ad(folder / "cells.h5ad", users, items) as file:
        file["X"] = holes
    market = [f"{M} {N} {len(ROWS)}", *_lines("{j} {v} {r}")]
    write_tenx(
        folder / "filtered_feature_bc_matrix",
        ["%%MatrixMarket matrix coordinate integer general", *market],
        barcodes=users,
        features=[f"{item}\t{item}\tGene Expression" for item in items],
    )
    stored = scipy.sparse.csc_matrix(np.where(RATED, STARS.astype(float), 0))
    scipy.io.savemat(folder / "ratings.mat", {"R": stored})
    columns = {
        "user": R([u for u, *_ in ROWS]),
        "item": R([f"i{i}" for _, i, *_ in ROWS]),
        "rating": R([float(r) for *_, r, _ in ROWS]),
    }
    write_rds(folder / "ratings.rds", r_frame(columns))
    survey = pandas.DataFrame({"user": users, **dict(zip(items, holes.T, strict=True))})
    pyreadstat.write_sav(survey, str(folder / "survey.sav"))
    pyreadstat.write_dta(survey, str(folder / "survey.dta"))
    variable = (("station", "day"), holes)
    xarray.Dataset({"level": variable}, {"station": users}).to_netcdf(folder / "levels.nc")
    cells = np.where(RATED, STARS.astype(str), "NaN")
    rows = ["\t".join([item, "", *column]) for item, column in zip(items, cells.T, strict=True)]
    header = ["#1.2", f"{M}\t{N}", "\t".join(["Name", "Description", *users])]
    (folder / "genes.gct").write_text("\n".join([*header, *rows]) + "\n", encoding="utf-8")


def write_cases(folder: Path) -> None:
    """Write all files to a folder."""
    for name, lines in TEXTS.items():
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    pairs = (RATED_PAIRS.T + 1).astype(np.int32).tobytes()
    stars = np.array([r for _, _, r, _ in ROWS], float)
    sizes = np.array([N, M, len(ROWS)], np.int64)
    (folder / "ratings.sdm").write_bytes(sizes.tobytes() + pairs + stars.tobytes())
    (folder / "clicks.sbm").write_bytes(sizes.tobytes() + pairs)
    _write_science(folder)
    (folder / "dense.ddm").write_bytes(sizes[:2].tobytes() + STARS.astype(float).tobytes(order="F"))
