"""New users, or items, by what is known of them and by few ratings: fold-in with features and without.

    python tests/benchmarks/cold_start.py ml-100k --out cold [--new items] [--splits 5] [--sweeps 300]

MovieLens 100K. A tenth of the users (or items) is held out with all their ratings; the rest is sampled with features of
both sides (age, gender, occupation; genres, decade), and without any. Each new one then gets 0, 1, 3 or 10 of its
ratings by `fold_in`, with its features or without, and all but these 10 are predicted. Printed is the RMSE, its mean
over splits and the standard error of that. A split that OUT has is not made again. Not part of the tests.
"""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import numpy as np
from shared import arguments, quietly

from dsgmcmc import open_run

SHOWN = (0, 1, 3, 10)
FILES = {"user": "u.user", "item": "u.item"}
Folder = dict[str, Path]


def divided(source: Path, out: Path, kind: str, held: set[int]) -> tuple[Folder, Path]:
    """Files that describe everybody but who is held out, and those who are; under the names by which they are known."""
    lines = (source / FILES[kind]).read_text(encoding="latin-1").splitlines(keepends=True)
    found = {}
    for part, wanted in (("known", False), ("new", True)):
        found[part] = out / part / FILES[kind]
        found[part].parent.mkdir(parents=True, exist_ok=True)
        chosen = [line for line in lines if (int(line.split("|")[0]) in held) == wanted]
        found[part].write_text("".join(chosen), encoding="latin-1")
    return {each: source / FILES[each] for each in FILES} | {kind: found["known"]}, found["new"]


def sampled(out: Path, rows: np.ndarray, described: Folder, options: list[str]) -> dict[str, Path]:
    """Runs of these ratings with features of both sides, and without."""
    np.savetxt(out / "known.csv", rows, "%d", ",", header="user,item,rating", comments="")
    data = out / "known.h5"
    files = [f"--{kind}-features={path}" for kind, path in described.items()]
    quietly("prepare", out / "known.csv", data, "--test-fraction=0", "--force", *files)
    runs = {}
    for features in ("yes", "no"):
        runs[features] = out / f"features-{features}"
        quietly("sample", data, f"--out={runs[features]}", f"--features={features}", *options)
    return runs


def errors(source: Path, out: Path, kind: str, seed: int, options: list[str]) -> np.ndarray:
    """RMSE by what is known, (4, ratings shown): nothing, sampled without features, folded in without and with."""
    if (out / "rmse.npy").exists():
        return np.load(out / "rmse.npy")
    shutil.rmtree(out, ignore_errors=True)
    ratings = np.loadtxt(source / "u.data", np.int64)[:, :3]
    rng = np.random.default_rng(seed)
    own = ratings[:, 0 if kind == "user" else 1]
    held = rng.permutation(np.unique(own))[: len(np.unique(own)) // 10]
    new = np.isin(own, held)
    described, theirs = divided(source, out, kind, set(held.tolist()))
    runs = sampled(out, ratings[~new], described, options)
    known = ratings[~new, 1 if kind == "user" else 0]
    rows = rng.permutation(ratings[new & np.isin(ratings[:, 1 if kind == "user" else 0], known)])
    of = rows[:, 0 if kind == "user" else 1]
    order = np.argsort(of, kind="stable")
    rows, of = rows[order], of[order]
    place = np.arange(len(rows)) - np.searchsorted(of, of)
    target = rows[place >= max(SHOWN)]
    found = np.empty((4, len(SHOWN)))
    found[0] = np.sqrt(np.mean((ratings[~new, 2].mean() - target[:, 2]) ** 2))
    for at, number in enumerate(SHOWN):
        shown = rows[place < number] if number else None
        for line, run, features in ((1, "no", None), (2, "yes", None), (3, "yes", theirs)):
            model = open_run(runs[run])
            if shown is not None or features is not None:
                model = model.fold_in(shown, kind=kind, features=features)
            found[line, at] = np.sqrt(np.mean((model.predict(target[:, :2]) - target[:, 2]) ** 2))
    np.save(out / "rmse.npy", found)
    return found


def main() -> None:
    """Print the table."""
    parser = arguments(__doc__)
    parser.add_argument("source", type=Path, metavar="ml-100k")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--new", choices=["users", "items"], default="users")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--sweeps", type=int, default=300)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    options = ["--rank=32", "--noise=both", f"--iterations={given.sweeps}sweeps"]
    found = np.array(
        [
            errors(given.source, given.out / f"{given.new}-{seed}", given.new[:-1], seed, [*options, f"--seed={seed}"])
            for seed in range(given.splits)
        ]
    )
    mean, error = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(given.splits)
    print(f"new {given.new}; ratings of each that are given: {', '.join(map(str, SHOWN))}")
    labels = ("training mean", "sampled without features", "features not given", "features given")
    for label, values, errs in zip(labels, mean, error, strict=True):
        print(f"{label:26}" + "  ".join(f"{v:.4f} +- {e:.4f}" for v, e in zip(values, errs, strict=True)))
    gain = found[:, 2] - found[:, 3]
    text = "  ".join(
        f"{v:.4f} +- {e:.4f}" for v, e in zip(gain.mean(0), gain.std(0, ddof=1) / np.sqrt(len(gain)), strict=True)
    )
    print(f"{'gain by giving them':26}{text}")


if __name__ == "__main__":
    main()
