"""Two settings on the same splits, and whether the second is ever worse.

    python tests/benchmarks/paired.py --second "--noise both" ml-1m/ratings.dat ml-100k/u.data

Prepares every file of ratings with the split of each seed, samples it with `--first` and with `--second`, and prints
the change from first to second: RMSE, and the log density of a held-out rating with the standard error over ratings
(paired, over all seeds) and over seeds. Then the same for synthetic data, unless `--no-synthetic`: ratings whose noise
is the same for all; half stars of few users and many items; two to five ratings a user.
"""

from __future__ import annotations

import argparse
import shlex
import tempfile
from pathlib import Path

import numpy as np
from made_up import SyntheticOptions, generate

from dsgmcmc.parallel.mpirun import run_dsgmcmc
from dsgmcmc.posterior.run import Run

SYNTHETIC = {
    "same noise": SyntheticOptions(3000, 1500, 300_000, half_stars=False),
    "half stars": SyntheticOptions(610, 9724, 100_000, noise_spread=6.0),
    "few a user": SyntheticOptions(20_000, 1000, 70_000, noise_spread=6.0),
}


def quietly(*arguments: str | Path) -> None:
    """Run a command of the package."""
    done = run_dsgmcmc([str(argument) for argument in arguments], capture_output=True)
    if done.returncode:
        raise SystemExit(done.stderr)


def scores(data: Path, out: Path, options: list[str]) -> tuple[float, np.ndarray]:
    """RMSE, and the log density of every test rating."""
    quietly("sample", data, "--out", out, "--save-draws=0", *options)
    run = Run(out)
    test = run.test
    density = test.predictive(run.config.law, run.levels).log_density(test.rating)
    return float(np.sqrt(np.mean((test.rating - test.mean) ** 2))), density


def compare(
    raw: Path, seeds: int, both: tuple[list[str], list[str]], folder: Path
) -> tuple[np.ndarray, list[np.ndarray]]:
    """RMSE of both (seeds, 2), and for every seed what each test rating's log density gains."""
    errors, gains = [], []
    for seed in range(seeds):
        data = folder / f"{seed}.h5"
        quietly("prepare", raw, data, f"--seed={seed}", "--force")
        found = [scores(data, folder / f"{seed}-{k}", [f"--seed={seed}", *options]) for k, options in enumerate(both)]
        errors.append([rmse for rmse, _ in found])
        gains.append(found[1][1] - found[0][1])
    return np.array(errors), gains


def tell(name: str, errors: np.ndarray, gains: list[np.ndarray]) -> None:
    """One row of the table."""
    seeds = np.array([gain.mean() for gain in gains])
    every = np.concatenate(gains)
    first, second = errors.mean(axis=0)
    over_seeds = seeds.std(ddof=1) / np.sqrt(len(seeds)) if len(seeds) > 1 else np.nan
    over_ratings = every.std() / np.sqrt(len(every))
    print(
        f"| {name} | {first:.4f} | {second:.4f} | {seeds.mean():+.5f} | {over_ratings:.5f} | {over_seeds:.5f} |",
        flush=True,
    )


def main() -> None:
    """Compare, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ratings", type=Path, nargs="*", help="files that `dsgmcmc prepare` reads")
    parser.add_argument("--first", default="", help="options of `dsgmcmc sample`")
    parser.add_argument("--second", required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--synthetic", action=argparse.BooleanOptionalAction, default=True)
    arguments = parser.parse_args()
    both = shlex.split(arguments.first), shlex.split(arguments.second)
    print("| data | RMSE | RMSE | log density | se, ratings | se, seeds |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for raw in arguments.ratings:
            (folder / raw.stem).mkdir()
            tell(raw.name, *compare(raw, arguments.seeds, both, folder / raw.stem))
        for kind, options in SYNTHETIC.items() if arguments.synthetic else ():
            made = folder / kind.replace(" ", "-")
            made.mkdir()
            generate(made / "ratings.csv", options)
            tell(kind, *compare(made / "ratings.csv", arguments.seeds, both, made))


if __name__ == "__main__":
    main()
