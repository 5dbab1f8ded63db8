"""Where ratings begin to count as liked, if they are not levels of a scale: the quality of lists by that place.

    python tests/benchmarks/liked.py DATASETS

Every row is a set: MovieLens 1M, and made-up half stars, plays, hours and prices (`tests/shapes.py`). A column is a
place of the bound: the share of the training ratings that reach it, or, as ``scale``, three quarters of the way from
the lowest to the highest training rating; ``exposure`` has no bound. Users with a test rating in the upper quarter are
counted. A cell has the recall of these ratings in lists of ten, and the lists' NDCG, in which the gain of a test rating
is the share of the training ratings below it.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from bench import arguments, movielens, quietly, say, say_head
from shapes import Ratings, amounts, half_stars, large_counts

from dsgmcmc.diagnostics.ranking import evenly_spaced, measures, recommended
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.rank import LIKED, Ranking, liked_from
from dsgmcmc.posterior.run import Run

SHARES, TOP, USERS = (0.5, 0.33, 0.25, 0.1), 10, 2000
COUNTS = ("--likelihood", "negative-binomial")


def sets() -> dict[str, tuple[Ratings, tuple[str, ...]]]:
    """Made-up ratings, and options of their model, by name."""
    plays, hours = large_counts(0), large_counts(1)
    return {
        "half stars": (half_stars(0, 250, 2500, 16_000), ()),
        "plays, counts": (plays, COUNTS),
        "plays, Gaussian": (plays, ()),
        "plays, one outlier": (replace(plays, value=np.append(plays.value[:-1], 1e6)), COUNTS),
        "hours": (replace(hours, value=hours.value / 10), ()),
        "prices": (amounts(0), ()),
    }


def graded(users: np.ndarray, lists: np.ndarray, test: tuple[np.ndarray, ...]) -> float:
    """Mean NDCG of lists (users, k), with gains of test pairs: `test` has their users, items and gains."""
    discounts, result = 1 / np.log2(np.arange(2, lists.shape[1] + 2)), []
    for user, items in zip(users.tolist(), lists.tolist(), strict=True):
        chosen = test[0] == user
        gains = dict(zip(test[1][chosen].tolist(), test[2][chosen].tolist(), strict=True))
        best = np.sort(list(gains.values()))[::-1][: len(discounts)]
        if best.sum() > 0:
            result.append(discounts @ [gains.get(item, 0.0) for item in items] / (discounts[: len(best)] @ best))
    return float(np.mean(result))


def measure(name: str, data: Path, options: tuple[str, ...], folder: Path) -> None:
    """Sample a model, and print the quality of its lists by every place of the bound."""
    quietly("sample", data, "--out", folder / "run", *options)
    run = Run(folder / "run")
    rated = run.rated()
    with run.open_ratings() as ratings:
        train = np.sort(ratings.slab("train", 0, ratings.n_rows)[2].astype(np.float64))
    users, items = run.test_pairs()
    gains = np.searchsorted(train, predict_test(run).rating) / len(train)
    upper = predict_test(run).rating >= train[-len(train) // 4]
    chosen = evenly_spaced(np.unique(users[upper]), USERS)
    bounds = {"scale": train[0] + LIKED * (train[-1] - train[0]), "default": liked_from(run)}
    bounds |= {f"{share:.0%}": float(train[int(-share * len(train))]) for share in SHARES}
    rules = {place: Ranking(TOP, at_least=bound) for place, bound in bounds.items()}
    rules |= {"exposure": Ranking(TOP, "exposure")}
    cells = []
    for ranking in rules.values():
        lists = recommended(run, chosen, ranking, rated)
        recall = measures(chosen, lists, users[upper], items[upper])["recall"].mean()
        ndcg = graded(chosen, lists, (users, items, gains))
        cells.append(f"{recall:.3f}, {ndcg:.3f}")
    say(name, f"{bounds['default']:.4g}", *cells)


def main() -> int:
    """Measure every set."""
    parser = arguments(__doc__)
    parser.add_argument("datasets", type=Path)
    parser.add_argument("--only", default="", help="sets whose names contain this")
    given = parser.parse_args()
    say_head("ratings", "default bound", "scale", "default", *(f"{share:.0%}" for share in SHARES), "exposure")
    with tempfile.TemporaryDirectory() as place:
        for name, (ratings, options) in sets().items():
            folder = Path(place) / name
            if given.only in name:
                folder.mkdir()
                measure(name, replace(ratings, time=None, genres=None).prepare(folder / "x.h5"), options, folder)
        if given.only in "MovieLens 1M":
            data = movielens(given.datasets / "ml-1m", Path(place) / "ml-1m.h5", "ratings.dat")
            measure("MovieLens 1M", data, ("--features", "no"), Path(place))
    return 0


if __name__ == "__main__":
    sys.exit(main())
