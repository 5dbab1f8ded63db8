"""A run on grown data that starts from one on fewer, against sampling anew: RMSE by sweeps.

Usage: python tests/benchmarks/warm_start.py RATINGS [--latest]

A tenth of the ratings is held out, nine tenths of the others are sampled (300 sweeps), then all of the others are: from
that run (``--from``) and anew, with 10, 30 and 100 sweeps, of which the first half is burn-in; of the last state and of
the posterior mean. What is new in the grown data is drawn at random, or with ``--latest`` it is the latest fifth, so
that many ratings are of new users. RATINGS is any file that ``dsgmcmc prepare`` reads, such as ``ml-1m/ratings.dat``.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from shared import quietly, triplets

from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.storage.rundir import RunDirectory

SWEEPS = (10, 30, 100)


def ratings_of(path: Path, part: str) -> np.ndarray:
    """User, item and rating of all ratings of a part of a ratings file, (n, 3)."""
    with open_ratings(path) as ratings:
        rows, columns, values = triplets(ratings, part)
        sides = ratings.row_ids()[rows], ratings.col_ids()[columns]
        pairs = sides[::-1] if ratings.transposed else sides
    return np.column_stack([*pairs, values])


def write(path: Path, ratings: np.ndarray) -> Path:
    """Write ratings as CSV."""
    np.savetxt(path, ratings, fmt=("%d", "%d", "%g"), delimiter=",", header="user,item,rating", comments="")
    return path


def rmse(run: Path) -> tuple[float, float]:
    """RMSE of a run's last state, which says whether it has arrived, and of its posterior mean."""
    *_, last = RunDirectory(run).metrics()
    return float(last["rmse"]), float(last["rmse_mean"])


def main() -> None:
    """Prepare, sample and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ratings", type=Path)
    parser.add_argument("--latest", action="store_true", help="what is new are the latest ratings")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        quietly("prepare", given.ratings, folder / "all.h5")
        train, test = (ratings_of(folder / "all.h5", part) for part in ("train", "test"))
        held = write(folder / "test.csv", test)
        if given.latest:  # the training ratings are those before a time: prepare splits them
            quietly("prepare", given.ratings, folder / "latest.h5", "--split", "temporal", "--test-fraction", 0.19)
            early = {(u, i) for u, i, _ in ratings_of(folder / "latest.h5", "train").tolist()}
            kept = np.array([(u, i) in early for u, i, _ in train.tolist()])
        else:
            kept = np.random.default_rng(0).random(len(train)) < 0.9
        for size, chosen in (("few", train[kept]), ("grown", train)):
            quietly("prepare", write(folder / f"{size}.csv", chosen), folder / f"{size}.h5", "--test", held)
        lengths = ("--iterations", "300sweeps")
        quietly("sample", folder / "few.h5", "--out", folder / "run", *lengths)
        quietly("sample", folder / "grown.h5", "--out", folder / "long", *lengths)
        whole, part = rmse(folder / "long"), rmse(folder / "run")
        print(
            f"{kept.mean():.1%} of {len(train):,} training ratings, state and mean: {part[0]:.4f} {part[1]:.4f}; all,"
        )
        print(f"300 sweeps: {whole[0]:.4f} {whole[1]:.4f}\n\n| sweeps | state, started | anew | mean, started | anew |")
        print("|---|---|---|---|---|", flush=True)
        for sweeps in SWEEPS:
            found = []
            for way, more in (("started", ("--from", folder / "run")), ("anew", ())):
                out = folder / f"{way}{sweeps}"
                lengths = (f"--iterations={sweeps}sweeps", f"--burn-in={sweeps // 2}sweeps", "--thin=1sweeps")
                quietly("sample", folder / "grown.h5", "--out", out, *lengths, *more)
                found.append(rmse(out))
            (a, b), (c, d) = found
            print(f"| {sweeps} | {a:.4f} | {c:.4f} | {b:.4f} | {d:.4f} |", flush=True)


if __name__ == "__main__":
    main()
