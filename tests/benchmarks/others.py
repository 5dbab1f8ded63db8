"""What people use for recommendations, beside ours: RMSE, ranking, seconds, memory, and lines of the user's code.

    python tests/benchmarks/others.py DATA.h5 --out others [--only dsgmcmc,implicit,Spark] [--settings FILE.json]

NUTS takes hours unless data are small, and is run only if asked for. Every tool is installed from PyPI into an
environment of its own below OUT at the first call (Spark needs a Java runtime: `apt install default-jre-headless`);
what does not install is said. Settings of the tools are chosen on a tenth of the training ratings, or taken from the
others.json of other data; ours are the defaults, and what `--model auto` chooses. NDCG@10 is of items that were rated 4
or more among the test ratings, over all items that a user has not rated in training. Seconds, on the clock and of the
processors, are of one fit, ours with start-up, and with the comparison; all have two cores. Writes others.json, in
which what is not run anew stays, and prints a table. Not part of the tests.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
from others_run import LIKED, THREADS, TOOLS, matrix, ndcg
from shared import python_with, quietly, triplets

from dsgmcmc import open_run
from dsgmcmc.data.ratings import open_ratings

HERE = Path(__file__).resolve().parent
PACKAGES = {
    "implicit": ("implicit", "scipy"),
    "LensKit": ("lenskit", "scipy"),
    "Spark": ("pyspark", "scipy", "setuptools"),
    "myFM": ("myfm", "scipy"),
    "LIBMF": ("libmf", "scipy"),
    "SMURFF": ("smurff", "scipy"),
    "NumPyro": ("numpyro", "scipy"),
    "PyMC": ("pymc", "scipy"),
    "Surprise": ("scikit-surprise", "pandas", "scipy"),
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
        shape = (ratings.n_cols, ratings.n_rows) if ratings.transposed else (ratings.n_rows, ratings.n_cols)
    np.savez(out, shape=shape, **arrays)
    return arrays | {"shape": shape}


def read(file: Path) -> dict[str, Any]:
    """What is in a JSON file."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def theirs(name: str, out: Path, settings: dict[str, Any]) -> dict[str, Any] | str:
    """What a tool does, or why it does nothing; with its setting, if that is given."""
    family = name.split()[0]
    try:
        python = python_with(out / f"env-{family}", *PACKAGES[family])
    except RuntimeError as error:
        return str(error)
    result = out / f"{name.replace(' ', '-')}.json"
    given = [json.dumps(settings[name]["setting"])] if name in settings else []
    command = [python, HERE / "others_run.py", name, out / "split.npz", result, *given]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        return "fails: " + (done.stderr.strip().splitlines() or ["?"])[-1][:200]
    return read(result)


def ours(name: str, data: Path, out: Path, arrays: dict[str, Any]) -> dict[str, Any]:
    """What one of our models does."""
    run = out / name.replace(" ", "-")
    shutil.rmtree(run, ignore_errors=True)
    before = time.perf_counter()
    _, cpu = quietly("sample", data, "--out", run, *OURS[name].split(), processes=THREADS)
    seconds, opened = time.perf_counter() - before, open_run(run, data=data)
    summary = read(run / "summary.json")
    best = opened.recommend(n=10)
    users = opened.run_.users.index_of(np.asarray(best["user_id"]))
    lists = np.zeros((len(opened.users_), 10), np.int64)
    lists[users, np.asarray(best["rank"]) - 1] = opened.run_.items.index_of(np.asarray(best["item_id"]))
    test = [arrays[f"test_{part}"] for part in ("users", "items", "values")]
    liked = matrix([part[test[2] >= LIKED] for part in test], arrays["shape"]) > 0
    score = ndcg(lists, liked)
    return {
        "setting": "",
        "rmse": summary["rmse_mean"],
        "log_p": summary["log_probability"],
        "ndcg": score,
        "seconds": seconds,
        "cpu": cpu,
        "peak": sum(summary["peak_rss_bytes"]),
        "lines": 3,
    }


def main() -> None:
    """Run all, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("others"))
    everything = ",".join(name for name in (*OURS, *TOOLS) if not name.endswith("NUTS"))
    parser.add_argument("--only", default=everything, help="beginnings of names")
    parser.add_argument("--settings", type=Path, metavar="FILE.json", help="others.json that has the settings")
    given = parser.parse_args()
    given.out.mkdir(exist_ok=True)
    arrays, written = export(given.data, given.out / "split.npz"), given.out / "others.json"
    table: dict[str, dict[str, Any] | str] = read(written) if written.exists() else {}
    settings = read(given.settings) if given.settings else {}
    print(
        "| | RMSE | log p | NDCG@10 | seconds | of processors | memory, MB | lines |\n" + "|---" * 8 + "|", flush=True
    )
    for name in (*OURS, *TOOLS):
        if not name.startswith(tuple(given.only.split(","))):
            continue
        found = ours(name, given.data, given.out, arrays) if name in OURS else theirs(name, given.out, settings)
        table[name] = found
        written.write_text(json.dumps(table, indent=1), encoding="utf-8")
        if isinstance(found, str):
            print(f"| {name} | {found} |", flush=True)
            continue
        shown = ["" if each is None else f"{each:.4f}" for each in (found["rmse"], found.get("log_p"), found["ndcg"])]
        shown += [f"{found['seconds']:.1f}", f"{found['cpu']:.1f}", f"{found['peak'] / 1e6:,.0f}", f"{found['lines']}"]
        print(f"| {name} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
