"""The pictures of the README, from one run.

    python docs/pictures.py ml-1m.h5 [--out docs/figures]

Samples two chains with default settings. Writes ``calibration.svg``, the share of held-out ratings
inside central intervals of every level, and ``report.png``, the part of the run's report on
calibration, as Chromium shows it. Takes a minute.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np
from PIL import Image  # comes with matplotlib

mpl.use("svg")
import matplotlib.pyplot as plt

from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.model.predictive.base import Moments
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.scores import coverage

FIGURES = Path(__file__).resolve().parent / "figures"
BLUE, ORANGE, GREY = "#2563eb", "#d97706", "#9ca3af"
LEVELS = np.arange(0.05, 1.0, 0.05)


def draw_calibration(run: Path, out: Path) -> None:
    """Share of held-out ratings inside intervals, by their level."""
    found = predict_test(Run(run))
    variances = found.variance + found.noise_variance, found.variance
    laws = (
        GaussianRatings.predictive_of_moments(Moments(found.mean, variance))
        for variance in variances
    )
    inside, point = (coverage(law.pit(found.rating), LEVELS.tolist()) for law in laws)
    figure, axes = plt.subplots(figsize=(3.2, 2.9), layout="constrained")
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, label="ideal")
    axes.plot(
        LEVELS,
        list(inside.values()),
        "o-",
        color=BLUE,
        markersize=3.5,
        label="predictive intervals",
    )
    axes.plot(LEVELS, list(point.values()), "--", color=ORANGE, label="without the noise")
    axes.set(
        xlim=(0, 1), ylim=(0, 1), xlabel="level of the interval", ylabel="held-out ratings inside"
    )
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(out, metadata={"Date": None})


def photograph(page: Path, out: Path) -> None:
    """Take a picture of a report's part on calibration."""
    browser = next(
        (
            path
            for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
            if path
        ),
        None,
    )
    if browser is None:
        raise SystemExit("no Chromium is installed")
    head, _, body = page.read_text(encoding="utf-8").partition("<main>")
    (shown,) = (
        each
        for each in re.findall(r"<section>.*?</section>", body, re.DOTALL)
        if "Calibration</h2>" in each
    )
    part, whole = page.with_name("part.html"), page.with_suffix(".png")
    part.write_text(f"{head}<main>{shown}</main></body></html>", encoding="utf-8")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
    ]
    subprocess.run(
        [browser, *options, "--window-size=1200,530", f"--screenshot={whole}", part.as_uri()],
        check=True,
    )
    with Image.open(whole) as image:
        image.convert("RGB").quantize(96).save(out, optimize=True)


def main() -> None:
    """Sample, and draw both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ratings", type=Path, help="made by dsgmcmc prepare")
    parser.add_argument("--out", type=Path, default=FIGURES)
    given = parser.parse_args()
    plt.rcParams |= {"svg.fonttype": "path", "svg.hashsalt": "dsgmcmc", "font.size": 9}
    plt.rcParams |= {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "savefig.transparent": False,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ml-1m.h5").symlink_to(given.ratings.resolve())
        for command in ("sample ml-1m.h5 --out run --chains 2", "report run --out report.html"):
            subprocess.run(
                [sys.executable, "-m", "dsgmcmc", *command.split()], check=True, cwd=folder
            )
        draw_calibration(folder / "run", given.out / "calibration.svg")
        photograph(folder / "report.html", given.out / "report.png")


if __name__ == "__main__":
    main()
