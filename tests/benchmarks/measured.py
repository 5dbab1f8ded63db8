"""Measurements: errors of the default command beside those of SMURFF and myFM, and of `auto`.

    python tests/benchmarks/measured.py --out measured

The sets are three of `tests/measured_sets.py`; a tenth is held out at random. Both other packages
get standardised values (less the mean, divided by the standard deviation of the training values),
because they do not adapt to units, and 500 sweeps, 100 of them burn-in. They are installed from
PyPI into environments below OUT. dsgmcmc gets the values as they are, and ends by itself.

The first table has RMSE by rank, in the unit of the values, and the RMSE of dsgmcmc over the
smaller of the two others; all are means over seeds. The second has what `--model auto` finds. Not
part of the tests.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from bench import arguments, quietly, say, say_head
from comparison import fit_tool, write
from measured_sets import SETS
from shapes import Ratings

#: Those whose values other packages can be given standardised.
NORMAL = ("sensors", "stations", "rounded")
RANKS = (8, 16, 32)
#: Settings of the other packages besides the rank.
OTHERS: dict[str, dict[str, Any]] = {
    "SMURFF": {"burnin": 100, "nsamples": 400, "adaptive": True},
    "myFM": {"n_iter": 500, "burn_in": 100},
}
RANK_NAMES = {"SMURFF": "num_latent", "myFM": "rank"}


def divide(ratings: Ratings, folder: Path, seed: int) -> dict[str, Path]:
    """Write training and test ratings, as they are and standardised; the files by their names."""
    is_test = np.random.default_rng(seed).random(len(ratings.value)) < 0.1
    mean = ratings.value[~is_test].mean()
    sd = ratings.value[~is_test].std()
    (folder / "sd").write_text(repr(float(sd)), encoding="utf-8")
    users = np.unique(ratings.user, return_inverse=True)[1]
    items = np.unique(ratings.item, return_inverse=True)[1]
    scaled = (users, items, (ratings.value - mean) / sd)
    recorded = (users, items, ratings.value)
    return {
        "train": write(folder / "train.csv", recorded, ~is_test),
        "test": write(folder / "test.csv", recorded, is_test),
        "scaled-train": write(folder / "scaled-train.csv", scaled, ~is_test),
        "scaled-test": write(folder / "scaled-test.csv", scaled, is_test),
    }


def run_ours(files: dict[str, Path], folder: Path, *options: object) -> dict[str, Any]:
    """Prepare and sample with options; the summary of the run and its first lines."""
    data = folder / "ratings.h5"
    out = folder / "run"
    quietly("prepare", files["train"], data, "--test", files["test"], "--force")
    quietly("sample", data, "--out", out, *options)
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    chosen = ""
    if (out / "comparison.json").exists():
        chosen = json.loads((out / "comparison.json").read_text(encoding="utf-8"))["recommended"]
    shutil.rmtree(out)
    return {**summary, "model": chosen}


def errors(name: str, seeds: int, out: Path) -> dict[str, dict[int, float]]:
    """RMSE of every program at every rank, as a mean over seeds."""
    found: dict[str, dict[int, list[float]]] = {}
    for seed in range(seeds):
        folder = out / f"{name}-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        files = divide(SETS[name](seed), folder, seed)
        sd = float((folder / "sd").read_text(encoding="utf-8"))
        for rank in RANKS:
            ours = run_ours(files, folder, "--rank", rank)["rmse_mean"]
            found.setdefault("dsgmcmc", {}).setdefault(rank, []).append(ours)
            for tool, settings in OTHERS.items():
                given = {**settings, RANK_NAMES[tool]: rank}
                fit = fit_tool(tool, given, files["scaled-train"], files["scaled-test"], out)
                assert fit.rmse is not None
                found.setdefault(tool, {}).setdefault(rank, []).append(sd * fit.rmse)
    return {
        program: {rank: float(np.mean(values)) for rank, values in by_rank.items()}
        for program, by_rank in found.items()
    }


def say_errors(found: dict[str, dict[str, dict[int, float]]]) -> None:
    """Print the table of errors, with our error over the smaller of the two others."""
    say_head("set", *(f"`--rank {rank}`" for rank in RANKS), "over the better of both")
    for name, programs in found.items():
        for program, by_rank in programs.items():
            ratios = ""
            if program == "dsgmcmc":
                shares = []
                for rank in RANKS:
                    best = min(programs[tool][rank] for tool in OTHERS)
                    shares.append(f"{by_rank[rank] / best:.3f}")
                ratios = ", ".join(shares)
            values = [f"{by_rank[rank]:.4g}" for rank in RANKS]
            say(f"{name}: {program}", *values, ratios)


def say_auto(names: list[str], out: Path) -> None:
    """Print what `--model auto` finds with seed 0."""
    say_head("set", "model", "RMSE", "log p", "inside 90 % intervals")
    for name in names:
        folder = out / f"{name}-0"
        files = {part: folder / f"{part}.csv" for part in ("train", "test")}
        summary = run_ours(files, folder, "--model", "auto")
        log_score = summary["log_probability"]
        say(
            name,
            summary["model"],
            f"{summary['rmse_mean']:.4g}",
            f"{log_score:.3f}",
            f"{summary['coverage']['0.9']:.1%}",
        )


def main() -> None:
    """Compare on all sets."""
    parser = arguments(__doc__)
    parser.add_argument("--out", type=Path, default=Path("measured"))
    parser.add_argument("--seeds", type=int, default=3, help="their number")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=NORMAL)
    given = parser.parse_args()
    out = given.out.resolve()
    say_errors({name: errors(name, given.seeds, out) for name in given.sets})
    say_auto(given.sets, out)


if __name__ == "__main__":
    main()
