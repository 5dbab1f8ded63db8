"""Recommenders that people use, compared with ours: RMSE, ranking, seconds and memory.

    python tests/benchmarks/others.py DATA.h5 --out others [--only dsgmcmc,implicit,Spark]

Every tool is installed from PyPI into its own environment below OUT at the first call (Spark needs a Java runtime: `apt
install default-jre-headless`); the table says which tools do not install. Settings of the tools are chosen on a tenth
of the training ratings; ours are the defaults, and those that `--model auto` chooses. NDCG@10 counts items that were
rated 4 or more among the test ratings, and ranks all items that a user has not rated in training. Seconds, on the clock
and of the processors, are those of one fit; ours include start-up and the comparison. All have two cores. Not part of
the tests.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from bench import arguments, export, python_with, quietly, run_program, say, say_head
from others_run import LIKED, THREADS, TOOLS, matrix, ndcg

from dsgmcmc import open_run

PACKAGES = {
    "implicit": ("implicit", "scipy"),
    "LensKit": ("lenskit", "scipy"),
    "Spark": ("pyspark", "scipy", "setuptools"),
    "Cornac": ("cornac", "scipy"),
}
OURS = {"dsgmcmc by default": "--features no", "dsgmcmc --model auto": "--model auto"}


def theirs(name: str, out: Path) -> dict[str, Any]:
    """Results of a tool."""
    family, result = name.split()[0], out / f"{name.replace(' ', '-')}.json"
    python = python_with(out / f"env-{family}", *PACKAGES[family])
    run_program(python, Path(__file__).with_name("others_run.py"), name, out / "split.npz", result)
    results: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return results


def ours(name: str, data: Path, out: Path, arrays: dict[str, Any]) -> dict[str, Any]:
    """Results of one of our models."""
    run = out / name.replace(" ", "-")
    shutil.rmtree(run, ignore_errors=True)
    before = time.perf_counter()
    _, cpu = quietly("sample", data, "--out", run, *OURS[name].split(), processes=THREADS)
    seconds, opened = time.perf_counter() - before, open_run(run, data=data)
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    best = opened.recommend(n=10)
    users = opened.run_.users.index_of(np.asarray(best["user_id"]))
    lists = np.zeros((len(opened.users_), 10), np.int64)
    lists[users, np.asarray(best["rank"]) - 1] = opened.run_.items.index_of(np.asarray(best["item_id"]))
    test = [arrays[f"test_{part}"] for part in ("users", "items", "values")]
    liked = matrix([part[test[2] >= LIKED] for part in test], arrays["shape"]) > 0
    return {
        "rmse": summary["rmse_mean"],
        "log_p": summary["log_probability"],
        "ndcg": ndcg(lists, liked),
        "seconds": seconds,
        "cpu": cpu,
        "peak": sum(summary["peak_rss_bytes"]),
    }


def main() -> None:
    """Run everything, and print the table."""
    parser = arguments(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("others"))
    parser.add_argument("--only", default=",".join((*OURS, *TOOLS)), help="beginnings of names")
    given = parser.parse_args()
    given.out.mkdir(exist_ok=True)
    arrays = export(given.data, given.out / "split.npz")
    say_head("", "RMSE", "log p", "NDCG@10", "seconds", "of processors", "memory, MB")
    for name in (*OURS, *TOOLS):
        if not name.startswith(tuple(given.only.split(","))):
            continue
        try:
            results = ours(name, given.data, given.out, arrays) if name in OURS else theirs(name, given.out)
        except RuntimeError as error:
            say(name, str(error))
            continue
        scores = (results["rmse"], results.get("log_p"), results["ndcg"])
        numbers = ["" if score is None else f"{score:.4f}" for score in scores]
        seconds = f"{results['seconds']:.1f}", f"{results['cpu']:.1f}"
        say(name, *numbers, *seconds, f"{results['peak'] / 1e6:,.0f}")


if __name__ == "__main__":
    main()
