"""Accuracy on MovieLens: u1 and the five folds of 100K, random and temporal splits of 1M, by models of growing detail.

    python tests/benchmarks/accuracy.py DATASETS [--only u1,folds,1m,longer,splits,temporal] [--processes 2]

DATASETS has the folders ml-100k and ml-1m. Every table has RMSE, MAE, log probability of the level, how many test
ratings central intervals of 50, 80, 90 and 95 % hold, and the processor seconds of the command. Of u1 the table also
has RMSE and log probability on a tenth of u1.base, with the other nine for training: by these a model is chosen, not by
the test ratings. Means over folds and splits have the standard error over them, which says how much these differ: folds
share most of their training ratings. One chain each, of a fixed length, but for two that are twice as long. Not part
of the tests.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from shared import arguments, movielens, quietly, say

NOISE, IMPLICIT, TIME = "--noise both", "--implicit-features both", "--time-levels user"
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
ALL, ALL_ORDINAL = (
    "own noise, features, implicit features, time",
    "ordinal, own noise, features, implicit features, time",
)
#: Those that are sampled on all folds and splits.
REPEATED = ("plain", ALL, ALL_ORDINAL)
#: Of a temporal split: the future has no groups of its own.
OF_THE_FUTURE = ("plain", "own noise", "own noise, time", "own noise, implicit features", "ordinal, own noise")
SWEEPS = {"ml-100k": 1500, "ml-1m": 700}
COLUMNS = ("rmse_mean", "mae_mean", "log_probability")


class Bench:
    """Prepares and samples in a folder.

    Parameters
    ----------
    datasets, folder : Path
    processes : int
    """

    def __init__(self, datasets: Path, folder: Path, processes: int) -> None:
        self._datasets, self._folder, self._processes, self._made = datasets, folder, processes, 0

    def prepare(self, name: str, dataset: str, *options: str) -> Path:
        """Ratings file with the features of users and items, and times."""
        return movielens(self._datasets / dataset, self._folder / f"{name}.h5", *options)

    def fold(self, k: int) -> Path:
        """One of the five folds of MovieLens 100K."""
        return self.prepare(f"u{k}", "ml-100k", f"u{k}.base", f"--test={self._datasets / 'ml-100k' / f'u{k}.test'}")

    def sample(
        self, data: Path, dataset: str, models: tuple[str, ...] = tuple(MODELS), chains: int = 1
    ) -> Iterator[dict[str, Any]]:
        """Sample by these models; their rows. Several chains are longer, too."""
        for model in models:
            self._made += 1
            run = self._folder / f"run-{self._made}"
            length = (f"--chains={chains}", f"--iterations={chains * SWEEPS[dataset]}sweeps")
            options = ("--rank=32", "--save-draws=0", *length, *MODELS[model].split())
            _, cpu = quietly("sample", data, "--out", run, *options, processes=self._processes)
            summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
            yield {"model": model, "cpu": cpu, "coverage": summary["coverage"]} | {
                name: summary[name] for name in COLUMNS
            }


def cells(row: dict[str, Any]) -> list[str]:
    """RMSE, MAE, log probability, coverage and seconds of a row."""
    held = " / ".join(f"{100 * share:.1f}" for share in row["coverage"].values())
    return [*(f"{row[name]:.4f}" for name in COLUMNS), f"{held} %", f"{row['cpu']:.0f}"]


def heading(title: str, *more: str) -> None:
    """Print the head of a table."""
    print()
    say(title, *more, "RMSE", "MAE", "log p", "50 / 80 / 90 / 95 % intervals hold", "CPU s")
    say(*["---"] * (6 + len(more)))


def of_u1(bench: Bench) -> None:
    """All models on u1, beside a tenth of its training ratings."""
    inner = bench.prepare("inner", "ml-100k", "u1.base", "--seed=1")
    heading("MovieLens 100K, u1", "RMSE, inner", "log p, inner")
    rows = zip(bench.sample(inner, "ml-100k"), bench.sample(bench.fold(1), "ml-100k"), strict=True)
    for within, row in rows:
        say(row["model"], f"{within['rmse_mean']:.4f}", f"{within['log_probability']:.4f}", *cells(row))


def of_each(bench: Bench, title: str, data: Path, dataset: str, *models: str, chains: int = 1) -> None:
    """A row for each model, or all of them."""
    heading(title)
    for row in bench.sample(data, dataset, models or tuple(MODELS), chains):
        say(row["model"], *cells(row))


def repeated(bench: Bench, title: str, dataset: str, files: list[Path]) -> None:
    """Means over several splits, with the standard errors over them."""
    print()
    say(title, "RMSE", "se", "MAE", "se", "log p", "se")
    say(*["---"] * 7)
    for model in REPEATED:
        found = [[row[name] for name in COLUMNS] for data in files for row in bench.sample(data, dataset, (model,))]
        mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
        say(model, *(f"{x:.4f}" for pair in zip(mean, error, strict=True) for x in pair))


def main() -> None:
    """Make the tables that are asked for."""
    parser = arguments(__doc__)
    parser.add_argument("datasets", type=Path)
    parser.add_argument("--only", default="u1,folds,1m,longer,splits,temporal")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    wanted = given.only.split(",")
    with tempfile.TemporaryDirectory(prefix="dsgmcmc-accuracy-") as folder:
        bench = Bench(given.datasets.resolve(), Path(folder), given.processes)
        if "u1" in wanted:
            of_u1(bench)
        if "folds" in wanted:
            repeated(bench, "MovieLens 100K, mean of u1 to u5", "ml-100k", [bench.fold(k) for k in range(1, 6)])
        if "1m" in wanted:
            of_each(
                bench, "MovieLens 1M, one 90/10 split", bench.prepare("1m", "ml-1m", "ratings.dat", "--seed=1"), "ml-1m"
            )
        if "longer" in wanted:
            title = "MovieLens 100K, u1: two chains, each twice as long"
            of_each(bench, title, bench.fold(1), "ml-100k", ALL, ALL_ORDINAL, chains=2)
        if "splits" in wanted:
            files = [bench.prepare(f"1m-{k}", "ml-1m", "ratings.dat", f"--seed={k}") for k in range(1, 6)]
            repeated(bench, "MovieLens 1M, mean of five 90/10 splits", "ml-1m", files)
        if "temporal" in wanted:
            for dataset, ratings in (("ml-1m", "ratings.dat"), ("ml-100k", "u.data")):
                data = bench.prepare(f"{dataset}-temporal", dataset, ratings, "--split=temporal")
                of_each(bench, f"{dataset}, the latest tenth", data, dataset, *OF_THE_FUTURE)


if __name__ == "__main__":
    main()
