"""Measures the figures of docs/three-way.md: ways to fold a three-way table, two kinds of holes.

    python tests/benchmarks/three_way.py FOLDER

makes the table, hides cells or whole days of stations, samples every folding with and without
features of parts, and prints the RMSE of the hidden counts and the CPU seconds of `sample`.
"""

from __future__ import annotations

import csv
import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np

FOLDINGS = (("station+day", "hour"), ("station+hour", "day"), ("station", "hour+day"))
COLUMNS = ("station", "day", "hour", "passengers")


def passengers() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return counts of 40 stations on 28 days in 24 hours, and masks of two kinds of holes.

    A station mixes three daily profiles; a day of a station has a mixture of its own.
    """
    rng = np.random.default_rng(66)
    n_stations, n_days, n_hours = 40, 28, 24
    hour = np.arange(n_hours)
    peaks = ((8, 3), (17, 5), (13, 30))
    profiles = np.stack([np.exp(-((hour - centre) ** 2) / width) for centre, width in peaks])
    size = rng.lognormal(4.0, 0.9, n_stations)
    mixture = rng.dirichlet([1.2, 1.2, 1.5], n_stations)
    weekend = (np.arange(n_days) % 7 >= 5).astype(float)
    weather = rng.normal(0, 0.15, n_days)
    leisure = rng.uniform(-1.5, 0.8, n_stations)
    own_level = rng.normal(0, 0.12, (n_stations, n_days))
    level = np.exp(weather + weekend * leisure[:, None] + own_level)
    shift = rng.normal(0, 0.25, (n_stations, n_days, 3))
    shift += weekend[None, :, None] * np.array([-1.2, -0.3, 0.5])
    mean = np.einsum("sdk,kh->sdh", mixture[:, None, :] * np.exp(shift), profiles)
    mean *= size[:, None, None] * level[:, :, None]
    mean *= rng.gamma(80, 1 / 80, mean.shape)
    values = rng.poisson(mean + 0.3)
    cells = rng.random(values.shape) < 0.4
    days = np.broadcast_to(rng.random((n_stations, n_days, 1)) < 0.25, values.shape)
    return values, {"cells": cells, "days": days}


def write(path: Path, values: np.ndarray, chosen: np.ndarray) -> None:
    """Write the chosen cells, a line for each."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for s, d, h in np.argwhere(chosen).tolist():
            writer.writerow([f"s{s}", f"d{d}", f"h{h}", values[s, d, h]])


def dsgmcmc(*arguments: str | Path) -> None:
    """Run a command."""
    command = [sys.executable, "-m", "dsgmcmc", *map(str, arguments)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measure(folder: Path, holes: str, folding: tuple[str, str], features: str) -> str:
    """Return a line with the RMSE and the CPU seconds of a folding."""
    user, item = folding
    name = folder / f"{holes}-{user}-{item}-{features}"
    ratings = name.with_suffix(".h5")
    columns = f"user={user},item={item},rating=passengers"
    files = [folder / f"{holes}-{part}.csv" for part in ("train", "test")]
    dsgmcmc("prepare", files[0], ratings, "--test", files[1], "--columns", columns, f"--{features}")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    dsgmcmc("sample", ratings, "--out", name)
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    summary = json.loads((name / "summary.json").read_text())
    return f"{holes} {user} x {item} {features}: RMSE {summary['rmse_mean']:.2f}, {seconds:.0f} s"


def main(folder: Path) -> None:
    """Print a line for each kind of holes and folding."""
    folder.mkdir(parents=True)
    values, masks = passengers()
    for holes, hidden in masks.items():
        write(folder / f"{holes}-train.csv", values, ~hidden)
        write(folder / f"{holes}-test.csv", values, hidden)
        for folding in FOLDINGS:
            for features in ("part-features", "no-part-features"):
                print(measure(folder, holes, folding, features), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
