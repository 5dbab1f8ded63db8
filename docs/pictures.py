"""The pictures of the README, from its own table and from one run.

    python docs/pictures.py ml-1m.h5 [--out docs/figures]

Writes ``rivals.svg``, the seconds of the README's table, which ``tests/benchmarks/rivals.py`` has measured;
``calibration.svg``, the share of held-out ratings inside central intervals of every level, of a run of these ratings
with default settings; and ``report.png``, the part of its report about that, as Chromium shows it. Takes a minute.
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

from dsgmcmc.diagnostics.scores import coverage, pit
from dsgmcmc.model.likelihoods.gaussian import Gaussian
from dsgmcmc.model.predictive.base import Moments
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run

README = Path(__file__).resolve().parents[1] / "README.md"
OURS, OTHERS, GREY = "#2563eb", "#d97706", "#9ca3af"
LEVELS = np.arange(0.05, 1.0, 0.05)
#: Rows of the table that are shown, by how they begin, and what they are called.
SHOWN = {
    "`baoab --noise both`": "dsgmcmc, own noise",
    "`psgld`": "dsgmcmc, PSGLD",
    "`baoab` (default)": "dsgmcmc, default",
    "SMURFF": "SMURFF (Gibbs)",
    "myFM": "myFM (Gibbs)",
}


def seconds_of_the_table() -> tuple[str, dict[str, float]]:
    """RMSE that SMURFF ends at, and seconds to it, by name, as the README has them."""
    table = re.search(r"^\| \| seconds to (\S+) .*?\n\n", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert table is not None
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[0].splitlines()[2:] if line]
    found = {}
    for start, name in SHOWN.items():
        (row,) = (row for row in rows if row[0].startswith(start))
        found[name] = float(row[1].split()[0])
    return table[1], found


def draw_rivals(out: Path) -> None:
    """Bars of seconds, on a logarithmic axis."""
    target, seconds = seconds_of_the_table()
    names = sorted(seconds, key=seconds.__getitem__, reverse=True)
    figure, axes = plt.subplots(figsize=(5.2, 2.3), layout="constrained")
    colours = [OURS if name.startswith("dsgmcmc") else OTHERS for name in names]
    bars = axes.barh(names, [seconds[name] for name in names], color=colours, height=0.62)
    axes.bar_label(bars, [f"{seconds[name]:g} s" for name in names], padding=4)
    axes.set(xscale="log", xlim=(0.1, 200))
    axes.set_xlabel(f"seconds to RMSE {target} on MovieLens 1M, two cores", loc="right")
    figure.savefig(out, metadata={"Date": None})


def draw_calibration(run: Path, out: Path) -> None:
    """Share of held-out ratings inside intervals, by their level."""
    found = predict_test(Run(run))
    variances = found.variance + found.noise_variance, found.variance
    laws = (Gaussian.predictive_of_moments(Moments(found.mean, variance)) for variance in variances)
    inside, point = (coverage(pit(law, found.rating), LEVELS.tolist()) for law in laws)
    figure, axes = plt.subplots(figsize=(3.2, 2.9), layout="constrained")
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, label="ideal")
    axes.plot(LEVELS, list(inside.values()), "o-", color=OURS, markersize=3.5, label="predictive intervals")
    axes.plot(LEVELS, list(point.values()), "--", color=OTHERS, label="without the noise")
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="level of the interval", ylabel="held-out ratings inside")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(out, metadata={"Date": None})


def photograph(page: Path, out: Path) -> None:
    """Take a picture of a report's part on calibration."""
    browser = next(
        (path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None
    )
    if browser is None:
        raise SystemExit("no Chromium is installed")
    head, _, body = page.read_text(encoding="utf-8").partition("<main>")
    (shown,) = (each for each in re.findall(r"<section>.*?</section>", body, re.DOTALL) if "Calibration</h2>" in each)
    part, whole = page.with_name("part.html"), page.with_suffix(".png")
    part.write_text(f"{head}<main>{shown}</main></body></html>", encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
    subprocess.run([browser, *options, "--window-size=1200,530", f"--screenshot={whole}", part.as_uri()], check=True)
    with Image.open(whole) as image:
        image.convert("RGB").quantize(96).save(out, optimize=True)


def main() -> None:
    """Sample, and draw all three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ratings", type=Path, help="made by dsgmcmc prepare")
    parser.add_argument("--out", type=Path, default=README.parent / "docs" / "figures")
    given = parser.parse_args()
    plt.rcParams |= {"svg.fonttype": "path", "svg.hashsalt": "dsgmcmc", "font.size": 9}
    plt.rcParams |= {"axes.spines.top": False, "axes.spines.right": False, "savefig.transparent": False}
    draw_rivals(given.out / "rivals.svg")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ml-1m.h5").symlink_to(given.ratings.resolve())
        for command in ("sample ml-1m.h5 --out run --chains 2", "report run --out report.html"):
            subprocess.run([sys.executable, "-m", "dsgmcmc", *command.split()], check=True, cwd=folder)
        draw_calibration(folder / "run", given.out / "calibration.svg")
        photograph(folder / "report.html", given.out / "report.png")


if __name__ == "__main__":
    main()
