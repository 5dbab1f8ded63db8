"""Measures the figures of docs/three-way.md: three-way tables as matrices and as tensors.

    python tests/benchmarks/three_way.py --out three-way

makes the table, and hides cells or whole days of stations. Every folding is sampled with features
of parts and without; `context` leaves the folding to `--model auto`. Tensor factorisations are
those of `tensors.py`. The table that is printed has the RMSE of the hidden counts and the processor
seconds of `sample`, or of another program's fit. SMURFF is installed from PyPI into an environment
below OUT. Not part of the tests.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from bench import arguments, python_with, quietly, say, say_head
from comparison import PACKAGES

FOLDINGS = (("station+day", "hour"), ("station+hour", "day"), ("station", "hour+day"))
COLUMNS = ("station", "day", "hour", "passengers")
#: Programs of `tensors.py`, and ranks.
TENSORS = {"smurff": ("SMURFF, tensor", (8, 16, 32, 64)), "cp": ("CP by Gibbs", (8, 16))}


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


def sampled(files: list[Path], folder: Path, columns: str, *options: str) -> str:
    """Prepare with options of `prepare`, sample, and return the RMSE and the seconds of `sample`.

    The model is chosen if the columns have a context.
    """
    ratings = folder / "ratings.h5"
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    named = f"{columns},rating=passengers"
    quietly(
        "prepare", files[0], ratings, "--test", files[1], "--columns", named, "--force", *options
    )
    model = []
    if "context=" in columns:
        model = ["--model", "auto"]
    seconds = quietly("sample", ratings, "--out", run, *model)[1]
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return cell(summary["rmse_mean"], seconds)


def tensor(python: Path, name: str, rank: int, files: list[Path]) -> str:
    """Return the RMSE and the seconds of a program of `tensors.py`."""
    script = Path(__file__).with_name("tensors.py")
    command = [python, script, name, rank, *files]
    done = subprocess.run(
        [str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True
    )
    fit = json.loads(done.stdout)
    return cell(fit["rmse"], fit["seconds"])


def cell(rmse: float, seconds: float) -> str:
    """Return what a cell of the table says of a fit."""
    return f"{rmse:.2f} / {seconds:.0f}"


def main() -> None:
    """Print the table."""
    parser = arguments(__doc__)
    parser.add_argument("--out", type=Path, default=Path("three-way"))
    out = parser.parse_args().out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    values, masks = passengers()
    files: dict[str, list[Path]] = {}
    for holes, hidden in masks.items():
        files[holes] = [out / f"{holes}-train.csv", out / f"{holes}-test.csv"]
        write(files[holes][0], values, ~hidden)
        write(files[holes][1], values, hidden)
    say_head("RMSE / seconds", "two fifths of the cells", "a quarter of the days of stations")
    for user, item in FOLDINGS:
        for option, addition in (("--part-features", ""), ("--no-part-features", ", no features")):
            columns = f"user={user},item={item}"
            found = [sampled(files[holes], out, columns, option) for holes in masks]
            say(f"`{user}` x `{item}`{addition}", *found)
    columns = "user=station,item=hour,context=day"
    say("`context=day`, `--model auto`", *(sampled(files[holes], out, columns) for holes in masks))
    smurff_python = python_with(out / "env-SMURFF", *PACKAGES["SMURFF"])
    pythons = {"smurff": smurff_python, "cp": Path(sys.executable)}
    for name, (title, ranks) in TENSORS.items():
        for rank in ranks:
            fits = [tensor(pythons[name], name, rank, files[holes]) for holes in masks]
            say(f"{title}, rank {rank}", *fits)


if __name__ == "__main__":
    main()
