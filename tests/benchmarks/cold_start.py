"""New users, or items, with few ratings: fold-in with features and without.

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
from bench import arguments, quietly, say, say_head

from dsgmcmc import open_run
from dsgmcmc.diagnostics.scores import rmse

SHOWN = (0, 1, 3, 10)
LABELS = ("training mean", "sampled without features", "features not given", "features given", "gain by giving them")
FILES = {"user": "u.user", "item": "u.item"}


def divide(source: Path, out: Path, kind: str, held: np.ndarray) -> None:
    """Write the features of known and of new users (or items) into OUT/known and OUT/new."""
    lines = (source / FILES[kind]).read_text(encoding="latin-1").splitlines(keepends=True)
    new = np.isin([int(line.split("|")[0]) for line in lines], held)
    for part, chosen in (("known", ~new), ("new", new)):
        (out / part).mkdir(parents=True)
        text = "".join(line for line, wanted in zip(lines, chosen, strict=True) if wanted)
        (out / part / FILES[kind]).write_text(text, encoding="latin-1")


def sample(out: Path, rows: np.ndarray, files: dict[str, Path], options: list[str]) -> None:
    """Sample these ratings with features of both sides, and without: runs OUT/features-yes and OUT/features-no."""
    np.savetxt(out / "known.csv", rows, "%d", ",", header="user,item,rating", comments="")
    features = [f"--{kind}-features={path}" for kind, path in files.items()]
    quietly("prepare", out / "known.csv", out / "known.h5", "--test-fraction=0", *features)
    for used in ("yes", "no"):
        quietly("sample", out / "known.h5", "--out", out / f"features-{used}", f"--features={used}", *options)


def errors(source: Path, out: Path, kind: str, seed: int, options: list[str]) -> np.ndarray:
    """RMSE (4, ratings shown) of the training mean, without features, and with features that are unknown or known."""
    if (out / "rmse.npy").exists():
        return np.load(out / "rmse.npy")
    shutil.rmtree(out, ignore_errors=True)
    ratings = np.loadtxt(source / "u.data", np.int64)[:, :3]
    rng = np.random.default_rng(seed)
    side, other = (0, 1) if kind == "user" else (1, 0)
    names = np.unique(ratings[:, side])
    held = rng.permutation(names)[: len(names) // 10]
    new = np.isin(ratings[:, side], held)
    divide(source, out, kind, held)
    files = {who: source / name for who, name in FILES.items()} | {kind: out / "known" / FILES[kind]}
    sample(out, ratings[~new], files, options)
    rows = rng.permutation(ratings[new & np.isin(ratings[:, other], ratings[~new, other])])
    rows = rows[np.argsort(rows[:, side], kind="stable")]
    place = np.arange(len(rows)) - np.searchsorted(rows[:, side], rows[:, side])
    target = rows[place >= max(SHOWN)]
    result = np.empty((4, len(SHOWN)))
    result[0] = rmse(target[:, 2], ratings[~new, 2].mean())
    for at, number in enumerate(SHOWN):
        shown = rows[place < number] if number else None
        for line, used, features in ((1, "no", None), (2, "yes", None), (3, "yes", out / "new" / FILES[kind])):
            model = open_run(out / f"features-{used}")
            if shown is not None or features is not None:
                model = model.fold_in(shown, kind=kind, features=features)
            result[line, at] = rmse(target[:, 2], model.predict(target[:, :2]))
    np.save(out / "rmse.npy", result)
    return result


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
    splits = []
    for seed in range(given.splits):
        out = given.out / f"{given.new}-{seed}"
        splits.append(errors(given.source, out, given.new[:-1], seed, [*options, f"--seed={seed}"]))
    table = np.array(splits)
    table = np.concatenate([table, table[:, 2:3] - table[:, 3:]], axis=1)
    means, standard_errors = table.mean(axis=0), table.std(axis=0, ddof=1) / np.sqrt(given.splits)
    say_head(f"new {given.new}, with so many ratings", *SHOWN)
    for label, *line in zip(LABELS, means, standard_errors, strict=True):
        say(label, *(f"{mean:.4f} +- {error:.4f}" for mean, error in zip(*line, strict=True)))


if __name__ == "__main__":
    main()
