"""Where ratings begin to count as liked, if they are not levels of a scale: the quality of lists by
that place.

    python tests/benchmarks/liked.py DATASETS

Every row is a set: MovieLens 1M, and made-up half stars, plays, hours and prices
(`tests/shapes.py`). A column is a place of the bound: the share of the training ratings that reach
it, or, as ``scale``, three quarters of the way from the lowest to the highest training rating;
``exposure`` has no bound. A cell has the recall and the NDCG of the test ratings in the upper
quarter, in lists of ten.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from bench import arguments, movielens, quietly, say, say_head
from shapes import amounts, half_stars, large_counts

from dsgmcmc.diagnostics.ranking import recommended
from dsgmcmc.model.likelihoods.limits import top_of
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.lists.liked import liked_from
from dsgmcmc.posterior.lists.measures import evenly_spaced, measures
from dsgmcmc.posterior.lists.ranking import Ranking
from dsgmcmc.posterior.rated import read_rated
from dsgmcmc.posterior.run import Run

SHARES = (0.5, 0.33, 0.25, 0.1)
USERS = 500
LENGTH = ("--rank", "8", "--iterations", "150sweeps", "--features", "no")
COUNTS = ("--likelihood", "negative-binomial")


def measure(name: str, data: Path, *options: str) -> None:
    """Sample a model, and print the quality of its lists by every place of the bound."""
    quietly("sample", data, "--out", data.with_suffix(".run"), *LENGTH, *options)
    run = Run(data.with_suffix(".run"))
    with run.open_ratings() as ratings:
        train = np.sort(ratings.slab("train", 0, ratings.n_rows).values.astype(np.float64))
    upper = predict_test(run).rating >= train[-len(train) // 4]
    liked = [side[upper] for side in run.test_pairs()]
    users = evenly_spaced(np.unique(liked[0]), USERS)
    bounds = [
        top_of(train),
        liked_from(run),
        *(train[int(-s * len(train))] for s in SHARES),
    ]
    cells = []
    for ranking in (*(Ranking(at_least=float(bound)) for bound in bounds), Ranking(by="exposure")):
        quality = measures(users, recommended(run, users, ranking, read_rated(run)), *liked)
        cells.append(f"{quality['recall'].mean():.3f}, {quality['ndcg'].mean():.3f}")
    say(name, f"{bounds[1]:.4g}", *cells)


def main() -> int:
    """Measure every set."""
    parser = arguments(__doc__)
    parser.add_argument("datasets", type=Path)
    datasets = parser.parse_args().datasets
    plays = large_counts(0)
    sets = {
        "half stars": half_stars(0, 250, 2500, 16_000),
        "plays": plays,
        "plays and one outlier": replace(plays, value=np.append(plays.value[:-1], 1e6)),
        "hours": replace(large_counts(1), value=large_counts(1).value / 10),
        "prices": amounts(0),
    }
    say_head(
        "ratings",
        "default bound",
        "scale",
        "default",
        *(f"{share:.0%}" for share in SHARES),
        "exposure",
    )
    with tempfile.TemporaryDirectory() as place:
        measure(
            "MovieLens 1M", movielens(datasets / "ml-1m", Path(place) / "ml-1m.h5", "ratings.dat")
        )
        for name, ratings in sets.items():
            data = replace(ratings, time=None, genres=None).prepare(Path(place) / f"{name}.h5")
            measure(name, data, *(COUNTS if "plays" in name else ()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
