"""The five official folds of MovieLens 100K: RMSE, and log probability of the ratings, of several models.

    python tests/benchmarks/official_folds.py ml-100k [--options "--until none"] [--rank 32]

Prepares u1 to u5 with the features of users and items, samples each fold with every model, and prints the mean over
folds with the standard error over folds in Markdown. Folds share no test rating, but most training ratings: their
errors are not independent, so read the standard error as a measure of how much folds differ. Not part of the tests.
"""

from __future__ import annotations

import argparse
import json
import shlex
import tempfile
from pathlib import Path

import numpy as np

from dsgmcmc.parallel.mpirun import run_dsgmcmc

MODELS = {
    "plain": "--features no",
    "ordinal logit, own scales": "--features no --likelihood ordinal-logit --noise both",
    "own noise, features, implicit features": "--noise both --implicit-features both",
}
MEASURES = ("rmse_mean", "mae_mean", "log_probability")


def quietly(*arguments: str | Path) -> None:
    """Run a command of the package."""
    done = run_dsgmcmc([str(argument) for argument in arguments], capture_output=True)
    if done.returncode:
        raise SystemExit(done.stderr)


def prepared(folder: Path, out: Path, fold: int) -> Path:
    """Ratings file of a fold."""
    data = out / f"u{fold}.h5"
    sides = [f"--user-features={folder / 'u.user'}", f"--item-features={folder / 'u.item'}"]
    quietly("prepare", folder / f"u{fold}.base", data, f"--test={folder / f'u{fold}.test'}", *sides)
    return data


def main() -> None:
    """Sample all folds, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the unpacked ml-100k")
    parser.add_argument("--options", default="--until none", help="of `dsgmcmc sample`, for all models")
    parser.add_argument("--rank", type=int, default=32)
    arguments = parser.parse_args()
    common = [f"--rank={arguments.rank}", "--save-draws=0", *shlex.split(arguments.options)]
    print("| model | RMSE | se | MAE | se | log p of level | se |\n|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        folds = [prepared(arguments.folder, out, fold) for fold in range(1, 6)]
        for model, options in MODELS.items():
            found = []
            for data in folds:
                run = out / f"{data.stem}-{model}"
                quietly("sample", data, "--out", run, *common, *shlex.split(options))
                summary = json.loads((run / "summary.json").read_text())
                found.append([summary[measure] for measure in MEASURES])
            mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
            cells = (f"{m:.4f} | {e:.4f}" for m, e in zip(mean, error, strict=True))
            print(f"| {model} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
