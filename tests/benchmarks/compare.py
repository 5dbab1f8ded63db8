"""The model that `dsgmcmc compare` recommends, and the model that is the best in hindsight.

    python tests/benchmarks/compare.py ml-100k ml-1m --out compared

prepares data (the five folds of MovieLens 100K and its temporal split; MovieLens 1M, three random splits and the
temporal one; with features and times; ratings of 4 and above as clicks; 500 ratings; synthetic real numbers, and
ratings from 1 to 10 of two generators), compares models on the training ratings of each, samples models whole, and
scores them by the test ratings, which the comparison does not see. The models are all that the comparison sampled, and
those with all parts. It prints for each data set the criterion of the plain, the recommended and the best model; the
gain of the recommended model over the plain one with its standard error (paired, by user), also as a share of the gain
of the best; and processor seconds, those of the comparison over those of a default run.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import tomli_w
from bench import arguments, movielens, quietly, say, say_head
from synthetic import SyntheticOptions, generate

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.diagnostics.scores import difference
from dsgmcmc.posterior.exposure import Rated
from dsgmcmc.posterior.run import Run
from dsgmcmc.runs.compare import Scores, candidates, ranking_scores, recorded_values, scores_of


def splits(folder: Path, out: Path) -> Iterator[tuple[str, Path]]:
    """Prepare the splits of a folder of MovieLens: names and ratings files."""
    if (folder / "ratings.dat").is_file():
        options_of = {f"random {seed}": ["ratings.dat", f"--seed={seed}"] for seed in (1, 2, 3)}
        options_of["temporal"] = ["ratings.dat", "--split=temporal"]
    else:
        options_of = {"temporal": ["u.data", "--split=temporal"]}
        options_of |= {f"u{k}": [f"u{k}.base", f"--test={folder / f'u{k}.test'}"] for k in range(1, 6)}
    for name, options in options_of.items():
        yield f"{folder.name} {name}", movielens(folder, out / f"{folder.name} {name}.h5", *options)
    if "u1" in options_of:
        rows = np.loadtxt(folder / "u.data", dtype=np.int64)
        some = rows[np.random.default_rng(0).choice(len(rows), 500, replace=False), :3]
        yield "500 ratings", prepared(out / "500 ratings.csv", some, "--test-fraction", "0.2")
        yield "clicks", prepared(out / "clicks.csv", rows[rows[:, 2] >= 4, :2], "--test-fraction", "0.2")


def prepared(table: Path, rows: np.ndarray | None = None, *options: str) -> Path:
    """Prepare a table, after writing these rows of users, items and ratings into it, if there are any."""
    if rows is not None:
        header = ",".join(("user", "item", "rating")[: rows.shape[1]])
        np.savetxt(table, rows, "%d", ",", header=header, comments="")
    data = table.with_suffix(".h5")
    quietly("prepare", table, data, "--force", *options)
    return data


def synthetic(out: Path) -> Iterator[tuple[str, Path]]:
    """Normal ratings with the same noise for all; these, and ratings with unequal noise, rounded to 1 to 10."""
    same = SyntheticOptions(3000, 1500, 200_000, half_stars=False)
    differs = replace(same, noise_spread=6.0)
    kinds = {
        "normal": same,
        "1 to 10, same noise": same,
        "1 to 10": differs,
        "1 to 10 seed 2": replace(differs, seed=2),
    }
    for name, options in kinds.items():
        table, rows = out / f"{name}.csv", None
        generate(table, options, force=True)
        if name != "normal":
            rows = np.loadtxt(table, delimiter=",", skiprows=1, usecols=(0, 1, 2))
            rows[:, 2] = np.clip(np.round(2 * rows[:, 2]), 1, 10)
        yield name, prepared(table, rows)
    name = "1 to 10 own scales"
    yield name, prepared(out / f"{name}.csv", np.column_stack(own_scales(np.random.default_rng(7))))


def own_scales(rng: np.random.Generator, n: int = 2000, m: int = 1000, mean: int = 60) -> tuple[np.ndarray, ...]:
    """Users, items and ratings 1 to 10 of users who stretch and shift the scale, with heavy-tailed noise."""
    number = np.minimum(rng.geometric(1 / mean, n) + 5, m // 2)
    popular = rng.dirichlet(np.full(m, 0.5))
    items = np.concatenate(
        [rng.choice(m, k, replace=False, p=(popular + 1e-4) / (popular + 1e-4).sum()) for k in number]
    )
    users = np.repeat(np.arange(n), number)
    tastes, kinds, good = rng.normal(0, 0.5, (n, 4)), rng.normal(0, 0.7, (m, 4)), rng.normal(0, 0.6, m)
    felt = good[items] + (tastes[users] * kinds[items]).sum(axis=1) + 0.5 * rng.standard_t(5, len(users))
    stretched = rng.normal(6.5, 1, n)[users] + np.exp(rng.normal(0.4, 0.4, n))[users] * felt
    return users, items, np.clip(np.rint(stretched), 1, 10).astype(int)


def whole(data: Path, out: Path, settings: dict[str, str], metric: str, options: list[str]) -> Scores:
    """Scores of a model on the test ratings, sampled whole."""
    given = out.with_suffix(".toml")
    given.write_text(tomli_w.dumps(settings))
    quietly("sample", data, "--out", out, "--config", given, *options)
    run = Run(out)
    with Ratings(data) as ratings:
        if metric == "ndcg":
            return ranking_scores(run, Rated(ratings), 10**9)
        return scores_of(run, metric, recorded_values(ratings))


def judge(name: str, data: Path, out: Path, options: list[str]) -> None:
    """Print a row of the table."""
    text, seconds = quietly("compare", data, "--out", out / f"{name}.toml", "--force", "--json")
    table = json.loads(text)
    folder, clicks = out / name, table["metric"] == "ndcg"
    likelihood = ["--likelihood", "all-cells"] if clicks else []  # other likelihoods refuse ratings that are all equal
    _, usual = quietly("sample", data, "--out", folder / "default", "--features", "no", *likelihood)
    models = {model["name"]: model["settings"] for model in table["models"]}
    with Ratings(data) as ratings:
        known = candidates(clicks=clicks, features=bool(ratings.features), times=ratings.times is not None)
    admitted = [model for model in known if model.name in {*models, *table["left_out"]}]
    parts = max(len(model.added) for model in admitted)
    models |= {model.name: dict(model.settings) for model in admitted if len(model.added) == parts}
    scores = {model: whole(data, folder / model, given, table["metric"], options) for model, given in models.items()}
    means = {model: float(score.values.mean()) for model, score in scores.items()}
    plain, chosen, best = next(iter(scores)), table["recommended"], max(means, key=means.__getitem__)
    gain = difference(scores[chosen].values, scores[plain].values, scores[plain].owners)
    share = f"{gain.mean / (means[best] - means[plain]):.0%}" if best != plain else "-"
    numbers = (f"{means[model]:.4f}" for model in (plain, chosen, best))
    cost = f"{seconds:.0f} / {usual:.0f} = {seconds / usual:.1f}"
    say(name, chosen, best, *numbers, f"{gain.mean:+.4f} ± {gain.error:.4f}", share, cost)


def main() -> None:
    """Compare, sample, and print a table in Markdown."""
    parser = arguments(__doc__)
    parser.add_argument("folders", type=Path, nargs="*", help="of MovieLens 100K and 1M")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", help="names of data that begin so, with commas")
    parser.add_argument("--options", default="", help="of `sample`, for whole runs")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    say_head("data", "recommended", "best", "plain", "recommended", "best", "gain", "of the best", "seconds")
    for source in (*(splits(folder, args.out) for folder in args.folders), synthetic(args.out)):
        for name, data in source:
            if args.only is None or name.startswith(tuple(args.only.split(","))):
                judge(name, data, args.out, args.options.split())


if __name__ == "__main__":
    main()
