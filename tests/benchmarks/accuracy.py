"""Accuracy on MovieLens: u1 and the five folds of 100K, random and temporal splits of 1M, by models
of growing detail.

    python tests/benchmarks/accuracy.py DATASETS [--only u1,folds,1m,splits,temporal]

DATASETS has the folders ml-100k and ml-1m. Every table has RMSE, MAE, log probability of the level,
and the share of test ratings, in per cent, inside central intervals of 50, 80, 90 and 95 %. For u1
the table also has RMSE and log probability on a tenth of u1.base, with the other nine for training:
a model is chosen by these, not by the test ratings. Means over folds and splits have the standard
error over them, which is too small for folds: they share most of their training ratings. There is
one chain each, of a fixed length. Not part of the tests.
"""

import json
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from bench import arguments, movielens, quietly, say, say_head

NOISE = "--noise both"
IMPLICIT = "--implicit-features both"
TIME = "--time-levels user"
ORDINAL = "--likelihood ordinal-logit --thresholds user"
NONE = "--features no"
MODELS = {
    "plain": NONE,
    "own noise": f"{NONE} {NOISE}",
    "own noise, features": NOISE,
    "own noise, implicit features": f"{NONE} {NOISE} {IMPLICIT}",
    "own noise, time": f"{NONE} {NOISE} {TIME}",
    "own noise, features, implicit features": f"{NOISE} {IMPLICIT}",
    "own noise, features, implicit features, time": f"{NOISE} {IMPLICIT} {TIME}",
    "ordinal, own noise": f"{NONE} {NOISE} {ORDINAL}",
    "ordinal, own noise, time": f"{NONE} {NOISE} {ORDINAL} {TIME}",
    "ordinal, own noise, features, implicit features": f"{NOISE} {ORDINAL} {IMPLICIT}",
    "ordinal, own noise, features, implicit features, time": f"{NOISE} {ORDINAL} {IMPLICIT} {TIME}",
}
ALL = "own noise, features, implicit features, time"
ALL_ORDINAL = "ordinal, own noise, features, implicit features, time"
#: Models that are sampled on all folds and splits.
REPEATED = ("plain", ALL, ALL_ORDINAL)
#: Models for a temporal split: the future has no groups of its own.
FUTURE_MODELS = (
    "plain",
    "own noise",
    "own noise, time",
    "own noise, implicit features",
    "ordinal, own noise",
)
SWEEPS = {"ml-100k": 1500, "ml-1m": 700}
TABLES = ("u1", "folds", "1m", "splits", "temporal")
COLUMNS = ("rmse_mean", "mae_mean", "log_probability")


class Bench:
    """Prepares and samples in a folder.

    Parameters
    ----------
    datasets, folder : Path
    """

    def __init__(self, datasets: Path, folder: Path) -> None:
        self._datasets = datasets
        self._folder = folder

    def prepare(self, name: str, dataset: str, *options: str) -> Path:
        """Ratings file with the features of users and items, and times."""
        return movielens(self._datasets / dataset, self._folder / f"{name}.h5", *options)

    def fold(self, k: int) -> Path:
        """One of the five folds of MovieLens 100K."""
        return self.prepare(
            f"u{k}", "ml-100k", f"u{k}.base", f"--test={self._datasets / 'ml-100k' / f'u{k}.test'}"
        )

    def split(self, k: int) -> Path:
        """A random split of MovieLens 1M."""
        return self.prepare(f"1m-{k}", "ml-1m", "ratings.dat", f"--seed={k}")

    @cache  # noqa: B019  # two tables may have a run
    def sample(self, data: Path, dataset: str, model: str) -> dict[str, Any]:
        """Sample a model; its scores."""
        run = self._folder / f"{data.stem}, {model}"
        options = (f"--iterations={SWEEPS[dataset]}sweeps", *MODELS[model].split())
        quietly("sample", data, "--out", run, "--rank=32", "--save-draws=0", *options)
        return json.loads((run / "summary.json").read_text(encoding="utf-8"))

    def table(
        self,
        title: str,
        data: Path,
        dataset: str,
        models: Iterable[str] = MODELS,
        inner: Path | None = None,
    ) -> None:
        """Print a row for each model, with the scores on another file if `inner` is given."""
        within = ("RMSE, inner", "log p, inner") if inner else ()
        say_head(title, *within, "RMSE", "MAE", "log p", "50 %", "80 %", "90 %", "95 %")
        for model in models:
            cells = [model]
            if inner:
                scores = self.sample(inner, dataset, model)
                cells += [f"{scores[name]:.4f}" for name in ("rmse_mean", "log_probability")]
            scores = self.sample(data, dataset, model)
            shares = [f"{100 * share:.1f}" for share in scores["coverage"].values()]
            say(*cells, *(f"{scores[name]:.4f}" for name in COLUMNS), *shares)

    def means(self, title: str, dataset: str, files: list[Path]) -> None:
        """Print means over several splits, with the standard errors over them."""
        say_head(title, "RMSE", "se", "MAE", "se", "log p", "se")
        for model in REPEATED:
            runs = [self.sample(data, dataset, model) for data in files]
            scores = np.array([[run[name] for name in COLUMNS] for run in runs])
            mean = scores.mean(axis=0)
            error = scores.std(axis=0, ddof=1) / np.sqrt(len(files))
            say(model, *(f"{x:.4f}" for x in np.column_stack([mean, error]).ravel()))


def main() -> None:
    """Print the tables that are asked for."""
    parser = arguments(__doc__)
    parser.add_argument("datasets", type=Path)
    parser.add_argument("--only", default=",".join(TABLES))
    parsed = parser.parse_args()
    wanted = parsed.only.split(",")
    if unknown := set(wanted).difference(TABLES):
        parser.error(f"no table {', '.join(unknown)}")
    with tempfile.TemporaryDirectory(prefix="dsgmcmc-accuracy-") as folder:
        bench = Bench(parsed.datasets.resolve(), Path(folder))
        if "u1" in wanted:
            inner = bench.prepare("inner", "ml-100k", "u1.base", "--seed=1")
            bench.table("MovieLens 100K, u1", bench.fold(1), "ml-100k", inner=inner)
        if "folds" in wanted:
            bench.means(
                "MovieLens 100K, mean of u1 to u5", "ml-100k", [bench.fold(k) for k in range(1, 6)]
            )
        if "1m" in wanted:
            bench.table("MovieLens 1M, one 90/10 split", bench.split(1), "ml-1m")
        if "splits" in wanted:
            bench.means(
                "MovieLens 1M, mean of five 90/10 splits",
                "ml-1m",
                [bench.split(k) for k in range(1, 6)],
            )
        if "temporal" in wanted:
            for dataset, ratings in (("ml-1m", "ratings.dat"), ("ml-100k", "u.data")):
                data = bench.prepare(f"{dataset}-temporal", dataset, ratings, "--split=temporal")
                label = {"ml-1m": "MovieLens 1M", "ml-100k": "MovieLens 100K"}[dataset]
                bench.table(f"{label}, the latest tenth", data, dataset, FUTURE_MODELS)


if __name__ == "__main__":
    main()
