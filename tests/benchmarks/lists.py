"""Lists of ten on random and on later ratings: by the models and exposures of dsgmcmc, and by
EASE^R of liked clicks.

    python tests/benchmarks/lists.py DATASETS --out lists

MovieLens 100K and 1M are split twice: a random tenth, and the latest tenth. NDCG@10 counts test
ratings of 4 or more among all items that a user has not rated in training, over users with such a
rating and with training ratings; at most 1,500 of them, evenly spaced. EASE^R has the penalty 500
and sees the ratings of 4 or more.

The first table has means and their standard errors; the second, mean differences by user from
EASE^R, and theirs. Ratings files and runs stay in OUT, and are used again. Not part of the tests.
"""

from pathlib import Path

import numpy as np
from bench import arguments, quietly, say, say_head

from dsgmcmc.diagnostics.ranking import recommended
from dsgmcmc.posterior.lists.exposure import Exposure
from dsgmcmc.posterior.lists.exposure_of_run import chosen_kind, keep_exposure
from dsgmcmc.posterior.lists.measures import evenly_spaced, measures
from dsgmcmc.posterior.lists.ranking import Ranking
from dsgmcmc.posterior.rated import Rated, read_rated
from dsgmcmc.posterior.run import Run

FILES = {"ml-100k": "u.data", "ml-1m": "ratings.dat"}
SPLITS = {
    "latest tenth": ("--split", "temporal"),
    "random tenth": ("--seed", "1"),
}
MODELS = {"dsgmcmc": (), "dsgmcmc, `--model auto`": ("--model", "auto")}
LIKED = 4.0
USERS = 1500
Table = dict[str, np.ndarray]


def sampled(data: Path, options: tuple[str, ...]) -> Run:
    """Sample a model, unless its run is there."""
    folder = data.with_suffix(f".{'-'.join(options) or 'default'}".replace("--", ""))
    if not (folder / "summary.json").is_file():
        quietly("sample", data, "--out", folder, "--seed", "1", *options)
    return Run(folder)


def ease(run: Run, rated: Rated) -> None:
    """Let a run rank by EASE^R of its liked ratings alone."""
    shares = run.counts("item") / len(run.users)
    keep_exposure(run, Exposure.of_ratings(rated, shares, LIKED))


def measured(data: Path) -> Table:
    """Return the NDCG of every user, by the rule of the lists."""
    values: Table = {}
    for name, options in MODELS.items():
        run = sampled(data, options)
        rated = read_rated(run)
        with run.open_ratings() as ratings:
            slab = ratings.slab("test", 0, ratings.n_rows)
            is_liked = slab.values >= LIKED
            pairs = slab.rows[is_liked].astype(np.int32), slab.indices[is_liked]
            if ratings.orientation.transposed:
                pairs = pairs[::-1]
        candidates = np.unique(pairs[0])
        trained = run.counts("user")[candidates] > 0
        users = evenly_spaced(candidates[trained], USERS)

        def ndcg(
            ranking: Ranking, run: Run = run, users=users, rated=rated, pairs=pairs
        ) -> np.ndarray:
            return measures(users, recommended(run, users, ranking, rated), *pairs)["ndcg"]

        chosen = chosen_kind(run)
        for kind in ("rated", "liked"):
            label = f"{name}, `--exposure {kind}`"
            values[label] = ndcg(Ranking(at_least=LIKED, exposure=kind))
        values[name] = values[f"{name}, `--exposure {chosen}`"]
        ease(run, rated)
        values["EASE^R of liked clicks"] = ndcg(Ranking(by="exposure"))
    return values


def main() -> None:
    """Measure both sets, split in both ways."""
    parser = arguments(__doc__)
    parser.add_argument("datasets", type=Path)
    parser.add_argument("--out", type=Path, default=Path("lists"))
    parsed = parser.parse_args()
    parsed.out.mkdir(parents=True, exist_ok=True)
    tables: dict[str, Table] = {}
    for folder, file in FILES.items():
        for split, options in SPLITS.items():
            data = parsed.out / f"{folder}-{split.split()[0]}.h5"
            if not data.is_file():
                quietly("prepare", parsed.datasets / folder / file, data, *options)
            tables[f"{folder}, {split}"] = measured(data)
    rules = list(next(iter(tables.values())))
    say_head("NDCG@10", *tables)
    for rule in rules:
        say(rule, *(_with_error(table[rule]) for table in tables.values()))
    say_head("minus EASE^R", *tables)
    for rule in rules:
        if not rule.startswith("EASE"):
            say(
                rule,
                *(
                    _with_error(table[rule] - table["EASE^R of liked clicks"], sign="+")
                    for table in tables.values()
                ),
            )


def _with_error(values: np.ndarray, sign: str = "") -> str:
    """Mean, and its standard error."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():{sign}.4f} ± {error:.4f}"


if __name__ == "__main__":
    main()
