"""Rankings of clicks: ours, and those of alternating least squares by ``implicit``, on the same split.

    python tests/benchmarks/clicks.py ml-1m/ratings.dat --out clicks [--rank 32] [--validate]

Ratings of 4 and above are clicks; 20 % of each user's are held out. Printed are Recall@20, over all held-out clicks of
a user and over min(20, their number), and NDCG@100, of rankings by the mean of draws, by one draw, by popularity, and
by ``implicit``, which is installed from PyPI into OUT/environment at the first call. With --validate the settings of
both are chosen by NDCG@100 on 20 % of the training clicks, without the test clicks. Not part of the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import duckdb
import numpy as np
from bench import arguments, python_with, quietly, run_program, say, say_head

from dsgmcmc.data.prepare import inspect, load
from dsgmcmc.data.ratings import Ratings
from dsgmcmc.diagnostics.ranking import measures, popular, recommended
from dsgmcmc.posterior.exposure import Rated
from dsgmcmc.posterior.rank import Ranking
from dsgmcmc.posterior.run import Run

Settings = tuple[float, ...]
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
        clicks = db.execute("SELECT user_id::INT AS u, item_id::INT AS i FROM raw WHERE rating >= 4").fetchnumpy()
    return clicks["u"], clicks["i"]


def hold_out(users: np.ndarray, seed: int) -> np.ndarray:
    """Choose a fifth of each user's clicks."""
    order = np.lexsort((np.random.default_rng(seed).random(len(users)), users))
    first = np.searchsorted(users[order], users[order])
    place, number = np.arange(len(users)) - first, np.bincount(users)[users[order]]
    held = np.zeros(len(users), bool)
    held[order] = place < number // 5
    return held


def prepared(out: Path, name: str, users: np.ndarray, items: np.ndarray, held: np.ndarray) -> Path:
    """Write a ratings file of clicks; those in `held` are held out."""
    for part, chosen in (("train", ~held), ("test", held)):
        rows = np.column_stack([users[chosen], items[chosen]])
        np.savetxt(out / f"{name}-{part}.csv", rows, "%d", ",", header="user,item", comments="")
    data = out / f"{name}.h5"
    quietly("prepare", out / f"{name}-train.csv", data, "--test", out / f"{name}-test.csv", "--force")
    return data


def scores(run: Run, rank: Callable[[np.ndarray], np.ndarray]) -> tuple[float, float, float]:
    """Recall@20, Recall@20 over min(20, n), and NDCG@100 of lists of 100 items, which `rank` makes for users."""
    pairs = run.test_pairs()
    users = np.unique(pairs[0])
    n, lists = np.bincount(pairs[0])[users], rank(users)
    recall = measures(users, lists[:, :20], *pairs)["recall"]
    capped = recall * n / np.minimum(n, 20)
    return recall.mean(), capped.mean(), measures(users, lists, *pairs)["ndcg"].mean()


def of_ours(run: Run, rated: Rated, by: str = "mean") -> tuple[float, float, float]:
    """Score our rankings."""
    return scores(run, lambda users: recommended(run, users, Ranking(100, by, seed=0), rated))


def ours(data: Path, out: Path, rank: int, settings: Settings, length: str) -> Run:
    """Sample with these settings, unless OUT has the run."""
    tau, zero_weight = settings
    run = out / f"{data.stem}-{rank}-{tau}-{zero_weight}-{length}"
    if not (run / "summary.json").exists():
        options = f"--rank={rank} --iterations={length} --noise-precision={tau} --zero-weight={zero_weight}"
        quietly("sample", data, "--out", run, "--likelihood=all-cells", *options.split())
    return Run(run)


def of_als(run: Run, rated: Rated, out: Path, rank: int, settings: Settings) -> tuple[float, float, float]:
    """Fit ``implicit`` to the same clicks, and score it."""
    python = python_with(out / "environment", "implicit")
    items = [rated.of(user) for user in range(len(run.users))]
    source, result = out / "train.npz", out / "als.npz"
    users = np.repeat(np.arange(len(items)), [len(clicked) for clicked in items])
    np.savez(source, users=users, items=np.concatenate(items), shape=(len(run.users), len(run.items)))
    run_program(python, "-c", ALS, source, result, rank, *settings)
    with np.load(result) as factors:
        score = factors["users"] @ factors["items"].T
    for user, clicked in enumerate(items):
        score[user, clicked] = -np.inf
    return scores(run, lambda users: np.argsort(-score[users], axis=1)[:, :100].astype(np.int32))


def chosen(data: Path, out: Path, rank: int) -> tuple[Settings, Settings]:
    """Choose the settings of both that are best on the held-out clicks of `data`."""
    with Ratings(data) as ratings:
        rated = Rated(ratings)
    runs = {settings: ours(data, out, rank, settings, "200sweeps") for settings in product(TAU, ZERO_WEIGHT)}
    run = next(iter(runs.values()))  # for its clicks
    by_ours = {settings: of_ours(run, rated)[2] for settings, run in runs.items()}
    by_als = {settings: of_als(run, rated, out, rank, settings)[2] for settings in product(ALPHA, REGULARIZATION)}
    print(f"NDCG@100 by tau and zero weight: {by_ours}\nby alpha and lambda: {by_als}", flush=True)
    return max(by_ours, key=by_ours.__getitem__), max(by_als, key=by_als.__getitem__)


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
    with Ratings(data) as ratings:
        rated = Rated(ratings)
    lines = {
        "ours, tau {:g}, zero weight {:g}".format(*best[0]): of_ours(run, rated),
        "one draw for each user": of_ours(run, rated, "thompson"),
        "most popular": scores(run, lambda users: popular(run, users, rated, 100)),
        "implicit, alpha {:g}, lambda {:g}".format(*best[1]): of_als(run, rated, given.out, given.rank, best[1]),
    }
    say_head("", "Recall@20", "Recall@20 over min(20, n)", "NDCG@100")
    for name, figures in lines.items():
        say(name, *(f"{figure:.4f}" for figure in figures))


if __name__ == "__main__":
    main()
