"""What `dsgmcmc compare` picks, and what is the best in hindsight.

    python tests/benchmarks/compare.py ml-100k ml-1m --out compared

prepares data (the five folds of MovieLens 100K and its temporal split; MovieLens 1M, three random splits and the
temporal one; with features and times; ratings of 4 and above as clicks; 500 ratings; synthetic real numbers, and
ratings from 1 to 10 of two generators), compares models on the training ratings of each, samples models whole, and
scores them by the test ratings, which the comparison does not see: all that it sampled, and those with all parts. It
prints for each the criterion of the plain, the recommended and the best model, what the recommended one gains over the
plain one with its standard error (paired, by user), that as a share of what the best gains, and processor seconds: of
the comparison over those of a default run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import tomli_w
from shared import arguments, movielens, quietly
from synthetic import SyntheticOptions, generate

from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.diagnostics.scores import difference
from dsgmcmc.posterior.exposure import Rated
from dsgmcmc.posterior.run import Run
from dsgmcmc.runs.candidates import candidates
from dsgmcmc.runs.compare import Scores, ranking_scores, recorded_values, scores_of


def splits(folder: Path, out: Path) -> Iterator[tuple[str, Path]]:
    """Prepare the splits of a folder of MovieLens: names and ratings files."""
    large = (folder / "ratings.dat").is_file()
    ratings = "ratings.dat" if large else "u.data"
    made: dict[str, list[str]] = {"temporal": [ratings, "--split=temporal"]}
    if large:
        made |= {f"random {seed}": [ratings, f"--seed={seed}"] for seed in (1, 2, 3)}
    else:
        made |= {f"u{k}": [f"u{k}.base", f"--test={folder / f'u{k}.test'}"] for k in range(1, 6)}
    for name, options in sorted(made.items()):
        yield f"{folder.name} {name}", movielens(folder, out / f"{folder.name} {name}.h5", *options)
    if not large:
        yield from made_of(folder / ratings, out)


def made_of(ratings: Path, out: Path) -> Iterator[tuple[str, Path]]:
    """Clicks, and few ratings, of the ratings of a file."""
    rows = np.loadtxt(ratings, dtype=np.int64)
    some = rows[np.random.default_rng(0).choice(len(rows), 500, replace=False)]
    for name, chosen, columns in (("500 ratings", some, 3), ("clicks", rows[rows[:, 2] >= 4], 2)):
        text = "\n".join(",".join(map(str, row)) for row in chosen[:, :columns].tolist())
        (out / f"{name}.csv").write_text(f"{'user,item,rating' if columns == 3 else 'user,item'}\n{text}\n")
        quietly("prepare", out / f"{name}.csv", out / f"{name}.h5", "--test-fraction", "0.2", "--force")
        yield name, out / f"{name}.h5"


def synthetic(out: Path) -> Iterator[tuple[str, Path]]:
    """Normal ratings with the same noise for all; the same and with noise that differs, rounded to 1 to 10."""
    same = SyntheticOptions(3000, 1500, 200_000, half_stars=False)
    differs = replace(same, noise_spread=6.0)
    kinds = {
        "normal": same,
        "1 to 10, same noise": same,
        "1 to 10": differs,
        "1 to 10 seed 2": replace(differs, seed=2),
    }
    for name, options in kinds.items():
        raw = out / f"{name}.csv"
        generate(raw, options, force=True)
        if name != "normal":
            head, *lines = raw.read_text().splitlines()
            rows = [line.split(",") for line in lines]
            rated = [f"{row[0]},{row[1]},{min(max(round(2 * float(row[2])), 1), 10)}" for row in rows]
            raw.write_text("\n".join([",".join(head.split(",")[:3]), *rated]))
        yield name, prepared(raw)
    name = "1 to 10 own scales"
    users, items, ratings = own_scales(np.random.default_rng(7))
    rows = np.stack([users, items, ratings], axis=1).tolist()
    (out / f"{name}.csv").write_text("\n".join(["user,item,rating", *(",".join(map(str, row)) for row in rows)]))
    yield name, prepared(out / f"{name}.csv")


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


def prepared(raw: Path) -> Path:
    """Ratings file of a table, beside it."""
    quietly("prepare", raw, raw.with_suffix(".h5"), "--force")
    return raw.with_suffix(".h5")


def whole(data: Path, out: Path, settings: dict[str, str], metric: str, options: list[str]) -> Scores:
    """Scores of a model on the test ratings, sampled whole."""
    given = out.with_suffix(".toml")
    given.write_text(tomli_w.dumps(settings))
    quietly("sample", data, "--out", out, "--config", given, *options)
    run = Run(out)
    with open_ratings(data) as ratings:
        if metric == "ndcg":
            return ranking_scores(run, Rated(ratings), 10**9)
        return scores_of(run, metric, recorded_values(ratings))


def judged(name: str, data: Path, out: Path, options: list[str]) -> None:
    """One row of the table."""
    table, seconds = quietly("compare", data, "--out", out / f"{name}.toml", "--force", "--json")
    found = json.loads(table)
    folder = out / name
    _, usual = quietly("sample", data, "--out", folder / "default", "--features", "no", *clicks(found))
    models = {each["name"]: each["settings"] for each in found["models"]}
    with open_ratings(data) as ratings:
        there = {"features": bool(ratings.features), "times": ratings.times is not None}
    admitted = {*models, *found["left_out"]}
    everything = [each for each in candidates(clicks=found["metric"] == "ndcg", **there) if each.name in admitted]
    full = max(len(each.added) for each in everything)
    models |= {each.name: dict(each.settings) for each in everything if len(each.added) == full}
    scores = {each: whole(data, folder / each, given, found["metric"], options) for each, given in models.items()}
    plain, chosen = next(iter(scores)), found["recommended"]
    best = max(scores, key=lambda each: scores[each].each.mean())
    gain = difference(scores[chosen].each, scores[plain].each, scores[plain].owners)
    most = float((scores[best].each - scores[plain].each).mean())
    share = f"{gain.mean / most:.0%}" if best != plain else "-"
    numbers = " | ".join(f"{scores[each].each.mean():.4f}" for each in (plain, chosen, best))
    print(
        f"| {name} | {chosen} | {best} | {numbers} | {gain.mean:+.4f} ± {gain.error:.4f} | {share} | "
        f"{seconds:.0f} / {usual:.0f} = {seconds / usual:.1f} |",
        flush=True,
    )


def clicks(found: dict[str, str]) -> list[str]:
    """Options without which a default run of clicks would be of ratings that are all the same."""
    return ["--likelihood", "all-cells"] if found["metric"] == "ndcg" else []


def main() -> None:
    """Compare, sample, and print a table in Markdown."""
    parser = arguments(__doc__)
    parser.add_argument("folders", type=Path, nargs="*", help="of MovieLens 100K and 1M")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", help="names of data that begin so, with commas")
    parser.add_argument("--options", default="", help="of `sample`, for whole runs")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    print("| data | recommended | best | plain | recommended | best | gain | of the best | seconds |")
    print("|---" * 9 + "|")
    for source in (*(splits(folder, args.out) for folder in args.folders), synthetic(args.out)):
        for name, data in source:
            if args.only is None or name.startswith(tuple(args.only.split(","))):
                judged(name, data, args.out, args.options.split())


if __name__ == "__main__":
    main()
