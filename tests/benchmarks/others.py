"""What people use for recommendations, beside ours: RMSE, ranking, seconds and memory.

    python tests/benchmarks/others.py DATA.h5 --out others [--only dsgmcmc,implicit,Spark]

Every tool is installed from PyPI into an environment of its own below OUT at the first call (Spark needs a Java
runtime: `apt install default-jre-headless`); what does not install is said. Settings of the tools are chosen on a tenth
of the training ratings; ours are the defaults, and what `--model auto` chooses. NDCG@10 is of items that were rated 4
or more among the test ratings, over all items that a user has not rated in training. Seconds, on the clock and of the
processors, are of one fit, ours with start-up, and with the comparison; all have two cores. Not part of the tests.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
from others_run import LIKED, THREADS, TOOLS, matrix, ndcg
from shared import arguments, python_with, quietly, say, triplets

from dsgmcmc import open_run
from dsgmcmc.data.ratings import open_ratings

HERE = Path(__file__).resolve().parent
PACKAGES = {
    "implicit": ("implicit", "scipy"),
    "LensKit": ("lenskit", "scipy"),
    "Spark": ("pyspark", "scipy", "setuptools"),
    "Cornac": ("cornac", "scipy"),
}
OURS = {"dsgmcmc by default": "--features no", "dsgmcmc --model auto": "--model auto"}


def export(data: Path, out: Path) -> dict[str, Any]:
    """Write the split as plain arrays, users first."""
    arrays: dict[str, Any] = {}
    with open_ratings(data) as ratings:
        for part in ("train", "test"):
            rows, columns, values = triplets(ratings, part)
            sides = (columns, rows) if ratings.transposed else (rows, columns)
            arrays |= {f"{part}_{name}": side for name, side in zip(("users", "items"), sides, strict=True)}
            arrays[f"{part}_values"] = values
        arrays["shape"] = np.array([ratings.n_rows, ratings.n_cols][:: -1 if ratings.transposed else 1])
    np.savez(out, **arrays)
    return arrays


def theirs(name: str, out: Path) -> dict[str, Any] | str:
    """What a tool does, or why it does nothing."""
    family, result = name.split()[0], out / f"{name.replace(' ', '-')}.json"
    try:
        python = python_with(out / f"env-{family}", *PACKAGES[family])
    except RuntimeError as error:
        return str(error)
    command = [python, HERE / "others_run.py", name, out / "split.npz", result]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        return "fails: " + (done.stderr.strip().splitlines() or ["?"])[-1][:200]
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return found


def ours(name: str, data: Path, out: Path, arrays: dict[str, Any]) -> dict[str, Any]:
    """What one of our models does."""
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
    """Run all, and print the table."""
    parser = arguments(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("others"))
    parser.add_argument("--only", default=",".join((*OURS, *TOOLS)), help="beginnings of names")
    given = parser.parse_args()
    given.out.mkdir(exist_ok=True)
    arrays = export(given.data, given.out / "split.npz")
    say("", "RMSE", "log p", "NDCG@10", "seconds", "of processors", "memory, MB")
    say(*["---"] * 7)
    for name in (name for name in (*OURS, *TOOLS) if name.startswith(tuple(given.only.split(",")))):
        found = ours(name, given.data, given.out, arrays) if name in OURS else theirs(name, given.out)
        if isinstance(found, str):
            say(name, found)
            continue
        shown = ["" if each is None else f"{each:.4f}" for each in (found["rmse"], found.get("log_p"), found["ndcg"])]
        say(name, *shown, f"{found['seconds']:.1f}", f"{found['cpu']:.1f}", f"{found['peak'] / 1e6:,.0f}")


if __name__ == "__main__":
    main()
