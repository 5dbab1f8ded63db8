"""Rankings of clicks: ours and the alternating least squares of ``implicit`` on the same split.

    python tests/benchmarks/clicks.py ml-1m/ratings.dat --out clicks [--rank 32] [--validate]

Ratings of 4 and above are clicks; 20 % of each user's are held out. Printed are Recall@20, over all held-out clicks of
a user and over min(20, their number), and NDCG@100: of the mean of draws, of one draw, by popularity, and of
``implicit``, which is installed from PyPI into OUT/environment at the first call. With --validate the settings of both
are chosen by NDCG@100 on 20 % of the training clicks, held out in their turn, before the test clicks are looked at. Not
part of the tests.
"""

from __future__ import annotations

import subprocess
from itertools import product
from pathlib import Path

import duckdb
import numpy as np
from shared import arguments, python_with, quietly

from dsgmcmc.data.prepare import inspect, load
from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.diagnostics.ranking import measures, popular, recommended
from dsgmcmc.posterior.exposure import Rated
from dsgmcmc.posterior.rank import Ranking
from dsgmcmc.posterior.run import Run

TAU, ZERO_WEIGHT = (10.0, 30.0, 100.0), (0.03, 0.1, 0.3)
ALPHA, REGULARIZATION = (3.0, 10.0, 30.0), (1.0, 10.0, 30.0, 100.0)
DEFAULTS = (30.0, 0.1), (30.0, 100.0)

ALS = """
import sys
import numpy as np, scipy.sparse
from implicit.als import AlternatingLeastSquares
source, out, rank, alpha, regularization = sys.argv[1:]
with np.load(source) as f:
    clicks = scipy.sparse.csr_matrix((np.ones(len(f["users"]), np.float32), (f["users"], f["items"])), f["shape"])
settings = {"alpha": float(alpha), "regularization": float(regularization), "iterations": 15, "random_state": 0}
model = AlternatingLeastSquares(factors=int(rank), **settings)
model.fit(clicks, show_progress=False)
np.savez(out, users=model.user_factors, items=model.item_factors)
"""


def clicks_of(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Names of the user and the item of every rating of 4 and above, in the order of the file."""
    with duckdb.connect() as db:
        load(db, *inspect(db, path, {}, False), False, False)
        found = db.execute("SELECT user_id::INT AS u, item_id::INT AS i FROM raw WHERE rating >= 4").fetchnumpy()
    return found["u"], found["i"]


def hold_out(users: np.ndarray, seed: int) -> np.ndarray:
    """A fifth of each user's clicks."""
    order = np.lexsort((np.random.default_rng(seed).random(len(users)), users))
    first = np.searchsorted(users[order], users[order])
    place, number = np.arange(len(users)) - first, np.bincount(users)[users[order]]
    held = np.zeros(len(users), bool)
    held[order] = place < number // 5
    return held


def prepared(out: Path, name: str, users: np.ndarray, items: np.ndarray, held: np.ndarray) -> Path:
    """A ratings file of clicks with these held out."""
    for part, chosen in (("train", ~held), ("test", held)):
        rows = np.column_stack([users[chosen], items[chosen]])
        np.savetxt(out / f"{name}-{part}.csv", rows, "%d", ",", header="user,item", comments="")
    data = out / f"{name}.h5"
    files = [f"{out}/{name}-train.csv", str(data), "--test", f"{out}/{name}-test.csv", "--force"]
    quietly("prepare", *files)
    return data


def scores(users: np.ndarray, lists: np.ndarray, run: Run) -> tuple[float, float, float]:
    """Recall@20, Recall@20 over min(20, n), NDCG@100."""
    pairs = run.test_pairs()
    n = np.bincount(pairs[0])[users]
    recall = measures(users, lists[:, :20], *pairs)["recall"]
    capped = recall * n / np.minimum(n, 20)
    return recall.mean(), capped.mean(), measures(users, lists, *pairs)["ndcg"].mean()


def ours(data: Path, out: Path, rank: int, settings: tuple[float, float], length: str) -> Run:
    """Sample it."""
    tau, zero_weight = map(str, settings)
    options = ["--likelihood", "all-cells", "--rank", str(rank), "--iterations", length]
    options += ["--noise-precision", tau, "--zero-weight", zero_weight]
    run = out / f"{data.stem}-{rank}-{tau}-{zero_weight}-{length}"
    if not (run / "summary.json").exists():
        quietly("sample", data, "--out", run, *options)
    return Run(run)


def of_als(run: Run, rated: Rated, out: Path, rank: int, settings: tuple[float, float]) -> tuple[float, float, float]:
    """Fit ``implicit`` to the same clicks, and score it."""
    python = python_with(out / "environment", "implicit")
    items = [rated.of(user) for user in range(len(run.users))]
    source, found = out / "train.npz", out / "als.npz"
    users = np.repeat(np.arange(len(items)), [len(own) for own in items])
    np.savez(source, users=users, items=np.concatenate(items), shape=(len(run.users), len(run.items)))
    subprocess.run([python, "-c", ALS, source, found, str(rank), *map(str, settings)], check=True)
    with np.load(found) as factors:
        score = factors["users"] @ factors["items"].T
    for user, own in enumerate(items):
        score[user, own] = -np.inf
    users = np.unique(run.test_pairs()[0])
    return scores(users, np.argsort(-score[users], axis=1)[:, :100].astype(np.int32), run)


def of_ours(run: Run, rated: Rated, by: str = "mean") -> tuple[float, float, float]:
    """Score our rankings."""
    users = np.unique(run.test_pairs()[0])
    return scores(users, recommended(run, users, Ranking(100, by, seed=0), rated), run)


def of_popularity(run: Run, rated: Rated) -> tuple[float, float, float]:
    """Score lists of the items with the most clicks."""
    users = np.unique(run.test_pairs()[0])
    return scores(users, popular(run, users, rated, 100), run)


def chosen(data: Path, out: Path, rank: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """The best settings of both on the held-out clicks of `data`."""
    found: tuple[dict, dict] = ({}, {})
    with open_ratings(data) as ratings:
        rated = Rated(ratings)
    for settings in product(TAU, ZERO_WEIGHT):
        run = ours(data, out, rank, settings, "200sweeps")
        found[0][settings] = of_ours(run, rated)[2]
        print("  tau {:g}, zero weight {:g}".format(*settings), f"NDCG@100 {found[0][settings]:.4f}", flush=True)
    for settings in product(ALPHA, REGULARIZATION):
        found[1][settings] = of_als(run, rated, out, rank, settings)[2]
        print("  alpha {:g}, lambda {:g}".format(*settings), f"NDCG@100 {found[1][settings]:.4f}", flush=True)
    ours_best, als_best = (max(each, key=each.__getitem__) for each in found)
    return ours_best, als_best


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("ratings", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--length", default="400sweeps")
    parser.add_argument("--validate", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    users, items = clicks_of(given.ratings)
    held = hold_out(users, 0)
    best = DEFAULTS
    if given.validate:
        again = prepared(given.out, "validation", users[~held], items[~held], hold_out(users[~held], 1))
        best = chosen(again, given.out, given.rank)
    data = prepared(given.out, "clicks", users, items, held)
    run = ours(data, given.out, given.rank, best[0], given.length)
    with open_ratings(data) as ratings:
        rated = Rated(ratings)
    lines = {
        "ours, tau {:g}, zero weight {:g}".format(*best[0]): of_ours(run, rated),
        "one draw for each user": of_ours(run, rated, "thompson"),
        "most popular": of_popularity(run, rated),
        "implicit, alpha {:g}, lambda {:g}".format(*best[1]): of_als(run, rated, given.out, given.rank, best[1]),
    }
    for name, found in lines.items():
        print(f"{name:40} Recall@20 {found[0]:.4f} (over min(20, n) {found[1]:.4f})  NDCG@100 {found[2]:.4f}")


if __name__ == "__main__":
    main()
