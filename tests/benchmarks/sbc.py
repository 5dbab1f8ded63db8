"""Simulation-based calibration [Talts 2018]: whether posteriors are right when data come from the prior.

    python tests/benchmarks/sbc.py --replicates 150 --out sbc.png

Each replicate draws hyperparameters, factors and noise from the model's own prior, ratings from them, and samples the
posterior at the default step of so few data. The rank of the truth among thinned draws must then be uniform: of the
predictor of pairs that were not rated, of tau, of the mean squared predictor. Prints, for each, the mean of rank / L
with its standard error (.5 if right; above: the posterior is too low), the chi-square of ten bins and its p, and how
many chains diverged; draws the differences of the ranks' distribution function from the uniform one, with 95 % bands.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np
from mpi4py import MPI
from scipy.stats import binom, chi2

mpl.use("Agg")
from matplotlib import pyplot as plt

from dsgmcmc.config.layers import build
from dsgmcmc.data.ratings import open_ratings, write_ratings
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.model import FactorModel
from dsgmcmc.model.parts import RowPriors
from dsgmcmc.model.parts.base import Place
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.targets.state import RandomStream
from dsgmcmc.types import Factor

ROWS, COLUMNS, RANK, PAIRS = 40, 30, 3, 5
DRAWS, THIN, BURN_IN = 99, 15, 300
BINS = 10


class Truth:
    """Parameters from the prior: predictors of all pairs, the noise's precision of each, tau."""

    def __init__(self, rng: np.random.Generator, noise: str) -> None:
        model = RowPriors(RANK, standardised=True)
        factors = []
        for n in (ROWS, COLUMNS):
            precision = rng.gamma(model.precision_prior.shape, 1 / model.precision_prior.rate, RANK)
            bias = rng.gamma(model.bias_prior.shape, 1 / model.bias_prior.rate)
            mean = rng.normal(size=RANK) / np.sqrt(precision)
            theta = mean + rng.normal(size=(n, RANK)) / np.sqrt(precision)
            factors.append((theta, rng.normal(size=n) / np.sqrt(bias)))
        (w, a), (h, b) = factors
        self.predictor = a[:, None] + b + w @ h.T
        self.tau = rng.gamma(1.0)
        self.precision = np.full((ROWS, COLUMNS), self.tau)
        if noise == "both":
            for shape in ((ROWS, 1), (1, COLUMNS)):
                nu = 2 ** (rng.integers(65) / 8 + 2)
                self.precision *= rng.gamma(nu / 2, 2 / nu, shape)


def write(path: Path, rng: np.random.Generator, truth: Truth, n: int) -> np.ndarray:
    """Ratings of n pairs; returns the pairs (PAIRS, 2) to be predicted, which are not among them."""
    cells = rng.permutation(ROWS * COLUMNS)
    i, j = np.divmod(np.sort(cells[:n]), COLUMNS)
    x = truth.predictor[i, j] + rng.normal(size=n) / np.sqrt(truth.precision[i, j])
    indptr = np.searchsorted(i, np.arange(ROWS + 1)).astype(np.int64)
    part = (indptr, j.astype(np.int32), x.astype(np.float32))
    none = (np.zeros(ROWS + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
    write_ratings(path, part, none, np.arange(ROWS), np.arange(COLUMNS), seed=0, source="prior")
    return np.transpose(np.divmod(cells[n : n + PAIRS], COLUMNS))


def predictor(target: FactorTarget) -> np.ndarray:
    """Of all pairs, as they are in the file, (ROWS, COLUMNS)."""
    sides = []
    for factor in Factor:
        theta = [block["theta"] for block in target.blocks() if block.factor == factor]
        sides.append(np.concatenate(theta).astype(np.float64))
    w, h = sides
    found = w[:, :RANK] @ h[:, :RANK].T + w[:, RANK:] + h[:, RANK]
    return found if len(found) == ROWS else found.T


def ranks(seed: int, noise: str, sampler: str, n: int, scale: float) -> np.ndarray | None:
    """Ranks of the predictors, the mean square and tau among the draws; None if the chain diverged."""
    rng = np.random.default_rng(seed)
    truth = Truth(rng, noise)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.h5"
        pairs = write(path, rng, truth, n)
        kind = build({"sampler": sampler}).sampler.kind
        config = kind.suited(kind.Config(), n, n / ((ROWS + COLUMNS) * (RANK + 1)))
        if "step_size" in kind.Config.model_fields:
            config = config.model_copy(update={"step_size": config.step_size * scale})
        section = {"name": sampler} | config.model_dump()
        settings = {"rank": RANK, "grid": 1, "seed": seed, "sampler": section, "noise": noise, "burn_in": BURN_IN}
        resolved = build({**settings, "iterations": BURN_IN + DRAWS * THIN}).resolved()
        ring = Ring(MPI.COMM_SELF, 1)
        with open_ratings(path) as ratings:
            blocks = RatingBlocks(ratings, ring, 0.0)  # as they are: the prior is that of ratings in their own unit
            maker = resolved.make_sampler()
            sizes = resolved.quantities_for(ratings).sizes
            model = FactorModel.of(
                Place(resolved, ratings.transposed, blocks, ring, sizes),
                FactorModel.read(resolved, ratings, blocks, ring),
            )
            schedule = Schedule(resolved.schedule, blocks.part_sizes.tolist(), seed, 0)
            target = FactorTarget(ring, blocks, schedule, model, maker, RandomStream(seed, 0))
    target.reset()
    maker.start(target, resolved.initial_sd)
    found = []
    for iteration in range(BURN_IN + DRAWS * THIN):
        target.begin(iteration)
        maker.step(target, iteration)
        if iteration >= BURN_IN and (iteration - BURN_IN) % THIN == THIN - 1:
            eta = predictor(target)
            found.append([*eta[tuple(pairs.T)], (eta**2).mean(), float(target.model.noise.parameters.tau[0])])
            if not np.isfinite(found[-1]).all():
                return None
    true = [*truth.predictor[tuple(pairs.T)], (truth.predictor**2).mean(), truth.tau]
    return (np.array(found) < true).sum(axis=0)


def tell(name: str, found: np.ndarray) -> str:
    """One line on ranks (replicates, quantities): mean of rank / L, and the chi-square of bins."""
    share = (found + 0.5) / (DRAWS + 1)
    error = share.mean(axis=1).std(ddof=1) / np.sqrt(len(found))
    counts, _ = np.histogram(share[:, 0], BINS, (0, 1))
    square = ((counts - len(found) / BINS) ** 2).sum() / (len(found) / BINS)
    p = chi2.sf(square, BINS - 1)
    return f"{name:22} mean rank {share.mean():.3f} +- {error:.3f}   chi-square {square:5.1f} of {BINS - 1}, p {p:.3f}"


def draw(panels: dict[str, np.ndarray], out: Path) -> None:
    """Difference of the ranks' distribution function from the uniform one, with pointwise 95 % bands."""
    figure, axes = plt.subplots(1, len(panels), figsize=(3.6 * len(panels), 3), sharey=True)
    level = np.linspace(0, 1, DRAWS + 1)
    for axis, (name, found) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        n = len(found)
        low, high = (binom.ppf(q, n, level) / n - level for q in (0.025, 0.975))
        axis.fill_between(level, low, high, color="0.88")
        for column in found.T:
            share = np.sort((column + 0.5) / (DRAWS + 1))
            axis.plot(level, np.searchsorted(share, level) / n - level, lw=0.9)
        axis.set(title=name, xlabel="rank / L")
    np.atleast_1d(axes)[0].set_ylabel("distribution - uniform")
    figure.tight_layout()
    figure.savefig(out, dpi=90)


def main() -> None:
    """Run the replicates, print, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=300)
    parser.add_argument("--ratings", type=int, default=500)
    parser.add_argument("--sampler", default="baoab")
    parser.add_argument("--step", type=float, default=1.0, help="times the default step")
    parser.add_argument("--out", type=Path, help="picture to write")
    arguments = parser.parse_args()
    panels = {}
    for noise in ("shared", "both"):
        each = [
            ranks(seed, noise, arguments.sampler, arguments.ratings, arguments.step)
            for seed in range(arguments.replicates)
        ]
        found = np.array([ranked for ranked in each if ranked is not None])
        print(f"noise {noise}: {len(each) - len(found)} of {len(each)} diverged")
        for name, columns in (
            ("predictor", found[:, :PAIRS]),
            ("mean square", found[:, [-2]]),
            ("tau", found[:, [-1]]),
        ):
            print(tell(f"  {name}", columns), flush=True)
            panels[f"{name}, noise {noise}"] = columns
    if arguments.out:
        draw(panels, arguments.out)


if __name__ == "__main__":
    main()
